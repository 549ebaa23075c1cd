# SPDX-License-Identifier: Apache-2.0
"""Reshaping and range of sticks: reshape_ztensor and getrange_ztensor.

Fidelity: exact against this reference; statuses, and the element count, which the pre-transformed
dims give, are as in the zDNN 1.2.0 library.
"""

import math
from dataclasses import replace

import numpy as np

from nnpa_emulator import dlfloat, stick
from nnpa_emulator.arith import code_range_of
from nnpa_emulator.checks import require_in, require_state
from nnpa_emulator.instruction import require_storage, require_vector_nnp
from nnpa_emulator.pipeline import Call, Outcome, function, run
from nnpa_emulator.status import Malformed, Refused, Status
from nnpa_emulator.ztensor import (
    DataFormats,
    DataLayouts,
    DataTypes,
    TensorDesc,
    Ztensor,
    name_of,
    stick_bytes,
)


@function()
def reshape_ztensor(call: Call, src: Ztensor, dest: Ztensor) -> Outcome:
    """Copy a tensor's elements into one of another shape.

    1. The pre-transformed dims of both multiply to the same number, else ZDNN_INVALID_SHAPE.
    2. Both transformed layouts are the same, and NHWC or HWCK, else ZDNN_INVALID_LAYOUT.
    3. src is transformed, then dest is not, else ZDNN_INVALID_STATE.

    Equal transformed dims: all sticks are copied. Equal dim1: rows are copied one by one. Else src
    is transformed to FP32 and back into dest, and the status of whichever fails is the answer: a
    range violation on the way ends the call, HWCK is ZDNN_INVALID_FORMAT.
    Source: zDNN API Reference 1.2.0, zdnn_reshape_ztensor.
    """
    _require_reshapable(src, dest)
    before, after = src.transformed_desc, dest.transformed_desc
    if before.dims == after.dims:
        size = stick_bytes(before)
        require_storage("src", src, size)
        require_storage("dest", dest, size)
        if size:
            dest.sticks[:size] = src.sticks[:size]
        dest.is_transformed = True
        return Outcome()
    if before.dim1 == after.dim1:
        return _copy_rows(src, dest)
    return _through_fp32(call, src, dest)


def _require_reshapable(src: Ztensor, dest: Ztensor) -> None:
    counts = [_count(tensor.pre_transformed_desc) for tensor in (src, dest)]
    if counts[0] != counts[1]:
        raise Refused(
            Status.ZDNN_INVALID_SHAPE, "dest.pre_transformed_desc", f"{counts[1]} elements",
            f"{counts[0]} elements (src)", "c1",
        )  # fmt: skip
    layout, bad = dest.transformed_desc.layout, Status.ZDNN_INVALID_LAYOUT
    if src.transformed_desc.layout != layout:
        limit = f"{name_of(DataLayouts, src.transformed_desc.layout)} (src)"
        value = name_of(DataLayouts, layout)
        raise Refused(bad, "dest.transformed_desc.layout", value, limit, "c2")
    plain = (DataLayouts.ZDNN_NHWC, DataLayouts.ZDNN_HWCK)
    require_in(layout, plain, bad, "src.transformed_desc.layout", "c2")
    require_state(src, "src", True, "c3")
    require_state(dest, "dest", False, "c3")


def _count(pre: TensorDesc) -> int:
    """Multiply the dims that the layout has."""
    count = 1
    for size in pre.layout_dims:
        count *= size
    return count


def _copy_rows(src: Ztensor, dest: Ztensor) -> Outcome:
    """Move rows of dim1 in row-major order; cells of one type keep their width, others count two.

    The library checks no types here and moves sticks as if all cells had two bytes.
    """
    before, after = src.transformed_desc, dest.transformed_desc
    rows = [math.prod(desc.dims[:3]) for desc in (before, after)]
    if rows[0] != rows[1]:
        # The C library would follow such descriptors out of the buffers.
        limit = f"{rows[0]} rows of dim1 (src)"
        raise Malformed("dest.transformed_desc.dims", f"{rows[1]} rows", limit)
    if before.type != after.type:
        before, after = (
            replace(desc, type=int(DataTypes.ZDNN_DLFLOAT16)) for desc in (before, after)
        )
    require_storage("src", src, stick_bytes(before))
    require_storage("dest", dest, stick_bytes(after))
    if stick_bytes(before):
        stick.write_cells(stick.read_cells(src.sticks, before), after, dest.sticks)
    dest.is_transformed = True
    return Outcome()


def _through_fp32(call: Call, src: Ztensor, dest: Ztensor) -> Outcome:
    """Transform back to FP32 and again into dest's shape."""
    source, target = _as_fp32(src), _as_fp32(dest)
    dense = run(call.guest, "transform_origtensor", {"ztensor": source}, call.alignment)
    if dense.status != Status.ZDNN_OK:
        return replace(dense, value=None)
    arguments = {"ztensor": target, "data": (dense.value,)}
    outcome = run(call.guest, "transform_ztensor", arguments, call.alignment)
    dest.is_transformed = target.is_transformed
    return outcome


def _as_fp32(tensor: Ztensor) -> Ztensor:
    """View the same sticks with a pre-transformed descriptor of type FP32."""
    pre = replace(tensor.pre_transformed_desc, type=int(DataTypes.FP32))
    return replace(tensor, pre_transformed_desc=pre)


@function(since="1.1.0")
def getrange_ztensor(call: Call, ztensor: Ztensor) -> Outcome:
    """Find the least element or -0.0, and the greatest or +0.0; NINF of a sign gives NaN there.

    1. The ztensor is transformed, else ZDNN_INVALID_STATE.
    2. The transformed layout is NHWC, else ZDNN_INVALID_LAYOUT.
    3. The format is 4DFEATURE, else ZDNN_INVALID_FORMAT.
    4. The transformed type is DLFLOAT16, else ZDNN_INVALID_TYPE.

    Source: zDNN API Reference 1.2.0, zdnn_getrange_ztensor (which declares no status).
    """
    desc, name = ztensor.transformed_desc, "ztensor.transformed_desc"
    require_state(ztensor, "ztensor", True, "c1")
    for value, expected, status, field, label in (
        (desc.layout, DataLayouts.ZDNN_NHWC, Status.ZDNN_INVALID_LAYOUT, "layout", "c2"),
        (
            desc.format,
            DataFormats.ZDNN_FORMAT_4DFEATURE,
            Status.ZDNN_INVALID_FORMAT,
            "format",
            "c3",
        ),
        (desc.type, DataTypes.ZDNN_DLFLOAT16, Status.ZDNN_INVALID_TYPE, "type", "c4"),
    ):
        require_in(value, (expected,), status, f"{name}.{field}", label)
    require_storage("ztensor", ztensor)
    require_vector_nnp(call.guest)
    if 0 in desc.dims:
        return Outcome(value=(-0.0, 0.0))
    least, greatest = dlfloat.to_fp32(np.array(code_range_of(ztensor), np.uint16))
    return Outcome(value=(float(least), float(greatest)))
