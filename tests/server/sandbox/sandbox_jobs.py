# SPDX-License-Identifier: Apache-2.0
"""A program for workers: what code that is not trusted might try, and what one might answer."""

import ctypes
import errno
import mmap
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from fcntl import F_GETFD, fcntl
from pathlib import Path

import numpy as np
from nnpa_server.sandbox.frames import (
    MAX_BODY,
    Frame,
    Kind,
    Message,
    Slot,
    encode_body,
    encode_header,
)

_FOLDER = tempfile.gettempdir()
_LIBC = ctypes.CDLL(None, use_errno=True)
_MAX_DESCRIPTORS = 16


def _descriptor(has_places: bool) -> int:
    """Return the worker's arena, or its connection, which has no places to seek."""
    for number in range(3, _MAX_DESCRIPTORS):
        try:
            os.lseek(number, 0, os.SEEK_CUR)
        except OSError as error:
            if error.errno == errno.ESPIPE and not has_places:
                return number
        else:
            if has_places:
                return number
    raise LookupError("the worker has no such descriptor")


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _require(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _peek(pid: int) -> None:
    buffer = ctypes.create_string_buffer(8)
    mine = _Vector(ctypes.addressof(buffer), 8)
    theirs = _Vector(id(sys.modules) & ~7, 8)
    _require(
        _LIBC.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0),
    )


def _exhaust_memory() -> bytes:
    blocks = []
    while True:
        blocks.append(np.ones(16 << 20, np.uint8))


def _loop() -> bytes:
    while True:
        pass


def _write(data: bytes) -> bytes:
    os.write(_descriptor(has_places=False), data)
    time.sleep(600)
    return b""


def _drip() -> bytes:
    os.write(_descriptor(has_places=False), _header(Kind.ANSWER, 1 << 20, 0))
    while True:
        os.write(_descriptor(has_places=False), b"x")
        time.sleep(0.005)


def _map_shared() -> None:
    mmap.mmap(-1, 1 << 20)


def _map_stack() -> None:
    """Map memory as stacks have it, which RLIMIT_DATA does not count."""
    grows_down = 0x100
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | grows_down
    mmap.mmap(-1, 64 << 20, flags, mmap.PROT_READ | mmap.PROT_WRITE)


def _map_readable() -> None:
    """Map memory that is only read, which takes page tables: RLIMIT_DATA does not count it."""
    mmap.mmap(-1, 64 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)


def _answer_and(go_on: Callable[[], object]) -> bytes:
    """Answer a text, go on, and then be silent."""
    body = encode_body([], b"answered")
    os.write(_descriptor(has_places=False), encode_header(Frame(Kind.ANSWER, body)) + body)
    kept = go_on()
    time.sleep(600)
    return repr(kept).encode()


def _grow() -> object:
    """Take memory within the limit of the last job."""
    time.sleep(0.6)
    return np.ones(96 << 20, np.uint8)


def _fill_arena() -> object:
    """Write to all of the arena, of which the server has let go."""
    time.sleep(0.3)
    arena = _descriptor(has_places=True)
    view = np.frombuffer(mmap.mmap(arena, os.lseek(arena, 0, os.SEEK_END)), np.uint8)
    view[:] = 1
    return view


def _spin() -> object:
    """Use a processor, whatever signal says that no time is left."""
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    return _loop()


def _change_later() -> bytes:
    """Answer an array of ones, and go on writing to it."""
    view = np.frombuffer(mmap.mmap(_descriptor(has_places=True), 4096), np.uint8)
    view[:] = 1
    slot = Slot(np.dtype("uint8"), (64,), 0)
    body = encode_body([slot], b"checked")
    os.write(_descriptor(has_places=False), encode_header(Frame(Kind.ANSWER, body)) + body)
    while True:
        view[:] = 9


def _answer_with(shape: tuple[int, ...], offset: int) -> bytes:
    body = encode_body([Slot(np.dtype("uint8"), shape, offset)], b"")
    return _write(encode_header(Frame(Kind.ANSWER, body)) + body)


class _Payload:
    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (f"{_FOLDER}/nnpa-unpickled",)


def _header(kind: int, length: int, size: int) -> bytes:
    return struct.pack("<4sIIQ", b"nnpw", kind, length, size)


ATTEMPTS: dict[str, Callable[[str], object]] = {
    "open": lambda path: Path(path).read_text(),
    "list": lambda path: os.listdir(path),  # noqa: PTH208 - the call itself is tried
    "stat": lambda path: os.stat(path),  # noqa: PTH116
    "write": lambda path: Path(path).write_text("was here"),
    "connect": lambda port: socket.socket().connect(("127.0.0.1", int(port))),
    "unix": lambda path: socket.socket(socket.AF_UNIX).connect(path),
    "fork": lambda _: os.fork(),
    "thread": lambda _: threading.Thread(target=int).start(),
    "exec": lambda path: os.execv(path, [path]),
    "spawn": lambda path: subprocess.run([path], check=True),
    "kill": lambda pid: os.kill(int(pid), signal.SIGKILL),
    "probe": lambda pid: os.kill(int(pid), 0),
    "ptrace": lambda pid: _require(_LIBC.ptrace(16, int(pid), None, None)),
    "peek": lambda pid: _peek(int(pid)),
    "memory-file": lambda pid: Path(f"/proc/{pid}/mem").read_bytes(),
    "shared-anonymous": lambda _: _map_shared(),
    "stack": lambda _: _map_stack(),
    "readable": lambda _: _map_readable(),
    "memfd": lambda _: os.memfd_create("x"),
    "truncate": lambda _: os.ftruncate(_descriptor(has_places=True), 1 << 30),
    "environment": lambda name: os.environ[name],
}
ANSWERS: dict[str, Callable[[], bytes]] = {
    "memory": _exhaust_memory,
    "loop": _loop,
    "spin": lambda: bytes(repr(_spin()), "ascii"),
    "then-spin": lambda: _answer_and(_spin),
    "then-grow": lambda: _answer_and(_grow),
    "then-fill": lambda: _answer_and(_fill_arena),
    "silence": lambda: _write(b""),
    "exit": lambda: os._exit(3),
    "abort": lambda: os.abort(),
    "segfault": lambda: ctypes.string_at(0) or b"",
    "garbage": lambda: _write(b"\xff" * 64),
    "pickle": lambda: _write(pickle.dumps(_Payload())),
    "pickle-text": lambda: pickle.dumps(_Payload()),
    "long": lambda: _write(_header(Kind.ANSWER, MAX_BODY + 1, 0)),
    "longest": lambda: _write(_header(Kind.ANSWER, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)),
    "short": lambda: _write(_header(Kind.ANSWER, 100, 0) + b"x"),
    "drops": _drip,
    "kind": lambda: _write(_header(99, 0, 0)),
    "ready-again": lambda: _write(_header(Kind.READY, 0, 0)),
    "job": lambda: _write(_header(Kind.JOB, 0, 0)),
    "room": lambda: _write(_header(Kind.ROOM, 0, 1 << 61)),
    "no-room": lambda: _write(_header(Kind.ROOM, 0, 0)),
    "no-table": lambda: _write(_header(Kind.ANSWER, 0, 0)),
    "many-arrays": lambda: _write(_header(Kind.ANSWER, 4, 0) + b"\xff\xff\xff\xff"),
    "type": lambda: _write(_header(Kind.ANSWER, 14, 0) + struct.pack("<IBBQ", 1, 250, 0, 0)),
    "dims": lambda: _write(_header(Kind.ANSWER, 14, 0) + struct.pack("<IBBQ", 1, 1, 250, 0)),
    "beside": lambda: _answer_with((64,), 1 << 40),
    "wide": lambda: _answer_with((1 << 40, 1 << 40), 0),
    "crooked": lambda: _answer_with((8,), 1),
    "later": _change_later,
    "raise": lambda: bytes(int("no number")),
}


def _attempt(name: str, argument: str) -> bytes:
    try:
        ATTEMPTS[name](argument)
    except BaseException as error:
        return f"{type(error).__name__}".encode()
    return b"done"


def handle(message: Message) -> Message:
    """Do what the text says: "echo", "attempt NAME ARGUMENT", "answer NAME"."""
    verb, _, rest = message.text.decode().partition(" ")
    match verb:
        case "echo":
            return Message(message.text, message.arrays)
        case "pid":
            return Message(str(os.getpid()).encode())
        case "double":
            return Message(b"", tuple(np.repeat(array, 2) for array in message.arrays))
        case "attempt":
            name, _, argument = rest.partition(" ")
            return Message(_attempt(name, argument))
        case "descriptors":
            open_now = []
            for number in range(64):
                try:
                    fcntl(number, F_GETFD)
                    open_now.append(str(number))
                except OSError:
                    continue
            return Message(" ".join(open_now).encode())
        case _:
            return Message(ANSWERS[rest]())


def start() -> Callable[[Message], Message]:
    """Return what answers jobs."""
    return handle


def refuse() -> Callable[[Message], Message]:
    """Fail while the program is loaded."""
    raise RuntimeError("this program cannot be loaded")


def start_late() -> Callable[[Message], Message]:
    """Answer as `start` does, in a process whose first fork fails."""
    fork = os.fork

    def fail() -> int:
        os.fork = fork
        raise BlockingIOError("no more processes")

    os.fork = fail
    return start()


def parent(argument: str) -> None:
    """Start a worker that loops, print its pid, and wait: for a test that kills this process."""
    from nnpa_server.sandbox.process import JobLimits

    from tests.server.sandbox.forked import Forked

    worker = Forked("tests.server.sandbox.sandbox_jobs:start")
    print(worker.pid, flush=True)
    worker.run(Message(argument.encode()), JobLimits())


if __name__ == "__main__":
    parent(sys.argv[1])
