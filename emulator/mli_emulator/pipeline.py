# SPDX-License-Identifier: Apache-2.0
"""How every kernel runs: check, compute, write; and the table of kernels.

A kernel raises Refused before it writes anything. What the caller sees then depends on the debug
level of the call, as it depends on the build of the library.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

from mli_emulator.fixedpoint import Accumulator, Rounding
from mli_emulator.requantise import Conversion
from mli_emulator.status import Asserted, DebugLevel, MliStatus, Outcome, Refused

P = ParamSpec("P")
R = TypeVar("R", Outcome, int)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a build of the library: rounding, debug level, overflow, conversion."""

    rounding: Rounding = Rounding.CONVERGENT
    debug: DebugLevel = DebugLevel.RET_CODES
    accumulator: Accumulator = Accumulator.EXACT
    conversion: Conversion = Conversion.EXACT


DEFAULT = Options()


@dataclass(frozen=True, slots=True)
class Remarks:
    """The remarks of a kernel that did its work, beside the status OK."""

    accumulator_overflow: bool = False
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """One entry of the table: documented name without ``mli_``, other names, the function."""

    name: str
    aliases: tuple[str, ...]
    function: Callable[..., Outcome | int]


KERNELS: dict[str, Kernel] = {}


def listed(name: str, *aliases: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Enter a function under its name and aliases; a name can be taken once."""

    def enter(function: Callable[P, R]) -> Callable[P, R]:
        entry = Kernel(name, aliases, function)
        for key in (name, *aliases):
            if key in KERNELS:
                raise ValueError(f"kernel name: {key}, must be unused")
            KERNELS[key] = entry
        return function

    return enter


def kernel(name: str, *aliases: str) -> Callable[[Callable[P, Remarks]], Callable[P, Outcome]]:
    """Turn a function that raises Refused or returns Remarks into a kernel of the table."""

    def decorate(body: Callable[P, Remarks]) -> Callable[P, Outcome]:
        @wraps(body)
        def call(*args: P.args, **kwargs: P.kwargs) -> Outcome:
            options = kwargs.get("options", DEFAULT)
            debug = options.debug if isinstance(options, Options) else DEFAULT.debug
            try:
                remarks = body(*args, **kwargs)
            except Refused as refused:
                return _answer(refused, debug)
            messages = remarks.messages if debug >= DebugLevel.DEBUG else ()
            return Outcome(MliStatus.MLI_STATUS_OK, None, remarks.accumulator_overflow, messages)

        call.__name__ = call.__qualname__ = name
        return listed(name, *aliases)(call)

    return decorate


def variants(
    body: Callable[Concatenate[V, P], Remarks],
) -> Callable[[str, V], Callable[P, Outcome]]:
    """Turn a function whose first parameter is its variant into a maker of named kernels."""

    def make(name: str, variant: V) -> Callable[P, Outcome]:
        @wraps(body)
        def run(*args: P.args, **kwargs: P.kwargs) -> Remarks:
            return body(variant, *args, **kwargs)

        vars(run)["__wrapped__"] = partial(body, variant)  # whose parameters the kernel has
        return kernel(name)(run)

    return make


def _answer(refused: Refused, debug: DebugLevel) -> Outcome:
    """Return the status, or OK where the build checks nothing, or abort as an asserting build."""
    if debug >= DebugLevel.ASSERT:
        raise Asserted(refused.refusal) from refused
    if debug is DebugLevel.RELEASE:
        return Outcome(MliStatus.MLI_STATUS_OK, refused.refusal)
    return Outcome(refused.refusal.status, refused.refusal)


def find(name: str) -> Kernel:
    """Find a kernel by name or alias, with or without ``mli_``; KeyError names an unknown one."""
    key = name.removeprefix("mli_")
    if key not in KERNELS:
        raise KeyError(f"kernel name: {name}, must be one of {', '.join(sorted(KERNELS))}")
    return KERNELS[key]
