# SPDX-License-Identifier: Apache-2.0
"""The one seam between this client and a server: the rpcs it uses, with errors of our own."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped] # ships none
from grpc_status import rpc_status
from nnpa.mli.v1.mli_pb2 import (
    ListKernelsRequest,
    ListKernelsResponse,
    RunKernelRequest,
    RunKernelResponse,
)
from nnpa.mli.v1.mli_pb2_grpc import MliServiceStub
from nnpa.network.v1.network_pb2_grpc import NetworkServiceStub
from nnpa.zdnn.v1.accelerator_pb2 import (
    CreateSessionRequest,
    DeleteSessionRequest,
    GetMachineRequest,
    GetSessionRequest,
    ListMachinesRequest,
    ListMachinesResponse,
    ListTensorsRequest,
    ListTensorsResponse,
    Machine,
    ReadTensorRequest,
    Session,
    UpdateSessionRequest,
    WriteTensorResponse,
)
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa.zdnn.v1.sanitizer_pb2 import SanitizerReport
from nnpa.zdnn.v1.trace_pb2 import EndTraceRequest, RecordTraceRequest, RecordTraceResponse
from nnpa.zdnn.v1.trace_pb2_grpc import TraceServiceStub

from nnpa_client._shortcuts import out_of_band_arrays as apart
from nnpa_client._shortcuts.chunks import Download, Upload, parse_read, serialize_write
from nnpa_client._shortcuts.out_of_band_arrays import Answered, Listed
from nnpa_client._shortcuts.stream import Conversation, Ways
from nnpa_client.config import Endpoint
from nnpa_client.errors import NnpaError, ProgramCheck, TransportError

_SERVICE = "/nnpa.zdnn.v1.AcceleratorService"
Answer = TypeVar("Answer")


class Transport(Protocol):
    """The methods of the services of nnpa.zdnn.v1, nnpa.mli.v1 and nnpa.network.v1 that it uses.

    Each raises `TransportError`, or `ProgramCheck` where the machine would end the program.
    """

    @property
    def target(self) -> str:
        """Where the server is, for people."""
        ...

    def list_machines(self, request: ListMachinesRequest) -> ListMachinesResponse:
        """List one page of machines."""
        ...

    def get_machine(self, request: GetMachineRequest) -> Machine:
        """Get one machine by name or alias."""
        ...

    def create_session(self, request: CreateSessionRequest) -> Session:
        """Create a session."""
        ...

    def get_session(self, request: GetSessionRequest) -> Session:
        """Get a session with its present use."""
        ...

    def update_session(self, request: UpdateSessionRequest) -> Session:
        """Change options of a session."""
        ...

    def delete_session(self, request: DeleteSessionRequest) -> None:
        """Delete a session with its tensors."""
        ...

    def execute(self, listed: Listed) -> Answered:
        """Run operations in order."""
        ...

    def write_tensor(self, parts: Iterable[Upload]) -> WriteTensorResponse:
        """Fill a tensor: a header, then chunks."""
        ...

    def read_tensor(self, request: ReadTensorRequest) -> Iterator[Download]:
        """Read a tensor: a header, then chunks."""
        ...

    def list_tensors(self, request: ListTensorsRequest) -> ListTensorsResponse:
        """List one page of a session's tensors."""
        ...

    def run_kernel(self, request: RunKernelRequest) -> RunKernelResponse:
        """Run MLI kernels in order."""
        ...

    def list_kernels(self, request: ListKernelsRequest) -> ListKernelsResponse:
        """List one page of MLI kernels."""
        ...

    def network(self, method: str, request: Any) -> Any:
        """Call a method of nnpa.network.v1.NetworkService; streams are iterators of messages."""
        ...

    def record_trace(self, request: RecordTraceRequest) -> Iterator[RecordTraceResponse]:
        """Open a trace: its name, then its records until it ends."""
        ...

    def end_trace(self, request: EndTraceRequest) -> None:
        """End a trace."""
        ...

    def close(self) -> None:
        """Give up the connection."""
        ...


def error_from_rpc(error: grpc.RpcError, target: str) -> NnpaError:
    """Return the exception for a failed gRPC call; `target` is named when nobody answered."""
    if not isinstance(error, grpc.Call):
        return TransportError("UNKNOWN", str(error))
    code, message = error.code().name, error.details() or ""
    status = rpc_status.from_call(error)
    info, reports = ErrorInfo(), list[SanitizerReport]()
    for detail in status.details if status is not None else ():
        report = SanitizerReport()
        if not detail.Unpack(info) and detail.Unpack(report):
            reports.append(report)
    metadata = dict(info.metadata)
    where = f"{target}: " if code == "UNAVAILABLE" and not info.reason else ""
    told: NnpaError = TransportError(code, f"{where}{message}", info.reason, metadata)
    if info.reason == "PROGRAM_CHECK":
        told = ProgramCheck(message, metadata)
    told.reports = reports
    return told


class GrpcTransport:
    """A connection over gRPC: TCP, TLS or a Unix socket.

    `connect_timeout` bounds the calls that open and close a session, `timeout` all others; both
    in seconds, None waits as long as it takes. Then lists of operations go over a stream, as long
    as the server has one for this connection.
    """

    def __init__(
        self, endpoint: Endpoint, connect_timeout: float | None = 10.0, timeout: float | None = None
    ) -> None:
        self.target = endpoint.target
        self._connect_timeout = connect_timeout
        self._timeout = timeout
        self._metadata = (
            (("authorization", f"Bearer {endpoint.token}"),) if endpoint.token else None
        )
        self._channel = open_channel(endpoint)
        self._stub = AcceleratorServiceStub(self._channel)
        self._mli = MliServiceStub(self._channel)
        self._networks = NetworkServiceStub(self._channel)
        self._traces = TraceServiceStub(self._channel)
        self._execute: Callable[..., Answered] = self._channel.unary_unary(
            f"{_SERVICE}/Execute", apart.serialize, apart.parse
        )
        stream: Callable[..., Any] = self._channel.stream_stream(
            f"{_SERVICE}/ExecuteStream", apart.serialize, apart.parse
        )
        self._converses = timeout is None
        self._ways = Ways(partial(stream, metadata=self._metadata), self._metadata or ())
        self._conversation = Conversation(self._ways.begin)
        self._write: Callable[..., WriteTensorResponse] = self._channel.stream_unary(
            f"{_SERVICE}/WriteTensor", serialize_write, WriteTensorResponse.FromString
        )
        self._read: Callable[..., Iterable[Download]] = self._channel.unary_stream(
            f"{_SERVICE}/ReadTensor", ReadTensorRequest.SerializeToString, parse_read
        )

    def _call(
        self,
        method: Callable[..., Answer],
        request: Message | Listed | Iterable[Upload],
        timeout: float | None,
    ) -> Answer:
        return self._told(lambda: method(request, timeout=timeout, metadata=self._metadata))

    def _told(self, call: Callable[[], Answer]) -> Answer:
        """Make a call, and tell of its failure with an exception of ours."""
        try:
            return call()
        except grpc.RpcError as error:
            raise error_from_rpc(error, self.target) from error
        except ValueError as error:  # what grpc raises on a closed channel
            raise TransportError("CANCELLED", f"{self.target}: {error}") from error

    def list_machines(self, request: ListMachinesRequest) -> ListMachinesResponse:
        """List one page of machines."""
        return self._call(self._stub.ListMachines, request, self._connect_timeout)

    def get_machine(self, request: GetMachineRequest) -> Machine:
        """Get one machine by name or alias."""
        return self._call(self._stub.GetMachine, request, self._connect_timeout)

    def create_session(self, request: CreateSessionRequest) -> Session:
        """Create a session."""
        session = self._call(self._stub.CreateSession, request, self._connect_timeout)
        path, suffix = self.target.removeprefix("unix:"), session.plain_socket.suffix
        is_beside = bool(suffix) and "/" not in suffix
        self._ways.plain = path.removeprefix("//") + suffix if is_beside else ""
        if session.limits.HasField("idle_timeout"):
            idle_timeout = session.limits.idle_timeout.ToNanoseconds() / 1e9
            self._conversation.most_idle = idle_timeout / 2  # what a server cuts off is far from it
        return session

    def get_session(self, request: GetSessionRequest) -> Session:
        """Get a session with its present use."""
        return self._call(self._stub.GetSession, request, self._timeout)

    def update_session(self, request: UpdateSessionRequest) -> Session:
        """Change options of a session."""
        return self._call(self._stub.UpdateSession, request, self._timeout)

    def delete_session(self, request: DeleteSessionRequest) -> None:
        """Delete a session with its tensors."""
        self._conversation.close()
        self._call(self._stub.DeleteSession, request, self._connect_timeout)

    def execute(self, listed: Listed) -> Answered:
        """Run operations in order."""
        answered = self._converse(listed) if self._converses else None
        return self._call(self._execute, listed, self._timeout) if answered is None else answered

    def _converse(self, listed: Listed) -> Answered | None:
        """Run operations over the stream; None, and nothing has run, where there is none."""
        try:
            return self._told(lambda: self._conversation.ask(listed))
        except TransportError as error:
            if error.metadata.get("field") != "max_conversations":
                raise
            self._converses = False
            return None

    def write_tensor(self, parts: Iterable[Upload]) -> WriteTensorResponse:
        """Fill a tensor: a header, then chunks."""
        return self._call(self._write, iter(parts), self._timeout)

    def read_tensor(self, request: ReadTensorRequest) -> Iterator[Download]:
        """Read a tensor: a header, then chunks."""
        call = self._call(self._read, request, self._timeout)
        try:
            yield from call
        except grpc.RpcError as error:
            raise error_from_rpc(error, self.target) from error

    def list_tensors(self, request: ListTensorsRequest) -> ListTensorsResponse:
        """List one page of a session's tensors."""
        return self._call(self._stub.ListTensors, request, self._timeout)

    def run_kernel(self, request: RunKernelRequest) -> RunKernelResponse:
        """Run MLI kernels in order."""
        return self._call(self._mli.RunKernel, request, self._timeout)

    def list_kernels(self, request: ListKernelsRequest) -> ListKernelsResponse:
        """List one page of MLI kernels."""
        return self._call(self._mli.ListKernels, request, self._connect_timeout)

    def network(self, method: str, request: Any) -> Any:
        """Call a method of NetworkService; streams are iterators of messages."""
        answer: Any = self._call(getattr(self._networks, method), request, self._timeout)
        return self._streamed(answer) if hasattr(answer, "__next__") else answer

    def record_trace(self, request: RecordTraceRequest) -> Iterator[RecordTraceResponse]:
        """Open a trace: its name, then its records until it ends."""
        return self._streamed(self._call(self._traces.RecordTrace, request, None))

    def end_trace(self, request: EndTraceRequest) -> None:
        """End a trace."""
        self._call(self._traces.EndTrace, request, self._connect_timeout)

    def _streamed(self, stream: Any) -> Iterator[Any]:
        try:
            yield from stream
        except grpc.RpcError as error:
            raise error_from_rpc(error, self.target) from error
        finally:
            stream.cancel()

    def close(self) -> None:
        """Give up the connection."""
        self._conversation.close()
        self._channel.close()


def open_channel(endpoint: Endpoint) -> grpc.Channel:
    """Return a channel to a server, with its certificates where it wants them."""
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0 if endpoint.is_loopback else 1),
    ]
    if endpoint.tls_ca is None:
        return grpc.insecure_channel(endpoint.target, options)
    credentials = grpc.ssl_channel_credentials(
        endpoint.tls_ca.read_bytes(),
        None if endpoint.tls_key is None else endpoint.tls_key.read_bytes(),
        None if endpoint.tls_cert is None else endpoint.tls_cert.read_bytes(),
    )
    return grpc.secure_channel(endpoint.target, credentials, options)
