# SPDX-License-Identifier: Apache-2.0
"""Questions of a program to the library and the machine: zdnn_init, queries, versions.

Queries answer from the library's copy of the QAF block; only init, refresh_nnpa_query_result and
is_nnpa_installed look at the machine. None of them fails but refresh.
Source: zDNN API Reference 1.2.0, "Support Functions".
"""

from collections.abc import Sequence

from nnpa_emulator.machine import FunctionCode, hardware_version, name_chips
from nnpa_emulator.pipeline import Call, Outcome, function
from nnpa_emulator.status import Refused, Status


@function()
def init(call: Call) -> Outcome:
    """Read the query block, where the machine has one."""
    call.guest.init()
    return Outcome()


@function()
def is_nnpa_installed(call: Call) -> Outcome:
    """Ask the machine whether it has NNPA."""
    return Outcome(value=call.guest.machine.nnpa_installed)


@function()
def is_nnpa_function_installed(
    call: Call, function_codes: Sequence[int], count: int | None = None
) -> Outcome:
    """Tell whether the first `count` function codes are all installed; none is true.

    A code counts modulo 65536 and is not installed above 255.
    """
    codes = [code & 0xFFFF for code in _counted(function_codes, count)]
    has_function = call.guest.cached.has_function
    return Outcome(value=all(code < 256 and has_function(code) for code in codes))


@function()
def is_nnpa_parmblk_fmt_installed(
    call: Call, format_codes: Sequence[int], count: int | None = None
) -> Outcome:
    """Tell whether the first `count` parameter block formats are all installed; none is true.

    A format counts modulo 256 and is not installed above 127. The real library's loop never ends
    when count is above 255 and all are installed; ours does.
    """
    formats = [number & 0xFF for number in _counted(format_codes, count)]
    has_format = call.guest.cached.has_parmblk_format
    return Outcome(value=all(number < 128 and has_format(number) for number in formats))


def _counted(numbers: Sequence[int], count: int | None) -> Sequence[int]:
    """Return the first `count` numbers, all of them without a count."""
    return numbers if count is None else numbers[: max(count, 0)]


@function()
def is_nnpa_datatype_installed(call: Call, types_bitmask: int) -> Outcome:
    """Tell whether every data type of the 16-bit mask is installed; 0 is true."""
    return Outcome(value=_has_all(call.guest.cached.data_types, types_bitmask & 0xFFFF))


def _has_all(installed: int, mask: int) -> bool:
    return installed & mask == mask


@function()
def is_nnpa_layout_fmt_installed(call: Call, layout_bitmask: int) -> Outcome:
    """Tell whether every data layout format of the 32-bit mask is installed; 0 is true."""
    return Outcome(value=_has_all(call.guest.cached.layout_formats, layout_bitmask & 0xFFFFFFFF))


@function()
def is_nnpa_conversion_installed(call: Call, type: int, format_bitmask: int) -> Outcome:
    """Tell whether `type` (0 is DLFLOAT16) converts to every format of the 16-bit mask.

    No other type does.
    """
    convertible = _has_all(call.guest.cached.conversions, format_bitmask & 0xFFFF)
    return Outcome(value=type == 0 and convertible)


@function()
def get_nnpa_max_dim_idx_size(call: Call) -> Outcome:
    """Return the maximum dimension index size in elements, 0 without NNPA."""
    return Outcome(value=call.guest.cached.max_dim_idx_size)


@function(since="1.1.0")
def get_max_for_dim(call: Call, dimension: int) -> Outcome:
    """Return the largest index size of dimension 1 to 4 in elements, 0 for any other number.

    `dimension` has 8 bits.
    """
    return Outcome(value=call.guest.cached.max_for_dim(dimension & 0xFF))


@function()
def get_nnpa_max_tensor_size(call: Call) -> Outcome:
    """Return the maximum tensor size in bytes, 0 without NNPA."""
    return Outcome(value=call.guest.cached.max_tensor_size)


@function()
def refresh_nnpa_query_result(call: Call) -> Outcome:
    """Read the query block again.

    1. The machine has NNPA, else ZDNN_UNAVAILABLE_FUNCTION; the old copy is kept.
    """
    machine = call.guest.machine
    if not machine.nnpa_installed:
        status = Status.ZDNN_UNAVAILABLE_FUNCTION
        raise Refused(status, "machine", machine.label, name_chips(FunctionCode.NNPA_QAF), "c1")
    call.guest.init()
    return Outcome()


@function()
def is_version_runnable(call: Call, ver_num: int) -> Outcome:
    """Tell whether APIs of version 0x00[major][minor][patch] run here; the patch does not count.

    Without a known signature the hardware's major version is 0, which no version matches.
    """
    library, hardware = call.guest.library_version, hardware_version(call.guest.cached)
    major, minor = ver_num >> 16 & 0xFF, ver_num >> 8 & 0xFF
    is_known = major == library >> 16 == hardware >> 16
    return Outcome(value=is_known and minor <= min(library >> 8 & 0xFF, hardware >> 8 & 0xFF))


@function()
def get_max_runnable_version(call: Call) -> Outcome:
    """Return the newest runnable API version, patch 0xFF, or 0."""
    library, hardware = call.guest.library_version, hardware_version(call.guest.cached)
    return Outcome(value=min(library, hardware) | 0xFF if library >> 16 == hardware >> 16 else 0)
