# SPDX-License-Identifier: Apache-2.0
"""A testee's answers as the vector runner's target: JSON in, messages out."""

import struct
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from google.protobuf import json_format
from nnpa.zdnn.v1 import accelerator_pb2 as accelerator
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2 as tensors
from nnpa.zdnn.v1.status_pb2 import ZdnnStatus

from tests import vector_runner
from tests.conformance.plain import descriptor, plain, plain_local
from tests.vector_runner import CallFailedError, Json, Vector, little_endian

_FIELDS = ("is_transformed", "buffer_size", "rec_scale", "offset")


class Testee(Protocol):
    """A program that answers requests, or a stand-in for one."""

    def ask(self, request: Json) -> dict[str, Any]:
        """Return the answer to a vector."""
        ...


class SkippedError(Exception):
    """A testee's language cannot express the vector; the message is the testee's reason."""


class StepAnswers:
    """The answers to one vector's steps, in order, as a session of the vector runner."""

    def __init__(self, steps: Iterator[Json]) -> None:
        self._steps = steps

    def execute(self, operation: wire.Operation) -> wire.OperationResult:
        """Return the testee's answer to this step."""
        answer = next(self._steps)
        if "error" in answer:
            raise CallFailedError(str(answer["error"]))
        try:
            return result(answer, operation)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise AssertionError(f"an answer out of shape, {error!r}: {answer}") from error

    def move(self, spec: accelerator.MachineSpec) -> None:
        """Take notice of a move, which has no answer."""
        answer = next(self._steps)
        assert answer == {}, f"{spec}: {answer}"


def result(reply: Json, operation: wire.Operation) -> wire.OperationResult:
    """Return a step's answer as a message of the wire contract."""
    answer = wire.OperationResult(zdnn_status=reply.get("status", 0))
    if "value" in reply:
        arm = "boolean" if isinstance(reply["value"], bool) else "number"
        setattr(answer, arm, reply["value"])
    if "range" in reply:
        least, greatest = (struct.unpack(">f", bytes.fromhex(word))[0] for word in reply["range"])
        answer.range.CopyFrom(wire.FloatRange(min=least, max=greatest))
    if "data_out" in reply:
        answer.data = little_endian(reply["data_out"])
    for flag in reply.get("fp_flags", ()):
        answer.fp_flags |= wire.FpFlags.Value(f"FP_FLAGS_{flag}")
    answer.refusal.constraint = reply.get("refusal", "")
    for operand, elements in reply.get("violation", {}).items():
        violation = answer.range_violation.operands.add(operand=operand)
        for element in elements:
            index, code, values = element[:4], int(element[4], 16), map(float, element[5:])
            violation.elements.add(index=index, code=code, operand_values=values)
    name = operation.WhichOneof("operation") or ""
    for operand, seen in reply.get("outputs", {}).items():
        if seen is not None:
            ztensor = _ztensor(seen, getattr(operation, name), operand)
            answer.outputs.add(operand=operand, ztensor=ztensor)
    return answer


def _ztensor(seen: Json, arm: Any, operand: str) -> tensors.Ztensor:
    """Return a ztensor that the program sees; its descriptor is the one that it was given."""
    line = {key: seen[key] for key in _FIELDS if key in seen}
    ztensor = json_format.ParseDict(line, tensors.Ztensor())
    reference = getattr(arm, operand)
    if isinstance(reference, tensors.TensorRef):
        ztensor.transformed_desc.CopyFrom(reference.inline_ztensor.transformed_desc)
    if "memory" in seen:
        ztensor.sticks = little_endian(seen["memory"])
    return ztensor


def _expected(vector: Vector, unseen: frozenset[str]) -> Vector:
    """Return the vector without the expectations that the SDK cannot observe."""
    steps = [
        {key: value for key, value in step.items() if key not in unseen}
        for step in vector.line["steps"]
    ]
    return Vector(vector.function, {**vector.line, "steps": steps})


def run(vector: Vector, testee: Testee, unseen: frozenset[str]) -> None:
    """Run one vector through a testee; AssertionError says what differs."""
    reply = testee.ask({"file": vector.function, "vector": plain(vector)})
    _identified(reply, "file", vector)
    steps = reply.get("steps", [])
    assert len(steps) == len(vector.line["steps"]), f"{vector}: {len(steps)} steps answered"

    @contextmanager
    def target(_options: accelerator.Session) -> Generator[StepAnswers]:
        yield StepAnswers(iter(steps))

    vector_runner.run(_expected(vector, unseen), target)


def run_local(vector: Vector, testee: Testee) -> None:
    """Run one vector of a local function through a testee; AssertionError says what differs."""
    reply = testee.ask({"local": vector.function, "vector": plain_local(vector)})
    _identified(reply, "local", vector)
    answer: dict[str, Any] = {key: reply[key] for key in ("result", "status") if key in reply}
    if "status" in answer:
        answer["status"] = ZdnnStatus.Name(answer["status"])
    expected = dict(vector.line)
    for line in (answer, expected):
        if isinstance(line.get("result"), dict):
            line["result"] = descriptor(line["result"])
    complete = Vector(vector.function, expected)
    vector_runner.run_local(complete, lambda _function, _arguments: answer)


def _identified(reply: Json, kind: str, vector: Vector) -> None:
    if "skipped" in reply:
        raise SkippedError(str(reply["skipped"]))
    assert "failed" not in reply, f"{vector}: {reply}"
    assert reply.get(kind) == vector.function, reply
    assert reply.get("name") == vector.line["name"], reply
