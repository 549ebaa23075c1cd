# SPDX-License-Identifier: Apache-2.0
"""Data to measure a model with: the names of `nnpa_tools.evaluation.datasets`."""

from typing import TYPE_CHECKING

from nnpa_client._forwards import forward

if TYPE_CHECKING:
    from nnpa_tools.evaluation.datasets import Dataset, Preprocessing, open_data, read_preprocessing

__all__ = [
    "Dataset",
    "Preprocessing",
    "open_data",
    "read_preprocessing",
]
__getattr__ = forward(__name__)
