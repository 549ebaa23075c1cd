# SPDX-License-Identifier: Apache-2.0
"""Pooling: avgpool2d, maxpool2d.

Shapes are transformed dims, dim3 the height and dim2 the width; tensors are DLFLOAT16 in 4DFEATURE.
Elements outside the input are neither summed nor counted nor selected. A NINF in a window makes its
result NINF and a range violation; one that no window covers is not looked at. Padding of the output
is written as zero.

Fidelity: exact against this reference, which sums in double precision, whatever `accumulate` says,
and rounds once. Against hardware: averages are consistent with the tolerances of IBM's own tests;
the reference warns of less accuracy where elements of a window differ by more than 10.
"""

from collections.abc import Callable

import numpy as np

from nnpa_emulator import stick
from nnpa_emulator.checks import require_dim, require_fields
from nnpa_emulator.instruction import FieldRule, response
from nnpa_emulator.kernels import pooling as kernels
from nnpa_emulator.machine import FORMAT_0, FunctionCode, Guest
from nnpa_emulator.pipeline import Descriptors, operation
from nnpa_emulator.reference.pooling import Window
from nnpa_emulator.shape_inference import resized
from nnpa_emulator.table import Row
from nnpa_emulator.windows import (
    SAME_PADDING,
    VALID_PADDING,
    Axis,
    Labels,
    before,
    count,
    require_windows,
    slide,
    slide_rows,
    unaliased,
)
from nnpa_emulator.ztensor import Ztensor

# What the machine accepts. Source: zDNN API Reference 1.2.0, zdnn_avgpool2d, hardware statuses.
MAX_WHOLE, MAX_WINDOW, MAX_STRIDE, MAX_INPUT = 1024, 64, 30, 1024
# IBM's own tests allow pooling 64 units in the last place.
POOL_ULPS = 64

_LABELS = Labels(whole="c4", padding="c5", strides="c6", fits="c7", count="c8")
_WORD, _WORD_BITS = 0xFFFFFFFF, 32


def _extent_field(dimension: int) -> FieldRule:
    """Return a rule that puts the machine's largest index size left of a number that exceeds it."""

    def mark(guest: Guest, value: int) -> int:
        number, largest = int(value) & _WORD, guest.machine.qaf.max_for_dim(dimension)
        return number | (largest << _WORD_BITS if number > largest else 0)

    return mark


_FIELDS: dict[str, FieldRule] = {
    "kernel_height": _extent_field(3),
    "kernel_width": _extent_field(2),
    "stride_height": _extent_field(3),
    "stride_width": _extent_field(2),
}


def _verify(
    input: Ztensor,
    padding_type: int,
    kernel_height: int,
    kernel_width: int,
    stride_height: int,
    stride_width: int,
    output: Ztensor,
) -> None:
    desc, out = input.transformed_desc, output.transformed_desc
    require_dim(4, desc.dim4, "input.dim4", {"output": output}, "c1")
    require_dim(1, desc.dim1, "input.dim1", {"output": output}, "c1")
    require_fields(desc.type, desc.format, {"output": output}, "c2", "c3")
    axes = (
        Axis(2, "kernel_width", kernel_width & _WORD, stride_width & _WORD, desc.dim2, out.dim2),
        Axis(3, "kernel_height", kernel_height & _WORD, stride_height & _WORD, desc.dim3, out.dim3),
    )
    require_windows(axes, padding_type, _LABELS)


def _responses(
    input: Ztensor,
    padding_type: int,
    kernel_height: int,
    kernel_width: int,
    stride_height: int,
    stride_width: int,
    output: Ztensor,
) -> None:
    desc = input.transformed_desc
    windows = {"kernel_height": kernel_height, "kernel_width": kernel_width}
    strides = {"stride_height": stride_height, "stride_width": stride_width}
    sizes = {"input.transformed_desc.dim3": desc.dim3, "input.transformed_desc.dim2": desc.dim2}
    for field, value in (windows | strides).items():
        largest, least = value >> _WORD_BITS, 1 if field in windows else 0
        if largest or value < least:
            limit = f"{least} to {largest}" if largest else f"at least {least}"
            raise response(0x0012, field, value & _WORD, limit, "c9")
    if padding_type not in (VALID_PADDING, SAME_PADDING):
        limit = "VALID_PADDING or SAME_PADDING"
        raise response(0xF000, "padding_type", padding_type, limit, "c10")
    if not any(strides.values()):
        _require_at_most(MAX_WHOLE, windows | sizes, 0xF001, "c11")
    elif all(strides.values()):
        _require_at_most(MAX_WINDOW, windows, 0xF002, "c12")
        _require_at_most(MAX_STRIDE, strides, 0xF003, "c13")
        _require_at_most(MAX_INPUT, sizes, 0xF004, "c14")


def _require_at_most(limit: int, fields: dict[str, int], code: int, label: str) -> None:
    for field, value in fields.items():
        if value > limit:
            raise response(code, field, value, f"at most {limit}", label)


def _pooled(
    input: Ztensor,
    padding_type: int,
    kernel_height: int,
    kernel_width: int,
    stride_height: int,
    stride_width: int,
    **_arguments: object,
) -> tuple[Descriptors, ...]:
    """Derive the output: one element per window."""
    d4, d3, d2, d1 = input.transformed_desc.dims
    padding = padding_type & 7
    high = count(d3, kernel_height, stride_height, padding)
    wide = count(d2, kernel_width, stride_width, padding)
    return (resized(input, (d4, high, wide, d1)),)


def _pool(
    kernel: Callable[..., np.uint16],
    input: Ztensor,
    output: Ztensor,
    padding: int,
    windows: tuple[int, int],
    strides: tuple[int, int],
) -> bool:
    """Run a kernel over the windows; sizes and strides are (height, width)."""
    source, target = stick.geometry(input.transformed_desc), stick.geometry(output.transformed_desc)
    codes, window = unaliased(input, output).sticks, _window(input, padding, windows, strides)
    return slide(kernel, codes, output.sticks, source, target, window)


def _window(
    input: Ztensor, padding: int, windows: tuple[int, int], strides: tuple[int, int]
) -> Window:
    _, high, wide, _ = input.transformed_desc.dims
    above = before(high, windows[0], strides[0], padding)
    left = before(wide, windows[1], strides[1], padding)
    return (*windows, *strides, above, left)


def pool_rows(
    number: int,
    input: Ztensor,
    padding_type: int,
    kernel_height: int,
    kernel_width: int,
    stride_height: int,
    stride_width: int,
    output: Ztensor,
) -> list[Row]:
    """Return the row that pools by a kernel of that number; the tensors share no memory."""
    sizes, strides = (kernel_height, kernel_width), (stride_height, stride_width)
    return slide_rows(number, input, output, _window(input, padding_type, sizes, strides))


@operation(
    FunctionCode.NNPA_AVGPOOL2D,
    FORMAT_0,
    since="1.0.0",
    verify=_verify,
    infer=_pooled,
    responses=_responses,
    fields=_FIELDS,
    ulps=POOL_ULPS,
)
def avgpool2d(
    input: Ztensor,
    padding_type: int,
    kernel_height: int,
    kernel_width: int,
    stride_height: int,
    stride_width: int,
    output: Ztensor,
) -> bool:
    """Average each window over the elements of it that lie inside the input.

    1. output has the dim4, then the dim1, of input, else ZDNN_INVALID_SHAPE.
    2. output has the type of input, else ZDNN_INVALID_TYPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.
    4. Both strides 0: kernel_width is input.dim2, kernel_height is input.dim3, output.dim2 and
       output.dim3 are 1, else ZDNN_INVALID_SHAPE.
    5. Both strides 0: padding_type is VALID_PADDING, else ZDNN_INVALID_STRIDE_PADDING.
    6. Both strides are 0 or both are positive, else ZDNN_INVALID_STRIDES.
    7. Strides positive, VALID_PADDING: kernel_width is at most input.dim2, kernel_height at most
       input.dim3, else ZDNN_INVALID_SHAPE.
    8. Strides positive: output.dim2, then output.dim3, is ceil((input - kernel + 1) / stride) with
       VALID_PADDING, ceil(input / stride) with SAME_PADDING, else ZDNN_INVALID_SHAPE.
    9. No kernel size is 0, and no kernel size or stride exceeds the machine's maximum for its
       dimension, else ZDNN_EXCEEDS_MDIS, tested with the function specific codes.
    10. The low 3 bits of padding_type are VALID_PADDING or SAME_PADDING, else ZDNN_FUNC_RC_F000.
    11. Both strides 0: no kernel size or input height or width exceeds 1024, else
        ZDNN_FUNC_RC_F001.
    12. Strides positive: no kernel size exceeds 64, else ZDNN_FUNC_RC_F002.
    13. Strides positive: no stride exceeds 30, else ZDNN_FUNC_RC_F003.
    14. Strides positive: neither input height nor width exceeds 1024, else ZDNN_FUNC_RC_F004.

    Scratch: 64 sums in double precision per element of dim2, at most 512 KiB.
    Source: zDNN API Reference 1.2.0, zdnn_avgpool2d (which says "Since 1.1.0"; it is in 1.0.0).
    """
    window, stride = (kernel_height, kernel_width), (stride_height, stride_width)
    return _pool(kernels.average, input, output, padding_type, window, stride)


@operation(
    FunctionCode.NNPA_MAXPOOL2D,
    FORMAT_0,
    since="1.0.0",
    verify=_verify,
    infer=_pooled,
    responses=_responses,
    fields=_FIELDS,
    ulps=0,
)
def maxpool2d(
    input: Ztensor,
    padding_type: int,
    kernel_height: int,
    kernel_width: int,
    stride_height: int,
    stride_width: int,
    output: Ztensor,
) -> bool:
    """Select the greatest element of each window, exactly; -0 is less than +0.

    1. output has the dim4, then the dim1, of input, else ZDNN_INVALID_SHAPE.
    2. output has the type of input, else ZDNN_INVALID_TYPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.
    4. Both strides 0: kernel_width is input.dim2, kernel_height is input.dim3, output.dim2 and
       output.dim3 are 1, else ZDNN_INVALID_SHAPE.
    5. Both strides 0: padding_type is VALID_PADDING, else ZDNN_INVALID_STRIDE_PADDING.
    6. Both strides are 0 or both are positive, else ZDNN_INVALID_STRIDES.
    7. Strides positive, VALID_PADDING: kernel_width is at most input.dim2, kernel_height at most
       input.dim3, else ZDNN_INVALID_SHAPE.
    8. Strides positive: output.dim2, then output.dim3, is ceil((input - kernel + 1) / stride) with
       VALID_PADDING, ceil(input / stride) with SAME_PADDING, else ZDNN_INVALID_SHAPE.
    9. No kernel size is 0, and no kernel size or stride exceeds the machine's maximum for its
       dimension, else ZDNN_EXCEEDS_MDIS, tested with the function specific codes.
    10. The low 3 bits of padding_type are VALID_PADDING or SAME_PADDING, else ZDNN_FUNC_RC_F000.
    11. Both strides 0: no kernel size or input height or width exceeds 1024, else
        ZDNN_FUNC_RC_F001.
    12. Strides positive: no kernel size exceeds 64, else ZDNN_FUNC_RC_F002.
    13. Strides positive: no stride exceeds 30, else ZDNN_FUNC_RC_F003.
    14. Strides positive: neither input height nor width exceeds 1024, else ZDNN_FUNC_RC_F004.

    Scratch: 64 keys of two bytes per element of dim2, at most 128 KiB.
    Source: zDNN API Reference 1.2.0, zdnn_maxpool2d (which says "Since 1.1.0"; it is in 1.0.0).
    """
    window, stride = (kernel_height, kernel_width), (stride_height, stride_width)
    return _pool(kernels.maximum, input, output, padding_type, window, stride)
