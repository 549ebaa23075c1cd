# SPDX-License-Identifier: Apache-2.0
"""Bound the bytes under way: messages and answers are counted before memory is taken for them.

gRPC takes memory for a whole message, up to its bound, as soon as the call reads; and it keeps two
copies of an answer until that is sent, even if its handler has ended. So a call reserves the size
of the largest message before it reads, and twice the size of its answer until the answer is sent or
the call is cut off.

A caller may have no more bytes than are free for all others: a single caller gets half of the
budget, two get a third each, and a newcomer always finds room.
Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches",
IEEE/ACM Transactions on Networking 6 (1998).
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.config import MAX_INLINE_BYTES
from nnpa_server.errors import CallRefused
from nnpa_server.sessions.cancellation import CallContext

FIELD = "max_bytes_under_way"
CALL_BYTES = 32 << 10
"""What gRPC and Python keep of a call until its end, beside its message and its answer."""
COPIES = 2
"""How often an answer is in memory until it is sent: as Python's bytes, and as gRPC's."""
SMALL_BYTES = 16 << 10
"""A plain socket does not count its messages and answers up to this size: it has few at a time."""
MIN_RATE = 1 << 20
"""Bytes per second: the slowest rate at which a client may take a large answer."""
_WAIT, _SHORT_WAIT = 2.0, 0.2  # seconds that a call waits for room; while many of its caller do
_UNKNOWN_SHARE = 16  # answers of unknown size that find room at a time, in a small budget
_MANY = 16  # calls of one caller that wait
_PERIOD = 0.5  # seconds between looks at answers that nobody takes, at most


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """Bytes that a call waits for; see `Budget.take` for `lasts`."""

    caller: str
    size: int
    lasts: bool
    turn: threading.Condition


class Budget:
    """A budget of `limit` bytes, of which no caller has more than are free for all others.

    The newest waiting call that fits gets room first. In a flood of calls the oldest have mostly
    given up, and in order of arrival a newcomer would wait behind all of them.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = limit
        self._held: dict[str, int] = {}
        self._waiting: list[_Request] = []  # the oldest first
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """The bytes that all callers hold together."""
        return self.limit - self._free

    def count_waiting(self) -> int:
        """Count the calls that wait for room."""
        return len(self._waiting)

    def take(self, caller: str, size: int, *, lasts: bool = False, waits: bool = True) -> bool:
        """Take bytes and return True, or return False if there is no room for them.

        `waits` waits a while for room. Bytes that a call keeps for long (`lasts`) fit only if the
        same number is still free for other calls of the caller.
        """
        with self._lock:
            fits = self._fits(caller, size, lasts)
            has_waited = not fits and waits and 2 * size <= self.limit
            if has_waited:
                fits = self._wait(_Request(caller, size, lasts, threading.Condition(self._lock)))
            if fits:
                self._free -= size
                self._held[caller] = self._held.get(caller, 0) + size
            if has_waited:  # there may be room for others, too
                self._wake()
            return fits

    def give(self, caller: str, size: int) -> None:
        """Give bytes back."""
        with self._lock:
            self._free += size
            left = self._held.pop(caller) - size
            if left:
                self._held[caller] = left
            self._wake()

    def _fits(self, caller: str, size: int, lasts: bool) -> bool:
        own = self._held.get(caller, 0) + size
        return own * (1 + lasts) <= self._free - size

    def _wait(self, request: _Request) -> bool:
        own = sum(each.caller == request.caller for each in self._waiting)
        self._waiting.append(request)
        try:
            seconds = _WAIT if own < _MANY else _SHORT_WAIT
            return request.turn.wait_for(lambda: self._first() is request, seconds)
        finally:
            self._waiting.remove(request)

    def _wake(self) -> None:
        """Wake the one waiting request whose turn it is: to wake all would cost a flood dearly."""
        first = self._first() if self._waiting else None
        if first is not None:
            first.turn.notify()

    def _first(self) -> _Request | None:
        """Return the waiting request whose turn it is."""
        fitting = (
            each
            for each in reversed(self._waiting)
            if self._fits(each.caller, each.size, each.lasts)
        )
        return next(fitting, None)


_account: ContextVar["Account | None"] = ContextVar("account", default=None)
account_of_call = _account.get
"""Return the account of the call that this thread runs, or None outside of calls."""


class Account:
    """The bytes of one call: of its message, and of its answer.

    While at most `small` bytes are `counted`, messages and answers up to this size are not.
    """

    def __init__(self, under_way: "UnderWay", caller: str, context: CallContext) -> None:
        self._under_way, self._context = under_way, context
        self._budget, self._caller = under_way.budget, caller
        self._message = self._answer = 0  # of the bytes that are counted
        self._expected = 0
        self.counted = 0
        self.small = SMALL_BYTES if getattr(context, "counts_messages", False) else 0
        self._is_sent = False

    def expect_message(self, *, lasts: bool = False) -> None:
        """Reserve the size of the largest message before reading it; raise CallRefused."""
        most = self._under_way.max_message
        self._resize(most + self._answer, lasts=lasts)
        self._message = most

    def receive(self, size: int) -> None:
        """Count a message of this size in place of the one before; raise CallRefused."""
        self._resize(size + self._answer)
        self._message = size

    def expect_answer(self, size: int | None) -> None:
        """Reserve room for an answer before it is computed, None: any size; raise CallRefused."""
        self._expected = size = self._under_way.unknown if size is None else size
        self._count_answer(COPIES * size)

    def expect_more(self, size: int) -> None:
        """Change the room reserved for the answer by `size` bytes; raise CallRefused."""
        self.expect_answer(self._expected + size)

    def send(self, size: int) -> None:
        """Count an answer of this size until it is sent, and the message no more."""
        self._message = 0
        self._count_answer(COPIES * size + CALL_BYTES)
        self._follow(size)

    @contextmanager
    def sending(self, size: int) -> Generator[None]:
        """Count both copies of a stream's answer while it is sent, then one until the next."""
        self.expect_answer(size)
        self._under_way.begin(self._context, size)
        try:
            yield
        finally:
            self._under_way.end(self._context)
        self._expected = 0
        self._count_answer(size)

    def stay_open(self) -> None:
        """Count, until its end, the bytes that gRPC keeps of a call without a thread."""
        self._message = 0
        self._count_answer(CALL_BYTES)
        self._is_sent = True
        if not self._context.add_callback(self._ended):
            self._ended()

    def close(self) -> None:
        """End the handler's part: until the call ends, count only the bytes that gRPC keeps."""
        _account.set(None)  # gRPC keeps the context of the call's variables, and this keeps gRPC's
        if self._is_sent:
            return
        try:
            self._resize(CALL_BYTES, waits=False)
        except CallRefused:
            cut_off(self._context)
        else:
            self._follow(0)

    def _count_answer(self, size: int) -> None:
        self._resize(self._message + size)
        self._answer = size

    def _follow(self, size: int) -> None:
        self._is_sent = True
        self._under_way.begin(self._context, size)
        if not self._context.add_callback(self._ended):
            self._ended()

    def _ended(self) -> None:
        self._under_way.end(self._context)
        self._resize(0)

    def _resize(self, size: int, *, lasts: bool = False, waits: bool = True) -> None:
        """Change the counted bytes to `size`; raise CallRefused if there is no room."""
        more = size - self.counted
        if more > 0 and not self._budget.take(self._caller, more, lasts=lasts, waits=waits):
            raise self._refusal(size)
        if more < 0:
            self._budget.give(self._caller, -more)
        self.counted = size

    def _refusal(self, size: int) -> CallRefused:
        """Return the error for a call whose `size` bytes find no room."""
        limit = self._budget.limit
        text = f"{FIELD} is {limit}, and {size} bytes of the call find no room"
        facts = {"field": FIELD, "value": size, "limit": limit}
        if 2 * size > limit:
            reason = wire.ERROR_REASON_RESPONSE_TOO_LARGE
            text += ", of which one caller has half at most: ask for less at a time"
        else:
            reason = wire.ERROR_REASON_CALL_QUOTA_EXCEEDED
            text += ": take the answers of other calls, and retry with a pause"
        return CallRefused(reason, text, **facts)


class UnderWay:
    """Opens accounts of calls in a budget of `limit` bytes, and cuts off stalled answers.

    A client has `timeout` seconds to take an answer, and one more for each mebibyte; then its call
    is cut off. `give_back` is called afterwards to return free memory to the system.
    """

    def __init__(
        self, limit: int, max_message: int, timeout: float, give_back: Callable[[], object] = int
    ) -> None:
        self.budget, self.max_message = Budget(limit), max_message
        self.unknown = min(MAX_INLINE_BYTES, limit // _UNKNOWN_SHARE)
        self._timeout, self._give_back = timeout, give_back
        self._until: dict[CallContext, float] = {}
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="answers", daemon=True).start()

    def account(self, caller: str, context: CallContext) -> Account:
        """Open the account of a call; `account_of_call` returns it in the call's thread."""
        account = Account(self, caller, context)
        _account.set(account)
        return account

    def begin(self, context: CallContext, size: int) -> None:
        """Set the time until which the client must have taken an answer of `size` bytes."""
        self._until[context] = time.monotonic() + self._timeout + size / MIN_RATE

    def end(self, context: CallContext) -> None:
        """Forget a call whose answer was taken, or which has ended."""
        self._until.pop(context, None)

    def close(self) -> None:
        """Stop the thread that looks for stalled answers."""
        self._stopped.set()

    def cut_off_late(self) -> int:
        """Cut off the calls whose answers were not taken in time; return their number."""
        now = time.monotonic()
        late = [context for context, until in self._until.copy().items() if until < now]
        for context in late:
            self.end(context)
            cut_off(context)
        return len(late)

    def _run(self) -> None:
        is_freed = False
        while not self._stopped.wait(min(_PERIOD, self._timeout / 4)):
            if is_freed:
                self._give_back()
            is_freed = bool(self._until) and self.cut_off_late() > 0


def cut_off(context: CallContext) -> None:
    """End a call whose answer is not taken; its connection stays open."""
    getattr(context, "cut_off", context.cancel)()


def expect_answer(size: int | None) -> None:
    """Call `Account.expect_answer` for the call that this thread runs, if it runs one."""
    account = _account.get()
    if account is not None:
        account.expect_answer(size)
