# SPDX-License-Identifier: Apache-2.0
"""Which zDNN function runs on which machine, with which library, and why not. Asks no server.

Sources: zDNN API Reference 1.2.0, "Since" and "Requirements" of each function; where the library
itself says otherwise (sub, matmul_op, lstm, gru, pools, conv2d are of 1.0.0; functions of 1.1.0
that need no new hardware run on Telum I), zDNN library behaviour.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

__all__ = [
    "FUNCTIONS",
    "LIBRARIES",
    "MACHINES",
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

    `parmblk_formats` are those of its NNPA; `vector_nnp` tells whether it converts DLFLOAT16.
    """

    name: str
    title: str
    aliases: tuple[str, ...]
    parmblk_formats: frozenset[int]
    vector_nnp: bool = True


@dataclass(frozen=True, slots=True)
class Function:
    """A zDNN function: the version that brought it, and what it needs of the machine.

    `parmblk_format` is that of the NNPA operations it issues, None if it issues none; `code` is
    their function code, None where it depends on the operands. `needs_limits` marks functions that
    compare sizes with the machine's, and so fail where there is no NNPA. `on_format_0` says what
    remains on a machine that has only parameter block format 0, `on_1_0` what libraries 1.0.x have.
    """

    since: str
    code: int | None = None
    parmblk_format: int | None = None
    needs_limits: bool = False
    on_format_0: str = ""
    on_1_0: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a function runs on a machine with a library, and why not, or what of it runs."""

    answer: Answer
    reason: str = ""


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

# Operations with a float parameter, which the library converts before anything else.
_CONVERTS_SCALAR = frozenset({"relu", "leaky_relu", "invsqrt", "layernorm", "conv2d"})

_BCAST_ON_FORMAT_0 = (
    "input_a stacked and input_b not: addition only; both stacked or neither: all operations; "
    "input_b stacked and input_a not: ZDNN_UNAVAILABLE_FUNCTION"
)
_QUANTIZED_ON_FORMAT_0 = (
    "INT8 data, and FP16 or BFLOAT data to DLFLOAT16, are copied in software; other conversions "
    "answer ZDNN_UNAVAILABLE_FUNCTION"
)


def _same(names: str, function: Function) -> dict[str, Function]:
    return dict.fromkeys(names.split(), function)


def _coded(parmblk_format: int, codes: Mapping[str, int]) -> dict[str, Function]:
    since = "1.1.0" if parmblk_format else "1.0.0"
    return {name: Function(since, code, parmblk_format) for name, code in codes.items()}


# Function codes: zDNN API Reference 1.2.0, "NNPA function codes"; nnpa.h of zDNN 1.2.0.
_FORMAT_0 = {
    "add": 16, "sub": 17, "mul": 18, "div": 19, "min": 20, "max": 21, "log": 32, "exp": 33,
    "relu": 49, "tanh": 50, "sigmoid": 51, "softmax": 52, "batchnorm": 64, "maxpool2d": 80,
    "avgpool2d": 81, "meanreduce2d": 81, "conv2d": 112, "matmul_op": 113,
}  # fmt: skip
_FORMAT_1 = {
    "sqrt": 34, "invsqrt": 35, "leaky_relu": 49, "softmax_mask": 52, "gelu": 53, "moments": 65,
    "layernorm": 66, "norm": 67, "reduce": 241,
}  # fmt: skip

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        **_same(
            "init init_pre_transformed_desc generate_transformed_desc "
            "generate_transformed_desc_concatenated init_ztensor free_ztensor_buffer "
            "reset_ztensor getsize_ztensor is_nnpa_installed is_nnpa_function_installed "
            "is_nnpa_parmblk_fmt_installed is_nnpa_datatype_installed "
            "is_nnpa_layout_fmt_installed is_nnpa_conversion_installed "
            "get_nnpa_max_dim_idx_size get_nnpa_max_tensor_size refresh_nnpa_query_result "
            "is_version_runnable get_max_runnable_version reshape_ztensor get_library_version "
            "get_library_version_str get_status_message",
            Function("1.0.0"),
        ),
        **_same(
            "generate_quantized_transformed_desc init_quantized_ztensor is_quantized_ztensor "
            "getrange_ztensor get_max_for_dim get_max_limit get_min_limit",
            Function("1.1.0"),
        ),
        **_same(
            "allochelper_ztensor init_ztensor_with_malloc transform_ztensor transform_origtensor",
            Function("1.0.0", needs_limits=True),
        ),
        **_same(
            "init_quantized_ztensor_with_malloc transform_ztensor_with_saturation",
            Function("1.1.0", needs_limits=True),
        ),
        "transform_quantized_ztensor": Function(
            "1.1.0", needs_limits=True, on_format_0=_QUANTIZED_ON_FORMAT_0
        ),
        **_coded(0, _FORMAT_0),
        **_coded(1, _FORMAT_1),
        **_same("lstm gru", Function("1.0.0", parmblk_format=0)),
        "matmul_bcast_op": Function(
            "1.0.0",
            parmblk_format=0,
            on_format_0=_BCAST_ON_FORMAT_0,
            on_1_0="input_a stacked, input_b not, addition: the only form before 1.1.0",
        ),
        **_same("matmul_transpose_op quantized_matmul_op", Function("1.1.0", parmblk_format=1)),
    }
)


def find_host(name: str) -> Host:
    """Return the machine called `name` or one of its aliases. Raises ValueError."""
    for host in MACHINES.values():
        if name == host.name or name in host.aliases:
            return host
    raise ValueError(f"machine: {name!r}, expected one of {', '.join(MACHINES)}")


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
    formats, wanted = host.parmblk_formats, function.parmblk_format
    if function.needs_limits and not formats:
        answer = "ZDNN_UNSUPPORTED_AIU_EXCEPTION"
        return Verdict(Answer.NO, f"compares sizes with those of NNPA, which is absent: {answer}")
    if name == "refresh_nnpa_query_result" and not formats:
        return Verdict(Answer.NO, "NNPA is absent: ZDNN_UNAVAILABLE_FUNCTION")
    if wanted is not None and wanted not in formats:
        need = "NNPA" if not formats else f"NNPA parameter block format {wanted} (Telum II)"
        ends = "; a float parameter other than 0 ends the program (operation exception)"
        more = ends if name in _CONVERTS_SCALAR and not host.vector_nnp else ""
        return Verdict(Answer.NO, f"needs {need}: ZDNN_UNAVAILABLE_FUNCTION{more}")
    if function.on_1_0 and library.startswith("1.0."):
        return Verdict(Answer.PARTLY, function.on_1_0)
    if function.on_format_0 and 1 not in formats:
        return Verdict(Answer.PARTLY, function.on_format_0)
    return Verdict(Answer.YES)


def worst(answers: Iterable[Answer]) -> Answer:
    """Return the answer for all functions together: NO if one is, else PARTLY if one is."""
    found = set(answers)
    return next((one for one in (Answer.NO, Answer.PARTLY) if one in found), Answer.YES)
