# SPDX-License-Identifier: Apache-2.0
"""A listener for the Open Inference Protocol alone, on an event loop.

It serves the same handlers as every other listener. The event loop runs requests that were quick
before, which saves handing them from thread to thread; all others run in the server's threads.
Measured with eight clients and a model of one addition: 1.3 to 1.5 times the requests per second.
"""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import grpc
import grpc.aio

from nnpa_server.errors import CallRefused
from nnpa_server.open_inference.handlers import SERVICE
from nnpa_server.open_inference.messages import InferRequest
from nnpa_server.rpc.admission import AdmittingPool
from nnpa_server.rpc.budget import Reservation
from nnpa_server.rpc.call import CallContext
from nnpa_server.rpc.callers import Shares
from nnpa_server.rpc.messages import Received
from nnpa_server.rpc.methods import Behaviour, Handler, StreamBehaviour, kind_of
from nnpa_server.sessions.cancellation import Metadata

AioContext: TypeAlias = Any
"""grpc.aio.ServicerContext, whose stubs leave half of it out."""
_Answer: TypeAlias = Callable[[AioContext, str], Awaitable[object]]  # of a caller's call
_aio: Any = grpc.aio
_END_OF_STREAM: object = _aio.EOF
_LOOK_SECONDS, _LOOKS = 0.02, 50  # between looks for room, and how many of them
_parents: "WeakKeyDictionary[asyncio.Task[Any], asyncio.Task[Any] | None]" = WeakKeyDictionary()
_END_TIMEOUT = 0.1  # seconds beyond the grace of calls until the loop has ended


class InferenceListener:
    """Serves `handlers` on an event loop of its own; `quick` tells which requests run there.

    The handlers take one message as a stream, and refuse who shows no token. `reserve` gives room
    to a call before its message is read, and none without a token: `max_message` bytes, until it
    has come, for which it has `message_timeout` seconds. Of `calls` each caller, named by
    `caller_of`, has its share; gRPC itself refuses more than twice as many as there may be.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        pool: AdmittingPool,
        quick: Callable[[InferRequest], bool],
        options: Sequence[tuple[str, int]],
        reserve: Callable[[CallContext], Reservation | None],
        max_message: int,
        message_timeout: float,
        calls: Shares,
        caller_of: Callable[[Metadata, str], str],
    ) -> None:
        self._handlers, self._pool, self._quick = handlers, pool, quick
        self._options, self._calls, self._caller_of = options, calls, caller_of
        self._reserve, self._max_message = reserve, max_message
        self._message_timeout = message_timeout
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(_remember_parent)
        self._thread = threading.Thread(target=self._run_loop, name="inference", daemon=True)
        self._server: Any = None

    def start(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        """Listen and serve; return the port. Raises RuntimeError where it cannot listen."""
        self._thread.start()
        return asyncio.run_coroutine_threadsafe(
            self._open(address, credentials), self._loop
        ).result()

    def _run_loop(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def _open(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        server: Any = grpc.aio.server(
            options=self._options, maximum_concurrent_rpcs=2 * self._calls.limit
        )
        methods = {name: self._method(name, handler) for name, handler in self._handlers.items()}
        generic = grpc.method_handlers_generic_handler(SERVICE, methods)
        server.add_generic_rpc_handlers((generic,))
        port: int
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
        await server.start()
        self._server = server
        return port

    def stop(self, grace: float) -> None:
        """Refuse new calls, wait `grace` seconds for running ones, and end. May be repeated."""
        server, self._server = self._server, None
        if server is not None:
            stopped = asyncio.run_coroutine_threadsafe(server.stop(grace), self._loop)
            with suppress(TimeoutError):  # a request of the loop's own runs
                stopped.result(grace + _END_TIMEOUT)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_END_TIMEOUT)

    def _method(self, name: str, handler: Handler) -> Handler:
        """Return a method's handler for the loop, from its handler for threads."""
        codec = handler.request_deserializer, handler.response_serializer
        behaviour = getattr(handler, kind_of(True, handler.response_streaming))
        if handler.response_streaming:
            stream = self._shared(self._stream(behaviour), lambda *call: next(behaviour(*call)))
            return grpc.stream_stream_rpc_method_handler(stream, *codec)
        unary = self._shared(self._unary(behaviour, name == "ModelInfer"), behaviour)
        return grpc.stream_unary_rpc_method_handler(unary, *codec)

    def _shared(self, answer: _Answer, behaviour: Behaviour) -> Behaviour:
        """Guard what answers calls: each caller has its share of them.

        The behaviour refuses others when it reads a message, so that its log tells of them.
        """

        async def counted(_requests: object, context: AioContext) -> object:
            caller = self._caller_of(context.invocation_metadata() or (), context.peer())
            try:
                self._calls.take(caller)
            except CallRefused as refused:
                thread_context = _Context(context, self._loop, counts_messages=True)
                try:
                    behaviour(_raising(refused), thread_context)
                except _Aborted as aborted:
                    await context.abort(aborted.code, aborted.details)
                raise
            try:
                return await answer(context, caller)
            finally:
                self._calls.give(caller)

        return counted

    def _unary(self, behaviour: Behaviour, infers: bool) -> _Answer:
        async def answer(context: AioContext, caller: str) -> object:
            thread_context = _Context(context, self._loop, counts_messages=True)
            reservation = self._reserve(thread_context)
            try:
                received = await self._only(context, thread_context, reservation)
                message = iter(() if received is _END_OF_STREAM else (received,))
                if infers and self._is_quick(received):
                    return behaviour(message, thread_context)
                work = partial(behaviour, message, thread_context)
                return await asyncio.wrap_future(self._pool.submit_for(caller, work))
            except _Aborted as aborted:
                await context.abort(aborted.code, aborted.details)
                raise
            finally:
                if reservation is not None:
                    reservation.close()

        return answer

    def _is_quick(self, received: object) -> bool:
        message = received.message if isinstance(received, Received) else None
        return isinstance(message, InferRequest) and self._quick(message)

    async def _only(
        self, context: AioContext, call: "_Context", reservation: Reservation | None
    ) -> object:
        """Return the message of a unary call, with its size; none for who may not come in."""
        if reservation is None:
            return _END_OF_STREAM
        try:
            async with asyncio.timeout(self._message_timeout):
                await self._make_room(call, reservation)
                received = await context.read()  # faster than the iterator: a fifth for 2 MiB
        except TimeoutError:
            raise _Aborted(grpc.StatusCode.CANCELLED, "the message did not come") from None
        reservation.resize(received.size if isinstance(received, Received) else 0)
        return received

    async def _make_room(self, call: "_Context", reservation: Reservation) -> None:
        """Wait for room for the largest message."""
        for _ in range(_LOOKS):
            if reservation.try_resize(self._max_message):
                return
            await asyncio.sleep(_LOOK_SECONDS)
        call.abort_with_status(reservation.refusal(self._max_message).status())

    def _stream(self, behaviour: StreamBehaviour) -> _Answer:
        async def answer(context: AioContext, _caller: str) -> None:
            thread_context = _Context(context, self._loop, counts_messages=False)

            def work() -> None:
                for response in behaviour(thread_context.each(), thread_context):
                    thread_context.wait(context.write(response))

            try:
                await self._loop.run_in_executor(self._pool, work)
            except _Aborted as aborted:
                await context.abort(aborted.code, aborted.details)

        return answer


def _raising(error: Exception) -> Generator[object]:
    """Raise an error when the first message is read."""
    raise error
    yield


class _Aborted(Exception):
    """A handler aborted its call."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code, self.details = code, details


def _remember_parent(
    loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
) -> "asyncio.Task[Any]":
    """Make a task that knows which one began it: gRPC has a call's handler begun by another."""
    task = asyncio.Task(coroutine, loop=loop, **options)
    _parents[task] = asyncio.current_task(loop)
    return task


class _Context:
    """The context of a call in a thread, over the event loop's context.

    `counts_messages` is whether the call's message was counted when it was read.
    """

    def __init__(
        self, context: AioContext, loop: asyncio.AbstractEventLoop, *, counts_messages: bool
    ) -> None:
        self._context, self._loop = context, loop
        self.counts_messages = counts_messages
        self._task = asyncio.current_task(loop)
        self._waiting_for: Future[object] | None = None
        self._is_cancelled = False
        self.invocation_metadata = context.invocation_metadata
        self.peer = context.peer
        self.time_remaining = context.time_remaining
        self.set_trailing_metadata = context.set_trailing_metadata
        self.trailing_metadata = context.trailing_metadata
        self.set_code, self.set_details = context.set_code, context.set_details

    def is_active(self) -> bool:
        """Return whether the call still runs."""
        return not self._context.done()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Add a callback for the end of the call; return False if it has ended."""
        if self._context.done():
            return False

        def ended(_context: object) -> None:
            callback()

        self._context.add_done_callback(ended)
        return True

    def cancel(self) -> None:
        """Cancel what the thread of the call waits for, now or next."""
        self._is_cancelled = True
        if self._waiting_for is not None:
            self._waiting_for.cancel()

    def cut_off(self) -> None:
        """Cut the call off, also one that sends what its client does not take."""
        self.cancel()
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        """End the tasks of the call: gRPC's core frees an answer when nothing holds its call."""
        for task in (self._task, _parents.get(self._task) if self._task else None):
            if task is not None:
                task.cancel()
        self._task = None
        self._loop.call_later(_LOOK_SECONDS, gc.collect)  # gRPC's objects are a cycle

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the call with an error."""
        raise _Aborted(code, details)

    def abort_with_status(self, status: grpc.Status) -> None:
        """End the call with an error and its details."""
        self.set_trailing_metadata(status.trailing_metadata)
        raise _Aborted(status.code, status.details)

    def wait(self, coroutine: Coroutine[None, None, object]) -> object:
        """Wait in this thread for a coroutine on the loop; raise RpcError when cancelled."""
        self._waiting_for = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        if self._is_cancelled:
            self._waiting_for.cancel()
        try:
            return self._waiting_for.result()
        except (CancelledError, asyncio.CancelledError) as error:
            raise grpc.RpcError("the call was cancelled") from error

    def each(self) -> Generator[object]:
        """Yield the requests of a stream as they arrive."""
        while (message := self.wait(self._context.read())) is not _END_OF_STREAM:
            yield message
