# SPDX-License-Identifier: Apache-2.0
"""The C library against a bare echo: what a C program pays for a remote accelerator."""

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from tests.bench.echo import EchoClient
from tests.bench.report import Figure, ratio, row
from tests.client.server_process import serving
from tests.libzdnn.binding import CZtensor, Desc
from tests.libzdnn.toolchain import installed

COLUMNS = 1024
FP32, ZDNN_2D = 255, 1
# Bounds per MiB of FP32: reached, and hoped for with sticks inline.
SIZES = {1: (1.3, 0.75), 4: (1.3, 0.75), 64: (1.3, 0.75)}


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


def _program(library: ctypes.CDLL, mebibytes: int) -> Callable[[], None]:
    """Return what uploads a tensor, adds it to itself, and downloads the sum."""
    rows = mebibytes * (1 << 20) // 4 // COLUMNS
    data = np.ones((rows, COLUMNS), np.float32)
    pre, desc = Desc(), Desc()
    library.zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, ctypes.byref(pre), rows, COLUMNS)
    _checked(library.zdnn_generate_transformed_desc(ctypes.byref(pre), ctypes.byref(desc)))
    tensors = [CZtensor(), CZtensor()]
    for one in tensors:
        made = (ctypes.byref(pre), ctypes.byref(desc), ctypes.byref(one))
        _checked(library.zdnn_init_ztensor_with_malloc(*made))
    source, total = (ctypes.byref(one) for one in tensors)
    address = ctypes.c_void_p(data.ctypes.data)

    def work(_kept: tuple[object, ...] = (pre, desc, data)) -> None:
        library.zdnn_reset_ztensor(source)
        _checked(library.zdnn_transform_ztensor(source, address))
        _checked(library.zdnn_add(source, source, total))
        _checked(library.zdnn_transform_origtensor(total, address))
        data.fill(1)

    return work


@row("12b", "upload, add, download through libzdnn, times a bare echo of the FP32 payload")
def through_libzdnn() -> list[Figure]:
    """Time 1, 4 and 64 MiB over a Unix socket; sticks travel inline, or in chunks when large."""
    with tempfile.TemporaryDirectory() as folder:
        sockets = [f"unix:{Path(folder) / name}" for name in ("nnpa.sock", "echo.sock")]
        with serving(sockets[:1]) as targets, _echo(sockets[1]) as echo:
            os.environ["ZDNN_SERVER"] = targets[0]
            library = ctypes.CDLL(str(installed().shared))
            library.zdnn_init()
            figures: list[Figure] = []
            for size, (floor, moonshot) in SIZES.items():
                payload = bytes(size << 20)
                value = ratio(_program(library, size), partial(echo.raw, payload), 7)
                figures.append(Figure(f"{size} MiB", value, floor, moonshot))
            return figures
