# SPDX-License-Identifier: Apache-2.0
"""The findings of a trace's lint in two parts: repeated transforms, and possible savings.

A repeated transform is a finding, because the program has the ztensor already; the rest is advice.
"""

from collections.abc import Sequence

from nnpa.zdnn.v1.trace_pb2 import CONTENTS_ROLE_STICKS_OUT
from nnpa_client.trace.history import COMPUTING, Trace, TracedOperation

from nnpa_tools.doctor.lint import Finding, inputs_of, lint

_EQUAL, _RETURNED = "equal-bytes", "untransform-transform"


def transformed_again(trace: Trace) -> tuple[Finding, ...]:
    """Return the findings on repeated transforms.

    Equal arrays that become operands of one call do not count: they may be equal by chance.
    """
    return tuple(
        finding
        for finding in lint(trace).findings
        if finding.rule == _RETURNED
        or (finding.rule == _EQUAL
            and not _are_operands_of_one(trace, [trace.operations[i] for i in finding.operations]))
    )  # fmt: skip


def _are_operands_of_one(trace: Trace, transforms: Sequence[TracedOperation]) -> bool:
    """Return True if one call takes the outputs of all these transforms."""
    filled: set[object] = {
        sticks.digest for each in transforms for sticks in each.having(CONTENTS_ROLE_STICKS_OUT)
    }
    filled |= {operand.id for each in transforms for operand in each.operands if operand.id}
    return any(
        sum(tensor in filled for _name, tensor in inputs_of(operation)) >= len(transforms)
        for operation in trace.operations
        if operation.name in COMPUTING
    )


def gains(trace: Trace) -> tuple[str, ...]:
    """Return sentences on the other savings that are possible."""
    report = lint(trace, ignore=(_EQUAL, _RETURNED))
    return (*(f"{finding.text} ({finding.rule})" for finding in report.findings), *report.advice)


def saved_operations(trace: Trace) -> list[TracedOperation]:
    """Return the transforms that are not needed: all but the first of each finding."""
    indexes = {index for finding in transformed_again(trace) for index in finding.operations[1:]}
    return [operation for operation in trace.operations if operation.index in indexes]
