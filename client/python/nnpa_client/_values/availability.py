# SPDX-License-Identifier: Apache-2.0
"""Which zDNN function runs on which machine, with which library, and why not. Asks no server.

Sources: zDNN API Reference 1.2.0, "Since" and "Requirements" of each function; where the library
itself says otherwise (sub, matmul_op, lstm, gru, pools, conv2d are of 1.0.0; functions of 1.1.0
that need no new hardware run on Telum I), zDNN library behaviour.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

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
class Host:
    """A machine as far as availability goes.

    `parmblk_formats` are those of its NNPA; `vector_nnp` tells whether it converts DLFLOAT16. A
    custom machine has the name of its `base`. `lacks` are functions of its formats, by code, that
    it has not.
    """

    name: str
    title: str
    aliases: tuple[str, ...]
    parmblk_formats: frozenset[int]
    vector_nnp: bool = True
    base: str = ""
    lacks: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def model(self) -> str:
        """The machine that a custom one is made of, the machine itself for any other."""
        return self.base or self.name


@dataclass(frozen=True, slots=True)
class Function:
    """A zDNN function: the version that brought it, and what it needs of the machine.

    `parmblk_format` is that of the NNPA operations it issues, None if it issues none; `code` is
    their function code, None where it depends on the operands. `needs_limits` marks functions that
    compare sizes with the machine's, and so fail where there is no NNPA. `on_format_0` says what
    remains on a machine that has only parameter block format 0, `on_1_0` what libraries 1.0.x have.
    `converts_scalar` marks functions with a float parameter, which the library converts first.
    """

    since: str
    code: int | None = None
    parmblk_format: int | None = None
    needs_limits: bool = False
    on_format_0: str = ""
    on_1_0: str = ""
    converts_scalar: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a function runs on a machine with a library, and why not, or what of it runs."""

    answer: Answer
    reason: str = ""


# generated: begin machines
MACHINES: Mapping[str, Host] = MappingProxyType(
    {
        host.name: host
        for host in (
            Host("telum1", "IBM z16, Telum I", ("z16",), frozenset({0})),
            Host("telum2", "IBM z17, Telum II", ("z17",), frozenset({0, 1})),
            Host("z15", "IBM z15, no NNPA", (), frozenset(), vector_nnp=False),
            Host("telum1-nonnpa", "IBM z16, NNPA off", (), frozenset()),
            Host("telum2-nonnpa", "IBM z17, NNPA off", (), frozenset()),
        )
    }
)
# generated: end
TELUMS = tuple(host.name for host in MACHINES.values() if host.parmblk_formats)

# generated: begin functions on the wire
_ON_WIRE: Mapping[str, Function] = MappingProxyType(
    {
        "init_ztensor": Function("1.0.0"),
        "init_quantized_ztensor": Function("1.1.0"),
        "allochelper_ztensor": Function("1.0.0", needs_limits=True),
        "reset_ztensor": Function("1.0.0"),
        "free_ztensor_buffer": Function("1.0.0"),
        "transform_ztensor": Function("1.0.0", needs_limits=True),
        "transform_ztensor_with_saturation": Function("1.1.0", needs_limits=True),
        "transform_quantized_ztensor": Function(
            "1.1.0",
            needs_limits=True,
            on_format_0=(
                "INT8 data, and FP16 or BFLOAT data to DLFLOAT16, are copied in software; "
                "other conversions answer ZDNN_UNAVAILABLE_FUNCTION"
            ),
        ),
        "transform_origtensor": Function("1.0.0", needs_limits=True),
        "reshape_ztensor": Function("1.0.0"),
        "getrange_ztensor": Function("1.1.0"),
        "add": Function("1.0.0", code=16, parmblk_format=0),
        "sub": Function("1.0.0", code=17, parmblk_format=0),
        "mul": Function("1.0.0", code=18, parmblk_format=0),
        "div": Function("1.0.0", code=19, parmblk_format=0),
        "min": Function("1.0.0", code=20, parmblk_format=0),
        "max": Function("1.0.0", code=21, parmblk_format=0),
        "log": Function("1.0.0", code=32, parmblk_format=0),
        "exp": Function("1.0.0", code=33, parmblk_format=0),
        "sqrt": Function("1.1.0", code=34, parmblk_format=1),
        "invsqrt": Function("1.1.0", code=35, parmblk_format=1, converts_scalar=True),
        "relu": Function("1.0.0", code=49, parmblk_format=0, converts_scalar=True),
        "leaky_relu": Function("1.1.0", code=49, parmblk_format=1, converts_scalar=True),
        "tanh": Function("1.0.0", code=50, parmblk_format=0),
        "sigmoid": Function("1.0.0", code=51, parmblk_format=0),
        "softmax": Function("1.0.0", code=52, parmblk_format=0),
        "softmax_mask": Function("1.1.0", code=52, parmblk_format=1),
        "gelu": Function("1.1.0", code=53, parmblk_format=1),
        "batchnorm": Function("1.0.0", code=64, parmblk_format=0),
        "norm": Function("1.1.0", code=67, parmblk_format=1),
        "moments": Function("1.1.0", code=65, parmblk_format=1),
        "layernorm": Function("1.1.0", code=66, parmblk_format=1, converts_scalar=True),
        "meanreduce2d": Function("1.0.0", code=81, parmblk_format=0),
        "reduce": Function("1.1.0", code=241, parmblk_format=1),
        "matmul_op": Function("1.0.0", code=113, parmblk_format=0),
        "matmul_bcast_op": Function(
            "1.0.0",
            parmblk_format=0,
            on_format_0=(
                "input_a stacked and input_b not: addition only; both stacked or neither: all"
                " operations; input_b stacked and input_a not: ZDNN_UNAVAILABLE_FUNCTION"
            ),
            on_1_0="input_a stacked, input_b not, addition: the only form before 1.1.0",
        ),
        "matmul_transpose_op": Function("1.1.0", parmblk_format=1),
        "quantized_matmul_op": Function("1.1.0", parmblk_format=1),
        "avgpool2d": Function("1.0.0", code=81, parmblk_format=0),
        "maxpool2d": Function("1.0.0", code=80, parmblk_format=0),
        "conv2d": Function("1.0.0", code=112, parmblk_format=0, converts_scalar=True),
        "lstm": Function("1.0.0", parmblk_format=0),
        "gru": Function("1.0.0", parmblk_format=0),
        "init": Function("1.0.0"),
        "is_nnpa_installed": Function("1.0.0"),
        "is_nnpa_function_installed": Function("1.0.0"),
        "is_nnpa_parmblk_fmt_installed": Function("1.0.0"),
        "is_nnpa_datatype_installed": Function("1.0.0"),
        "is_nnpa_layout_fmt_installed": Function("1.0.0"),
        "is_nnpa_conversion_installed": Function("1.0.0"),
        "get_nnpa_max_dim_idx_size": Function("1.0.0"),
        "get_max_for_dim": Function("1.1.0"),
        "get_nnpa_max_tensor_size": Function("1.0.0"),
        "refresh_nnpa_query_result": Function("1.0.0"),
        "is_version_runnable": Function("1.0.0"),
        "get_max_runnable_version": Function("1.0.0"),
    }
)
# generated: end

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

FUNCTIONS: Mapping[str, Function] = MappingProxyType({**_ON_WIRE, **_LOCAL})

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
    """Tell whether the function `name`, without "zdnn_", runs on a machine with a library."""
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
    """Return which functions a custom machine lacks without which a function never runs."""
    lacks, forms = host.lacks, _ONE_OF.get(name, ())
    needed = {function.code, *_ALL_OF.get(name, ())}
    if lacks.keys() >= set(forms):
        needed.update(forms)
    names = " and ".join(text for code, text in lacks.items() if code in needed)
    return f"needs {names}, which the machine lacks" if names else ""


def worst(answers: Iterable[Answer]) -> Answer:
    """Return the answer for all functions together: NO if one is, else PARTLY if one is."""
    present = set(answers)
    return next((answer for answer in (Answer.NO, Answer.PARTLY) if answer in present), Answer.YES)
