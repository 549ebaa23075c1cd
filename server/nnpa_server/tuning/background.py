# SPDX-License-Identifier: Apache-2.0
"""Compile kernels in the background, in a process of the lowest priority.

Meanwhile NumPy computes. The process compiles into the cache, from which this process loads each
kernel. It ends after its orders, or with this process. Without a cache, a thread compiles.
"""

import gc
import json
import logging
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from nnpa_emulator.kernels.jit import KERNELS, Signature, load

Order: TypeAlias = tuple[str, Signature | None]
"""A kernel and the types of its arguments; or a step of the warm-up and None: all its kernels."""

_Batch: TypeAlias = tuple[Sequence[Order], Callable[[], None] | None]
_NOTHING: Final[Sequence[Order]] = ()
PROGRAM: Final = "nnpa_server.processes.compiler"
_log = logging.getLogger("nnpa.kernels")


class BackgroundCompiler:
    """The compiler for `nnpa_emulator.kernels.jit.compile_by`; `place` is the cache, or None."""

    def __init__(self, place: Path | None, *, has_kernels: bool) -> None:
        self.has_kernels = has_kernels
        self.place = place
        self._orders: queue.SimpleQueue[_Batch] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def load(self) -> None:
        """Order the import of Numba."""
        self._put(_NOTHING)

    def compile(self, name: str, signature: Signature) -> None:
        """Order a kernel for arguments of these types."""
        self._put(((name, signature),))

    def compile_steps(self, names: Collection[str], done: Callable[[], None]) -> None:
        """Order the kernels of steps for the cache, if any; call `done` when they are compiled."""
        if self.place is not None:
            self._put(tuple((name, None) for name in names), done)

    def _put(self, orders: Sequence[Order], done: Callable[[], None] | None = None) -> None:
        self._orders.put((orders, done))
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="kernels", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            batch = [self._orders.get()]
            while not self._orders.empty():
                batch.append(self._orders.get())
            try:
                self._follow([order for orders, _ in batch for order in orders])
                for _, done in batch:
                    if done is not None:
                        done()
            except Exception:
                _log.warning("kernels are not compiled, NumPy computes", exc_info=True)

    def _follow(self, orders: Sequence[Order]) -> None:
        if not load():
            return
        compiled = iter(orders) if self.place is None else compile_elsewhere(orders)
        for name, signature in compiled:
            if signature is not None:
                kernel: Any = KERNELS[name].compiled()
                kernel.compile(signature)
            _log.info("%s is compiled", name)
        gc.freeze()  # the cycle collector need not look at Numba and its objects, which stay


def compile_elsewhere(orders: Sequence[Order]) -> Iterator[Order]:
    """Compile in another process into the cache; yield each order when it is done."""
    if not orders:
        return
    with subprocess.Popen(
        [sys.executable, "-P", "-m", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(encode_orders(orders))
        process.stdin.close()
        for order, _line in zip(orders, process.stdout, strict=False):
            yield order
    if process.returncode:
        _log.warning("the process that compiles kernels ended with code %d", process.returncode)


def encode_orders(orders: Sequence[Order]) -> bytes:
    """Return orders as JSON.

    A scalar is the name of its NumPy type or "none", a tuple the list of its members, an array an
    object with the fields of Numba's type.
    """
    return json.dumps(
        [(name, None if types is None else list(map(_encode, types))) for name, types in orders]
    ).encode()


def decode_orders(text: bytes) -> list[Order]:
    """Return the orders that `encode_orders` wrote; imports Numba if one names types."""
    return [
        (name, None if types is None else tuple(map(_decode, types)))
        for name, types in json.loads(text)
    ]


def _encode(kind: Any) -> object:
    types: Any = import_module("numba.core.types")
    if isinstance(kind, types.Array):
        return {
            "dtype": str(kind.dtype),
            "ndim": kind.ndim,
            "layout": kind.layout,
            "readonly": not kind.mutable,
            "aligned": kind.aligned,
        }
    return list(map(_encode, kind)) if isinstance(kind, types.BaseTuple) else str(kind)


def _decode(fact: Any) -> object:
    types: Any = import_module("numba.core.types")
    match fact:
        case dict():
            return types.Array(**{**fact, "dtype": _decode(fact["dtype"])})
        case list():
            return types.BaseTuple.from_types(tuple(map(_decode, fact)))
        case "none":
            return types.none
        case _:
            return import_module("numba.np.numpy_support").from_dtype(np.dtype(fact))
