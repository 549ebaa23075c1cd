# SPDX-License-Identifier: Apache-2.0
"""The one seam between this client and a server: five kinds of calls, with errors of our own.

This is the plain path: one gRPC call for each call, messages written and read by protobuf. The
wrappers of `shortcuts` make it quicker.
"""

import contextlib
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import grpc
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo  # type: ignore[import-untyped] # ships none
from grpc_status import rpc_status
from nnpa.zdnn.v1.accelerator_pb2 import ExecuteRequest, ExecuteResponse
from nnpa.zdnn.v1.operation_pb2 import OperationResult
from nnpa.zdnn.v1.sanitizer_pb2 import SanitizerReport

from nnpa_client._server.tickets import HEADER, Tickets, is_session, named, ticket_in
from nnpa_client.config import Endpoint
from nnpa_client.errors import NnpaError, ProgramCheck, SessionLostError, TransportError

__tracebackhide__ = True  # pytest shows the line that called, not these

Sent = TypeVar("Sent")
Received = TypeVar("Received")
Answer = TypeVar("Answer", covariant=True)
Timeout = Literal["call", "connect", "none"]
Ended: TypeAlias = Callable[[NnpaError | None], object]
"""Called when an open call ends, with its error or None."""

_PROBE_SECONDS = 2.0
_GIVE_CA = "Give tls_ca, or set ZDNN_TLS_CA: the file with the certificate that signs the server's."

OUT_OF_BAND_BYTES = 1 << 16
"""Bytes from which an array travels beside its message: see `Request.arrays`."""


@dataclass(frozen=True, slots=True, eq=False)
class Method(Generic[Sent, Received]):
    """An rpc: its path, its codec, and the timeout that bounds it.

    `pieces` returns the bytes of `serialize` in parts, for transports that send parts.
    """

    path: str
    serialize: Callable[[Sent], bytes]
    parse: Callable[[bytes], Received]
    timeout: Timeout = "call"
    pieces: Callable[[Sent], Sequence[bytes | memoryview]] | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A list of operations, and user arrays beside it by the index of their operation."""

    message: ExecuteRequest
    arrays: Mapping[int, Sequence[memoryview]] = field(
        default_factory=dict[int, Sequence[memoryview]]
    )


@dataclass(frozen=True, slots=True)
class Response:
    """The results of a list, and arrays beside them by the index of their result."""

    results: Sequence[OperationResult]
    arrays: Mapping[int, memoryview] = field(default_factory=dict[int, memoryview])

    def data(self, index: int) -> bytes | memoryview | None:
        """Return the array of a result, None if it has none."""
        result = self.results[index]
        return result.data if result.HasField("data") else self.arrays.get(index)

    def without(self, count: int) -> "Response":
        """Return the response without its first `count` results."""
        arrays = {index - count: array for index, array in self.arrays.items()}
        return Response(self.results[count:], arrays)

    def whole(self) -> list[OperationResult]:
        """Return the results with the arrays in their `data`, as the contract has them."""
        for index, array in self.arrays.items():
            self.results[index].data = bytes(array)
        return list(self.results)


def _serialize(request: Request) -> bytes:
    message = request.message
    if request.arrays:
        message = ExecuteRequest()
        message.CopyFrom(request.message)
    for index, arrays in request.arrays.items():
        operation = message.operations[index]
        transform = getattr(operation, operation.WhichOneof("operation") or "")
        transform.data.extend(map(bytes, arrays))
    return message.SerializeToString()


def _parse(raw: bytes) -> Response:
    return Response(ExecuteResponse.FromString(bytes(raw)).results)


EXECUTE = Method("/nnpa.zdnn.v1.AcceleratorService/Execute", _serialize, _parse)
_CREATE_SESSION = "/nnpa.zdnn.v1.AcceleratorService/CreateSession"
_DELETE_SESSION = "/nnpa.zdnn.v1.AcceleratorService/DeleteSession"
_LOST = frozenset({"UNAVAILABLE", "INTERNAL", "CANCELLED", "UNKNOWN"})
"""Codes of a proxy whose server is gone; a server's own refusal also has a reason."""


class Transport(Protocol):
    """A connection to a server.

    Calls raise `TransportError`, or `ProgramCheck` where the machine would end the program.
    """

    @property
    def target(self) -> str:
        """The address of the server."""
        ...

    def ticket(self, name: str) -> str:
        """Return the ticket that a proxy gave to a session or trace, "" for none."""
        ...

    def unary(self, method: Method[Sent, Received], request: Sent) -> Received:
        """Send one message, and return the answer."""
        ...

    def send_stream(self, method: Method[Sent, Received], requests: Iterable[Sent]) -> Received:
        """Send messages, and return the answer to all of them."""
        ...

    def receive_stream(self, method: Method[Sent, Received], request: Sent) -> Iterator[Received]:
        """Send one message, and return its answers; closing the iterator ends the call."""
        ...

    def hold(
        self, method: Method[Sent, Received], request: Sent, ended: Ended, is_again: bool
    ) -> Callable[[], object]:
        """Open a call that stays open, and return the function that ends it.

        With `is_again`, after a broken connection, wait until the server can be reached.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Answers(Protocol[Answer]):
    """A call of gRPC whose answers come one by one."""

    def __iter__(self) -> Iterator[Answer]: ...

    def initial_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """Return the headers of the answer."""
        ...

    def cancel(self) -> object:
        """End the call; the answers end with it."""
        ...


class GrpcTransport:
    """A connection over gRPC: TCP, TLS or a Unix socket.

    `connect_timeout` bounds calls that open and close, `timeout` every other call, in seconds.
    `tickets` are tickets of sessions and traces that exist already.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        connect_timeout: float | None = 10.0,
        timeout: float | None = None,
        tickets: Tickets | None = None,
    ) -> None:
        self.target = endpoint.target
        self.timeouts: Mapping[Timeout, float | None] = {
            "call": timeout,
            "connect": connect_timeout,
            "none": None,
        }
        token = endpoint.token
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self.channel = open_channel(endpoint)
        self._callables: dict[object, Any] = {}
        self.tickets = Tickets() if tickets is None else tickets
        self._closed = False
        self._may_be_tls = endpoint.tls_ca is None and not endpoint.is_unix

    def ticket(self, name: str) -> str:
        """Return the ticket that a proxy gave to a session or trace, "" for none."""
        return self.tickets.get(name, "")

    def unary(self, method: Method[Sent, Received], request: Sent) -> Received:
        """Send one message, and return the answer."""
        call = self._callable(method, self.channel.unary_unary)
        if method.path == _CREATE_SESSION:
            return self._create(method, request, call)
        answer: Received = self._begin(method, request, request, call)
        if method.path == _DELETE_SESSION:
            self.tickets.keep(named(request), "")
        return answer

    def _create(self, method: Method[Sent, Received], request: Sent, call: Any) -> Received:
        """Create a session, and keep its ticket: a new one, or the one that routed the call."""
        answer: Any
        answer, opened = self._begin(method, request, request, call.with_call)
        ticket = ticket_in(opened.initial_metadata() or ())
        self.tickets.keep(answer.name, ticket or self.tickets.of(request))
        session: Received = answer
        return session

    def send_stream(self, method: Method[Sent, Received], requests: Iterable[Sent]) -> Received:
        """Send messages, and return the answer to all of them."""
        call = self._callable(method, self.channel.stream_unary)
        rest = iter(requests)
        first = list(islice(rest, 1))
        answer: Received = self._begin(method, first and first[0], chain(first, rest), call)
        return answer

    def receive_stream(self, method: Method[Sent, Received], request: Sent) -> Iterator[Received]:
        """Send one message, and return its answers; closing the iterator ends the call."""
        call = self._callable(method, self.channel.unary_stream)
        return self._received(self._begin(method, request, request, call), request)

    def hold(
        self, method: Method[Sent, Received], request: Sent, ended: Ended, is_again: bool
    ) -> Callable[[], object]:
        """Open a call that stays open, and return the function that ends it."""
        make = partial(self._callable(method, self.channel.unary_stream), wait_for_ready=is_again)
        call = self._begin(method, request, request, make)

        def has_ended() -> None:
            is_well = call.code() is grpc.StatusCode.OK
            ended(None if is_well else self.error_from(call, request))

        call.initial_metadata()  # waits until it is open, or has ended
        if not call.add_callback(has_ended):
            has_ended()
        if not call.is_active() and call.code() is not grpc.StatusCode.OK:
            raise self.error_from(call, request)
        end: Callable[[], object] = call.cancel
        return end

    def _callable(self, method: Method[Any, Any], make: Callable[..., Any]) -> Any:
        if method not in self._callables:
            self._callables[method] = make(method.path, method.serialize, method.parse)
        return self._callables[method]

    def metadata_with(self, ticket: str) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call that has a ticket, or "" for none."""
        return (*self.metadata, (HEADER, ticket)) if ticket else self.metadata

    def _begin(
        self, method: Method[Any, Any], first: object, sent: object, call: Callable[..., Any]
    ) -> Any:
        """Start a gRPC call, and return its answer, or the call where answers stream."""
        timeout = self.timeouts[method.timeout]
        metadata = self.metadata_with(self.tickets.of(first)) if self.tickets else self.metadata
        try:
            return call(sent, timeout=timeout, metadata=metadata or None)
        except (grpc.RpcError, ValueError) as error:
            raise self.error_from(error, first) from None

    def error_from(self, error: grpc.RpcError | ValueError, request: object) -> NnpaError:
        """Return the exception for a failed call, which may say that the session is lost."""
        in_session = not self._closed and is_session(named(request))
        failure = error_from_rpc(error, self.target, in_session)
        if self._may_be_tls and isinstance(failure, TransportError) and _is_unreached(failure):
            self._may_be_tls = False
            if not in_session and speaks_tls(self.target):
                text = f"{self.target} speaks TLS"
                return TransportError("UNAVAILABLE", text, advice=_GIVE_CA)
        return failure

    def _received(self, call: "Answers[Received]", request: object) -> Iterator[Received]:
        try:
            for answer in call:
                trace = getattr(answer, "trace", "")  # of RecordTrace's first answer
                if trace:
                    ticket = ticket_in(call.initial_metadata() or ())
                    self.tickets.keep(trace, ticket or self.tickets.of(request))
                yield answer
        except grpc.RpcError as error:
            raise self.error_from(error, request) from None
        finally:
            call.cancel()

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        self.channel.close()


def open_channel(endpoint: Endpoint) -> grpc.Channel:
    """Return a channel to a server, encrypted if the endpoint has certificates."""
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0 if endpoint.is_loopback else 1),
    ]
    if endpoint.tls_ca is None:
        return grpc.insecure_channel(endpoint.target, options)
    credentials = grpc.ssl_channel_credentials(
        _pem("tls_ca", endpoint.tls_ca, "CERTIFICATE"),
        _pem("tls_key", endpoint.tls_key, "PRIVATE KEY"),
        _pem("tls_cert", endpoint.tls_cert, "CERTIFICATE"),
    )
    return grpc.secure_channel(endpoint.target, credentials, options)


def _pem(name: str, path: Path | None, label: str) -> bytes | None:
    """Return the contents of a PEM file; raise ValueError that names the argument."""
    if path is None:
        return None
    try:
        contents = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{name}: {path}: {error.strerror}; expected a PEM file") from None
    if f"{label}-----".encode() not in contents:
        raise ValueError(f"{name}: {path}: no {label} in it, expected a PEM file")
    return contents


def _is_unreached(failure: TransportError) -> bool:
    return failure.code == "UNAVAILABLE" and not failure.reason


def speaks_tls(target: str) -> bool:
    """Return True if a TLS handshake succeeds at host:port, with any certificate."""
    import ssl  # seldom needed

    host, _, port = target.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with contextlib.suppress(OSError, ValueError):
        address = host.strip("[]"), int(port)
        with (
            socket.create_connection(address, _PROBE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]")),
        ):
            return True
    return False


def error_from_rpc(
    error: grpc.RpcError | ValueError, target: str, in_session: bool = False
) -> NnpaError:
    """Return the exception for a failed gRPC call; it names `target` when nothing answered.

    gRPC raises ValueError on a closed channel. A call `in_session` that failed without a reason of
    the server's has lost the session's server.
    """
    if isinstance(error, ValueError):
        if "closed" not in str(error).lower():
            return TransportError("CANCELLED", f"{target}: {error}")
        text = f"{target}: the session's connection is closed"
        return TransportError("CANCELLED", text, advice="Work inside `with connect():`.")
    if not hasattr(error, "trailing_metadata"):
        return TransportError("UNKNOWN", str(error))
    call: Any = error  # of gRPC, or of a plain socket
    code, message = call.code().name, call.details() or ""
    status = rpc_status.from_call(call)
    info, retry, reports = ErrorInfo(), RetryInfo(), list[SanitizerReport]()
    for detail in status.details if status is not None else ():
        report = SanitizerReport()
        if not detail.Unpack(info) and not detail.Unpack(retry) and detail.Unpack(report):
            reports.append(report)
    if in_session and not info.reason and code in _LOST:
        return SessionLostError(code, f"{target}: {message}")
    metadata = dict(info.metadata)
    where = f"{target}: " if code == "UNAVAILABLE" and not info.reason else ""
    refusal = TransportError(code, f"{where}{message}", info.reason, metadata)
    if retry.HasField("retry_delay"):
        refusal.retry_delay = retry.retry_delay.ToNanoseconds() / 1e9
    is_check = info.reason == "PROGRAM_CHECK"
    failure: NnpaError = ProgramCheck(message, metadata) if is_check else refusal
    failure.reports = reports
    return failure
