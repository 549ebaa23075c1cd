# SPDX-License-Identifier: Apache-2.0
"""Convolution: conv2d.

Shapes are transformed dims: input (n, h, w, c), kernel (kh, kw, c, k) in 4DKERNEL, bias
(1, 1, 1, k), output (n, h', w', k); all are DLFLOAT16, all but the kernel 4DFEATURE. Elements
outside the input are zero. A NINF in the kernel or the bias makes its whole output channel NINF,
one in the input every window that covers it, both a range violation. Padding of the output is
written as zero.

Fidelity: within one unit of the last place of this reference on well-conditioned data: products
are exact, sums are FP32 in the order of the elements under a window, bias last (float64 where the
session's `accumulate` says so, and for windows of more than 262 144 elements), then comes the one
rounding. Against hardware: consistent with the tolerances of IBM's own tests;
precision and order of its sums are not public.
"""

from functools import partial

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat, stick
from nnpa_emulator.checks import require_dim, require_fields, require_in
from nnpa_emulator.engines import operands
from nnpa_emulator.engines.convolution import UNLIMITED, prepare, rows
from nnpa_emulator.instruction import OperandRule, response
from nnpa_emulator.machine import FORMAT_0, FunctionCode, Guest
from nnpa_emulator.pipeline import Descriptors, operation
from nnpa_emulator.reference.convolution import Limits, Slide
from nnpa_emulator.shape_inference import resized
from nnpa_emulator.status import Refused, Status
from nnpa_emulator.table import Row
from nnpa_emulator.windows import (
    SAME_PADDING,
    VALID_PADDING,
    Axis,
    Labels,
    before,
    count,
    require_windows,
    unaliased,
)
from nnpa_emulator.ztensor import DataFormats, DataTypes, Ztensor

CONV2D_ACT_NONE, CONV2D_ACT_RELU = 0, 1
# What the machine accepts. Source: zDNN API Reference 1.2.0, zdnn_conv2d, hardware statuses.
MAX_WHOLE, MAX_KERNEL, MAX_STRIDE = 448, 64, 13
# IBM's own tests allow a convolution 64 units in the last place.
CONVOLUTION_ULPS = 64

_LABELS = Labels(whole="c5", padding="c6", strides="c9", fits="c7", count="c8")
_KERNEL: OperandRule = {
    DataFormats.ZDNN_FORMAT_4DKERNEL: frozenset((DataTypes.ZDNN_DLFLOAT16,)),
}


def _verify(
    input: Ztensor,
    kernel: Ztensor,
    bias: Ztensor,
    padding_type: int,
    stride_height: int,
    stride_width: int,
    act_func: int,
    clipping_value: int,
    output: Ztensor,
) -> None:
    desc, window = input.transformed_desc, kernel.transformed_desc
    out = output.transformed_desc
    for dimension in (4, 3, 2):
        require_dim(dimension, 1, "", {"bias": bias}, "c1")
    require_dim(4, desc.dim4, "input.dim4", {"output": output}, "c2")
    require_dim(1, out.dim1, "output.dim1", {"kernel": kernel, "bias": bias}, "c3")
    require_dim(2, desc.dim1, "input.dim1", {"kernel": kernel}, "c4")
    name = "kernel.transformed_desc.dim"
    axes = (
        Axis(2, f"{name}3", window.dim3, stride_width, desc.dim2, out.dim2),
        Axis(3, f"{name}4", window.dim4, stride_height, desc.dim3, out.dim3),
    )
    require_windows(axes, padding_type, _LABELS)
    require_fields(desc.type, desc.format, {"bias": bias, "output": output}, "c10", "c11")
    field = "kernel.transformed_desc.type"
    require_in(window.type, (desc.type,), Status.ZDNN_INVALID_TYPE, field, "c12")
    negative = clipping_value & dlfloat.SIGN or clipping_value == dlfloat.NINF
    if act_func == CONV2D_ACT_RELU and negative:
        value, limit = dlfloat.text_of(clipping_value), "0 or a positive number"
        raise Refused(Status.ZDNN_INVALID_CLIPPING_VALUE, "clipping_value", value, limit, "c13")


def _responses(
    kernel: Ztensor,
    padding_type: int,
    stride_height: int,
    stride_width: int,
    act_func: int,
    **_arguments: object,
) -> None:
    if padding_type not in (VALID_PADDING, SAME_PADDING):
        limit = "VALID_PADDING or SAME_PADDING"
        raise response(0xF000, "padding_type", padding_type, limit, "c14")
    if act_func not in (CONV2D_ACT_NONE, CONV2D_ACT_RELU):
        limit = "CONV2D_ACT_NONE or CONV2D_ACT_RELU"
        raise response(0xF001, "act_func", act_func, limit, "c15")
    window, strides = kernel.transformed_desc, (stride_height, stride_width)
    largest = max(window.dim4, window.dim3)
    field = f"kernel.transformed_desc.{'dim4' if largest == window.dim4 else 'dim3'}"
    if not any(strides) and largest > MAX_WHOLE:
        limit = f"at most {MAX_WHOLE} with strides 0"
        raise response(0xF002, field, largest, limit, "c16")
    if all(strides) and largest > MAX_KERNEL:
        limit = f"at most {MAX_KERNEL} with positive strides"
        raise response(0xF003, field, largest, limit, "c17")
    if max(strides) > MAX_STRIDE:
        field = "stride_height" if stride_height > MAX_STRIDE else "stride_width"
        value = stride_height if stride_height > MAX_STRIDE else stride_width
        raise response(0xF004, field, value, f"at most {MAX_STRIDE}", "c18")


def _convolved(
    input: Ztensor,
    kernel: Ztensor,
    padding_type: int,
    stride_height: int,
    stride_width: int,
    **_arguments: object,
) -> tuple[Descriptors, ...]:
    """Derive the output: one element per window, the kernel's output channels."""
    d4, d3, d2, _ = input.transformed_desc.dims
    window, padding = kernel.transformed_desc, padding_type & 7
    high = count(d3, window.dim4, stride_height, padding)
    wide = count(d2, window.dim3, stride_width, padding)
    return (resized(input, (d4, high, wide, window.dim1)),)


def _slide(input: Ztensor, kernel: Ztensor, padding: int, strides: tuple[int, int]) -> Slide:
    desc, window = input.transformed_desc, kernel.transformed_desc
    above = before(desc.dim3, window.dim4, strides[0], padding)
    left = before(desc.dim2, window.dim3, strides[1], padding)
    return max(strides[0], 1), max(strides[1], 1), above, left


def _limits(act_func: int, clipping_value: float | None) -> Limits:
    """Return the limits of the results: those of relu are 0 and a code, unless that is 0."""
    if act_func != CONV2D_ACT_RELU:
        return UNLIMITED
    high = dlfloat.to_fp32(np.array(int(clipping_value or 0), np.uint16))
    return np.float32(0), np.float32(high or np.inf)


def _widen(bias: Ztensor, _lasting: bool) -> tuple[npt.NDArray[np.float32], bool]:
    """Widen a bias to (k,)."""
    values, any_ninf = stick.read_fp32(bias.sticks, bias.transformed_desc)
    return values.reshape(-1), any_ninf


@operation(
    FunctionCode.NNPA_CONVOLUTION,
    FORMAT_0,
    since="1.0.0",
    verify=_verify,
    infer=_convolved,
    responses=_responses,
    operands={"kernel": _KERNEL},
    ulps=CONVOLUTION_ULPS,
)
def conv2d(
    input: Ztensor,
    kernel: Ztensor,
    bias: Ztensor,
    padding_type: int,
    stride_height: int,
    stride_width: int,
    act_func: int,
    *,
    clipping_value: float | None = None,
    output: Ztensor,
    guest: Guest,
) -> bool:
    """Convolve, add the bias, then nothing or relu with clipping.

    1. bias.dim4, dim3 and dim2 are 1, else ZDNN_INVALID_SHAPE.
    2. output.dim4 is input.dim4, else ZDNN_INVALID_SHAPE.
    3. kernel.dim1, then bias.dim1, is output.dim1, else ZDNN_INVALID_SHAPE.
    4. kernel.dim2 is input.dim1, else ZDNN_INVALID_SHAPE.
    5. Both strides 0: kernel.dim3 is input.dim2, kernel.dim4 is input.dim3, output.dim2 and
       output.dim3 are 1, else ZDNN_INVALID_SHAPE.
    6. Both strides 0: padding_type is VALID_PADDING, else ZDNN_INVALID_STRIDE_PADDING.
    7. Strides positive, VALID_PADDING: kernel.dim3 is at most input.dim2, kernel.dim4 at most
       input.dim3, else ZDNN_INVALID_SHAPE.
    8. Strides positive: output.dim2, then output.dim3, is ceil((input - kernel + 1) / stride) with
       VALID_PADDING, ceil(input / stride) with SAME_PADDING, else ZDNN_INVALID_SHAPE.
    9. Both strides are 0 or both are positive, else ZDNN_INVALID_STRIDES.
    10. bias, then output, has the type of input, else ZDNN_INVALID_TYPE.
    11. bias, then output, has the format of input, else ZDNN_INVALID_FORMAT.
    12. kernel has the type of input, else ZDNN_INVALID_TYPE; its format is left to the machine.
    13. CONV2D_ACT_RELU: clipping_value, rounded to DLFLOAT16, is neither negative (-0 included)
        nor NINF, else ZDNN_INVALID_CLIPPING_VALUE.
    14. The low 3 bits of padding_type are VALID_PADDING or SAME_PADDING, else ZDNN_FUNC_RC_F000.
    15. The low 4 bits of act_func are CONV2D_ACT_NONE or CONV2D_ACT_RELU, else ZDNN_FUNC_RC_F001.
    16. Both strides 0: neither kernel size exceeds 448, else ZDNN_FUNC_RC_F002.
    17. Strides positive: neither kernel size exceeds 64, else ZDNN_FUNC_RC_F003.
    18. No stride exceeds 13, else ZDNN_FUNC_RC_F004.

    A tensor's type is tested before its format, and bias before output.
    Scratch: at most 64 MiB for the kernel, 1 MiB for elements under windows and 2 MiB for their
    places. In float64 three times as much (or one window, at most 192 MiB) and 8 MiB for sums.
    Source: zDNN API Reference 1.2.0, zdnn_conv2d (which says "Since 1.1.0"; it is in 1.0.0).
    """
    source, weights = unaliased(input, output), unaliased(kernel, output)
    slide = _slide(input, kernel, padding_type, (stride_height, stride_width))
    convolve = prepare(source, weights, output, slide, _limits(act_func, clipping_value))
    key = "bias", bias.transformed_desc.dims
    added, _ = operands.dense(bias.sticks, key, partial(_widen, bias))
    return convolve(added, guest.accumulate == "fp64")


def conv2d_rows(
    input: Ztensor,
    kernel: Ztensor,
    bias: Ztensor,
    padding_type: int,
    stride_height: int,
    stride_width: int,
    act_func: int,
    *,
    clipping_value: float | None,
    output: Ztensor,
    guest: Guest,
) -> list[Row] | None:
    """Return the rows that do `conv2d` over these tensors, which share no memory; None: no rows.

    Kernel and bias are constants. The output's padding stays as it is.
    """
    if guest.accumulate == "fp64":
        return None
    slide = _slide(input, kernel, padding_type, (stride_height, stride_width))
    limits = _limits(act_func, clipping_value)
    return rows(input, kernel, output, slide, limits, _widen(bias, False)[0])
