# SPDX-License-Identifier: Apache-2.0
"""Custom machines: a model with parts of its QAF answer replaced, within the limits of zDNN."""

from dataclasses import dataclass, replace

from nnpa_emulator.machine import (
    DEFAULT_MACHINE,
    MACHINES,
    PAGE,
    FunctionCode,
    Machine,
    QueryResult,
    msb_mask,
)


@dataclass(frozen=True, slots=True)
class Overrides:
    """The values that a custom machine changes in its model; None keeps the model's own value.

    `max_dims` are (dim4, dim3, dim2, dim1), 0 to 2097152, 0 meaning that `max_dim_idx_size` (1 to
    32768) holds; `max_tensor_size` is 4096 to 4294967296 bytes; masks have only bits that zDNN
    names, bit 0 on the left.
    """

    max_dim_idx_size: int | None = None
    max_dims: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None)
    max_tensor_size: int | None = None
    removed_functions: frozenset[int] = frozenset()
    added_functions: frozenset[int] = frozenset()
    data_types: int | None = None
    layout_formats: int | None = None
    parmblk_formats: int | None = None


def customise(machine: Machine, overrides: Overrides) -> Machine:
    """Return `machine` with `overrides`; ValueError names the field, the value and the limit."""
    if overrides == Overrides():
        return machine
    qaf = machine.qaf
    if not machine.nnpa_installed:
        raise ValueError(f"machine: {machine.name} has no NNPA to customise")
    newest = MACHINES[DEFAULT_MACHINE].qaf
    largest = newest.max_dims[3]
    dims = tuple(
        _within(f"max_dim{4 - i}", size, 0, largest, qaf.max_dims[i])
        for i, size in enumerate(overrides.max_dims)
    )
    custom = replace(
        qaf,
        functions=msb_mask(_functions(overrides, qaf), 256),
        max_dims=(dims[0], dims[1], dims[2], dims[3]),
        max_dim_idx_size=_within(
            "max_dim_idx_size", overrides.max_dim_idx_size, 1, 32768, qaf.max_dim_idx_size
        ),
        max_tensor_size=_within(
            "max_tensor_size", overrides.max_tensor_size, PAGE, 1 << 32, qaf.max_tensor_size
        ),
        data_types=_known_bits(
            "data_types_mask", overrides.data_types, newest.data_types, qaf.data_types
        ),
        layout_formats=_known_bits(
            "layout_formats_mask",
            overrides.layout_formats,
            newest.layout_formats,
            qaf.layout_formats,
        ),
        parmblk_formats=_known_bits(
            "parmblk_formats_mask",
            overrides.parmblk_formats,
            newest.parmblk_formats,
            qaf.parmblk_formats,
        ),
    )
    return replace(machine, name=f"{machine.name}-custom", aliases=(), qaf=custom)


def _functions(overrides: Overrides, qaf: QueryResult) -> frozenset[int]:
    named = {int(code) for code in FunctionCode}
    unknown = sorted(overrides.added_functions - named)
    if unknown:
        raise ValueError(f"added_functions: {unknown[0]} is no function code of zDNN")
    if FunctionCode.NNPA_QAF in overrides.removed_functions:
        raise ValueError("removed_functions: NNPA_QAF cannot be taken away")
    return frozenset(qaf.function_codes()) - overrides.removed_functions | overrides.added_functions


def _within(name: str, value: int | None, low: int, high: int, default: int) -> int:
    if value is None:
        return default
    if not low <= value <= high:
        raise ValueError(f"{name}: {value} is outside {low} to {high}")
    return value


def _known_bits(name: str, mask: int | None, allowed: int, default: int) -> int:
    if mask is None:
        return default
    if mask & ~allowed or mask < 0:
        raise ValueError(f"{name}: 0x{mask:X} has bits that 0x{allowed:X} has not")
    return mask
