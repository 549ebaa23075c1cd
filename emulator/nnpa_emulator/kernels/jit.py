# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled by Numba, each a shortcut around the reference that defines its arithmetic.

Numba is imported at the first call of a kernel, which takes as long as the whole start of a server.
Until then a `Kernel` stands in the modules of this package; afterwards they name the compiled
function itself, so that a call has no indirection. A process in which calls do not wait for a
compiler names a `Compiler` by `compile_by`: references compute until a kernel was called often
enough, with arguments of one kind, that compiling it pays.
Without Numba, or after `use_reference`, references compute everything: same bits, slower.
"""

import threading
from collections.abc import Callable
from functools import partial, update_wrapper
from importlib import import_module
from inspect import ismodule
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeAlias, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
Adjustment = Callable[[], None]
Signature: TypeAlias = tuple[Any, ...]
"""Numba's types of a call's arguments."""


class Njit(Protocol):
    """The decorator with which Numba compiles."""

    def __call__(self, **options: object) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Return the decorator that compiles a function with these options."""
        ...


class Compiler(Protocol):
    """A thread that imports Numba and compiles kernels beside the calls; methods return at once."""

    @property
    def has_kernels(self) -> bool:
        """Whether some kernels are compiled already, so that Numba's import pays sooner."""
        ...

    def load(self) -> None:
        """Import Numba, by `load`."""
        ...

    def compile(self, name: str, signature: Signature) -> None:
        """Compile a kernel for arguments of these types."""
        ...


MAX_REFERENCE_BYTES: Final = 1 << 25
"""Operands of a call that does not wait: beyond, references take several times their memory."""

MIN_CALL_WORK: Final = 1 << 16
"""Bytes that a call counts at least, for what it costs by itself."""

LOAD_WORK: Final = 1 << 24
"""Bytes of a kernel's calls that take about as long as Numba's import."""

COMPILE_WORK: Final = 1 << 27
"""Bytes of a kernel's calls that take about as long as compiling it."""

_PACKAGE: Final = __name__.rpartition(".")[0]

AnyKernel: TypeAlias = "Kernel[..., Any]"

KERNELS: dict[str, AnyKernel] = {}
"""Kernels that have a reference, by module and name: "elementwise.binary"."""

_lock = threading.RLock()
_adjustments: list[Adjustment] = []
_waiting: set[AnyKernel] = set()
_njit: Njit | None = None
_compiler: Compiler | None = None
_plain = False


class Kernel(Generic[P, R]):
    """A function that Numba compiles, and the reference that computes the same."""

    def __init__(
        self, make: Callable[[], Callable[P, R]], reference: Callable[P, R] | None = None
    ) -> None:
        self._make = make
        self.reference = reference
        self.name = ""
        self._work = 0
        self._works: dict[Signature, int] = {}
        self._compiled: Callable[P, R] | None = None
        _waiting.add(self)

    def compiled(self) -> Callable[P, R]:
        """Return the function that Numba compiles; Numba is imported."""
        with _lock:
            if self._compiled is None:
                self._compiled = self._make()
                if self.reference is not None:
                    vars(self._compiled)["_compile_for_args"] = self._compile_for
            return self._compiled

    def __call__(self, *arguments: P.args, **names: P.kwargs) -> R:
        """Compute, by the reference where Numba is missing or is not to be waited for."""
        if self.reference is not None and self._is_for_reference(arguments):
            return self.reference(*arguments, **names)
        if not load():
            if self.reference is None:
                raise ImportError("Numba is not installed, and a part of a kernel has no reference")
            return self.reference(*arguments, **names)
        return self.compiled()(*arguments, **names)

    @property
    def _numba_type_(self) -> object:
        """The object that Numba looks up when another kernel calls this one."""
        compiled: Any = self.compiled()
        return compiled._numba_type_

    def _is_for_reference(self, arguments: tuple[object, ...]) -> bool:
        """Count a call before Numba is imported; tell whether a reference computes it."""
        size, compiler = _size_of(arguments), _compiler
        if _njit is not None or compiler is None or size > MAX_REFERENCE_BYTES:
            return False
        least = LOAD_WORK if compiler.has_kernels else COMPILE_WORK
        work = self._work
        self._work = work + max(size, MIN_CALL_WORK)
        if work < least <= self._work:
            compiler.load()
        return True

    def _compile_for(self, *arguments: Any, **names: Any) -> object:
        """Return the function for a call whose types have no compiled kernel: Numba calls it."""
        compiled: Any = self.compiled()
        size, compiler = _size_of(arguments), _compiler
        if compiler is not None and size <= MAX_REFERENCE_BYTES:
            signature = tuple(compiled.typeof_pyval(argument) for argument in arguments)
            if signature in self._works or not _is_cached(compiled, signature):
                self._count(signature, max(size, MIN_CALL_WORK), compiler)
                return self.reference
        at_once: object = type(compiled)._compile_for_args(compiled, *arguments, **names)
        return at_once

    def _count(self, signature: Signature, size: int, compiler: Compiler) -> None:
        """Count a call by its reference; have the kernel compiled once that pays."""
        work = self._works.get(signature, min(self._work, COMPILE_WORK - 1))
        self._works[signature] = work + size
        if work < COMPILE_WORK <= work + size:
            compiler.compile(self.name, signature)


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a part of kernels: no interpreter lock, cached on disk, one thread, IEEE division.

    Outside of a server the cache notices a change of the kernel's own file only: after changing a
    kernel that others call from another file, remove `kernels/__pycache__`.
    """
    return _wait(function, Kernel(_maker(function, cache=True)))


def implements(
    reference: Callable[P, R], *, contracted: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a kernel that computes the same as `reference`, with the same arguments.

    `contracted` lets a product and a sum be one operation with one rounding: for arithmetic inside
    of a result that is far more precise than the result's own rounding.
    """
    options: dict[str, object] = {"fastmath": {"contract"}} if contracted else {}

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        entry = Kernel(_maker(function, cache=True, **options), reference)
        entry.name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        KERNELS[entry.name] = entry
        return reference if _plain else _wait(function, entry)

    return wrap


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a part of kernels that is pasted into each of them, whatever its size."""
    return _wait(function, Kernel(_maker(function, inline="always")))


def kernel_in(module: str, name: str) -> Callable[..., Any]:
    """Return a part of kernels from a module that imports Numba itself."""

    def make() -> Callable[..., Any]:
        member: Callable[..., Any] = getattr(import_module(module), name)
        return member.compiled() if isinstance(member, Kernel) else member

    return Kernel(make)


def when_loaded(adjust: Adjustment) -> None:
    """Call `adjust` when Numba is loaded, before it compiles: at once if it is loaded."""
    with _lock:
        if _njit is None:
            _adjustments.append(adjust)
        else:
            adjust()


def compile_by(compiler: Compiler | None) -> None:
    """Let calls ask `compiler` to compile instead of waiting; None: the calling threads compile."""
    global _compiler
    with _lock:
        _compiler = compiler


def use_reference() -> None:
    """Let references compute from now on, in the whole process; nothing is compiled."""
    global _plain
    with _lock:
        _plain = True
        for name, entry in KERNELS.items():
            module, _, function = name.rpartition(".")
            setattr(import_module(f"{_PACKAGE}.{module}"), function, entry.reference)


def compile_no_more() -> None:
    """Compile nothing from now on in the whole process: references compute where no kernel is.

    For a process that cannot open files, which Numba needs to compile.
    """
    if not load():
        return
    with _lock:
        for entry in KERNELS.values():
            vars(entry.compiled())["_compile_for_args"] = _returning(entry.reference)


def _returning(reference: Callable[..., Any] | None) -> Callable[..., Callable[..., Any] | None]:
    """Return the function that Numba calls, and whose result it calls, for uncompiled arguments."""
    return lambda *_arguments, **_names: reference


def load() -> bool:
    """Import Numba, unless references are used; tell whether it is there.

    Kernels take their places in their modules.
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
        _put(*_waiting)
        return True


def _size_of(arguments: tuple[object, ...]) -> int:
    return sum(getattr(argument, "nbytes", 0) for argument in arguments)


def _is_cached(compiled: Any, signature: Signature) -> bool:
    """Tell whether a kernel that was compiled for these types is on disk.

    It may be called while another thread compiles, and so touches nothing that Numba's lock guards.
    """
    cache = compiled._cache
    if not hasattr(cache, "_cache_file"):  # where Numba keeps nothing
        return False
    key = cache._index_key(signature, compiled.targetctx.codegen())
    return key in cache._cache_file._load_index()


def _maker(function: Callable[P, R], **options: object) -> Callable[[], Callable[P, R]]:
    """Return the function that lets Numba compile a function."""

    def make() -> Callable[P, R]:
        assert _njit is not None, "Numba is imported before a kernel is compiled"
        compiled: Any = _njit(nogil=True, error_model="numpy", **options)(function)
        if "inline" not in options:
            vars(compiled)["get_call_template"] = partial(_call_without_literals, compiled)
        return cast(Callable[P, R], compiled)

    return make


def _call_without_literals(
    compiled: Any, arguments: tuple[Any, ...], names: dict[str, Any]
) -> object:
    """Return a form that other kernels call: compiled once for a type, not for each constant.

    Numba compiles a callee anew for every literal that a caller passes. Measured: a sixth of the
    processor time of compiling all kernels, which are as fast without.
    """
    unliteral: Callable[[object], object] = import_module("numba.core.types").unliteral
    widened = tuple(map(unliteral, arguments))
    template: object = type(compiled).get_call_template(compiled, widened, names)
    return template


def _wait(function: Callable[P, R], entry: Kernel[P, R]) -> Callable[P, R]:
    """Return the object that stands for a kernel in its module: compiled if Numba is imported."""
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
