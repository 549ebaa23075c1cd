# SPDX-License-Identifier: Apache-2.0
"""Which zDNN function runs on which machine with which library, and why not, without a server.

Sources: zDNN API Reference 1.2.0, "Since" and "Requirements" of each function; where the library
itself says otherwise (sub, matmul_op, lstm, gru, pools, conv2d are of 1.0.0; functions of 1.1.0
that need no new hardware run on Telum I), zDNN library behaviour.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from nnpa_client._values.hosts import Function, Host
from nnpa_client._values.machine_table import MACHINES, ON_WIRE

__all__ = [
    "FUNCTIONS",
    "LIBRARIES",
    "MACHINES",
    "TELUMS",
    "Answer",
    "Function",
    "Host",
    "Verdict",
    "find_host",
    "verdict",
]

LIBRARIES = ("1.0.0", "1.0.1", "1.1.0", "1.1.1", "1.1.2", "1.2.0")


class Answer(StrEnum):
    """Whether a function runs: always, for some arguments, or never."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a function runs on a machine with a library; `reason` says why not, or which part."""

    answer: Answer
    reason: str = ""


TELUMS = tuple(host.name for host in MACHINES.values() if host.parmblk_formats)

# Functions that ask nobody, and those that are two arms in one.
_LOCAL: Mapping[str, Function] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "init_pre_transformed_desc",
                "generate_transformed_desc",
                "generate_transformed_desc_concatenated",
                "getsize_ztensor",
                "get_library_version",
                "get_library_version_str",
                "get_status_message",
            ),
            Function("1.0.0"),
        ),
        **dict.fromkeys(
            (
                "generate_quantized_transformed_desc",
                "is_quantized_ztensor",
                "get_max_limit",
                "get_min_limit",
            ),
            Function("1.1.0"),
        ),
        "init_ztensor_with_malloc": Function("1.0.0", needs_limits=True),
        "init_quantized_ztensor_with_malloc": Function("1.1.0", needs_limits=True),
    }
)

FUNCTIONS: Mapping[str, Function] = MappingProxyType({**ON_WIRE, **_LOCAL})

# Codes of functions that issue several: one of them by the operands, or all.
_PRODUCTS = (113, 114, 115)
_ONE_OF = {
    "matmul_bcast_op": _PRODUCTS,
    "matmul_transpose_op": _PRODUCTS,
    "quantized_matmul_op": _PRODUCTS,
}
_ALL_OF = {"lstm": (113, 114, 96), "gru": (113, 114, 97)}
_TRANSFORM = 240  # without it transforms are software, as on a machine of format 0


def find_host(name: str) -> Host:
    """Return the machine of a name or alias, in any case. Raises ValueError."""
    lower = name.lower()
    for host in MACHINES.values():
        if lower in (host.name, *host.aliases):
            return host
    names = ", ".join(
        f"{host.name} ({', '.join(host.aliases)})" if host.aliases else host.name
        for host in MACHINES.values()
    )
    raise ValueError(f"machine: {name!r}, expected one of {names}")


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def verdict(name: str, host: Host, library: str = LIBRARIES[-1]) -> Verdict:
    """Return the verdict on a function, named without "zdnn_", on a machine with a library."""
    if library not in LIBRARIES:
        raise ValueError(f"library: {library!r}, expected one of {', '.join(LIBRARIES)}")
    function = FUNCTIONS.get(name)
    if function is None:
        return Verdict(Answer.NO, "is no function of zDNN 1.2.0")
    if _release(function.since) > _release(library):
        reason = f"is not in zDNN {library}; came with {function.since}"
        return Verdict(Answer.NO, reason)
    return _on(host, name, function, library)


def _on(host: Host, name: str, function: Function, library: str) -> Verdict:
    formats, parmblk_format = host.parmblk_formats, function.parmblk_format
    if function.needs_limits and not formats:
        answer = "ZDNN_UNSUPPORTED_AIU_EXCEPTION"
        return Verdict(Answer.NO, f"compares sizes with those of NNPA, which is absent: {answer}")
    if name == "refresh_nnpa_query_result" and not formats:
        return Verdict(Answer.NO, "NNPA is absent: ZDNN_UNAVAILABLE_FUNCTION")
    if parmblk_format is not None and parmblk_format not in formats:
        need = "NNPA" if not formats else f"NNPA parameter block format {parmblk_format} (Telum II)"
        ends = "; a float parameter other than 0 ends the program (operation exception)"
        more = ends if function.converts_scalar and not host.vector_nnp else ""
        return Verdict(Answer.NO, f"needs {need}: ZDNN_UNAVAILABLE_FUNCTION{more}")
    if reason := _lacking(host, name, function):
        return Verdict(Answer.NO, f"{reason}: ZDNN_UNAVAILABLE_FUNCTION")
    if function.on_1_0 and library.startswith("1.0."):
        return Verdict(Answer.PARTLY, function.on_1_0)
    is_in_software = name.startswith("transform_") and _TRANSFORM in host.lacks
    if function.on_format_0 and (1 not in formats or is_in_software):
        return Verdict(Answer.PARTLY, function.on_format_0)
    forms = [host.lacks[code] for code in _ONE_OF.get(name, ()) if code in host.lacks]
    if forms:
        return Verdict(Answer.PARTLY, f"not where the operands need {' or '.join(forms)}")
    return Verdict(Answer.YES)


def _lacking(host: Host, name: str, function: Function) -> str:
    """Return the clause that names the functions whose absence keeps a function from running."""
    lacks, forms = host.lacks, _ONE_OF.get(name, ())
    needed = {function.code, *_ALL_OF.get(name, ())}
    if lacks.keys() >= set(forms):
        needed.update(forms)
    names = " and ".join(text for code, text in lacks.items() if code in needed)
    return f"needs {names}, which the machine lacks" if names else ""


def worst(answers: Iterable[Answer]) -> Answer:
    """Return NO if any answer is NO, else PARTLY if any is, else YES."""
    present = set(answers)
    return next((answer for answer in (Answer.NO, Answer.PARTLY) if answer in present), Answer.YES)
