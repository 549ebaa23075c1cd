# SPDX-License-Identifier: Apache-2.0
"""Around every call: errors, the access log, the request id, counts, and who may come in.

The request id is the caller's `x-request-id` if it is one, else a new one; it goes back in the
trailing metadata and stands in the log. A session's name is its key, so logs show a hash of it.
"""

import logging
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallCancelled, CallRefused, from_exception, invalid
from nnpa_server.store import session_tag

Handler: TypeAlias = Any  # a grpc.RpcMethodHandler, whose kind decides which field is its code
if TYPE_CHECKING:
    _ServerInterceptor = grpc.ServerInterceptor[Any, Any]  # generic in the stubs only
else:
    _ServerInterceptor = grpc.ServerInterceptor
_log = logging.getLogger("nnpa.access")
_failures = logging.getLogger("nnpa.failure")
_REQUEST_ID = "x-request-id"
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_OURS = "/nnpa."


@dataclass(slots=True)
class Call:
    """What is told about one call: filled in while it runs."""

    method: str
    request_id: str
    started: float = field(default_factory=time.perf_counter)
    session: str = "-"
    operations: int = 0
    status: str = "OK"


class Garbage:
    """A request whose bytes are no message of its type."""


class Interceptor(_ServerInterceptor):
    """The one interceptor. `max_streams` bounds calls that keep a thread while they wait."""

    def __init__(self, max_streams: int) -> None:
        self._max_streams = max_streams
        self._handlers: dict[str, Handler] = {}
        self._lock = threading.Condition()
        self._running = 0
        self._streams = 0
        self._draining = False
        self.counts: Counter[tuple[str, str]] = Counter()

    def drain(self, timeout: float) -> bool:
        """Refuse new calls and wait for the running ones; tell whether all of them ended."""
        with self._lock:
            self._draining = True
            return self._lock.wait_for(lambda: self._running == 0, timeout)

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: Any
    ) -> Any:
        """Return the method's handler, wrapped; health and reflection pass as they are."""
        method: str = handler_call_details.method
        if not method.startswith(_OURS):
            return continuation(handler_call_details)
        wrapped = self._handlers.get(method)
        if wrapped is None:
            handler = continuation(handler_call_details)
            if handler is None:
                return None
            wrapped = self._handlers[method] = self._wrap(handler, method.rpartition("/")[2])
        return wrapped

    def _wrap(self, handler: Handler, method: str) -> Handler:
        kind = ("stream" if handler.request_streaming else "unary") + (
            "_stream" if handler.response_streaming else "_unary"
        )
        behaviour = getattr(handler, kind)
        wrap = self._answering_stream if handler.response_streaming else self._answering_once
        make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
        streaming: bool = handler.request_streaming or handler.response_streaming
        return make(
            wrap(behaviour, method, streaming, handler.request_streaming),
            request_deserializer=_tolerant(handler.request_deserializer),
            response_serializer=handler.response_serializer,
        )

    def _answering_once(
        self, behaviour: Callable[..., Any], method: str, streaming: bool, reads: bool
    ) -> Callable[..., Any]:
        def answer(request: Any, context: Any) -> Any:
            with self._call(method, context, streaming) as call:
                response = behaviour(_told(call, request, reads), context)
                call.operations = len(getattr(response, "results", ()))
                return response

        return answer

    def _answering_stream(
        self, behaviour: Callable[..., Any], method: str, streaming: bool, reads: bool
    ) -> Callable[..., Any]:
        def answer(request: Any, context: Any) -> Generator[Any]:
            with self._call(method, context, streaming) as call:
                responses = behaviour(_told(call, request, reads), context)
                try:
                    for response in responses:
                        call.operations += len(getattr(response, "results", ()))
                        yield response
                finally:
                    responses.close()

        return answer

    @contextmanager
    def _call(self, method: str, context: Any, streaming: bool) -> Generator[Call]:
        """Let a call in, and turn what it raises into its gRPC error."""
        call = Call(method, _request_id(context))
        refused: CallRefused | None = None
        entered = False
        try:
            context.set_trailing_metadata(((_REQUEST_ID, call.request_id),))
            self._enter(streaming)
            entered = True
            yield call
        except CallCancelled as error:
            call.status = error.code.name
            context.abort(error.code, error.code.name)
        except GeneratorExit:
            call.status = grpc.StatusCode.CANCELLED.name
            raise
        except Exception as error:
            refused = from_exception(error)
            call.status = refused.name
            if refused.reason == wire.ERROR_REASON_INTERNAL:
                _failures.exception("correlation_id=%s", refused.metadata["correlation_id"])
            context.abort_with_status(refused.status())
        finally:
            if entered:
                self._leave(streaming)
            self._report(call, refused)

    def _enter(self, streaming: bool) -> None:
        with self._lock:
            if self._draining:
                raise CallRefused(
                    wire.ERROR_REASON_SERVER_DRAINING,
                    "the server is shutting down: retry against another one",
                )
            self._running += 1
            self._streams += streaming

    def _leave(self, streaming: bool) -> None:
        with self._lock:
            self._running -= 1
            self._streams -= streaming
            if self._draining:
                self._lock.notify_all()

    def _report(self, call: Call, refused: CallRefused | None) -> None:
        self.counts[call.method, call.status] += 1
        if not _log.isEnabledFor(logging.INFO):
            return
        milliseconds = (time.perf_counter() - call.started) * 1e3
        why = f" why={refused.message!r}" if refused is not None else ""
        _log.info(
            "method=%s session=%s operations=%d status=%s ms=%.3f id=%s%s",
            call.method, call.session, call.operations, call.status, milliseconds,
            call.request_id, why,
        )  # fmt: skip


def _tolerant(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return a parser that hands garbage on, so that the caller gets a documented error."""

    def read(raw: bytes) -> Any:
        try:
            return parse(raw)
        except DecodeError:
            return Garbage()

    return read


def _request_id(context: Any) -> str:
    for key, value in context.invocation_metadata():
        if key == _REQUEST_ID and isinstance(value, str) and _SAFE_ID.fullmatch(value):
            return value
    return secrets.token_hex(8)


def _told(call: Call, request: Any, reads: bool) -> Any:
    """Return the request or the requests, noting on the way whose session it is about."""
    if reads:
        return _told_stream(call, request)
    _note(call, request)
    return request


def _told_stream(call: Call, requests: Iterator[Any]) -> Generator[Any]:
    for number, request in enumerate(requests):
        if number == 0 or isinstance(request, Garbage):
            _note(call, request)
        yield request


def _note(call: Call, request: Any) -> None:
    if isinstance(request, Garbage):
        raise invalid("request", "no message of its type", "protocol buffer wire format")
    about = getattr(request, "header", request)
    name = getattr(about, "session", "") or getattr(about, "name", "")
    name = getattr(name, "name", name)
    if isinstance(name, str) and name.startswith("sessions/"):
        call.session = session_tag(name)
