# SPDX-License-Identifier: Apache-2.0
"""What a program asks of the library and the machine: zdnn_init, queries, versions.

Queries answer from the library's copy of the QAF block; only init, refresh_nnpa_query_result and
is_nnpa_installed look at the machine. None of them fails but refresh.
Source: zDNN API Reference 1.2.0, "Support Functions".
"""

from collections.abc import Sequence

from nnpa_emulator.pipeline import Call, Outcome, function


@function()
def init(call: Call) -> Outcome:
    """Read the query block, where the machine has one."""
    call.guest.init()
    return Outcome()


@function()
def is_nnpa_installed(call: Call) -> Outcome:
    """Ask the machine whether it has NNPA."""
    return Outcome(value=call.guest.is_nnpa_installed())


@function()
def is_nnpa_function_installed(
    call: Call, function_codes: Sequence[int], count: int | None = None
) -> Outcome:
    """Tell whether the first `count` function codes are all installed; none is true.

    A code counts modulo 65536 and is not installed above 255.
    """
    return Outcome(value=call.guest.is_nnpa_function_installed(_counted(function_codes, count)))


@function()
def is_nnpa_parmblk_fmt_installed(
    call: Call, format_codes: Sequence[int], count: int | None = None
) -> Outcome:
    """Tell whether the first `count` parameter block formats are all installed; none is true.

    A format counts modulo 256 and is not installed above 127. The real library's loop never ends
    when count is above 255 and all are installed; ours does.
    """
    formats = _counted(format_codes, count)
    return Outcome(value=call.guest.is_nnpa_parmblk_fmt_installed(formats))


def _counted(numbers: Sequence[int], count: int | None) -> Sequence[int]:
    """Return as many numbers as C's `count` says, all without one."""
    return numbers if count is None else numbers[: max(count, 0)]


@function()
def is_nnpa_datatype_installed(call: Call, types_bitmask: int) -> Outcome:
    """Tell whether every data type of the mask is installed."""
    return Outcome(value=call.guest.is_nnpa_datatype_installed(types_bitmask))


@function()
def is_nnpa_layout_fmt_installed(call: Call, layout_bitmask: int) -> Outcome:
    """Tell whether every data layout format of the mask is installed."""
    return Outcome(value=call.guest.is_nnpa_layout_fmt_installed(layout_bitmask))


@function()
def is_nnpa_conversion_installed(call: Call, type: int, format_bitmask: int) -> Outcome:
    """Tell whether `type` (0 is DLFLOAT16) converts to every format of the mask."""
    return Outcome(value=call.guest.is_nnpa_conversion_installed(type, format_bitmask))


@function()
def get_nnpa_max_dim_idx_size(call: Call) -> Outcome:
    """Return the maximum dimension index size in elements, 0 without NNPA."""
    return Outcome(value=call.guest.get_nnpa_max_dim_idx_size())


@function(since="1.1.0")
def get_max_for_dim(call: Call, dimension: int) -> Outcome:
    """Return the largest index size of dimension 1 to 4 in elements, 0 for any other number."""
    return Outcome(value=call.guest.get_max_for_dim(dimension))


@function()
def get_nnpa_max_tensor_size(call: Call) -> Outcome:
    """Return the maximum tensor size in bytes, 0 without NNPA."""
    return Outcome(value=call.guest.get_nnpa_max_tensor_size())


@function()
def refresh_nnpa_query_result(call: Call) -> Outcome:
    """Read the query block again.

    1. The machine has NNPA, else ZDNN_UNAVAILABLE_FUNCTION; the old copy is kept.
    """
    call.guest.refresh_nnpa_query_result()
    return Outcome()


@function()
def is_version_runnable(call: Call, ver_num: int) -> Outcome:
    """Tell whether APIs of version 0x00[major][minor][patch] run here."""
    return Outcome(value=call.guest.is_version_runnable(ver_num))


@function()
def get_max_runnable_version(call: Call) -> Outcome:
    """Return the newest runnable API version, patch 0xFF, or 0."""
    return Outcome(value=call.guest.get_max_runnable_version())
