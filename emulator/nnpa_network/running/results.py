# SPDX-License-Identifier: Apache-2.0
"""The result of a run: outputs, warnings, or the step that failed."""

from collections.abc import Mapping
from dataclasses import dataclass

from nnpa_emulator.arith import RangeViolation

from nnpa_network.program import Array


class StepFailed(RuntimeError):
    """A step that ended the run: an accelerator status that is no warning, or a host error."""

    def __init__(self, node: str, verb: str, status: int, reason: str) -> None:
        self.node, self.verb, self.status, self.reason = node, verb, status, reason
        super().__init__(f"node {node}: {verb}: {reason}" if node else f"{verb}: {reason}")


@dataclass(frozen=True, slots=True)
class Violation:
    """Non-numeric values that a call used or stored; `node` is an index of Program.nodes.

    `count` is how many there were; `violation` tells where, after a run in this process.
    """

    node: int
    verb: str
    status: int
    count: int
    violation: RangeViolation | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run: outputs by name, warnings, and counts of the calls.

    `nans` counts the NaN elements of each floating-point output; `calls` counts accelerator calls
    per verb, transforms included.
    """

    outputs: Mapping[str, Array]
    violations: tuple[Violation, ...]
    nans: Mapping[str, int]
    calls: Mapping[str, int]
