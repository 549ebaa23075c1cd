# SPDX-License-Identifier: Apache-2.0
"""Accuracy over data: the names of `nnpa_tools.evaluation.accuracy`."""

from typing import TYPE_CHECKING

from nnpa_client._forwards import forward

if TYPE_CHECKING:
    from nnpa_tools.evaluation.accuracy import Accuracy, accuracy

__all__ = ["Accuracy", "accuracy"]
__getattr__ = forward(__name__)
