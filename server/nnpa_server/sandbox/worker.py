# SPDX-License-Identifier: Apache-2.0
"""The main program of fork servers and workers.

    python -m nnpa_server.sandbox.worker MODULE:FUNCTION[:ARGUMENT] SOCKET PARENT NICENESS

The fork server calls the function once. It imports and prepares what jobs need, and returns the
handler of jobs. The fork server runs no jobs: it forks workers and reaps them as its server asks. A
worker is confined first, then runs job after job, by NICENESS behind other processes.
"""

import gc
import importlib
import mmap
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np

from nnpa_server.sandbox import frames
from nnpa_server.sandbox.confinement import confine, die_with, require_one_thread
from nnpa_server.sandbox.fork_server import FORK, MAX_MESSAGE, READY, REAP
from nnpa_server.sandbox.frames import Array, Message

Handler: TypeAlias = Callable[[Message], Message]
"""A function that answers a job; the job's arrays are valid until it returns."""
_MAX_FAILURE = 500


class Channel:
    """The worker's end of socket and arena."""

    def __init__(self, connection: int, arena: int) -> None:
        self._socket, self._arena = connection, arena
        self._view: Array = np.empty(0, np.uint8)

    def send(self, frame: frames.Frame) -> None:
        """Write a frame."""
        rest = memoryview(frames.encode_header(frame) + frame.body)
        while rest:
            rest = rest[os.write(self._socket, rest) :]

    def receive(self) -> frames.Frame:
        """Read a frame, and map the arena in the size that it names; SystemExit at the end."""
        kind, length, size = frames.decode_header(self._read(frames.HEADER.size))
        body = self._read(length)
        if size > self._view.nbytes:
            self._view = np.frombuffer(mmap.mmap(self._arena, size), np.uint8)
        return frames.Frame(kind, body, size)

    def _read(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            part = os.read(self._socket, min(count, 1 << 20))
            if not part:
                raise SystemExit(0)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def array(self, slot: frames.Slot) -> Array:
        """Return a view of an array in the arena."""
        part = self._view[slot.offset : slot.offset + slot.nbytes]
        return part.view(slot.dtype).reshape(slot.shape)

    def answer(self, message: Message, begin: int) -> None:
        """Send an answer; put its arrays into the arena from `begin` on, behind the job's."""
        arrays = list(map(frames.dense, message.arrays))
        slots, end = frames.plan_slots(arrays, begin)
        body = frames.encode_body(slots, message.text)
        if end > self._view.nbytes:
            self.send(frames.Frame(frames.Kind.ROOM, size=end))
            self.receive()
        for slot, array in zip(slots, arrays, strict=True):
            if array.nbytes:
                np.copyto(self.array(slot), array)
        self.send(frames.Frame(frames.Kind.ANSWER, body))

    def serve(self, handle: Handler) -> None:
        """Answer jobs until the server ends the connection."""
        while True:
            job = self.receive()
            slots, text = frames.decode_body(job.body, job.size)
            end = max((slot.offset + slot.nbytes for slot in slots), default=0)
            try:
                answer = handle(Message(text, tuple(map(self.array, slots))))
                self.answer(answer, end)
            except MemoryError:
                self.send(frames.Frame(frames.Kind.FAILED, b"MemoryError", frames.OUT_OF_MEMORY))
            except Exception as error:
                self.send(
                    frames.Frame(frames.Kind.FAILED, failure_text(error), frames.OTHER_FAILURE)
                )


def failure_text(error: Exception) -> bytes:
    """Return the type and text of an exception, cut to 500 bytes."""
    return f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:_MAX_FAILURE]


def load(program: str) -> Handler:
    """Return the handler of jobs: the result of MODULE:FUNCTION[:ARGUMENT]."""
    module, function, *arguments = program.split(":", 2)
    handler: Handler = getattr(importlib.import_module(module), function)(*arguments)
    return handler


def main(arguments: Sequence[str]) -> int:
    """Load the program and fork workers; in a worker, run jobs. Return the exit code."""
    program, number, parent, niceness = arguments
    die_with(int(parent))
    with socket.socket(fileno=int(number)) as server:
        try:
            handle = load(program)
            require_one_thread()
        except Exception as error:
            server.send(failure_text(error))
            return 1
        gc.collect()
        gc.freeze()  # a collection would mark, and so copy, memory that workers share
        server.send(READY)
        connection = _fork_workers(server)
    return 0 if connection is None else _work(connection, handle, int(niceness))


def _fork_workers(server: socket.socket) -> Channel | None:
    """Fork and reap workers until the server ends; in a worker, return its channel."""
    parent = os.getpid()
    while True:
        message, descriptors, *_ = socket.recv_fds(server, MAX_MESSAGE, 2)
        if not message:
            return None
        if message.startswith(REAP):
            _, status = os.waitpid(int(message[len(REAP) :]), 0)
            server.send(b"%d" % os.waitstatus_to_exitcode(status))
            continue
        assert message == FORK
        try:
            pid = os.fork()
        except OSError as error:  # no more processes, no memory
            server.send(failure_text(error))
            pid = -1
        if pid == 0:
            os.setsid()
            die_with(parent)
            return Channel(*descriptors)
        if pid > 0:
            descriptors.append(os.pidfd_open(pid))
            socket.send_fds(server, [b"%d" % pid], descriptors[-1:])
        for descriptor in descriptors:
            os.close(descriptor)


def _work(channel: Channel, handle: Handler, niceness: int) -> int:
    """Confine this process, then answer jobs; return the exit code."""
    try:
        os.nice(niceness)
        with suppress(OSError):  # of the session, too, if the kernel groups by session
            Path("/proc/self/autogroup").write_text(str(niceness))
        missing = confine()
    except Exception as error:
        channel.send(frames.Frame(frames.Kind.FAILED, failure_text(error), frames.OTHER_FAILURE))
        return 1
    channel.send(frames.Frame(frames.Kind.READY, "\n".join(missing).encode()))
    channel.serve(handle)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
