# SPDX-License-Identifier: Apache-2.0
"""Every function meets every fault that fits it: the vectors run with and without faults."""

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import operation_pb2 as wire
from nnpa.zdnn.v1.fault_pb2 import FaultRule
from nnpa.zdnn.v1.tensor_pb2 import ZDNN_DLFLOAT16
from nnpa_server.config import Limits

from tests import vector_runner
from tests.server.conftest import CONFIG, Running
from tests.server.wire import Client, read_error
from tests.vector_runner import CallFailedError

_ARMS = wire.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
NUMBERS = {arm.name: arm.number for arm in _ARMS}
WRITING = (
    *(name for name, number in NUMBERS.items() if 20 <= number < 90),
    *("transform_ztensor", "transform_ztensor_with_saturation", "transform_quantized_ztensor"),
    *("transform_origtensor", "reshape_ztensor"),
)
_FROM_EACH = 4  # vectors of a function that have an answer
NOT_A_NUMBER = 0x7FFF


@pytest.fixture(scope="module")
def allowing() -> Iterator[Running]:
    """A server that allows faults, with its own limits."""
    server = Running(replace(CONFIG, limits=Limits(max_sessions=64), allow_faults=True))
    yield server
    server.stop()


class Beside:
    """A session without rules, and another session that runs the same operations under rules."""

    def __init__(self, right: Client, wrong: Client, function: str) -> None:
        self._right, self._wrong, self._function = right, wrong, function
        self.pairs: list[tuple[wire.OperationResult, wire.OperationResult]] = []

    def execute(self, operation: wire.Operation) -> wire.OperationResult:
        """Run an operation without rules, and the tested function with rules as well."""
        try:
            (answer,) = self._right.run(operation)
        except grpc.RpcError as error:
            raise CallFailedError(read_error(error).reason) from error
        if operation.WhichOneof("operation") == self._function and not answer.zdnn_status:
            self.pairs.append((answer, self._wrong.run(operation)[0]))
        return answer

    def move(self, spec: pb.MachineSpec) -> None:
        """Move both guests to another machine."""
        for client in (self._right, self._wrong):
            session = pb.Session(name=client.session, machine_spec=spec)
            client.stub.UpdateSession(pb.UpdateSessionRequest(session=session))


def _broken(
    server: Running, function: str, rule: FaultRule
) -> list[tuple[wire.OperationResult, wire.OperationResult]]:
    """Return answers of a function's vectors, each paired with its answer under a rule."""
    rule.operation = function
    pairs: list[tuple[wire.OperationResult, wire.OperationResult]] = []

    @contextmanager
    def target(options: pb.Session) -> Generator[Beside]:
        breaking = pb.Session(fault_rules=[rule])
        breaking.MergeFrom(options)
        clients = Client(server.channel, options), Client(server.channel, breaking)
        beside = Beside(*clients, function)
        try:
            yield beside
        finally:
            pairs.extend(beside.pairs)
            for client in clients:
                client.delete()

    for vector in vector_runner.read(vector_runner.VECTORS / f"{function}.jsonl"):
        if any(step.get("status") != "ZDNN_OK" for step in vector.line["steps"]):
            continue
        vector_runner.run(vector, target)
        if len(pairs) >= _FROM_EACH:
            break
    assert pairs
    return pairs


def _written(result: wire.OperationResult) -> bytes:
    """Return the bytes that a function wrote: the sticks of its outputs, and its array."""
    return b"".join(output.ztensor.sticks for output in result.outputs) + result.data


@pytest.mark.parametrize("function", WRITING)
def test_a_bit_flips(allowing: Running, function: str) -> None:
    """Exactly one written bit differs."""
    for right, wrong in _broken(allowing, function, FaultRule(flip_bits=1, seed=2)):
        ours, theirs = _written(right), _written(wrong)
        assert len(ours) == len(theirs) > 0
        changed = np.frombuffer(ours, np.uint8) ^ np.frombuffer(theirs, np.uint8)
        assert np.unpackbits(changed).sum() == 1
        assert wrong.zdnn_status == 0


@pytest.mark.parametrize("function", WRITING)
def test_a_status_with_what_was_written(allowing: Running, function: str) -> None:
    """An error with its output written differs from success by the status alone."""
    rule = FaultRule(status="ZDNN_INVALID_STATE", output_written=True)
    for right, wrong in _broken(allowing, function, rule):
        assert wrong.zdnn_status == 0x00100004
        assert wrong.refusal.constraint == "fault"
        assert _written(right) == _written(wrong)
        assert [output.operand for output in right.outputs] == [
            output.operand for output in wrong.outputs
        ]


@pytest.mark.parametrize(
    "function", [function for function in WRITING if 20 <= NUMBERS[function] < 90]
)
def test_a_range_violation(allowing: Running, function: str) -> None:
    """One element of the first output is no number, and the violation names the output."""
    for right, wrong in _broken(allowing, function, FaultRule(range_violation=1, seed=3)):
        assert wrong.zdnn_status == 0x00020001
        output = wrong.outputs[0]
        if right.outputs[0].ztensor.transformed_desc.type != ZDNN_DLFLOAT16:
            assert _written(right) == _written(wrong)
            continue
        violations = Counter(operand.operand for operand in wrong.range_violation.operands)
        assert violations[output.operand] == 1
        codes = np.frombuffer(output.ztensor.sticks, "<u2")
        assert np.count_nonzero(codes == NOT_A_NUMBER) == 1
