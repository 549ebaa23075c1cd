# SPDX-License-Identifier: Apache-2.0
"""How a kernel is found: Numba is imported, and has it compiled or in its cache, when it is called.

Until then a `_Waiting` kernel stands for it in the modules of this package; then they name the
compiled one, and nothing is left between for those who call it as `module.kernel`. Importing Numba
takes as long as the whole start of a server: a process that has a thread for it says so by
`compile_in`, and until that thread has called them, the kernels that have an early form compute
small operands by that: the same bits, in NumPy.
"""

import threading
from collections.abc import Callable
from functools import update_wrapper
from importlib import import_module
from inspect import ismodule
from typing import Any, Final, TypeVar, cast

Kernel = TypeVar("Kernel", bound=Callable[..., object])
Adjustment = Callable[[], None]

EARLY_BYTES: Final = 1 << 20
"""Most bytes of operands that an early form is for: compiled kernels work with less memory."""

EARLY_WORK: Final = 1 << 26
"""Bytes of operands, of all calls of a kernel, that its early form is for: they take it about as
long as Numba's import, which a process that makes more calls rather waits for, once."""

_LEAST_WORK: Final = 1 << 16  # bytes that a call is counted as, for what it costs by itself

_PACKAGE: Final = __name__.rpartition(".")[0]

_lock = threading.RLock()
_adjustments: list[Adjustment] = []
_waiting: "set[_Waiting]" = set()
_numba: Any = None
_compiler: threading.Thread | None = None


class _Waiting:
    """A kernel that is not compiled; `make` compiles it, `early` does its work in NumPy."""

    def __init__(
        self, make: Callable[[], Callable[..., Any]], early: Callable[..., Any] | None
    ) -> None:
        self._make = make
        self.early = early
        self._left = EARLY_WORK
        self._compiled: Callable[..., Any] | None = None
        _waiting.add(self)

    def compiled(self) -> Callable[..., Any]:
        """Return what Numba has of it; needs `_load`."""
        with _lock:
            if self._compiled is None:
                self._compiled = self._make()
            return self._compiled

    def __call__(self, *arguments: Any) -> Any:
        """Compute, early if there is a form for that and a thread that compiles."""
        if self.early is not None and _compiler not in (None, threading.current_thread()):
            size = sum(getattr(one, "nbytes", 0) for one in arguments)
            if size <= EARLY_BYTES and self._left > 0:
                self._left -= max(size, _LEAST_WORK)
                return self.early(*arguments)
        _load()
        result = self.compiled()(*arguments)
        if self in _waiting:
            _put(self)
        return result


def kernel(function: Kernel) -> Kernel:
    """Compile a kernel: no interpreter lock, cached on disk, one thread, IEEE division.

    The cache notices a change of the kernel's own file only: after changing a kernel that others
    call from another file, remove `kernels/__pycache__`.
    """
    return _wait(function, None, cache=True)


def kernel_with(early: Kernel) -> Callable[[Kernel], Kernel]:
    """Compile a kernel that no other kernel calls; `early` is the same function in NumPy."""
    return lambda function: _wait(function, early, cache=True)


def contracted(function: Kernel) -> Kernel:
    """Compile a kernel in which a product and a sum may be one operation with one rounding.

    For arithmetic inside of a result that is far more precise than the result's own rounding.
    """
    return _wait(function, None, cache=True, fastmath={"contract"})


def inlined(function: Kernel) -> Kernel:
    """Compile a part of kernels that is pasted into each of them, whatever its size."""
    return _wait(function, None, inline="always")


def kernel_in(module: str, name: str) -> Any:
    """Return a kernel of a module that imports Numba itself."""

    def make() -> Any:
        found = getattr(import_module(module), name)
        return found.compiled() if isinstance(found, _Waiting) else found

    return _Waiting(make, None)


def when_loaded(adjust: Adjustment) -> None:
    """Have Numba adjusted before it makes a kernel: at once where it is loaded."""
    with _lock:
        if _numba is None:
            _adjustments.append(adjust)
        else:
            adjust()


def compile_in(thread: threading.Thread | None) -> None:
    """Say which thread compiles kernels, so that others need not wait; None says it is done.

    A kernel that the thread has called is compiled for all. With None that is true for those that
    it left out too: their next call compiles them.
    """
    global _compiler
    with _lock:
        _compiler = thread
        if _numba is not None and thread is None:
            _put(*_waiting)


def _wait(function: Kernel, early: Callable[..., Any] | None, **options: Any) -> Kernel:
    """Return what stands for a kernel, which is itself if Numba is here."""

    def make() -> Any:
        return _numba.njit(nogil=True, error_model="numpy", **options)(function)

    if _numba is not None:
        return cast(Kernel, make())
    return cast(Kernel, update_wrapper(_Waiting(make, early), function))


def _load() -> None:
    """Import Numba, and put the compiled kernels in the places of those without an early form."""
    global _numba
    with _lock:
        if _numba is None:
            numba: Any = import_module("numba")
            for adjust in _adjustments:
                adjust()
            _numba = numba
            _put(*(one for one in _waiting if one.early is None or _compiler is None))


def _put(*kernels: _Waiting) -> None:
    """Let the modules of this package name compiled kernels instead of those that wait."""
    with _lock:
        found = {id(one): one.compiled() for one in kernels}
        modules = [one for one in vars(import_module(_PACKAGE)).values() if ismodule(one)]
        for module in modules:
            for name, one in [*vars(module).items()]:
                if id(one) in found:
                    setattr(module, name, found[id(one)])
        _waiting.difference_update(kernels)
