# SPDX-License-Identifier: Apache-2.0
"""Traces: a server's recording of the calls that a program makes.

    with session.trace("run.nnpa", contents=True):
        zdnn.add(a, b)
    print(trace.read("run.nnpa").operations)

`nnpa trace record -- program` records a program without a change; `show`, `replay`, `diff` and
`lint` read the file. Its format: nnpa/zdnn/v1/trace.proto, TraceRecord.
"""

from typing import TYPE_CHECKING

from nnpa_client._forwards import forward
from nnpa_client.trace.format import TracePath
from nnpa_client.trace.history import (
    COMPUTING,
    FUNCTIONS,
    Call,
    Operand,
    Trace,
    TracedOperation,
    read,
)
from nnpa_client.trace.record import Recording, record_session, run_program

if TYPE_CHECKING:
    from nnpa_tools.doctor.lint import RULES, Budget, Finding, Report, Totals, lint
    from nnpa_tools.traces.diff import Comparison, Difference, diff
    from nnpa_tools.traces.replay import replay
    from nnpa_tools.traces.values import ValueDifference

__all__ = [
    "COMPUTING",
    "FUNCTIONS",
    "RULES",
    "Budget",
    "Call",
    "Comparison",
    "Difference",
    "Finding",
    "Operand",
    "Recording",
    "Report",
    "Totals",
    "Trace",
    "TracePath",
    "TracedOperation",
    "ValueDifference",
    "diff",
    "lint",
    "read",
    "record_session",
    "replay",
    "run_program",
]
__getattr__ = forward(__name__)
