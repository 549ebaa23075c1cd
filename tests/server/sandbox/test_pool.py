# SPDX-License-Identifier: Apache-2.0
"""Workers of a pool: leases, waiting owners, shares of groups, and the ends of workers."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from nnpa_server.sandbox import confinement
from nnpa_server.sandbox.failures import Why, WorkerFailed
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.pool import Owner, Pool, PoolClosed
from nnpa_server.sandbox.process import JobLimits, WorkerProcess, go_on

from tests.server.sandbox.forked import Forked
from tests.server.sandbox.test_sandbox import LIMITS, PROGRAM, ask, await_end, is_gone

pytestmark = [
    pytest.mark.skipif(not confinement.is_linux(), reason="workers are Linux processes"),
]


@pytest.fixture(scope="module")
def shared() -> Iterator[Forked]:
    """A worker for attempts, which leave it as it was."""
    worker = Forked(PROGRAM)
    yield worker
    worker.end()


@pytest.fixture
def worker(shared: Forked) -> Iterator[WorkerProcess]:
    """A worker of the test's own, a sibling of the one that is shared."""
    worker = WorkerProcess(shared.fork_server)
    worker.wait_ready(60)
    yield worker
    worker.close()


def test_a_pool_lends_no_worker_twice() -> None:
    """Each owner has a process that ran no other owner's job; a worker given back ends."""
    pool = Pool(PROGRAM, {})
    try:
        first, second = pool.lease(), pool.lease()
        assert first.pid != second.pid
        assert ask(first, "echo") == ask(second, "echo") == b"echo"
        pool.give_back(first)
        assert is_gone(first.pid)
        third = pool.lease()
        assert third.pid not in (first.pid, second.pid)
        assert ask(third, "echo") == ask(second, "echo") == b"echo"
    finally:
        pool.close()
    assert is_gone(second.pid)
    assert is_gone(third.pid)


def fork_server_of(pool: Pool) -> int:
    """Return the process id of a pool's fork server, which it starts if there is none."""
    return pool.warm_up().result(60).pid


def test_a_fork_server_that_died_is_replaced() -> None:
    """Its workers end with it; the next owner has a worker of another one."""
    pool = Pool(PROGRAM, {})
    try:
        worker, died = pool.lease(), fork_server_of(pool)
        os.kill(died, signal.SIGKILL)
        assert await_end(worker.pid)
        with pytest.raises(WorkerFailed) as failed:
            ask(worker, "echo")
        assert failed.value.why == Why.ENDED
        assert ask(pool.lease(), "echo") == b"echo"
        assert fork_server_of(pool) != died
    finally:
        pool.close()


def test_a_fork_that_fails_is_told() -> None:
    """Where no process can be made the owner is told why; the next one is served."""
    pool = Pool("tests.server.sandbox.sandbox_jobs:start_late", {})
    try:
        with pytest.raises(WorkerFailed, match="no more processes"):
            pool.lease()
        assert ask(pool.lease(), "echo") == b"echo"
    finally:
        pool.close()


def test_a_closed_pool_ends_jobs_and_lends_nothing() -> None:
    """The server's end is the end of every worker."""
    pool = Pool(PROGRAM, {})
    worker = pool.lease()
    threading.Timer(0.2, pool.close).start()
    with pytest.raises(WorkerFailed):
        ask(worker, "answer loop")
    pool.close()
    assert is_gone(worker.pid)
    with pytest.raises(PoolClosed):
        pool.lease()


def test_workers_outlive_the_thread_that_asked_for_them() -> None:
    """The kernel ends a worker with the thread that started it, which is the pool's own."""
    pool = Pool(PROGRAM, {})
    leased: list[WorkerProcess] = []
    try:
        thread = threading.Thread(target=lambda: leased.append(pool.lease()))
        thread.start()
        thread.join()
        time.sleep(0.1)
        assert ask(leased[0], "echo") == b"echo"
    finally:
        pool.close()


def test_an_owner_has_a_worker_while_it_has_jobs() -> None:
    """Jobs that follow each other share a worker; it ends when it was idle, and with its owner."""
    pool = Pool(PROGRAM, {})
    owner = Owner(pool, idle_seconds=0.3)
    try:
        first, second = (pid_of(owner) for _ in range(2))
        assert first == second
        assert await_end(first)
        third = pid_of(owner)
        assert third != first
        owner.close()
        assert is_gone(third)
        assert pid_of(owner) not in (first, third)
    finally:
        pool.close()


def pid_of(owner: Owner) -> int:
    """Return the process that runs an owner's job."""
    return int(owner.run(Message(b"pid"), LIMITS).text)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["then-spin", "then-grow", "then-fill"])
def test_a_worker_is_replaced_that_takes_between_jobs(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One that computes, grows or fills its arena after its answer ends; the next job has one."""
    pool = Pool(PROGRAM, {})
    owner = Owner(pool, idle_seconds=60)
    try:
        pid = pid_of(owner)
        job = Message(f"answer {name}".encode(), (np.zeros(24 << 20, np.uint8),))
        assert owner.run(job, LIMITS).text == b"answered"
        assert await_end(pid)
        assert pid_of(owner) != pid
    finally:
        pool.close()
    assert "between jobs" in caplog.text


@pytest.mark.heavy
def test_a_worker_that_waits_for_jobs_stays() -> None:
    """Memory that a job leaves behind within its limit ends no worker, nor does freeing it."""
    pool = Pool(PROGRAM, {})
    owner = Owner(pool, idle_seconds=60)
    try:
        pid = pid_of(owner)
        for _ in range(3):
            job = Message(b"double", (np.zeros(24 << 20, np.uint8),))
            owner.run(job, LIMITS)
            time.sleep(0.8)
            assert pid_of(owner) == pid
    finally:
        pool.close()


def test_an_owner_waits_for_a_worker_while_its_client_waits() -> None:
    """A pool has a limit; a waiting owner's check decides whether to go on."""
    pool = Pool(PROGRAM, {}, max_leased=1)

    def give_up() -> None:
        raise InterruptedError("the client went away")

    try:
        first = pool.lease()
        with pytest.raises(InterruptedError):
            pool.lease(give_up)
        pool.give_back(first)
        assert ask(pool.lease(), "echo") == b"echo"
    finally:
        pool.close()


def test_who_waits_gets_the_worker_that_is_idle_for_longest() -> None:
    """Idle owners lose their workers where all are taken; an owner with a job does not."""
    pool = Pool(PROGRAM, {}, max_leased=2)
    owners = [Owner(pool, idle_seconds=60) for _ in range(3)]
    try:
        first, second = pid_of(owners[0]), pid_of(owners[1])
        assert pid_of(owners[0]) == first
        assert pid_of(owners[2]) not in (first, second)
        assert is_gone(second)
        assert pid_of(owners[0]) == first
    finally:
        pool.close()


def test_a_group_has_half_of_the_workers() -> None:
    """Owners of one group leave room to others, and lose their own idle workers first."""
    pool = Pool(PROGRAM, {}, max_leased=4)
    owners = [Owner(pool, idle_seconds=60, group="alice") for _ in range(3)]
    bob = Owner(pool, idle_seconds=60, group="bob")
    try:
        begin_silence(owners[0])
        begin_silence(owners[1])
        with pytest.raises(InterruptedError):
            owners[2].run(Message(b"pid"), replace(LIMITS, check=give_up_after(0.3)))
        first = pid_of(bob)
        owners[1].close()
        assert pid_of(owners[2])
        assert pid_of(bob) == first
        third = pid_of(owners[2])
        assert pid_of(Owner(pool, group="alice")) != third
        assert is_gone(third)
        assert pid_of(bob) == first
    finally:
        pool.close()


def test_workers_together_have_a_limit_of_bytes() -> None:
    """An owner beyond the limit waits for another's end; a job above the limit runs alone."""
    pool = Pool(PROGRAM, {}, max_bytes=3 * LIMITS.memory)
    owners = [Owner(pool, idle_seconds=60) for _ in range(4)]
    try:
        pids = [pid_of(owner) for owner in owners[:3]]
        assert [pid_of(owner) for owner in owners[:3]] == pids
        pid_of(owners[3])
        assert is_gone(pids[0])  # the one that was idle for longest
        large = JobLimits(memory=4 * LIMITS.memory, seconds=20, cpu_seconds=20)
        job = Message(b"pid")
        alone = int(owners[3].run(job, large).text)
        assert all(is_gone(pid) for pid in pids)
        assert pid_of(owners[3]) == alone
        begin_silence(owners[3])
        with pytest.raises(InterruptedError):
            owners[0].run(job, replace(LIMITS, check=give_up_after(0.3)))
    finally:
        pool.close()


def test_a_group_has_half_of_the_bytes() -> None:
    """Owners of one group leave bytes to others, and lose their own idle workers first."""
    pool = Pool(PROGRAM, {}, max_bytes=3 * LIMITS.memory)
    owners = [Owner(pool, idle_seconds=60, group="alice") for _ in range(2)]
    bob = Owner(pool, idle_seconds=60, group="bob")
    try:
        theirs = pid_of(bob)
        first = pid_of(owners[0])
        assert pid_of(owners[1]) != first
        assert is_gone(first)
        assert pid_of(bob) == theirs
    finally:
        pool.close()


def begin_silence(owner: Owner) -> None:
    """Begin a job that does not end, in a thread of its own."""

    def work() -> None:
        with suppress(WorkerFailed, PoolClosed):
            owner.run(Message(b"answer silence"), LIMITS)

    threading.Thread(target=work, daemon=True).start()
    deadline = time.monotonic() + 30
    while not is_leased(owner) and time.monotonic() < deadline:
        time.sleep(0.01)


def is_leased(owner: Owner) -> bool:
    """Tell whether an owner has a worker."""
    return vars(owner)["_worker"] is not None


def give_up_after(seconds: float) -> Callable[[], None]:
    """Return a check that raises after `seconds`."""
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > end:
            raise InterruptedError("the client went away")

    return check


def test_who_waits_for_a_start_may_leave() -> None:
    """A client that goes while the fork server starts is let go at once; the start goes on."""
    pool = Pool(PROGRAM, {})
    try:
        with pytest.raises(InterruptedError):
            pool.lease(give_up_after(0.0))
        starting = pool.warm_up()
        assert not starting.done()  # nobody waited until it had started
        assert ask(pool.lease(), "echo") == b"echo"
        assert pool.warm_up() is starting
    finally:
        pool.close()


def test_workers_of_a_nice_pool_let_others_go_first() -> None:
    """Workers run behind other processes by their pool's niceness, and as equals by default."""
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    for niceness in (0, 3):
        pool = Pool(PROGRAM, {}, niceness=niceness)
        try:
            assert os.getpriority(os.PRIO_PROCESS, pool.lease().pid) == min(19, mine + niceness)
        finally:
            pool.close()


def test_an_owner_that_is_freed_gives_its_worker_back() -> None:
    """`retire` ends the worker soon, from whatever thread frees its owner."""
    pool = Pool(PROGRAM, {})
    try:
        owner = Owner(pool, idle_seconds=60)
        pid = pid_of(owner)
        owner.retire()
        assert await_end(pid)
        assert pid_of(owner) != pid
    finally:
        pool.close()


def test_a_turn_keeps_others_waiting() -> None:
    """Jobs of one turn follow each other; another thread's job comes after them."""
    pool = Pool(PROGRAM, {})
    owner = Owner(pool, idle_seconds=60)
    order: list[str] = []

    def work() -> None:
        pid_of(owner)
        order.append("other")

    try:
        with owner.turn(go_on):
            thread = threading.Thread(target=work)
            thread.start()
            for _ in range(3):
                pid_of(owner)
                order.append("mine")
        thread.join()
        assert order == ["mine"] * 3 + ["other"]
    finally:
        pool.close()


@pytest.mark.heavy
def test_a_fork_server_ends_when_nobody_wants_it() -> None:
    """One that has had no worker for long goes; the next owner gets a new one."""
    pool = Pool(PROGRAM, {}, idle_seconds=0.2)
    try:
        pid = fork_server_of(pool)
        assert await_end(pid)
        worker = pool.lease()
        time.sleep(1)
        assert ask(worker, "echo") == b"echo"
    finally:
        pool.close()


@pytest.mark.heavy
def test_a_renewed_pool_forks_from_a_new_process() -> None:
    """An idle owner's next worker has what is loaded now; one with a job keeps its worker."""
    pool = Pool(PROGRAM, {})
    owner = Owner(pool, idle_seconds=60)
    try:
        first, old = pid_of(owner), fork_server_of(pool)
        with owner.turn(lambda: None):
            pool.renew()
            time.sleep(1)
            assert not is_gone(first)
        assert await_end(old)
        assert pid_of(owner) != first
        assert fork_server_of(pool) != old
    finally:
        pool.close()


def test_workers_share_what_is_loaded() -> None:
    """A worker has little memory of its own before its first job."""
    pool = Pool(PROGRAM, {})
    try:
        rollup = Path(f"/proc/{pool.lease().pid}/smaps_rollup").read_text()
        sizes = dict(line.split()[:2] for line in rollup.splitlines()[1:])
        assert int(sizes["Private_Dirty:"]) < int(sizes["Rss:"]) // 2
    finally:
        pool.close()
