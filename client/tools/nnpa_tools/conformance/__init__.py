# SPDX-License-Identifier: Apache-2.0
"""Conformance: two machines' answers compared, and the score of every suite on one page.

nnpa conformance score --out score      # score/score.html, .json, .svg, .md
"""

from nnpa_tools.conformance.answers import BEYOND, BUCKETS, Report, compare, read_answers
from nnpa_tools.conformance.counts import OUTCOMES, Case, Group, Suite, summed
from nnpa_tools.conformance.page import FILES, badge, markdown, page
from nnpa_tools.conformance.real_machines import Measured, Recorded, measured, recorded
from nnpa_tools.conformance.score import Score, changes, read_suites
from nnpa_tools.conformance.suites import SUITES, SuiteKind, Tree, run_suite, tree

__all__ = [
    "BEYOND",
    "BUCKETS",
    "FILES",
    "OUTCOMES",
    "SUITES",
    "Case",
    "Group",
    "Measured",
    "Recorded",
    "Report",
    "Score",
    "Suite",
    "SuiteKind",
    "Tree",
    "badge",
    "changes",
    "compare",
    "markdown",
    "measured",
    "page",
    "read_answers",
    "read_suites",
    "recorded",
    "run_suite",
    "summed",
    "tree",
]
