# SPDX-License-Identifier: Apache-2.0
"""Health and reflection: calls that need no token, with threads and bounds of their own.

However many of them come, the threads and the bytes under way of all other calls stay free.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

import grpc

from nnpa_server.errors import CallCancelled, CallRefused, no_message
from nnpa_server.rpc.admission import AdmittingPool, MessageWaits
from nnpa_server.rpc.budget import CALL_BYTES, Account, UnderWay
from nnpa_server.rpc.callers import Shares, connection_of
from nnpa_server.rpc.methods import (
    Handler,
    Parse,
    Raw,
    Serialize,
    ServerInterceptor,
    kind_of,
    raw_handler,
)
from nnpa_server.rpc.reading import parse_message
from nnpa_server.sessions.cancellation import CallContext

MAX_THREADS = 16  # for calls that are answered at once
MAX_WATCHES = 64  # streams of Health.Watch, each of which keeps a thread
MAX_UNFINISHED = 4  # calls that may take their time, message included
MAX_MESSAGE = 16 << 10  # bytes
MAX_BYTES = 64 << 20  # under way, also of calls without a token where one is asked for
_MIN_WAIT = 0.2  # seconds that a call has, however many there are


class PublicCalls(ServerInterceptor):
    """Wraps the methods that need no token."""

    def __init__(self, message_timeout: float, give_back: Callable[[], object] = int) -> None:
        self._waits = MessageWaits(MAX_UNFINISHED, _MIN_WAIT, message_timeout, give_back)
        self._under_way = UnderWay(MAX_BYTES, MAX_MESSAGE, message_timeout, give_back)
        threads = MAX_THREADS + MAX_WATCHES
        self.pool = AdmittingPool(threads, "public", self._under_way.budget, CALL_BYTES)
        self._handlers: dict[str, Handler] = {}
        self._watches = Shares("max_watches", MAX_WATCHES, "streams")

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Handler | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the method's handler, wrapped."""
        method = handler_call_details.method
        if method not in self._handlers:
            handler = continuation(handler_call_details)
            if handler is None:
                return None
            self._handlers[method] = self._around(handler)
        return self._handlers[method]

    def close(self) -> None:
        """Stop taking calls."""
        self._waits.close()
        self._under_way.close()
        self.pool.shutdown(wait=False, cancel_futures=True)

    def account(self, context: CallContext) -> Account:
        """Return the account of a call without a token."""
        return self._under_way.account(connection_of(context), context)

    def _around(self, handler: Handler) -> Handler:
        reads, writes = handler.request_streaming, handler.response_streaming
        behaviour = getattr(handler, kind_of(reads, writes))
        parse, serialize = handler.request_deserializer, handler.response_serializer
        assert parse is not None
        assert serialize is not None

        def once(requests: Iterator[Raw], context: CallContext) -> object:
            with self._counted(context) as account, self._waits.waiting(context):
                raw = serialize(behaviour(_only(requests, parse, account), context))
                account.send(len(raw))
                return raw

        def watch(requests: Iterator[Raw], context: CallContext) -> Generator[object]:
            with self._counted(context) as account, self._room(context):
                with self._waits.waiting(context):
                    request = _only(requests, parse, account)
                yield from _sent(behaviour(request, context), serialize, account)

        def converse(requests: Iterator[Raw], context: CallContext) -> Generator[object]:
            with self._counted(context) as account, self._waits.waiting(context):
                account.expect_message(lasts=True)
                messages = (parse_message(raw, parse, MAX_MESSAGE) for raw in requests)
                yield from _sent(behaviour(messages, context), serialize, account)

        answer = converse if reads else watch if writes else once
        vars(answer)["experimental_thread_pool"] = self.pool  # where gRPC looks for it
        return raw_handler(answer, writes)

    @contextmanager
    def _counted(self, context: CallContext) -> Generator[Account]:
        """Count the bytes of a call, and end the call with the status of an error.

        NotImplementedError means that the service does not implement the method.
        """
        account = self.account(context)
        try:
            yield account
        except NotImplementedError:
            text = "this server does not implement the method"
            context.abort(grpc.StatusCode.UNIMPLEMENTED, text)
        except CallRefused as refused:
            context.abort_with_status(refused.status())
        except CallCancelled as cancelled:
            context.abort(cancelled.code, str(cancelled))
        finally:
            account.close()

    @contextmanager
    def _room(self, context: CallContext) -> Generator[None]:
        """Hold a place for a stream that stays open; refuse it if its caller has no more."""
        caller = connection_of(context)
        self._watches.take(caller)
        try:
            yield
        finally:
            self._watches.give(caller)


def _only(requests: Iterator[Raw], parse: Parse, account: Account) -> object:
    """Return the message of a unary call."""
    account.expect_message()
    for raw in requests:
        return parse_message(raw, parse, MAX_MESSAGE)
    raise no_message()


def _sent(responses: Generator[object], serialize: Serialize, account: Account) -> Generator[bytes]:
    """Yield the serialized answers of a stream, and count each until it is sent."""
    for response in responses:
        raw = serialize(response)
        with account.sending(len(raw)):
            yield raw
