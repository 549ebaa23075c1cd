# SPDX-License-Identifier: Apache-2.0
"""The fork server: a process that has loaded the workers' program, and forks workers.

A forked worker shares the memory of the loaded program and starts in milliseconds instead of
seconds. The fork server never reads untrusted input; a worker is confined before its first job.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from nnpa_server.sandbox.failures import Why, WorkerFailed

MAX_MESSAGE = 4096
READY, FORK, REAP = b"ready", b"fork", b"reap"
"""Messages to and from the fork server; the number of a process follows REAP."""
_LOOK_SECONDS = 0.02  # between looks at deadline and caller
_ANSWER_SECONDS = 60.0
_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}


class ForkServer:
    """Starts an interpreter that loads a program and forks workers, with its own environment.

    The kernel ends it and its workers with the thread that constructs it, which must live as long
    as they are needed. Methods may be called from any thread.
    """

    def __init__(self, program: str, environment: Mapping[str, str], niceness: int = 0) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = _spawn(program, theirs.fileno(), niceness, environment)
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid

    def wait_ready(self, seconds: float, check: Callable[[], None]) -> None:
        """Wait until the program is loaded; raise `WorkerFailed`, or an exception of `check`."""
        try:
            answer, _ = self._receive(seconds, check)
            if answer != READY:
                raise WorkerFailed(Why.RAISED, answer.decode("utf-8", "replace"))
        except BaseException:
            self.close()
            raise

    def fork(self, connection: int, arena: int) -> "Child":
        """Fork a process that has only these descriptors; raise `WorkerFailed`."""
        with self._lock:
            self._send(FORK, connection, arena)
            answer, descriptors = self._receive(_ANSWER_SECONDS)
        if not descriptors:
            raise WorkerFailed(Why.START, answer.decode("utf-8", "replace"))
        return Child(int(answer), descriptors[0], self._reap)

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """Kill the process and all workers that it forked."""
        self._process.kill()
        self._process.wait()
        with self._lock:
            self._socket.close()

    def _reap(self, pid: int) -> int:
        """Reap a worker that has ended, which frees its process number; return its exit code."""
        with self._lock:
            self._send(REAP + b"%d" % pid)
            return int(self._receive(_ANSWER_SECONDS)[0])

    def _send(self, message: bytes, *descriptors: int) -> None:
        try:
            socket.send_fds(self._socket, [message], descriptors)
        except OSError as error:
            raise WorkerFailed(Why.START, "the fork server ended") from error

    def _receive(
        self, seconds: float, check: Callable[[], None] = lambda: None
    ) -> tuple[bytes, list[int]]:
        deadline, answer = time.monotonic() + seconds, select.poll()
        answer.register(self._socket, select.POLLIN)
        while not answer.poll(_LOOK_SECONDS * 1e3):
            check()
            if time.monotonic() > deadline:
                self._process.kill()  # an answer that comes later is none to the next question
                raise WorkerFailed(Why.START, "the fork server did not answer in time")
        message, descriptors = b"", list[int]()
        with suppress(OSError):
            message, descriptors, *_ = socket.recv_fds(
                self._socket, MAX_MESSAGE, 1, socket.MSG_CMSG_CLOEXEC
            )
        if not message:
            raise WorkerFailed(Why.START, "the fork server ended")
        return message, descriptors


class Child:
    """A process that a fork server forked, held by a pidfd; only the fork server can reap it."""

    def __init__(self, pid: int, descriptor: int, reap: Callable[[int], int]) -> None:
        self.pid, self._descriptor, self._reap = pid, descriptor, reap
        self._lock = threading.Lock()
        self._ended = select.poll()
        self._ended.register(descriptor, select.POLLIN)
        self._code: int | None = None

    def kill(self) -> None:
        """Kill the process unless it has ended."""
        with self._lock, suppress(ProcessLookupError):
            if self._code is None:
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def poll(self) -> int | None:
        """Return the exit code if the process has ended, else None."""
        with suppress(TimeoutError):
            return self.wait(0.0)
        return None

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the end; return the exit code, negative for a signal; raise TimeoutError."""
        with self._lock:
            if self._code is None:
                if not self._ended.poll(None if seconds is None else seconds * 1e3):
                    raise TimeoutError
                try:
                    self._code = self._reap(self.pid)
                except WorkerFailed:  # it ended with its fork server, and is somebody else's
                    self._code = -signal.SIGKILL
                os.close(self._descriptor)
            return self._code


def _spawn(
    program: str, theirs: int, niceness: int, environment: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    """Start a new interpreter with its own environment and no other descriptor than `theirs`."""
    folders = [folder for folder in sys.path if folder and Path(folder).is_absolute()]
    facts = program, str(theirs), str(os.getpid()), str(niceness)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "nnpa_server.sandbox.worker", *facts],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(folders), **_ONE_THREAD, **environment},
        cwd="/",
        pass_fds=(theirs,),
        start_new_session=True,
    )
