# SPDX-License-Identifier: Apache-2.0
"""The doctor of programs: the names of `nnpa_tools.doctor`."""

from typing import TYPE_CHECKING

from nnpa_client._forwards import forward

if TYPE_CHECKING:
    from nnpa_tools.doctor.examination import Progress, examine
    from nnpa_tools.doctor.laboratory import TITLES
    from nnpa_tools.doctor.markdown import verdict
    from nnpa_tools.doctor.report import Checked, Report
    from nnpa_tools.doctor.rules import RULES, Finding

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
