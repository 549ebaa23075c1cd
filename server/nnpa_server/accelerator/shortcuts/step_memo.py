# SPDX-License-Identifier: Apache-2.0
"""What shortcuts keep with a step that is run many times."""

from nnpa.zdnn.v1 import operation_pb2
from nnpa_emulator import Ztensor
from nnpa_emulator.prepared import PreparedCall

from nnpa_server.accelerator.decode import Step


class StepMemo:
    """The prepared call of a step, its inline tensors' structures, and its results of success.

    Results are by what they say of the tensors that were written.
    """

    __slots__ = ("prepared", "results", "structures")

    def __init__(self) -> None:
        self.prepared: PreparedCall | None = None
        self.structures: dict[str, Ztensor] = {}
        self.results: dict[object, operation_pb2.OperationResult] = {}


def with_memo(step: Step) -> Step:
    """Return a step that shortcuts may keep something with."""
    return step._replace(memo=StepMemo())
