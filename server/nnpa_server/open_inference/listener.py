# SPDX-License-Identifier: Apache-2.0
"""A listener for the Open Inference Protocol alone, for many clients with small requests.

Its calls are taken by one event loop, and those of quick models are run there: where many clients
ask at once, handing each request from thread to thread takes longer than answering it. Measured
with eight clients and a model of one addition: 1.3 to 1.5 times the requests. Everything else goes
to the server's threads. What is around a call, and what it does, is the same on every listener.
"""

import asyncio
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from typing import Any, TypeAlias

import grpc
import grpc.aio

from nnpa_server.open_inference.handlers import SERVICE
from nnpa_server.open_inference.messages import InferRequest

Handlers: TypeAlias = Mapping[str, Any]
"""grpc.RpcMethodHandlers by the method's name; their behaviours take the context of a thread."""
_END = object()


class InferenceListener:
    """Serves `handlers` on an event loop of its own; `quick` tells which requests run there."""

    def __init__(
        self,
        handlers: Handlers,
        pool: Executor,
        quick: Callable[[InferRequest], bool],
        options: Sequence[tuple[str, Any]],
    ) -> None:
        self._handlers, self._pool, self._quick = handlers, pool, quick
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="inference", daemon=True)
        self._server: Any = None

    def start(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        """Listen and serve; return the port. Raises RuntimeError where it cannot listen."""
        self._thread.start()
        return asyncio.run_coroutine_threadsafe(
            self._open(address, credentials), self._loop
        ).result()

    def _turn(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def _open(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        server: Any = grpc.aio.server(options=self._options)
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
        """Take no new calls, give those under way so many seconds, and end. May be repeated."""
        server, self._server = self._server, None
        if server is not None:
            asyncio.run_coroutine_threadsafe(server.stop(grace), self._loop).result()
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _method(self, name: str, handler: Any) -> Any:
        """Return a method's handler for the loop, from its handler for threads."""
        messages = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.stream_stream is not None:
            conversation = self._conversation(handler.stream_stream)
            return grpc.stream_stream_rpc_method_handler(conversation, **messages)
        once = self._once(handler.unary_unary, name == "ModelInfer")
        return grpc.unary_unary_rpc_method_handler(once, **messages)

    def _once(self, behaviour: Callable[..., Any], infers: bool) -> Callable[..., Any]:
        async def answer(request: Any, context: Any) -> Any:
            seen = _Context(context, self._loop)
            try:
                if infers and isinstance(request, InferRequest) and self._quick(request):
                    return behaviour(request, seen)
                return await self._loop.run_in_executor(self._pool, behaviour, request, seen)
            except _Ended as ended:
                await context.abort(ended.code, ended.details)

        return answer

    def _conversation(self, behaviour: Callable[..., Any]) -> Callable[..., Any]:
        async def answer(requests: Any, context: Any) -> None:
            seen = _Context(context, self._loop)

            def work() -> None:
                for response in behaviour(seen.each(requests), seen):
                    seen.wait(context.write(response))

            try:
                await self._loop.run_in_executor(self._pool, work)
            except _Ended as ended:
                await context.abort(ended.code, ended.details)

        return answer


class _Ended(Exception):
    """A behaviour ended its call with an error."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code, self.details = code, details


class _Context:
    """What behaviours ask of a call in their thread, asked of the loop's context."""

    def __init__(self, context: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._context, self._loop = context, loop
        self._awaited: Future[Any] | None = None
        self._cut_off = False
        self.invocation_metadata = context.invocation_metadata
        self.peer = context.peer
        self.time_remaining = context.time_remaining
        self.set_trailing_metadata = context.set_trailing_metadata
        self.trailing_metadata = context.trailing_metadata

    def is_active(self) -> bool:
        """Tell whether the call still runs."""
        return not self._context.done()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have something called when the call ends; tell whether it had not ended before."""
        if self._context.done():
            return False

        def ended(_context: object) -> None:
            callback()

        self._context.add_done_callback(ended)
        return True

    def cancel(self) -> None:
        """Cut the call off: what its thread waits for, now or next, does not come."""
        self._cut_off = True
        if self._awaited is not None:
            self._awaited.cancel()

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the call with an error."""
        raise _Ended(code, details)

    def abort_with_status(self, status: grpc.Status) -> None:
        """End the call with an error and its details."""
        self.set_trailing_metadata(status.trailing_metadata)
        raise _Ended(status.code, status.details)

    def wait(self, coming: Any) -> Any:
        """Wait in this thread for what the loop does; raise RpcError if the call is cut off."""
        self._awaited = asyncio.run_coroutine_threadsafe(coming, self._loop)
        if self._cut_off:
            self._awaited.cancel()
        try:
            return self._awaited.result()
        except (CancelledError, asyncio.CancelledError) as error:
            raise grpc.RpcError("the call was cancelled") from error

    def each(self, requests: Any) -> Generator[Any]:
        """Yield a stream's requests as they are asked for."""
        messages = requests.__aiter__()
        while (message := self.wait(anext(messages, _END))) is not _END:
            yield message
