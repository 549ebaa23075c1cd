# SPDX-License-Identifier: Apache-2.0
"""The doctor: it runs a program on all machines and under faults, and says what is wrong with it.

    report = examine(["./program"], ["telum1", "telum2"], 60.0, quick=False, progress=show)
    print(verdict(report))

It composes what is there: fault rules and their sweep, the sanitizer, traces and their lint,
estimates. Its rules are a table.
"""

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
