# SPDX-License-Identifier: Apache-2.0
"""The worker process: confined once its program is loaded, then job after job until its end.

    python -m nnpa_server.sandbox.worker MODULE:FUNCTION[:ARGUMENT] SOCKET ARENA PARENT

The function is called once, may import and warm what jobs need, and returns what answers jobs.
"""

import importlib
import mmap
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np

from nnpa_server.sandbox.confinement import confine, die_with
from nnpa_server.sandbox.frames import (
    HEADER,
    OTHER_FAILURE,
    OUT_OF_MEMORY,
    Array,
    Frame,
    Kind,
    Message,
    Slot,
    decode_body,
    decode_header,
    dense,
    encode_body,
    encode_header,
    plan_slots,
)

Handler: TypeAlias = Callable[[Message], Message]
"""Answers a job, whose arrays are valid until it returns; an exception fails the job."""
_MAX_FAILURE = 500
_NICENESS = 5  # what the server does itself goes first, and workers that start


class Channel:
    """The worker's end of socket and arena."""

    def __init__(self, socket: int, arena: int) -> None:
        self._socket, self._arena = socket, arena
        self._view: Array = np.empty(0, np.uint8)

    def send(self, frame: Frame) -> None:
        """Write a frame."""
        rest = memoryview(encode_header(frame) + frame.body)
        while rest:
            rest = rest[os.write(self._socket, rest) :]

    def receive(self) -> Frame:
        """Read a frame, and map the arena as large as it says; SystemExit at the end."""
        kind, length, size = decode_header(self._read(HEADER.size))
        body = self._read(length)
        if size > self._view.nbytes:
            self._view = np.frombuffer(mmap.mmap(self._arena, size), np.uint8)
        return Frame(kind, body, size)

    def _read(self, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            part = os.read(self._socket, min(count, 1 << 20))
            if not part:
                raise SystemExit(0)
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def array(self, slot: Slot) -> Array:
        """Return an array where it lies in the arena."""
        part = self._view[slot.offset : slot.offset + slot.nbytes]
        return part.view(slot.dtype).reshape(slot.shape)

    def answer(self, message: Message, begin: int) -> None:
        """Send an answer, its arrays in the arena from `begin` on: jobs' arrays may be in it."""
        arrays = list(map(dense, message.arrays))
        slots, end = plan_slots(arrays, begin)
        body = encode_body(slots, message.text)
        if end > self._view.nbytes:
            self.send(Frame(Kind.ROOM, size=end))
            self.receive()
        for slot, array in zip(slots, arrays, strict=True):
            if array.nbytes:
                np.copyto(self.array(slot), array)
        self.send(Frame(Kind.ANSWER, body))

    def serve(self, handle: Handler) -> None:
        """Answer jobs until the server ends the connection."""
        while True:
            job = self.receive()
            slots, text = decode_body(job.body, job.size)
            end = max((slot.offset + slot.nbytes for slot in slots), default=0)
            try:
                answer = handle(Message(text, tuple(map(self.array, slots))))
                self.answer(answer, end)
            except MemoryError:
                self.send(Frame(Kind.FAILED, b"MemoryError", OUT_OF_MEMORY))
            except Exception as error:
                self.send(Frame(Kind.FAILED, failure_text(error), OTHER_FAILURE))


def failure_text(error: Exception) -> bytes:
    """Return what an exception says, in at most so many bytes."""
    return f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:_MAX_FAILURE]


def load(program: str) -> Handler:
    """Return what answers jobs: the result of MODULE:FUNCTION[:ARGUMENT]."""
    module, function, *arguments = program.split(":", 2)
    handler: Handler = getattr(importlib.import_module(module), function)(*arguments)
    return handler


def _yield_processors() -> None:
    """Have other processes go first: by itself, and as a session where the kernel groups these."""
    os.nice(_NICENESS)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICENESS))


def main(arguments: Sequence[str]) -> int:
    """Load, confine, serve; return the exit code."""
    program, *numbers = arguments
    socket, arena, parent = map(int, numbers)
    die_with(parent)
    channel = Channel(socket, arena)
    try:
        handle = load(program)
        _yield_processors()
        missing = confine()
    except Exception as error:
        channel.send(Frame(Kind.FAILED, failure_text(error), OTHER_FAILURE))
        return 1
    channel.send(Frame(Kind.READY, "\n".join(missing).encode()))
    channel.serve(handle)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
