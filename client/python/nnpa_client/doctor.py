# SPDX-License-Identifier: Apache-2.0
"""The doctor of programs: the names of `nnpa_tools.doctor`."""

from typing import TYPE_CHECKING

from nnpa_client._forwards import forward

if TYPE_CHECKING:
    from nnpa_tools.doctor import (
        RULES,
        TITLES,
        Checked,
        Finding,
        Progress,
        Report,
        examine,
        verdict,
    )

__all__ = [
    "RULES",
    "TITLES",
    "Checked",
    "Finding",
    "Progress",
    "Report",
    "examine",
    "verdict",
]
__getattr__ = forward(__name__)
