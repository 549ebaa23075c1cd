# SPDX-License-Identifier: Apache-2.0
"""Every operation of every vector, repeated as a C program that shares memory makes it.

Inputs come by names, outputs are written in place over garbage, and the server remembers the list.
The answers equal the first ones, whose sticks travel, byte for byte, padding included.
"""

import itertools
import mmap
import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import accelerator_pb2_grpc, operation_pb2, tensor_pb2
from nnpa_server.accelerator import OPERATION_SPECS
from nnpa_server.app import Server
from nnpa_server.config import Config

from tests import vector_runner
from tests.server.accelerator.test_placed_operands import memfd
from tests.server.plain import Plain
from tests.server.process import PLAIN
from tests.server.wire import read_error
from tests.vector_runner import CallFailedError, Vector

SIZE, PAGE = 64 << 20, 4096
GARBAGE = (0xAB, 0x5C, 0x00, 0xFF)
Operation = operation_pb2.Operation
Result = operation_pb2.OperationResult
Target = Callable[[pb.Session], AbstractContextManager["Sharing"]]


class Sharing:
    """A session whose operations are made once over gRPC, then over a plain socket in place."""

    def __init__(self, stub: Any, path: Path, setting: pb.Session) -> None:
        self._stub = stub
        self.name = stub.CreateSession(pb.CreateSessionRequest(session=setting)).name
        file = memfd(SIZE)
        self._memory = np.frombuffer(mmap.mmap(file, SIZE), np.uint8)
        self._path = path
        self._plain = Plain(path, descriptors=(file,))
        os.close(file)
        assert self._plain.ask(pb.ExecuteRequest(session=self.name)).results == []
        self._names = itertools.count(1)

    def move(self, spec: pb.MachineSpec) -> None:
        """Move the guest."""
        update = pb.Session(name=self.name, machine_spec=spec)
        mask = FieldMask(paths=["machine_spec"])
        self._stub.UpdateSession(pb.UpdateSessionRequest(session=update, update_mask=mask))

    def execute(self, operation: Operation) -> Result:
        """Run an operation once, and where it has an answer, again in place."""
        request = pb.ExecuteRequest(session=self.name, operations=[operation])
        try:
            result: Result = self._stub.Execute(request).results[0]
        except grpc.RpcError as error:
            raise CallFailedError(read_error(error).reason) from error
        arm = OPERATION_SPECS[operation.WhichOneof("operation") or ""]
        message = getattr(operation, arm.name)
        is_inline = all(getattr(message, name).HasField("inline_ztensor") for name in arm.tensors)
        if is_inline and arm.tensors and not arm.frees:
            self._repeat_in_place(operation, result, arm.written)
        return result

    def _repeat_in_place(
        self, operation: Operation, expected: Result, written: tuple[str, ...]
    ) -> None:
        bare = Operation()
        bare.CopyFrom(operation)
        message = getattr(bare, bare.WhichOneof("operation") or "")
        inline = {
            field.name: value.inline_ztensor
            for field, value in message.ListFields()
            if isinstance(value, tensor_pb2.TensorRef) and value.HasField("inline_ztensor")
        }
        held: dict[str, bytes] = {}
        end = PAGE
        for name, operand in inline.items():
            if name not in written and operand.sticks:
                held[name] = operand.sticks
        outputs = {
            output.operand: output.ztensor for output in expected.outputs if output.ztensor.sticks
        }
        for name, ztensor in outputs.items():
            operand = inline[name]
            operand.ClearField("contents")
            operand.sticks_to.offset, operand.sticks_to.size = end, len(ztensor.sticks)
            operand.cached_in_place = True
            end += (len(ztensor.sticks) // PAGE + 2) * PAGE
        for garbage in GARBAGE:
            self._memory[:end] = garbage
            place = end
            for name, sticks in held.items():
                inline[name].shared.offset, inline[name].shared.size = place, len(sticks)
                self._memory[place : place + len(sticks)] = np.frombuffer(sticks, np.uint8)
                place += len(sticks)
            for name in outputs:
                inline[name].cache_as = next(self._names).to_bytes(16, "big")
            self._compare(bare, expected, outputs, garbage, end)

    def _compare(
        self,
        operation: Operation,
        expected: Result,
        outputs: dict[str, tensor_pb2.Ztensor],
        garbage: int,
        end: int,
    ) -> None:
        request = pb.ExecuteRequest(session=self.name, operations=[operation])
        (actual,) = self._plain.ask(request).results
        untouched = np.ones(end, np.bool_)
        for output in actual.outputs:
            if output.operand in outputs:
                assert output.ztensor.WhichOneof("contents") == "shared"
                place = output.ztensor.shared
                last = place.offset + place.size
                output.ztensor.sticks = self._memory[place.offset : last].tobytes()
                untouched[place.offset : last] = False
        assert actual == expected
        assert (self._memory[:end][untouched] == garbage).all()

    def close(self) -> None:
        """End the session."""
        self._plain.socket.close()
        self._stub.DeleteSession(pb.DeleteSessionRequest(name=self.name))


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """Sessions of a server that takes shared memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nnpa.sock"
        config = Config(listen=(f"unix:{path}",), shared_memory=True, plain=PLAIN)
        server = Server(replace(config, drain_timeout=5.0))
        (address,) = server.start()
        with grpc.insecure_channel(address) as channel:
            stub = accelerator_pb2_grpc.AcceleratorServiceStub(channel)

            @contextmanager
            def opened(setting: pb.Session) -> Generator[Sharing]:
                session = Sharing(stub, path.with_name("nnpa.sock.plain"), setting)
                try:
                    yield session
                finally:
                    session.close()

            yield opened
        server.drain()


# Tensors beyond the machine's limits are beyond those of a message, too.
VECTORS = [vector for vector in vector_runner.load() if not str(vector).endswith("_too_large")]


@pytest.mark.heavy
@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_vectors_repeat_in_place(vector: Vector, target: Target) -> None:
    """A vector's operations give the same results and sticks in place as over gRPC."""
    vector_runner.run(vector, target)
