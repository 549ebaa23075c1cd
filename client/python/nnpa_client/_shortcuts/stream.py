# SPDX-License-Identifier: Apache-2.0
"""Lists of operations one after the other over one stream, which costs less than a call each.

Measured with one addition of 32x64: 0.4 ms in place of 0.9 ms, on a plain socket 0.2 ms.
"""

import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias, cast

import grpc
from nnpa.zdnn.v1.accelerator_pb2 import Session

from nnpa_client._methods import CREATE_SESSION, DELETE_SESSION
from nnpa_client._shortcuts.wrapper import TransportWrapper
from nnpa_client._transport import (
    GrpcTransport,
    Method,
    Received,
    Request,
    Response,
    Sent,
    Transport,
    error_from_rpc,
)
from nnpa_client.errors import TransportError

_EXECUTE_STREAM = "/nnpa.zdnn.v1.AcceleratorService/ExecuteStream"
Execute: TypeAlias = Method[Request, Response]


class Stream(Protocol):
    """One call of ExecuteStream that has begun."""

    def is_active(self) -> bool:
        """Tell whether it takes another list."""
        ...

    def ask(self, request: Request) -> Response:
        """Return the answer of a list; raise grpc.RpcError, or ValueError without an answer."""
        ...

    def close(self) -> None:
        """End it in order, if no list is in flight; may be repeated."""
        ...

    def cancel(self) -> None:
        """End it at once."""
        ...


class HttpStream:
    """A stream over HTTP/2, which `begin` makes of the lists to send."""

    def __init__(self, begin: Callable[[Iterator[Request]], Any]) -> None:
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._call = begin(iter(self._requests.get, None))  # kept: without it gRPC cancels

    def is_active(self) -> bool:
        """Tell whether it takes another list."""
        active: bool = self._call.is_active()
        return active

    def ask(self, request: Request) -> Response:
        """Return the answer of a list."""
        self._requests.put(request)
        try:
            response: Response = next(self._call)
        except StopIteration:
            raise ValueError("the stream of lists ended without an answer") from None
        return response

    def close(self) -> None:
        """End it: the thread that sends the lists must not wait for ever."""
        self._requests.put(None)

    def cancel(self) -> None:
        """End it at once."""
        self.close()
        self._call.cancel()


class Route(Protocol):
    """A way on which streams to a server begin."""

    def session_created(self, session: Session) -> None:
        """Note what the server says of its sockets."""
        ...

    def begin(self, method: Execute) -> Stream | None:
        """Begin a stream with a method's codec; None where this way is closed."""
        ...


class HttpRoute:
    """Streams over the connection of a transport."""

    def __init__(self, transport: GrpcTransport) -> None:
        self._transport = transport

    def session_created(self, session: Session) -> None:
        """Note nothing: every server has this way."""

    def begin(self, method: Execute) -> Stream:
        """Begin a stream."""
        call: Callable[..., Any] = self._transport.channel.stream_stream(
            _EXECUTE_STREAM, method.serialize, method.parse
        )
        metadata = self._transport.metadata or None
        return HttpStream(partial(call, metadata=metadata))


class RenewedStream:
    """A stream that `begin` begins, and begins anew when it has ended.

    One list is in flight at a time; an error ends the stream. One that has idled for more than
    `max_idle` seconds is closed: the server may be ending it.
    """

    max_idle = math.inf

    def __init__(self, begin: Callable[[Execute], Stream]) -> None:
        self._begin = begin
        self._turn = threading.Lock()
        self._stream: Stream | None = None
        self._ended: Stream | None = None  # kept when it is closed: without it gRPC cancels
        self._end: Callable[[], object] = int
        self._used = 0.0

    def ask(self, method: Execute, request: Request) -> Response | None:
        """Return the answer of a list; None, and nothing has run, while another is in flight.

        Raises grpc.RpcError as a unary call does; ValueError when the channel is closed, or the
        stream ends without an answer.
        """
        if not self._turn.acquire(blocking=False):
            return None
        try:
            stream, idle = self._stream, time.monotonic() - self._used
            if stream is None or idle > self.max_idle or not stream.is_active():
                stream = self._open(method)
            try:
                response = stream.ask(request)
                self._used = time.monotonic()
                return response
            except BaseException:
                self.close()
                stream.cancel()
                raise
        finally:
            self._turn.release()

    def _open(self, method: Execute) -> Stream:
        self.close()
        stream = self._stream = self._begin(method)
        self._end = weakref.finalize(self, stream.close)
        return stream

    def close(self) -> None:
        """End the stream in order; the next list begins another."""
        if self._stream is not None:
            self._stream, self._ended = None, self._stream
        self._end()


class StreamTransport(TransportWrapper):
    """A transport that sends lists over a stream, by the first of `routes` that is open.

    Without one, or while another list is in flight, a list is a unary call.
    """

    def __init__(self, inner: Transport, routes: Sequence[Route]) -> None:
        super().__init__(inner)
        self._routes = list(routes)
        self._stream = RenewedStream(self._begin)

    def unary(self, method: Method[Sent, Received], request: Sent) -> Received:
        """Send one message, a list over the stream, and return the answer."""
        if isinstance(request, Request):
            response = self._ask(cast("Execute", method), request) if self._routes else None
            if response is not None:
                return cast("Received", response)
        elif method is DELETE_SESSION:
            self._stream.close()
        answer = self.inner.unary(method, request)
        if method is CREATE_SESSION and isinstance(answer, Session):
            self._session_created(answer)
        return answer

    def _session_created(self, session: Session) -> None:
        for route in self._routes:
            route.session_created(session)
        if session.limits.HasField("idle_timeout"):
            idle_timeout = session.limits.idle_timeout.ToNanoseconds() / 1e9
            self._stream.max_idle = idle_timeout / 2  # what a server ends is far from it

    def _begin(self, method: Execute) -> Stream:
        for route in self._routes:
            stream = route.begin(method)
            if stream is not None:
                return stream
        raise _NoRouteError

    def _ask(self, method: Execute, request: Request) -> Response | None:
        """Return the answer of a list; None, and nothing has run, where no stream takes it."""
        try:
            return self._stream.ask(method, request)
        except _NoRouteError:
            return None
        except (grpc.RpcError, ValueError) as error:
            failure = error_from_rpc(error, self.target)
        if isinstance(failure, TransportError) and (
            failure.metadata.get("field") == "max_conversations"
        ):
            self._routes.clear()
            return None
        raise failure

    def close(self) -> None:
        """Close the stream and the connection."""
        self._stream.close()
        self.inner.close()


class _NoRouteError(Exception):
    """No route is open: lists are unary calls."""
