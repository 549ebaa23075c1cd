# SPDX-License-Identifier: Apache-2.0
"""The C library against a bare echo: the cost of a remote accelerator for a C program."""

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np
from nnpa_client import Session, connect, zdnn

from tests.bench.echo import EchoClient
from tests.bench.report import Figure, ratio, row
from tests.client.server_process import serving
from tests.libzdnn.binding import CZtensor, Desc
from tests.libzdnn.toolchain import installed

COLUMNS = 1024
FP32, ZDNN_2D = 255, 1
# Bounds by ZDNN_TRANSFER and MiB of FP32: reached, and hoped for.
BOUNDS = {
    "cache": {1: (1.3, 0.75), 4: (1.3, 0.75), 64: (1.3, 0.75)},
    "shm": {1: (1.0, 0.5), 4: (1.0, 0.3), 64: (1.0, 0.1)},
}
_SMALL = (32, 64)
_CHAIN = ("add", "mul", "sub", "max") * 25


@contextmanager
def _echo(address: str) -> Generator[EchoClient]:
    command = [sys.executable, "-m", "tests.bench.echo", address]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield EchoClient(process.stdout.readline().strip())
        assert process.stdin is not None
        process.stdin.close()


def _checked(status: int) -> None:
    if status:
        raise RuntimeError(f"status: 0x{status:08x}, must be ZDNN_OK")


def program(library: ctypes.CDLL, mebibytes: int) -> Callable[[], None]:
    """Return a function that uploads a tensor, adds it to itself, and downloads the sum."""
    rows = mebibytes * (1 << 20) // 4 // COLUMNS
    data = np.ones((rows, COLUMNS), np.float32)
    pre, desc = Desc(), Desc()
    library.zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, ctypes.byref(pre), rows, COLUMNS)
    _checked(library.zdnn_generate_transformed_desc(ctypes.byref(pre), ctypes.byref(desc)))
    tensors = [CZtensor(), CZtensor()]
    for tensor in tensors:
        arguments = (ctypes.byref(pre), ctypes.byref(desc), ctypes.byref(tensor))
        _checked(library.zdnn_init_ztensor_with_malloc(*arguments))
    source, total = (ctypes.byref(tensor) for tensor in tensors)
    address = ctypes.c_void_p(data.ctypes.data)

    def work(_kept: tuple[object, ...] = (pre, desc, data)) -> None:
        library.zdnn_reset_ztensor(source)
        _checked(library.zdnn_transform_ztensor(source, address))
        _checked(library.zdnn_add(source, source, total))
        _checked(library.zdnn_transform_origtensor(total, address))
        data.fill(1)

    return work


def sequence_of_calls(library: ctypes.CDLL, shape: tuple[int, int] = _SMALL) -> Callable[[], None]:
    """Return a function that does the operations of `_CHAIN` one by one, as a C program does."""
    pre, desc = Desc(), Desc()
    library.zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, ctypes.byref(pre), *shape)
    _checked(library.zdnn_generate_transformed_desc(ctypes.byref(pre), ctypes.byref(desc)))
    tensors = [CZtensor(), CZtensor()]
    for tensor in tensors:
        arguments = (ctypes.byref(pre), ctypes.byref(desc), ctypes.byref(tensor))
        _checked(library.zdnn_init_ztensor_with_malloc(*arguments))
    operand, total = (ctypes.byref(tensor) for tensor in tensors)
    data = np.ones(shape, np.float32)
    _checked(library.zdnn_transform_ztensor(operand, ctypes.c_void_p(data.ctypes.data)))
    functions = [getattr(library, f"zdnn_{name}") for name in _CHAIN]

    def work(_kept: tuple[object, ...] = (pre, desc)) -> None:
        for function in functions:
            _checked(function(operand, operand, total))

    return work


def _chain_in_python(session: Session, together: bool, read: bool = False) -> Callable[[], None]:
    """Return a function that does the same in the Python SDK, one by one or in one list.

    Its results stay on the server; with `read` each result is in this process's memory before the
    next call, as in a C program.
    """
    operand, total = (session.ztensor(np.ones(_SMALL, np.float32)) for _ in range(2))
    verbs = [getattr(zdnn, name) for name in _CHAIN]

    def work() -> None:
        with session.pipeline() if together else nullcontext():
            for verb in verbs:
                verb(operand, operand, total)
                if read:
                    assert total.buffer is not None

    return work


@contextmanager
def using_library(address: str, transfer: str) -> Generator[ctypes.CDLL]:
    """Set the library's server and its way to transfer sticks."""
    os.environ.update(ZDNN_SERVER=address, ZDNN_TRANSFER=transfer)
    library = ctypes.CDLL(str(installed().shared))
    library.zdnn_init()
    yield library
    for name in ("ZDNN_SERVER", "ZDNN_TRANSFER"):
        del os.environ[name]


@row(
    "12b", "upload, add, download through libzdnn, times a bare echo of the FP32 payload", grpc=True
)
def through_libzdnn() -> list[Figure]:
    """Time 1, 4 and 64 MiB over a Unix socket: by the wire with the cache, and in shared memory."""
    with tempfile.TemporaryDirectory() as folder:
        sockets = [f"unix:{Path(folder) / name}" for name in ("nnpa.sock", "echo.sock")]
        with serving(sockets[:1], "--shared-memory") as targets, _echo(sockets[1]) as echo:
            figures: list[Figure] = []
            for transfer, bounds in BOUNDS.items():
                with using_library(targets[0], transfer) as library:
                    for size, (floor, moonshot) in bounds.items():
                        payload = bytes(size << 20)
                        value = ratio(program(library, size), partial(echo.raw, payload), 15)
                        label = f"{size} MiB, {transfer}"
                        figures.append(Figure(label, value, floor, moonshot))
            return figures


@row(
    "15b",
    "100 small operations one after the other through libzdnn, times the Python SDK",
    grpc=True,
)
def sequence() -> list[Figure]:
    """Time a chain on 32x64 tensors over a Unix socket; Python awaits each, or sends a list."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{Path(folder) / 'nnpa.sock'}"
        with (
            serving([address]) as targets,
            using_library(targets[0], "cache") as library,
            connect(targets[0]) as session,
        ):
            c_program = sequence_of_calls(library)
            reading = _chain_in_python(session, False, read=True)
            return [
                Figure("call by call, results read", ratio(c_program, reading), 1.0),
                Figure("call by call", ratio(c_program, _chain_in_python(session, False))),
                Figure("a pipeline", ratio(c_program, _chain_in_python(session, True))),
            ]
