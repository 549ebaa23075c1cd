# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled by Numba, each a shortcut around the reference that defines its arithmetic.

Numba is imported at the first call of a kernel, which takes as long as the whole start of a server.
Until then a `Kernel` stands in the modules of this package; afterwards they name the compiled
function itself, so that a call has no indirection. A process that compiles in a thread says so by
`compile_in`: until that thread has called a kernel, its reference computes, within limits.
Without Numba, or after `use_reference`, references compute everything: same bits, slower.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from importlib import import_module
from inspect import ismodule
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Adjustment = Callable[[], None]


class Njit(Protocol):
    """The decorator with which Numba compiles."""

    def __call__(self, **options: object) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Return what compiles a function with these options."""
        ...


@dataclass(frozen=True, slots=True)
class ReferenceLimits:
    """Up to where a reference stands in for a kernel: bytes of operands.

    `call` is of one call: compiled kernels work with less memory. `work` is of all calls of the
    kernel: a process that makes more rather waits for the compiled one, once.
    """

    call: int
    work: int


CACHED: Final = ReferenceLimits(call=1 << 20, work=1 << 26)
"""Where kernels are in the cache: the work takes about as long as Numba's import."""

UNCACHED: Final = ReferenceLimits(call=1 << 25, work=1 << 33)
"""Where they are to be compiled: call and work take about as long as that."""

MIN_CALL_WORK: Final = 1 << 16
"""Bytes that a call counts at least, for what it costs by itself."""

_PACKAGE: Final = __name__.rpartition(".")[0]

AnyKernel: TypeAlias = "Kernel[..., Any]"

KERNELS: dict[str, AnyKernel] = {}
"""Kernels that have a reference, by module and name: "elementwise.binary"."""

_lock = threading.RLock()
_adjustments: list[Adjustment] = []
_waiting: set[AnyKernel] = set()
_called: set[AnyKernel] = set()
_njit: Njit | None = None
_compiler: threading.Thread | None = None
_limits = CACHED
_plain = False


class Kernel(Generic[P, R]):
    """A function that Numba compiles, and the reference that computes the same."""

    def __init__(
        self, make: Callable[[], Callable[P, R]], reference: Callable[P, R] | None = None
    ) -> None:
        self._make = make
        self.reference = reference
        self._work = 0
        self._compiled: Callable[P, R] | None = None
        _waiting.add(self)

    def compiled(self) -> Callable[P, R]:
        """Return the function that Numba compiles; Numba is imported."""
        with _lock:
            if self._compiled is None:
                self._compiled = self._make()
            return self._compiled

    def __call__(self, *arguments: P.args, **names: P.kwargs) -> R:
        """Compute, by the reference where Numba is missing or still compiles in its thread."""
        if self.reference is not None and self._is_for_reference(arguments):
            return self.reference(*arguments, **names)
        if not load():
            if self.reference is None:
                raise ImportError("Numba is not installed, and a part of a kernel has no reference")
            return self.reference(*arguments, **names)
        _called.add(self)
        return self.compiled()(*arguments, **names)

    @property
    def _numba_type_(self) -> object:
        """What Numba looks up where another kernel calls this one."""
        compiled: Any = self.compiled()
        return compiled._numba_type_

    def _is_for_reference(self, arguments: tuple[object, ...]) -> bool:
        """Tell whether the operands are within the limits and another thread compiles."""
        if _compiler in (None, threading.current_thread()):
            return False
        size = sum(getattr(argument, "nbytes", 0) for argument in arguments)
        if size > _limits.call or self._work >= _limits.work:
            return False
        self._work += max(size, MIN_CALL_WORK)
        return True


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a part of kernels: no interpreter lock, cached on disk, one thread, IEEE division.

    Outside of a server the cache notices a change of the kernel's own file only: after changing a
    kernel that others call from another file, remove `kernels/__pycache__`.
    """
    return _wait(function, Kernel(_maker(function, cache=True)))


def implements(
    reference: Callable[P, R], *, contracted: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a kernel that computes what `reference` does, with the same arguments.

    `contracted` lets a product and a sum be one operation with one rounding: for arithmetic inside
    of a result that is far more precise than the result's own rounding.
    """
    options: dict[str, object] = {"fastmath": {"contract"}} if contracted else {}

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        entry = Kernel(_maker(function, cache=True, **options), reference)
        KERNELS[f"{function.__module__.rpartition('.')[2]}.{function.__name__}"] = entry
        return reference if _plain else _wait(function, entry)

    return wrap


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a part of kernels that is pasted into each of them, whatever its size."""
    return _wait(function, Kernel(_maker(function, inline="always")))


def kernel_in(module: str, name: str) -> Callable[..., None]:
    """Return a part of kernels from a module that imports Numba itself."""

    def make() -> Callable[..., None]:
        member: Callable[..., None] = getattr(import_module(module), name)
        return member.compiled() if isinstance(member, Kernel) else member

    return Kernel(make)


def when_loaded(adjust: Adjustment) -> None:
    """Have Numba adjusted before it makes a kernel: at once where it is loaded."""
    with _lock:
        if _njit is None:
            _adjustments.append(adjust)
        else:
            adjust()


def compile_in(thread: threading.Thread | None, limits: ReferenceLimits = CACHED) -> None:
    """Say which thread compiles kernels, so that others need not wait; None says it is done.

    Others compute by references within `limits`; `put_called` gives them what the thread has
    compiled. None gives them all kernels: the next call of one that it left out compiles it.
    """
    global _compiler, _limits
    with _lock:
        _compiler, _limits = thread, limits
        if _njit is not None and thread is None and not _plain:
            _put(*_waiting)


def put_called() -> None:
    """Have all threads call the kernels themselves that were called until now.

    A kernel is compiled for each kind of arguments by itself: the thread that compiles says so when
    it has called each with every kind that is usual.
    """
    with _lock:
        _put(*(_called & _waiting))


def use_reference() -> None:
    """Have references compute from now on, in the whole process; nothing is compiled."""
    global _plain
    with _lock:
        _plain = True
        for name, entry in KERNELS.items():
            module, _, function = name.rpartition(".")
            setattr(import_module(f"{_PACKAGE}.{module}"), function, entry.reference)


def compile_no_more() -> None:
    """Have references compute from now on what no kernel is compiled for, in the whole process.

    For a process that can open no files, without which Numba does not compile.
    """
    if not load():
        return
    with _lock:
        _put(*_waiting)
        for entry in KERNELS.values():
            vars(entry.compiled())["_compile_for_args"] = _returning(entry.reference)


def _returning(reference: Callable[..., Any] | None) -> Callable[..., Callable[..., Any] | None]:
    """Return what Numba calls where a kernel is not compiled for arguments: it calls the result."""
    return lambda *_arguments, **_names: reference


def load() -> bool:
    """Import Numba, unless references are used; tell whether it is there.

    Parts of kernels take their places in their modules, and all kernels where no thread compiles.
    """
    global _njit
    with _lock:
        if _plain:
            return False
        if _njit is not None:
            return True
        try:
            njit: Njit = import_module("numba").njit
        except ImportError:
            use_reference()
            return False
        for adjust in _adjustments:
            adjust()
        _njit = njit
        _put(*(entry for entry in _waiting if _compiler is None or entry.reference is None))
        return True


def _maker(function: Callable[P, R], **options: object) -> Callable[[], Callable[P, R]]:
    """Return what has Numba compile a function."""

    def make() -> Callable[P, R]:
        assert _njit is not None, "Numba is imported before a kernel is compiled"
        return _njit(nogil=True, error_model="numpy", **options)(function)

    return make


def _wait(function: Callable[P, R], entry: Kernel[P, R]) -> Callable[P, R]:
    """Return what stands for a kernel in its module: the compiled one if Numba is imported."""
    if _njit is not None:
        return entry.compiled()
    update_wrapper(entry, function)
    return entry


def _put(*entries: AnyKernel) -> None:
    """Let the modules of this package name compiled kernels instead of those that wait."""
    with _lock:
        compiled = {id(entry): entry.compiled() for entry in entries}
        modules = [member for member in vars(import_module(_PACKAGE)).values() if ismodule(member)]
        for module in modules:
            for name, member in [*vars(module).items()]:
                if id(member) in compiled:
                    setattr(module, name, compiled[id(member)])
        _waiting.difference_update(entries)
