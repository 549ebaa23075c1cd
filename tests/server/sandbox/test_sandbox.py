# SPDX-License-Identifier: Apache-2.0
"""Workers: what their code cannot do, what limits them, and how they end."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from nnpa_server.sandbox import confinement
from nnpa_server.sandbox.failures import Why, WorkerFailed
from nnpa_server.sandbox.fork_server import ForkServer
from nnpa_server.sandbox.frames import Array, Message
from nnpa_server.sandbox.process import JobLimits, WorkerProcess, ending, go_on

from tests.server.sandbox.forked import Forked
from tests.server.sandbox.sandbox_jobs import ATTEMPTS

pytestmark = [
    pytest.mark.skipif(not confinement.is_linux(), reason="workers are Linux processes"),
]
PROGRAM = "tests.server.sandbox.sandbox_jobs:start"
LIMITS = JobLimits(memory=128 << 20, seconds=20, cpu_seconds=20)
whole = pytest.mark.skipif(bool(confinement.missing()), reason="the kernel lacks a protection")
REFUSED = b"PermissionError"


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


def ask(worker: WorkerProcess, text: str, limits: JobLimits = LIMITS) -> bytes:
    """Return the text that a worker answers."""
    return worker.run(Message(text.encode()), limits).text


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended and was reaped."""
    return not Path(f"/proc/{pid}").exists()


def await_end(pid: int) -> bool:
    """Wait for the end of a process that is not a child of this one; return whether it ended."""
    for _ in range(500):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.int64).reshape(2, 3, 4),
        np.array(7.5, np.float16),
        np.empty((0, 5), np.float32),
        np.array([1.5, -2], ml_dtypes.bfloat16),
        np.arange(12, dtype=">i4").reshape(3, 4).T,
        np.ones(3 << 20, np.uint8),
    ],
)
def test_arrays_come_back_as_they_went(shared: WorkerProcess, array: Array) -> None:
    """Type, shape and elements of an array survive both ways, whatever its order in memory."""
    answer = shared.run(Message(b"echo", (array, array)), LIMITS)
    assert answer.text == b"echo"
    for returned in answer.arrays:
        assert returned.shape == array.shape
        assert returned.dtype == array.dtype.newbyteorder("=")
        assert np.array_equal(returned, array)


def test_a_large_arena_is_empty_after_its_job(worker: WorkerProcess) -> None:
    """Arrays of a job and of its answer take no memory later, and later ones are their own."""
    descriptors = list(Path(f"/proc/{worker.pid}/fd").iterdir())
    (arena,) = (path for path in descriptors if "/memfd:nnpa-worker" in str(path.readlink()))
    for value in (1, 2):
        array = np.full(24 << 20, value, np.uint8)
        (returned,) = worker.run(Message(b"echo", (array,)), LIMITS).arrays
        assert np.array_equal(returned, array)
        assert arena.stat().st_size >= 2 * array.nbytes
        assert arena.stat().st_blocks * 512 <= 2 << 20


def test_an_answer_may_be_larger_than_its_job(worker: WorkerProcess) -> None:
    """The arena grows for an answer, and the server is asked before it does."""
    sizes: list[int] = []
    job = Message(b"double", (np.arange(1 << 20, dtype=np.int64),))
    answer = worker.run(job, replace(LIMITS, reserve=sizes.append))
    assert np.array_equal(answer.arrays[0], np.repeat(job.arrays[0], 2))
    assert sizes[:2] == [8 << 20, 24 << 20]


def test_what_the_caller_refuses_to_reserve_is_not_taken(worker: WorkerProcess) -> None:
    """An error of `reserve` ends the job and its worker."""

    def refuse(size: int) -> None:
        if size > 10 << 20:
            raise LookupError("the quota")

    job = Message(b"double", (np.arange(1 << 20, dtype=np.int64),))
    with pytest.raises(LookupError, match="the quota"):
        worker.run(job, replace(LIMITS, reserve=refuse))
    assert is_gone(worker.pid)


@whole
@pytest.mark.parametrize("path", ["/etc/passwd", "/proc/self/status", "/dev/null", "/dev/shm"])
@pytest.mark.parametrize("attempt", ["open", "list", "stat", "write", "unix"])
def test_no_file_is_reached(shared: WorkerProcess, attempt: str, path: str) -> None:
    """No path is opened, listed, looked at, written or connected to."""
    assert ask(shared, f"attempt {attempt} {path}") == REFUSED


@whole
def test_no_connection_is_made(shared: WorkerProcess) -> None:
    """A listener on loopback gets no connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        assert ask(shared, f"attempt connect {listener.getsockname()[1]}") == REFUSED
        with pytest.raises(TimeoutError):
            listener.accept()


@whole
@pytest.mark.parametrize("attempt", ["fork", "thread", "exec", "spawn", "memfd", "truncate",
                                     "shared-anonymous", "stack"])  # fmt: skip
def test_nothing_is_made_that_no_limit_counts(shared: WorkerProcess, attempt: str) -> None:
    """A job gets no process, thread, program, or memory beside its limits."""
    program = shutil.which("true")
    assert ask(shared, f"attempt {attempt} {program}") in (REFUSED, b"RuntimeError")


def test_address_space_is_limited(shared: WorkerProcess) -> None:
    """Memory that RLIMIT_DATA does not count, page tables included, has the job's limit."""
    assert ask(shared, "attempt readable 64GiB") == b"OSError"
    big = JobLimits(memory=1 << 40, seconds=20, cpu_seconds=20)
    assert ask(shared, "attempt readable 64GiB", big) == b"done"


@whole
@pytest.mark.parametrize("attempt", ["kill", "probe", "ptrace", "peek", "memory-file"])
def test_other_processes_are_out_of_reach(
    shared: WorkerProcess, worker: WorkerProcess, attempt: str
) -> None:
    """Neither the server nor another worker can be signalled, traced or read."""
    for pid in (os.getpid(), worker.pid):
        assert ask(shared, f"attempt {attempt} {pid}") == REFUSED
    assert ask(worker, "echo") == b"echo"


def test_every_attempt_is_made() -> None:
    """The tests above name all attempts that the program for workers knows."""
    text = Path(__file__).read_text()
    assert all(f'"{name}"' in text or f"attempt {name} " in text for name in ATTEMPTS)


def test_nothing_of_the_server_is_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors and environment of the server are not the worker's."""
    monkeypatch.setenv("NNPA_SECRET", "token")
    with Path(__file__).open() as opened, socket.socket() as connected:
        os.set_inheritable(opened.fileno(), True)
        os.set_inheritable(connected.fileno(), True)
        worker = Forked(PROGRAM)
        try:
            assert ask(worker, "attempt environment NNPA_SECRET") == b"KeyError"
            assert len(ask(worker, "descriptors").split()) == 5  # of which three are /dev/null
        finally:
            worker.end()


def test_a_memory_bomb_fails_alone(shared: WorkerProcess, worker: WorkerProcess) -> None:
    """A job gets its limit and no more; its worker ends, another goes on."""
    with pytest.raises(WorkerFailed) as failed:
        ask(worker, "answer memory")
    assert failed.value.why == Why.MEMORY
    assert is_gone(worker.pid)
    assert ask(shared, "echo") == b"echo"


def test_an_endless_loop_ends_at_its_deadline(worker: WorkerProcess) -> None:
    """A job that does not end is killed with its worker."""
    began = time.monotonic()
    with pytest.raises(WorkerFailed) as failed:
        ask(worker, "answer loop", JobLimits(seconds=0.3))
    assert failed.value.why == Why.TIME
    assert time.monotonic() - began < 5
    assert is_gone(worker.pid)


def test_cpu_time_is_limited(worker: WorkerProcess) -> None:
    """A job has its limit of CPU seconds, whatever its deadline is."""
    with pytest.raises(WorkerFailed) as failed:
        ask(worker, "answer loop", JobLimits(seconds=60, cpu_seconds=1))
    assert failed.value.why == Why.TIME


@pytest.mark.heavy
def test_a_signal_that_is_ignored_gives_no_time(worker: WorkerProcess) -> None:
    """A worker that ignores SIGXCPU ends at its limit of CPU time all the same."""
    began = time.monotonic()
    with pytest.raises(WorkerFailed) as failed:
        ask(worker, "answer spin", JobLimits(seconds=60, cpu_seconds=1))
    assert failed.value.why == Why.TIME
    assert time.monotonic() - began < 20


def test_the_caller_can_cancel(worker: WorkerProcess) -> None:
    """An error of `check` ends the job and its worker."""

    def cancel() -> None:
        raise InterruptedError("the client went away")

    with pytest.raises(InterruptedError):
        worker.run(Message(b"answer silence"), replace(LIMITS, check=cancel))
    assert is_gone(worker.pid)


def test_closing_ends_a_job(worker: WorkerProcess) -> None:
    """A worker that is closed while it works fails its job at once."""
    threading.Timer(0.3, worker.close).start()
    began = time.monotonic()
    with pytest.raises(WorkerFailed) as failed:
        ask(worker, "answer silence")
    assert failed.value.why == Why.ENDED
    assert time.monotonic() - began < 5
    worker.close()
    assert is_gone(worker.pid)


DEATHS = {
    "exit": "ended with exit code 3",
    "abort": "was ended by SIGABRT",
    "segfault": "was ended by SIGSEGV",
}


@pytest.mark.parametrize("death", DEATHS)
def test_a_worker_that_dies_fails_its_job(worker: WorkerProcess, death: str) -> None:
    """The job fails at once and says how, the process is reaped, and later jobs fail too."""
    with pytest.raises(WorkerFailed) as failed:
        ask(worker, f"answer {death}")
    assert (failed.value.why, failed.value.text) == (Why.ENDED, DEATHS[death])
    assert is_gone(worker.pid)
    with pytest.raises(WorkerFailed):
        ask(worker, "echo")


def test_a_program_that_raises_goes_on(worker: WorkerProcess) -> None:
    """An exception is told as text, and the worker takes the next job."""
    with pytest.raises(WorkerFailed, match="no number") as failed:
        ask(worker, "answer raise")
    assert failed.value.why == Why.RAISED
    assert ask(worker, "echo") == b"echo"


def test_a_program_that_cannot_be_loaded_says_why() -> None:
    """An exception of the program before it is ready reaches the server as text."""
    fork_server = ForkServer("tests.server.sandbox.sandbox_jobs:refuse", {})
    with pytest.raises(WorkerFailed, match="cannot be loaded"):
        fork_server.wait_ready(60, go_on)
    assert is_gone(fork_server.pid)


def test_the_end_of_the_server_ends_its_workers() -> None:
    """A worker in an endless loop ends with its server, which is killed."""
    command = [sys.executable, "-m", "tests.server.sandbox.sandbox_jobs", "answer loop"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    pid = int(server.stdout.readline())
    time.sleep(0.2)
    server.send_signal(signal.SIGKILL)
    server.wait()
    server.stdout.close()
    assert await_end(pid)


def test_signals_without_a_name_have_a_number() -> None:
    """An exit code names a signal, by its number where Python knows no name."""
    assert ending(-signal.SIGKILL) == "was ended by SIGKILL"
    assert ending(-40) == "was ended by signal 40"
    assert ending(0) == "ended with exit code 0"
