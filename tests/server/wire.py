# SPDX-License-Identifier: Apache-2.0
"""A thin client for the server's tests: messages written short, errors read."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import accelerator_pb2_grpc, operation_pb2, tensor_pb2

from tests.server.process import wait_until

NHWC, FP32, DLFLOAT16, FEATURE = 8, 255, 0, 0
STICK_PAGE = 4096
Operation = operation_pb2.Operation
Result = operation_pb2.OperationResult


@dataclass(frozen=True)
class New:
    """An output left to the server, under this id."""

    id: int


def pre_desc(*dims: int, type: int = FP32, layout: int = NHWC) -> Any:  # noqa: A002 - C name
    """Describe user data, NHWC, FP32."""
    d4, d3, d2, d1 = (1,) * (4 - len(dims)) + dims
    return tensor_pb2.TensorDesc(
        layout=number(layout), type=number(type), dim4=d4, dim3=d3, dim2=d2, dim1=d1
    )


def desc(*dims: int, type: int = DLFLOAT16, format: int = FEATURE) -> Any:  # noqa: A002 - C names
    """Describe sticks, NHWC, DLFLOAT16, 4DFEATURE."""
    d4, d3, d2, d1 = (1,) * (4 - len(dims)) + dims
    return tensor_pb2.TensorDesc(
        layout=number(NHWC),
        format=number(format),
        type=number(type),
        dim4=d4,
        dim3=d3,
        dim2=d2,
        dim1=d1,
    )


def number(value: int) -> Any:
    """Pass a bare number where the stubs want a member of an open enum."""
    return value


def op(arm: str, **fields: Any) -> Operation:
    """Write an operation: ints are ids, `New` an output to create, `Ztensor` an inline tensor."""
    operation = Operation()
    message = getattr(operation, arm)
    message.SetInParent()
    for name, value in fields.items():
        kind = message.DESCRIPTOR.fields_by_name[name].message_type
        if kind is not None and kind.name == "TensorRef":
            getattr(message, name).CopyFrom(_reference(value))
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        elif kind is not None:
            getattr(message, name).CopyFrom(value)
        else:
            setattr(message, name, value)
    return operation


def _reference(value: int | New | tensor_pb2.Ztensor) -> tensor_pb2.TensorRef:
    if isinstance(value, New):
        return tensor_pb2.TensorRef(new_id=value.id)
    if isinstance(value, int):
        return tensor_pb2.TensorRef(id=value)
    return tensor_pb2.TensorRef(inline_ztensor=value)


def init(tensor_id: int, *dims: int) -> list[Operation]:
    """Create a tensor with a buffer."""
    descs = {"pre_transformed_desc": pre_desc(*dims), "transformed_desc": desc(*dims)}
    return [
        op("init_ztensor", ztensor=tensor_id, **descs),
        op("allochelper_ztensor", ztensor=tensor_id),
    ]


def load(tensor_id: int, array: npt.NDArray[np.float32]) -> list[Operation]:
    """Create a tensor with data."""
    data = [array.astype("<f4").tobytes()]
    return [
        *init(tensor_id, *array.shape),
        op("transform_ztensor", ztensor=tensor_id, data=data),
    ]


@dataclass
class Client:
    """A session on a server, and the calls in it."""

    channel: grpc.Channel
    options: pb.Session = field(default_factory=pb.Session)
    opened: list["Client"] = field(default_factory=list["Client"])

    def __post_init__(self) -> None:
        self.stub: Any = accelerator_pb2_grpc.AcceleratorServiceStub(self.channel)
        session: pb.Session = self.stub.CreateSession(pb.CreateSessionRequest(session=self.options))
        self.session = session.name
        self.limits = session.limits

    def open_session(self, options: pb.Session | None = None) -> "Client":
        """Create another session over the same channel; it is deleted with this one."""
        second = Client(self.channel, options or pb.Session())
        self.opened.append(second)
        return second

    def request(self, *operations: Operation) -> pb.ExecuteRequest:
        """Return the request that runs operations."""
        return pb.ExecuteRequest(session=self.session, operations=operations)

    def run(self, *operations: Operation, timeout: float | None = None) -> list[Result]:
        """Run operations."""
        return list(self.stub.Execute(self.request(*operations), timeout=timeout).results)

    def state(self) -> pb.Session:
        """Return the session as the server tells it."""
        state: pb.Session = self.stub.GetSession(pb.GetSessionRequest(name=self.session))
        return state

    def used(self) -> tuple[int, int]:
        """Return the number of tensors and the bytes that the session holds."""
        state = self.state()
        return state.tensor_count, state.stored_bytes

    def array(self, tensor_id: int) -> npt.NDArray[np.float32]:
        """Read a tensor as a flat FP32 array."""
        (result,) = self.run(op("transform_origtensor", ztensor=tensor_id))
        assert result.zdnn_status == 0, result
        return np.frombuffer(result.data, "<f4")

    def write(self, messages: Iterable[pb.WriteTensorRequest]) -> Result:
        """Stream messages into WriteTensor."""
        response: pb.WriteTensorResponse = self.stub.WriteTensor(iter(messages))
        return response.result

    def read(self, **source: Any) -> tuple[pb.ReadTensorHeader, bytes]:
        """Read a tensor by ReadTensor."""
        parts = list(self.stub.ReadTensor(pb.ReadTensorRequest(session=self.session, **source)))
        return parts[0].header, b"".join(part.chunk for part in parts[1:])

    def arrays_header(self, operation: Operation, *sizes: int) -> pb.WriteTensorRequest:
        """Return the header that streams user arrays into a transform."""
        arrays = pb.WriteArrays(operation=operation, array_bytes=sizes)
        return pb.WriteTensorRequest(
            header=pb.WriteTensorHeader(session=self.session, arrays=arrays)
        )

    def sticks_header(self, **sticks: Any) -> pb.WriteTensorRequest:
        """Return the header that streams the contents of a buffer."""
        target = pb.WriteSticks(**sticks)
        return pb.WriteTensorRequest(
            header=pb.WriteTensorHeader(session=self.session, sticks=target)
        )

    def delete(self) -> None:
        """Delete the session and those made from it."""
        for client in self.opened:
            client.delete()
        self.opened.clear()
        self.stub.DeleteSession(pb.DeleteSessionRequest(name=self.session))


def chunks(data: bytes, size: int = 1 << 20) -> Iterator[pb.WriteTensorRequest]:
    """Cut bytes into chunk messages."""
    for start in range(0, len(data), size):
        yield pb.WriteTensorRequest(chunk=data[start : start + size])


@dataclass(frozen=True)
class Refused:
    """A gRPC error as a client reads it."""

    code: grpc.StatusCode
    reason: str
    metadata: dict[str, str]
    request_id: str


def read_error(error: grpc.RpcError) -> Refused:
    """Return the code and the ErrorInfo of an error; without one the reason is empty."""
    call: Any = error
    status = rpc_status.from_call(call)
    trailing = dict(call.trailing_metadata() or ())
    request_id = str(trailing.get("x-request-id", ""))
    if status is None:
        return Refused(call.code(), "", {}, request_id)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "nnpa"
    return Refused(call.code(), info.reason, dict(info.metadata), request_id)


@contextmanager
def refused(code: grpc.StatusCode, reason: str, **metadata: object) -> Generator[None]:
    """Expect a gRPC error with this code, reason, and at least this metadata."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    error = read_error(caught.value)
    assert (error.code, error.reason) == (code, reason), caught.value
    expected = {key: str(value) for key, value in metadata.items()}
    assert expected.items() <= error.metadata.items(), error.metadata
    assert error.request_id


def begun(client: Client, *operations: Operation) -> Any:
    """Send a list, and return its call when it runs: tensor 99, which it makes first, is there."""
    before = client.used()[0]
    call = client.stub.Execute.future(client.request(*init(99, 4), *operations))
    wait_until(lambda: client.used()[0] > before)
    return call
