# SPDX-License-Identifier: Apache-2.0
"""Fully connected kernels of MLI 1.x, and the variants that the recurrent kernels share.

Source: embARC MLI documentation 1.x, "Common Group", Fully Connected; library behaviour for the
accumulator widths, the order of the checks and the alignment of the bias.
"""

from dataclasses import dataclass

import numpy as np

from mli_emulator.checks import (
    is_inner_dense,
    require_accumulator,
    require_apart,
    require_bias_precision,
    require_capacity,
    require_contiguous,
    require_contiguous_output,
    require_data,
    require_frac_bits,
    require_fx_type,
    require_memory,
    required,
    used_bytes,
    valid,
)
from mli_emulator.fixedpoint import (
    IntArray,
    Rounding,
    accumulate,
    matrix,
    scale_floored,
    scale_rounded,
)
from mli_emulator.pipeline import DEFAULT, Options, Remarks, variants
from mli_emulator.status import MliStatus, require
from mli_emulator.tensor import (
    ElType,
    FxParams,
    Tensor,
    count,
    dims,
    element_size,
    integers,
    raw_strides,
)

_WHERE = "fully_connected"
_SHAPE = MliStatus.MLI_STATUS_SHAPE_MISMATCH
_INCOMPATEBLE = MliStatus.MLI_STATUS_INCOMPATEBLE_TENSORS


@dataclass(frozen=True, slots=True)
class Variant:
    """A data type of the fixed-point kernels.

    io: element type of input, state, cell and output. weights: element type of weights and bias.
    accumulator_bits: 32, or 40 where 16-bit weights meet 16-bit input.
    """

    name: str
    io: ElType
    weights: ElType
    accumulator_bits: int

    @property
    def io_bits(self) -> int:
        """Bits of the io container: 8 or 16."""
        return 8 * element_size(self.io)

    @property
    def gate_bits(self) -> int:
        """Fractional bits of values before an activation: 4 or 12."""
        return self.io_bits - 4


FX8 = Variant("fx8", ElType.MLI_EL_FX_8, ElType.MLI_EL_FX_8, 32)
FX16 = Variant("fx16", ElType.MLI_EL_FX_16, ElType.MLI_EL_FX_16, 40)
FX8W16D = Variant("fx8w16d", ElType.MLI_EL_FX_16, ElType.MLI_EL_FX_8, 32)


def align(x: IntArray, shift: int, variant: Variant, rounding: Rounding) -> IntArray:
    """Return x / 2^shift in the accumulator's width: 32 bits round, 40 bits truncate."""
    bits = variant.accumulator_bits
    if bits == 40:
        return scale_floored(x, shift, bits)
    return scale_rounded(x, shift, bits, rounding)


def aligned_bias(
    x: Tensor, weights: Tensor, bias: Tensor, variant: Variant, rounding: Rounding
) -> IntArray:
    """Align all bias values to the fractional bits of the products of x and weights."""
    x_bits = require_frac_bits(x, "in", "tensor_c9")
    weight_bits = require_frac_bits(weights, "weights", "tensor_c9")
    bias_bits = require_frac_bits(bias, "bias", "tensor_c9")
    values = integers(bias, (count(bias),)).astype(np.int64)
    return align(values, bias_bits - x_bits - weight_bits, variant, rounding)


def _given(
    in_: Tensor | None,
    weights: Tensor | None,
    bias: Tensor | None,
    out: Tensor | None,
    variant: Variant,
    options: Options,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Constraints 1 to 5."""
    x, w = required(in_, "in", f"{_WHERE}_c1"), required(weights, "weights", f"{_WHERE}_c1")
    b = required(bias, "bias", f"{_WHERE}_c1")
    require_fx_type(x, "in", variant.io, f"{_WHERE}_c2")
    require_fx_type(w, "weights", variant.weights, f"{_WHERE}_c2")
    require_fx_type(b, "bias", variant.weights, f"{_WHERE}_c2")
    require_bias_precision(x, w, b, f"{_WHERE}_c3", options)
    for name, tensor in (("in", x), ("weights", w), ("bias", b)):
        valid(tensor, name)
        require_frac_bits(tensor, name, "tensor_c9")
    y = required(out, "out", f"{_WHERE}_c5")
    require_data(y, "out", f"{_WHERE}_c5")
    return x, w, b, y


def _check_shapes(x: Tensor, weights: Tensor, bias: Tensor) -> tuple[int, int]:
    """Constraints 6 to 9; returns (M, N)."""
    require(weights.rank == 2, f"{_WHERE}_c6", _SHAPE, "weights.rank", weights.rank, 2)
    require(bias.rank == 1, f"{_WHERE}_c7", _SHAPE, "bias.rank", bias.rank, 1)
    m, n = dims(weights)
    elements = count(x)
    require(elements == n, f"{_WHERE}_c8", _SHAPE, "in element count", elements, f"{n} (weights)")
    length = dims(bias)[0]
    require(length == m, f"{_WHERE}_c9", _SHAPE, "bias.shape[0]", length, f"{m} (weights)")
    return m, n


def _check_memory(
    x: Tensor, weights: Tensor, bias: Tensor, out: Tensor, m: int, variant: Variant
) -> None:
    """Constraints 10 to 17."""
    require_contiguous(x, "in", f"{_WHERE}_c10")
    strides = raw_strides(weights, 2)
    inner_ok = is_inner_dense(weights, 2)
    require(
        inner_ok, f"{_WHERE}_c11", _INCOMPATEBLE, "weights.mem_stride", strides, "1 or 0 inside"
    )
    require_contiguous(bias, "bias", f"{_WHERE}_c12")
    require_contiguous_output(out, "out", 1, f"{_WHERE}_c13")
    result_bytes = m * element_size(variant.io)
    require_capacity(out, "out", result_bytes, f"{_WHERE}_c14")
    reach = require_memory(weights, "weights", dims(weights), strides, f"{_WHERE}_c15")
    require_frac_bits(out, "out", f"{_WHERE}_c16")
    read = {"in": (x, used_bytes(x)), "weights": (weights, reach), "bias": (bias, used_bytes(bias))}
    require_apart({"out": (out, result_bytes)}, read, frozenset(), f"{_WHERE}_c17")


@variants
def _fully_connected(
    variant: Variant,
    in_: Tensor | None,
    weights: Tensor | None,
    bias: Tensor | None,
    out: Tensor | None,
    *,
    options: Options = DEFAULT,
) -> Remarks:
    """Fully connected layer: ``mli_krn_fully_connected_{fx8,fx16,fx8w16d}``.

    in: N elements of any shape. weights [M, N], bias [M], out [M]. Fills shape, rank and
    el_type of ``out``; its frac_bits are an input. The sum is exact; bias alignment and the
    result saturate.

    (fully_connected_c1) in, weights and bias are not NULL: BAD_TENSOR
    (fully_connected_c2) in, weights and bias have the variant's types: TYPE_MISMATCH
    (fully_connected_c3) frac_bits of bias <= in + weights: INCOMPATEBLE_TENSORS
    (fully_connected_c4) in, weights, bias are valid: tensor_c1 to tensor_c8, and 0..255
    fractional bits: tensor_c9, BAD_TENSOR
    (fully_connected_c5) out is not NULL and has a data pointer: BAD_TENSOR
    (fully_connected_c6) weights have rank 2: SHAPE_MISMATCH
    (fully_connected_c7) bias has rank 1: SHAPE_MISMATCH
    (fully_connected_c8) in has weights.shape[1] elements: SHAPE_MISMATCH
    (fully_connected_c9) bias.shape[0] = weights.shape[0]: SHAPE_MISMATCH
    (fully_connected_c10) in is contiguous: INCOMPATEBLE_TENSORS
    (fully_connected_c11) rows of weights are dense: INCOMPATEBLE_TENSORS
    (fully_connected_c12) bias is contiguous: INCOMPATEBLE_TENSORS
    (fully_connected_c13) out is contiguous: INCOMPATEBLE_TENSORS
    (fully_connected_c14) out.capacity holds M elements: NOT_ENGH_MEM
    (fully_connected_c15) the memory of weights reaches the last row: NOT_ENGH_MEM
    (fully_connected_c16) out has 0..255 fractional bits: BAD_TENSOR
    (fully_connected_c17) out overlaps no other tensor: INCOMPATEBLE_TENSORS
    (fully_connected_c18) debug level FULL: no partial sum overflows: NOT_SUPPORTED
    """
    x, w, b, y = _given(in_, weights, bias, out, variant, options)
    m, n = _check_shapes(x, w, b)
    _check_memory(x, w, b, y, m, variant)
    start = aligned_bias(x, w, b, variant, options.rounding)
    rows = matrix(integers(w, (m, n), raw_strides(w, 2)))
    bits = variant.accumulator_bits
    total, overflow = accumulate(
        start[None, :], integers(x, (1, n)), rows, bits, options.accumulator
    )
    require_accumulator(overflow, f"{_WHERE}_c18", bits, options)
    result = scale_rounded(total[0], _result_shift(x, w, y), variant.io_bits, options.rounding)
    fill(y, (m,), variant)
    integers(y, (m,))[...] = result
    return Remarks(overflow)


def _result_shift(x: Tensor, weights: Tensor, out: Tensor) -> int:
    """Fractional bits that the products have beyond the output."""
    return (
        require_frac_bits(x, "in", "tensor_c9")
        + require_frac_bits(weights, "weights", "tensor_c9")
        - require_frac_bits(out, "out", "fully_connected_c16")
    )


def fill(out: Tensor, shape: tuple[int, ...], variant: Variant, bits: int | None = None) -> None:
    """Set shape, rank, el_type of an output, and frac_bits where the kernel decides them."""
    out.shape, out.rank, out.el_type = shape, len(shape), variant.io
    if bits is not None:
        out.el_params = FxParams(bits)


krn_fully_connected_fx8 = _fully_connected("krn_fully_connected_fx8", FX8)
krn_fully_connected_fx16 = _fully_connected("krn_fully_connected_fx16", FX16)
krn_fully_connected_fx8w16d = _fully_connected("krn_fully_connected_fx8w16d", FX8W16D)
