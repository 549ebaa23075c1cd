# SPDX-License-Identifier: Apache-2.0
"""Scales, sums of bytes, and the library's own arithmetic around a quantized matrix product.

q = x / s + Z with scale s and offset Z of each tensor; a ztensor keeps S = 1 / s. Symbols:
a, b, c the inputs, y the output, M = Sy / (Sa * Sb), N the inner size, j a column, i a row. The
library works in FP32 in the order written here; the machine sees scales reduced to DLFLOAT16.

    ADDITION, Zb = 0    c~[j] = (Sy/Sc)*qc[j] + Zy - (Sy/Sc)*Zc - colsum(qb)[j] * (M*Za)
    ADDITION, Zb != 0   c~[j] = (Sy/Sc)*qc[j] + Zy - (Sy/Sc)*Zc, INT8 input_a: + M*N*Za*Zb
    comparison          c~[j] = (Sa*Sb/Sc)*(qc[j] - Zc) + colsum(qb)[j] * Za
    machine             output = M' * sum(qa * qb) + c~, or the relation of sum(qa * qb) to c~
    Zb != 0, afterwards less colsum(qb)[j] * (M*Za), and rowsum(qa)[i] * (M*Zb) or, on the fly,
                        sum(a[i]) * (M*Zb*Sa)

Then results are rounded half to even and clipped, and dequantized if the call asks for it.
Source: zDNN API Reference 1.2.0, zdnn_quantized_matmul_op; formulas are the zDNN library's.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpa_emulator import stick
from nnpa_emulator.dlfloat import to_fp32
from nnpa_emulator.engines.matmul import Range, place_of, read_block, spans
from nnpa_emulator.kernels import quantized
from nnpa_emulator.reference.layout import Place
from nnpa_emulator.reference.quantized import Finish
from nnpa_emulator.ztensor import PAGE, DataFormats, DataTypes, TensorDesc, Ztensor

Singles = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Single = np.float32

INNER = 1024
"""Most products of two bytes whose sum is exact in FP32: 2**24 / 2**14."""
_INT8, _FEATURE = DataTypes.ZDNN_BINARY_INT8, DataFormats.ZDNN_FORMAT_4DFEATURE


def number_of(code: int) -> float:
    """Return the value of a code."""
    return float(to_fp32(np.array(code, np.uint16)))


def factor_of(a_scale: int, b_scale: int, output_scale: int) -> float:
    """Return M' of scales that are codes."""
    return number_of(output_scale) / (number_of(a_scale) * number_of(b_scale))


def _byte_place(desc: TensorDesc, stack: int) -> Place:
    """Return where a matrix lies in an INT8 buffer, in bytes."""
    pages = stick.geometry(desc).pages
    return stack * pages[0] * PAGE, pages[0] * PAGE, pages[1] * PAGE, 1


@dataclass(frozen=True, slots=True)
class Quantizer:
    """The machine's quantization of real values: a scale, an offset, clips."""

    scale: np.float32
    offset: np.float32
    clips: tuple[int, int]

    def read(self, tensor: Ztensor, stack: int, rows: Range, columns: Range) -> Singles:
        """Return a block of input_a as integers; rows that hold a NINF are NaN."""
        blocks, any_ninf = read_block(tensor, (stack, 1), rows, columns)
        block = blocks[0]
        spoiled = np.logical_or.reduce(np.isnan(block), axis=1) if any_ninf else None
        quantized.quantize(block.reshape(-1), self.scale, self.offset, self.clips)
        if spoiled is not None:
            block[spoiled] = np.nan
        result: Singles = block
        return result


def _read_bytes(tensor: Ztensor, stack: int, rows: Range, columns: Range) -> Singles:
    """Return a block of an INT8 tensor, features or weights, as FP32 values."""
    desc = tensor.transformed_desc
    block = np.empty((rows[1], columns[1]), np.float32)
    place = _byte_place(desc, stack % desc.dim4)
    read = quantized.decode_bytes if desc.format == _FEATURE else quantized.decode_weights
    read(tensor.sticks.view(np.int8), block.reshape(-1), place, rows, columns)
    return block


def sum_bytes(
    a: Ztensor, b: Ztensor, stack: int, rows: Range, columns: Range, quantizer: Quantizer | None
) -> Doubles:
    """Return the exact integer sums of one block of the result; NaN where a NINF was used."""
    sums = np.zeros((rows[1], columns[1]))
    for piece in spans(b.transformed_desc.dim2, INNER):
        if quantizer is None:
            left = _read_bytes(a, stack, rows, piece)
        else:
            left = quantizer.read(a, stack % a.transformed_desc.dim4, rows, piece)
        spoiled = np.isnan(left[:, 0])
        left[spoiled] = 0
        sums += left @ _read_bytes(b, stack, piece, columns)
        sums[spoiled] = np.nan
    return sums


@dataclass(frozen=True, slots=True)
class Scales:
    """Reciprocal scales and offsets of the four tensors, FP32."""

    sa: np.float32
    za: np.float32
    sb: np.float32
    zb: np.float32
    sc: np.float32
    zc: np.float32
    sy: np.float32
    zy: np.float32

    @property
    def factor(self) -> np.float32:
        """M."""
        return Single(self.sy / Single(self.sa * self.sb))

    def bias(
        self, qc: Singles, sums: Singles, adding: bool, inner: int, on_the_fly: bool
    ) -> Singles:
        """Return c~ before it is rounded; see the formulas of the module."""
        if not adding:
            scale = Single(Single(self.sa * self.sb) / self.sc)
            offset = np.float64(Single(scale * self.zc))
            wide = qc.astype(np.float64) * np.float64(scale) - offset
            compared: Singles = np.add(wide.astype(np.float32), sums * self.za)
            return compared
        scale = Single(self.sy / self.sc)
        shift = Single(self.zy - Single(scale * self.zc))
        if self.zb != 0 and not on_the_fly:
            every = Single(Single(self.factor * Single(inner)) * self.za)
            shift = Single(shift + Single(every * self.zb))
        fused = qc.astype(np.float64) * np.float64(scale) + np.float64(shift)
        bias = fused.astype(np.float32)
        if self.zb != 0:
            return bias
        shifted: Singles = np.subtract(bias, sums * Single(self.factor * self.za))
        return shifted


def scales_of(a: Ztensor, b: Ztensor, c: Ztensor, y: Ztensor) -> Scales:
    """Return the scales and offsets of the inputs and the output."""
    both = ((Single(tensor.rec_scale), Single(tensor.offset)) for tensor in (a, b, c, y))
    return Scales(*(value for pair in both for value in pair))


def column_sums(b: Ztensor) -> Singles:
    """Return the sums of the columns of every matrix of input_b, exact, then FP32."""
    desc = b.transformed_desc
    sums = np.zeros((desc.dim4, desc.dim1), np.int64)
    for stack in range(desc.dim4):
        place = _byte_place(desc, stack)
        quantized.column_sums(b.sticks.view(np.int8), sums[stack], place, desc.dim2, desc.dim1)
    return sums.astype(np.float32)


def _row_terms(a: Ztensor, scales: Scales) -> Singles:
    """Return the terms that input_b's offset adds to the rows of every matrix of input_a."""
    desc = a.transformed_desc
    terms = np.zeros((desc.dim4, desc.dim2), np.float32)
    for stack in range(desc.dim4):
        if desc.type == _INT8:
            sums = np.zeros(desc.dim2, np.int64)
            place = _byte_place(desc, stack)
            quantized.row_sums(a.sticks.view(np.int8), sums, place, desc.dim2, desc.dim1)
            terms[stack] = sums.astype(np.float32) * Single(scales.factor * scales.zb)
        else:
            place = place_of(desc, (stack, 1))
            cells = a.sticks.view(np.uint16)
            quantized.lane_sums(cells, terms[stack], place, desc.dim2, desc.dim1)
            terms[stack] *= Single(Single(scales.factor * scales.zb) * scales.sa)
    return terms


def finish(
    a: Ztensor, b: Ztensor, y: Ztensor, scales: Scales, correcting: bool, how: Finish
) -> None:
    """Take the results through the library's own pass."""
    desc = y.transformed_desc
    terms_a = np.zeros((1, desc.dim2), np.float32)
    terms_b = np.zeros((1, desc.dim1), np.float32)
    if correcting:
        terms_a = _row_terms(a, scales)
        terms_b = column_sums(b) * Single(scales.factor * scales.za)
    for stack in range(desc.dim4):
        row, column = terms_a[stack % len(terms_a)], terms_b[stack % len(terms_b)]
        place = place_of(desc, (stack, 1))
        cells = y.sticks.view(np.uint16)
        quantized.finish(cells, place, desc.dim2, desc.dim1, row, column, how)
