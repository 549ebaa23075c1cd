# SPDX-License-Identifier: Apache-2.0
"""Forty lists of operations with known answers, most of them tensors, compared by bits."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2 as tensors

from tests import vector_runner
from tests.vector_runner import Vector

LISTS = 40
MIN_TENSORS = 30
MAX_BYTES = 64 << 10
Execute = Callable[[pb.ExecuteRequest], pb.ExecuteResponse]


class WrongAnswerError(Exception):
    """An answer differs from the known one; the text says where."""


@dataclass(frozen=True)
class _Session:
    """Runs the operations of a vector in one session of a server, a list for each."""

    name: str
    run: Execute

    def execute(self, operation: wire.Operation) -> wire.OperationResult:
        response = self.run(pb.ExecuteRequest(session=self.name, operations=[operation]))
        if len(response.results) != 1:
            raise WrongAnswerError(f"{len(response.results)} results of one operation")
        return response.results[0]

    def move(self, spec: pb.MachineSpec) -> None:
        raise AssertionError(f"no list moves: {spec}")


def check(number: int, session: str, run: Execute) -> None:
    """Run a list in a session and compare its answer; `WrongAnswerError` says what differs."""

    def target(_options: pb.Session) -> AbstractContextManager[_Session]:
        return nullcontext(_Session(session, run))

    try:
        vector_runner.run(lists()[number % LISTS], target)
    except AssertionError as error:
        raise WrongAnswerError(str(error)) from error


@cache
def lists() -> tuple[Vector, ...]:
    """Return the lists: functions take turns; those with tensors come first."""
    plain = [vector for vector in vector_runner.load() if _is_plain(vector)]
    with_tensors = _taking_turns([vector for vector in plain if has_tensors(vector)])
    without = _taking_turns([vector for vector in plain if not has_tensors(vector)])
    few = LISTS - MIN_TENSORS
    return tuple(with_tensors[: LISTS - few // 2] + without[: few // 2])


def has_tensors(vector: Vector) -> bool:
    """Tell whether a vector's answer has the contents of a tensor."""
    return any(
        "codes" in tensor or "memory" in tensor
        for step in vector.line["steps"]
        for tensor in step.get("outputs", {}).values()
    )


def _is_plain(vector: Vector) -> bool:
    """Tell whether a vector runs in a default session, leaves nothing there, and has exact bits."""
    line = vector.line
    defaults: Mapping[str, Any] = {"machine": "telum2", "library": "1.2.0", "precheck": False}
    if any(line.get(name, default) != default for name, default in defaults.items()):
        return False
    if "machine_spec" in line or any(_is_special(step) for step in line["steps"]):
        return False
    operations = list(vector_runner.operations(vector))
    size = sum(operation.ByteSize() for operation in operations)
    return size <= MAX_BYTES and all(map(_is_inline, operations))


def _is_special(step: vector_runner.Json) -> bool:
    return "machine" in step or "error" in step or bool(step.get("ulps"))


def _is_inline(operation: wire.Operation) -> bool:
    name = operation.WhichOneof("operation")
    assert name is not None
    operands = [value for _, value in getattr(operation, name).ListFields()]
    refs = [operand for operand in operands if isinstance(operand, tensors.TensorRef)]
    return bool(refs) and all(ref.WhichOneof("tensor") == "inline_ztensor" for ref in refs)


def _taking_turns(vectors: list[Vector]) -> list[Vector]:
    by_function: dict[str, list[Vector]] = defaultdict(list)
    for vector in vectors:
        by_function[vector.function].append(vector)
    rounds = max(map(len, by_function.values()), default=0)
    return [
        of_function[turn]
        for turn in range(rounds)
        for of_function in by_function.values()
        if turn < len(of_function)
    ]
