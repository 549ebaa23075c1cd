# SPDX-License-Identifier: Apache-2.0
"""The checks that operations and transforms share, each raising `Refused`.

The order of calls in a verifier is the order in which its constraints are tested, and each check
takes the label ("c1") of the constraint that it implements in the caller's docstring.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import TypeAlias

from nnpa_emulator.machine import FunctionCode, Guest, name_chips
from nnpa_emulator.status import Refused, Status
from nnpa_emulator.ztensor import (
    LAYOUT_DIMS,
    LAYOUT_GATES,
    PAGE,
    DataFormats,
    DataLayouts,
    DataTypes,
    TensorDesc,
    Ztensor,
    getsize_ztensor,
    limit_of_dim,
    name_of,
)

Operands: TypeAlias = Mapping[str, Ztensor]

# Layouts whose sticks are 4DFEATURE: plain ones and concatenated ones.
FEATURE_LAYOUTS = frozenset((DataLayouts.ZDNN_NHWC, *LAYOUT_GATES))
# Layouts of user data that become NHWC.
PLAIN_LAYOUTS = frozenset(LAYOUT_DIMS) - {DataLayouts.ZDNN_HWCK}


def require_in(
    value: int, allowed: Collection[int], status: Status, field: str, label: str
) -> None:
    """Refuse a number that is not one of `allowed`, which are named in the refusal."""
    if value not in allowed:
        enum = next((type(number) for number in allowed if isinstance(number, IntEnum)), None)
        names = [name_of(enum, number) if enum else str(number) for number in sorted(allowed)]
        limit = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
        raise Refused(status, field, name_of(enum, value) if enum else value, limit, label)


def require_dim(dimension: int, expected: int, source: str, operands: Operands, label: str) -> None:
    """Refuse with ZDNN_INVALID_SHAPE the first operand whose dimension is not `expected`.

    `source` tells where the expected size comes from ("input_a.dim2", or "" for a plain number).
    """
    for name, tensor in operands.items():
        size = tensor.transformed_desc.dims[4 - dimension]
        if size != expected:
            limit = f"{expected} ({source})" if source else str(expected)
            field = f"{name}.transformed_desc.dim{dimension}"
            raise Refused(Status.ZDNN_INVALID_SHAPE, field, size, limit, label)


def require_dims(reference: str, expected: TensorDesc, operands: Operands, label: str) -> None:
    """Refuse with ZDNN_INVALID_SHAPE an operand whose four dims differ from `reference`."""
    for name, tensor in operands.items():
        dims = tensor.transformed_desc.dims
        if dims != expected.dims:
            field = f"{name}.transformed_desc.dims"
            limit = f"{expected.dims} ({reference})"
            raise Refused(Status.ZDNN_INVALID_SHAPE, field, dims, limit, label)


def require_fields(
    kind: int, fmt: int, operands: Operands, type_label: str, format_label: str
) -> None:
    """Refuse the first operand with another type (ZDNN_INVALID_TYPE) or format, type first."""
    for name, tensor in operands.items():
        desc = tensor.transformed_desc
        if desc.type != kind:
            field, value = f"{name}.transformed_desc.type", name_of(DataTypes, desc.type)
            limit = name_of(DataTypes, kind)
            raise Refused(Status.ZDNN_INVALID_TYPE, field, value, limit, type_label)
        if desc.format != fmt:
            field, value = f"{name}.transformed_desc.format", name_of(DataFormats, desc.format)
            limit = name_of(DataFormats, fmt)
            raise Refused(Status.ZDNN_INVALID_FORMAT, field, value, limit, format_label)


def require_same(reference: str, tensor: Ztensor, operands: Operands) -> None:
    """Refuse operands that differ from the reference: dims c1 of all, then type c2 and format c3.

    This is the library's generic rule for operations whose tensors are all alike.
    """
    desc = tensor.transformed_desc
    require_dims(reference, desc, operands, "c1")
    require_fields(desc.type, desc.format, operands, "c2", "c3")


def verify_like(input: Ztensor, output: Ztensor, **_: object) -> None:  # noqa: A002 - zDNN's name
    """Refuse an output that differs from the input: see `require_same`."""
    require_same("input", input, {"output": output})


def require_buffer(ztensor: Ztensor, misaligned: bool, label: str, *, sized: bool = True) -> None:
    """Refuse with ZDNN_INVALID_BUFFER a buffer that is NULL, misaligned or (if `sized`) too small.

    Source: zDNN API Reference 1.2.0, "General zTensor Requirements".
    """
    status, field = Status.ZDNN_INVALID_BUFFER, "ztensor.buffer"
    if ztensor.buffer is None:
        raise Refused(status, field, "NULL", "allocated: zdnn_allochelper_ztensor", label)
    if misaligned:
        raise Refused(status, field, "misaligned", f"on a {PAGE}-byte boundary", label)
    needed = getsize_ztensor(ztensor.transformed_desc)
    if sized and ztensor.buffer_size < needed:
        value, limit = f"{ztensor.buffer_size} bytes", f"at least {needed} bytes"
        raise Refused(status, "ztensor.buffer_size", value, limit, label)


def require_state(ztensor: Ztensor, field: str, expected: bool, label: str) -> None:
    """Refuse with ZDNN_INVALID_STATE a ztensor whose is_transformed is not `expected`."""
    if ztensor.is_transformed is not expected:
        name, value = f"{field}.is_transformed", str(ztensor.is_transformed).lower()
        remedies = "false: call zdnn_reset_ztensor first", "true: transform the ztensor first"
        raise Refused(Status.ZDNN_INVALID_STATE, name, value, remedies[expected], label)


def require_limits(desc: TensorDesc, guest: Guest, label: str) -> None:
    """Refuse transformed dims that the machine, as the library remembers it, cannot hold.

    dim4 to dim1: 0 is ZDNN_INVALID_SHAPE; above the maximum is ZDNN_INVALID_SHAPE, or
    ZDNN_UNSUPPORTED_AIU_EXCEPTION where the maximum is 0 because there is no NNPA. Then the size
    in bytes, above the maximum tensor size: ZDNN_INVALID_SHAPE.
    """
    for dimension, size in zip((4, 3, 2, 1), desc.dims, strict=True):
        field = f"ztensor.transformed_desc.dim{dimension}"
        largest = guest.cached.max_for_dim(dimension)
        if not largest and size:
            status, limit = Status.ZDNN_UNSUPPORTED_AIU_EXCEPTION, name_chips(FunctionCode.NNPA_QAF)
            raise Refused(status, "machine", guest.machine_as_seen, limit, label)
        if not 0 < size <= largest:
            limit = limit_of_dim(size, largest, guest.machine.label)
            raise Refused(Status.ZDNN_INVALID_SHAPE, field, size, limit, label)
    needed, most = getsize_ztensor(desc), guest.cached.max_tensor_size
    if needed > most:
        value, limit = f"{needed} bytes", f"at most {most} bytes on {guest.machine.label}"
        raise Refused(Status.ZDNN_INVALID_SHAPE, "ztensor.buffer_size", value, limit, label)


def require_transformed_desc(desc: TensorDesc, guest: Guest, label: str) -> None:
    """Refuse a transformed descriptor that the library cannot allocate for.

    By format: 4DFEATURE layout then type, 4DKERNEL and 4DWEIGHTS type then layout, any other
    ZDNN_INVALID_FORMAT; then the limits.
    """
    layout, kind = "ztensor.transformed_desc.layout", "ztensor.transformed_desc.type"
    invalid_layout, invalid_type = Status.ZDNN_INVALID_LAYOUT, Status.ZDNN_INVALID_TYPE
    match desc.format:
        case DataFormats.ZDNN_FORMAT_4DFEATURE:
            require_in(desc.layout, FEATURE_LAYOUTS, invalid_layout, layout, label)
            types = (
                DataTypes.ZDNN_DLFLOAT16,
                DataTypes.ZDNN_BINARY_INT8,
                DataTypes.ZDNN_BINARY_INT32,
            )
            require_in(desc.type, types, invalid_type, kind, label)
        case DataFormats.ZDNN_FORMAT_4DKERNEL:
            require_in(desc.type, (DataTypes.ZDNN_DLFLOAT16,), invalid_type, kind, label)
            require_in(desc.layout, (DataLayouts.ZDNN_HWCK,), invalid_layout, layout, label)
        case DataFormats.ZDNN_FORMAT_4DWEIGHTS:
            require_in(desc.type, (DataTypes.ZDNN_BINARY_INT8,), invalid_type, kind, label)
            require_in(desc.layout, (DataLayouts.ZDNN_NHWC,), invalid_layout, layout, label)
        case _:
            formats = (
                DataFormats.ZDNN_FORMAT_4DFEATURE,
                DataFormats.ZDNN_FORMAT_4DKERNEL,
                DataFormats.ZDNN_FORMAT_4DWEIGHTS,
            )
            field = "ztensor.transformed_desc.format"
            require_in(desc.format, formats, Status.ZDNN_INVALID_FORMAT, field, label)
    require_limits(desc, guest, label)
