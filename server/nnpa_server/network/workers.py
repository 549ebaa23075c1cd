# SPDX-License-Identifier: Apache-2.0
"""The two workers of a session or a published model: one compiles, one runs programs.

Workers are not trusted. The failure of a worker is reported as a refusal of its model or program.
Without a sandbox both workers are in this process, and answer the same jobs.
"""

import json
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator.interruption import go_on
from nnpa_emulator.machine import Memory, page_memory
from nnpa_network.program import ModelRefused
from nnpa_network.running.host import HostError
from nnpa_network.running.results import StepFailed

from nnpa_server.config import MIB
from nnpa_server.errors import CallRefused
from nnpa_server.network.compiling import DONE, Compiler
from nnpa_server.network.pools import Pools
from nnpa_server.network.running import Runner
from nnpa_server.sandbox.failures import Why, WorkerFailed
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.jobs import LocalWorker
from nnpa_server.sandbox.pool import Owner, PoolClosed
from nnpa_server.sandbox.process import JobLimits, allow
from nnpa_server.sessions.tokens import caller

Worker: TypeAlias = LocalWorker | Owner
BROKEN = "its worker gave an answer of no known form"
MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError,
             HostError, CallRefused)  # fmt: skip
"""What it raises to read an answer that is not valid."""
_log = logging.getLogger("nnpa.sandbox")
_COMPILE_SECONDS, _RUN_SECONDS = 120, 3600
_RUN_IDLE_SECONDS = 300.0
_BASE_BYTES, _BYTES_PER_BYTE = 512 * MIB, 32  # to compile: for any model, by its file
_STEP_BYTES = 4 * MIB
_SLACK_BYTES = 64 * MIB
_RUNNER_BYTES = 128 * MIB  # that a worker with compiled kernels has before it runs anything
_MAX_REASON = 1000


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of an owner, and the quota for their jobs.

    While a job runs, the thread's check is called, and raises if nobody waits for the answer.
    """

    compiler: Worker
    runner: Worker
    reserve: Callable[[int], None]  # raises if the quota has no room for a number of bytes
    room: Callable[[], int]  # returns the bytes that a run may take
    # Called with the functions and bytes of each run.
    note_run: Callable[[Collection[str], int], None] = lambda _functions, _size: None
    freed: deque[str] = field(default_factory=deque[str])  # keys of programs without users

    def compile(self, job: Message, limit: int) -> Message:
        """Run a job of the compiler; return its answer, or raise `ModelRefused`, CallRefused."""
        steps = math.ceil(job.arrays[0].nbytes / _STEP_BYTES)  # like sizes have one worker
        memory = min(limit, _BASE_BYTES + _BYTES_PER_BYTE * steps * _STEP_BYTES) + _SLACK_BYTES
        limits = self._limits(memory, _COMPILE_SECONDS)
        return _require_done(*self._ask(self._shared_or_own.compiler, job, limits))

    def load(self, job: Message) -> Message:
        """Run a job that loads a program or writes a report; raise `ModelRefused`, CallRefused."""
        return _require_done(*self._ask(self._shared_or_own.runner, job, self._run_limits()))

    def run(self, job: Message) -> tuple[bytes, Message]:
        """Return kind and rest of the answer to a runner's job; raise `StepFailed`, CallRefused."""
        try:
            return self._ask(self._shared_or_own.runner, job, self._run_limits())
        except ModelRefused as refused:
            raise StepFailed("", "host", 0, refused.reason) from refused

    def close(self) -> None:
        """End both workers; jobs that run in them fail."""
        self.compiler.close()
        self.runner.close()

    def retire(self) -> None:
        """End both workers as soon as they are idle; may be called while any object is freed."""
        self.compiler.retire()
        self.runner.retire()

    def end_idle(self) -> None:
        """End the workers in which no job runs; the next job gets a new worker."""
        self.compiler.end_idle()
        self.runner.end_idle()

    def end_broken(self, error: Exception) -> None:
        """End both workers after an answer that is not valid."""
        _log.warning("a worker was ended: its answer is not valid: %s", error)
        self.close()

    @property
    def _shared_or_own(self) -> "Workers":
        return _shared.get() or self

    def _run_limits(self) -> JobLimits:
        memory = max(self.room() - _RUNNER_BYTES, _SLACK_BYTES)
        return self._limits(memory, _RUN_SECONDS)

    def _limits(self, memory: int, seconds: int) -> JobLimits:
        return JobLimits(memory, seconds, seconds, self.reserve, go_on)

    def _ask(self, worker: Worker, job: Message, limits: JobLimits) -> tuple[bytes, Message]:
        try:
            answer = worker.run(job, limits)
        except WorkerFailed as failed:
            raise _refused(failed, limits) from failed
        except PoolClosed as closed:
            raise CallRefused(wire.ERROR_REASON_SERVER_DRAINING, "the server ends") from closed
        return answer.text[:1], replace(answer, text=answer.text[1:])


_shared: ContextVar[Workers | None] = ContextVar("shared", default=None)


@contextmanager
def shared_workers(pools: Pools | None) -> Generator[None]:
    """Run all jobs of this thread in two shared workers while the context lasts."""
    workers = make_workers(pools)
    token = _shared.set(workers)
    try:
        yield
    finally:
        _shared.reset(token)
        workers.close()


def make_workers(
    pools: Pools | None,
    reserve: Callable[[int], None] = allow,
    room: Callable[[], int] = lambda: 1 << 30,
    allocate: Callable[[int], Memory | None] = page_memory,
) -> Workers:
    """Return workers of a new owner for the present caller; their first jobs fork them.

    Both fork servers start now, beside each other. Without `pools` the workers are in this process,
    where `allocate` provides storage for sticks.
    """
    if pools is None:
        runner = LocalWorker(partial(Runner, allocate))
        return Workers(LocalWorker(partial(Compiler, 1)), runner, reserve, room)
    with suppress(PoolClosed):  # the first job says so
        pools.compilers.warm_up()
        pools.runners.warm_up()
    group = caller().name
    compiler = Owner(pools.compilers, group=group)
    owner = Owner(pools.runners, _RUN_IDLE_SECONDS, group)
    return Workers(compiler, owner, reserve, room, pools.note_run)


def _require_done(kind: bytes, answer: Message) -> Message:
    if kind != DONE:
        raise refusal_of(answer.text)
    return answer


def _refused(failed: WorkerFailed, limits: JobLimits) -> ModelRefused:
    """Return the refusal of a model whose job failed; raise RuntimeError for a defect of ours."""
    if failed.why == Why.RAISED:
        raise RuntimeError(f"a worker failed: {failed.text}") from failed
    _log.warning("a model ended its worker: %s", failed)
    if failed.why == Why.MEMORY:
        return ModelRefused(f"its worker takes more than {limits.memory} bytes")
    if failed.why == Why.TIME:
        return ModelRefused(f"its worker takes more than {limits.seconds} s")
    if failed.why == Why.START:
        return ModelRefused("no worker could be started for it: try again later")
    if failed.why == Why.ENDED:
        limit = f"it may take {limits.memory} bytes and {limits.seconds} s"
        return ModelRefused(f"its worker {failed.text}; {limit}")
    return ModelRefused(BROKEN)


def refusal_of(text: bytes) -> ModelRefused:
    """Return the refusal in a worker's answer, with texts of bounded length."""
    try:
        facts = json.loads(text[: 8 * _MAX_REASON])
        return ModelRefused(str(facts["reason"])[:_MAX_REASON], str(facts["node"])[:_MAX_REASON])
    except (ValueError, TypeError, LookupError, RecursionError):
        return ModelRefused(BROKEN)
