# SPDX-License-Identifier: Apache-2.0
"""Conversions of user data, shared by the transforms: the engine that converts, and the status.

Software raises IEEE flags and is judged by them; NNPA-TRANSFORM (function 240, Telum II, library
1.1 and later) answers with a range violation. Which one runs depends on machine, layout, type and
size, and shows in status and state, never in finite values.
Source: zDNN API Reference 1.2.0, "Data Transformation"; behaviour of the zDNN 1.2.0 library.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from nnpa_emulator import stick
from nnpa_emulator.arith import RangeViolation, explain_source
from nnpa_emulator.dlfloat import Flags
from nnpa_emulator.instruction import require_vector_nnp
from nnpa_emulator.machine import FORMAT_1, FunctionCode
from nnpa_emulator.pipeline import Call, Outcome, require_facility
from nnpa_emulator.status import Malformed, Status
from nnpa_emulator.stick import Conversion
from nnpa_emulator.ztensor import LAYOUT_GATES, Array, DataLayouts, DataTypes, Ztensor

UserArray: TypeAlias = bytes | bytearray | memoryview | Array
"""One of the arrays behind a void pointer: its bytes count, whatever its dtype."""
UserData: TypeAlias = Sequence[UserArray]

_DTYPES: dict[int, np.dtype[np.generic]] = {
    DataTypes.FP32: np.dtype("<f4"),
    DataTypes.FP16: np.dtype("<f2"),
    DataTypes.BFLOAT: np.dtype("<u2"),
    DataTypes.INT8: np.dtype("i1"),
}
# FP32 tensors whose dim3 * dim2 * dim1 is larger go to NNPA-TRANSFORM.
_HARDWARE_ABOVE = 2048


def transform_plain(
    call: Call, ztensor: Ztensor, data: UserData, *, saturate: bool, software: bool
) -> Outcome:
    """Convert one array into sticks; finite values are clamped if `saturate`."""
    desc, kind = ztensor.transformed_desc, ztensor.pre_transformed_desc.type
    (array,) = view_arrays(data, 1, math.prod(desc.dims), kind)
    hardware = not software and runs_in_hardware(call, ztensor, desc.dims)
    engage(call, hardware)
    nchw = ztensor.pre_transformed_desc.layout == DataLayouts.ZDNN_NCHW
    met = stick.stickify(array, desc, ztensor.sticks, saturate=saturate, nchw=nchw)
    violation = explain(hardware, met, ztensor, array, nchw)
    clamped = saturate and kind != DataTypes.FP16
    return judge(ztensor, hardware, met, violation, clamped)


def runs_in_hardware(call: Call, ztensor: Ztensor, dims: Sequence[int]) -> bool:
    """Tell whether the library, as it remembers the machine, hands the tensor to NNPA-TRANSFORM."""
    return (
        ztensor.transformed_desc.layout in (DataLayouts.ZDNN_NHWC, *LAYOUT_GATES)
        and ztensor.pre_transformed_desc.layout != DataLayouts.ZDNN_NCHW
        and ztensor.pre_transformed_desc.type == DataTypes.FP32
        and call.guest.library_version >= 0x010100
        and call.guest.cached.has_function(FunctionCode.NNPA_TRANSFORM)
        and dims[-1] * dims[-2] * dims[-3] > _HARDWARE_ABOVE
    )


def engage(call: Call, hardware: bool) -> None:
    """Require the machine's NNPA-TRANSFORM for hardware, else its vector instructions."""
    if hardware:
        require_facility(call.guest, FunctionCode.NNPA_TRANSFORM, FORMAT_1)
    else:
        require_vector_nnp(call.guest)


def view_arrays(data: UserData, count: int, elements: int, kind: int) -> list[Array]:
    """View the user's bytes as `count` arrays of `elements` elements of a pre-transformed type."""
    if len(data) != count:
        raise Malformed("data", f"{len(data)} arrays", f"{count} arrays")
    dtype = _DTYPES[kind]
    arrays: list[Array] = []
    for number, array in enumerate(data):
        raw = _raw(array)
        size = elements * dtype.itemsize
        if raw.nbytes != size:
            raise Malformed(f"data[{number}]", f"{raw.nbytes} bytes", f"{size} bytes")
        arrays.append(np.frombuffer(raw, dtype))
    return arrays


def _raw(array: UserArray) -> memoryview:
    """View bytes-like data or an array, of whatever dtype, as its bytes."""
    view = (
        np.ravel(array).view(np.uint8).data if isinstance(array, np.ndarray) else memoryview(array)
    )
    return view.cast("B") if view.nbytes else memoryview(b"")


def explain(
    hardware: bool, met: Conversion, ztensor: Ztensor, array: Array, nchw: bool
) -> RangeViolation | None:
    """Explain which elements of the user's data are no numbers in DLFLOAT16; None if all are."""
    if not (met.any_ninf or _is_flagged(met)):
        return None
    d4, d3, d2, d1 = ztensor.transformed_desc.dims
    shaped = array.reshape(d4, d1, d3, d2).transpose(0, 2, 3, 1) if nchw else array
    return explain_source(
        FunctionCode.NNPA_TRANSFORM if hardware else None, {"data": shaped.reshape(d4, d3, d2, d1)}
    )


def judge(
    ztensor: Ztensor,
    hardware: bool,
    met: Conversion,
    violation: RangeViolation | None,
    clamped: bool = False,
) -> Outcome:
    """Turn the flags of a conversion into status and state.

    Software accepts finite values beyond the range: the status is ZDNN_OK, and the violation
    explains them.
    Source: behaviour of the zDNN 1.2.0 library; underflow is ignored, inexact never raised.
    """
    flags = Flags.NONE if hardware else met.flags
    status = Status.ZDNN_OK
    if met.any_ninf if hardware else _is_flagged(met):
        warn = hardware or clamped
        status = Status.ZDNN_ELEMENT_RANGE_VIOLATION if warn else Status.ZDNN_CONVERT_FAILURE
    ztensor.is_transformed = status != Status.ZDNN_CONVERT_FAILURE
    return Outcome(status, violation=violation, fp_flags=int(flags))


def _is_flagged(met: Conversion) -> bool:
    """Return whether software refuses a value: one that is infinite, or no number."""
    return bool(met.flags & (Flags.INVALID | Flags.OVERFLOW))
