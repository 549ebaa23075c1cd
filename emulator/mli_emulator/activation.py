# SPDX-License-Identifier: Apache-2.0
"""Hyperbolic tangent and sigmoid of MLI 1.x: one int16 table each, interpolated.

Sources: embARC MLI documentation, "Transform (Activation) Group"; library behaviour
(``mli_math_lut``) for table length, resolution and the interpolation.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mli_emulator.checks import (
    require_apart,
    require_capacity,
    require_data,
    require_frac_bits,
    require_fx_type,
    require_memory,
    required,
    valid,
)
from mli_emulator.fixedpoint import (
    FloatArray,
    IntArray,
    Rounding,
    round_shift,
    saturate,
    shift_left_saturated,
)
from mli_emulator.pipeline import DEFAULT, Options, Remarks, variants
from mli_emulator.tensor import (
    ElType,
    FxParams,
    Tensor,
    dims,
    element_size,
    integers,
    raw_strides,
    same_start,
)

_WHERE = "activation"


@dataclass(frozen=True, slots=True)
class Table:
    """A function in Q.15 at x = (i - zero) / 2^frac_bits for each entry i."""

    entries: IntArray
    zero: int
    frac_bits: int


def _table(function: Callable[[FloatArray], FloatArray], length: int, bits: int) -> Table:
    """Entries to the nearest integer, ties away from zero, clamped to int16."""
    zero = length // 2
    exact = function((np.arange(length) - zero) / (1 << bits)) * 32768.0
    nearest = np.copysign(np.floor(np.abs(exact) + 0.5), exact).astype(np.int64)
    return Table(saturate(nearest, 16), zero, bits)


def _sigmoid(x: FloatArray) -> FloatArray:
    return 1.0 / (1.0 + np.exp(-x))


def _tanh(x: FloatArray) -> FloatArray:
    return np.tanh(x)


# Lengths and resolutions: embARC MLI 1.x library, mli_math_lut tables of tanh and sigmoid.
TANH = _table(_tanh, length=178, bits=4)
SIGM = _table(_sigmoid, length=180, bits=3)


def evaluate(table: Table, x: IntArray, in_bits: int, io_bits: int, rounding: Rounding) -> IntArray:
    """Evaluate the function at x (``in_bits`` fractional bits), in 7 of 8 or 15 of 16 bits.

    Finer inputs than the table interpolate with one rounding; the 8-bit result rounds once more.
    """
    shift = in_bits - table.frac_bits
    if shift > 0:
        y = _interpolate(table, x >> max(shift - 15, 0), min(shift, 15), rounding)
    else:
        index = shift_left_saturated(x, -shift, 16) + table.zero
        y = table.entries[np.clip(index, 0, len(table.entries) - 1)]
    return y if io_bits == 16 else saturate(round_shift(y, 8, rounding), 8)


def _interpolate(table: Table, x: IntArray, shift: int, rounding: Rounding) -> IntArray:
    """Interpolate between neighbours; the fraction stays as it is where the index is clamped."""
    index = np.clip((x >> shift) + table.zero, 0, len(table.entries) - 2)
    fraction = x & ((1 << shift) - 1)
    here, after = table.entries[index], table.entries[index + 1]
    step = round_shift((here - after) * fraction, shift, rounding)
    between: IntArray = here - step
    return between


@variants
def _activation(
    function: tuple[Table, ElType],
    in_: Tensor | None,
    out: Tensor | None,
    *,
    options: Options = DEFAULT,
) -> Remarks:
    """Apply tanh or sigmoid to each element: ``mli_krn_tanh_*``, ``mli_krn_sigm_*``.

    Fills shape, rank, mem_stride, el_type of ``out`` from ``in_`` and sets frac_bits to 7
    (fx8) or 15 (fx16). In place is allowed at the identical start.

    (activation_c1) in is a valid tensor: tensor_c1 to tensor_c8
    (activation_c2) in has the kernel's element type: TYPE_MISMATCH
    (activation_c3) in has 0..255 fractional bits: BAD_TENSOR
    (activation_c4) out has a data pointer: BAD_TENSOR
    (activation_c5) the memory of in reaches its last element: NOT_ENGH_MEM
    (activation_c6) out.capacity holds the result: NOT_ENGH_MEM
    (activation_c7) out overlaps in only at the identical start: INCOMPATEBLE_TENSORS
    """
    table, el_type = function
    bits = 8 * element_size(el_type)
    x = valid(in_, "in")
    require_fx_type(x, "in", el_type, f"{_WHERE}_c2")
    in_bits = require_frac_bits(x, "in", f"{_WHERE}_c3")
    y = required(out, "out", f"{_WHERE}_c4")
    require_data(y, "out", f"{_WHERE}_c4")
    shape, strides = dims(x), raw_strides(x, x.rank)
    reach = require_memory(x, "in", shape, strides, f"{_WHERE}_c5")
    require_capacity(y, "out", reach, f"{_WHERE}_c6")
    if not same_start(x, y):
        require_apart({"out": (y, reach)}, {"in": (x, reach)}, frozenset(), f"{_WHERE}_c7")
    values = integers(x, shape, strides).astype(np.int64)
    result = evaluate(table, values, in_bits, bits, options.rounding)
    y.shape, y.rank, y.mem_stride, y.el_type = shape, x.rank, strides, el_type
    y.el_params = FxParams(bits - 1)
    integers(y, shape, strides)[...] = result
    return Remarks()


krn_tanh_fx8 = _activation("krn_tanh_fx8", (TANH, ElType.MLI_EL_FX_8))
krn_tanh_fx16 = _activation("krn_tanh_fx16", (TANH, ElType.MLI_EL_FX_16))
krn_sigm_fx8 = _activation("krn_sigm_fx8", (SIGM, ElType.MLI_EL_FX_8))
krn_sigm_fx16 = _activation("krn_sigm_fx16", (SIGM, ElType.MLI_EL_FX_16))
