# SPDX-License-Identifier: Apache-2.0
"""Blocks of INT8 sticks for sums of products, their sums, and the pass over quantized results.

Places and spans are as in `kernels.matmul_blocks`, in bytes for INT8 sticks: rows of features
are 128 bytes apart and begin at a multiple of 128 columns, pairs of rows of weights share 128.
Source: zDNN API Reference 1.2.0, zdnn_quantized_matmul_op; the order of sums is the zDNN library's.
"""

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.convert import Codes, decode, encode_result
from nnpa_emulator.kernels.jit import implements
from nnpa_emulator.reference import quantized as reference
from nnpa_emulator.reference.layout import Place, Singles, Span
from nnpa_emulator.reference.quantized import Finish, Sums

Bytes = npt.NDArray[np.int8]


@implements(reference.decode_bytes)
def decode_bytes(sticks: Bytes, values: Singles, place: Place, rows: Span, columns: Span) -> None:
    """Read a block of one matrix of INT8 features as FP32 values."""
    for k in range((columns[1] + 127) // 128):
        corner = place[0] + (columns[0] // 128 + k) * place[2] + rows[0] * 128
        for row in range(rows[1]):
            source = np.uintp(corner + row * 128)
            target = np.uintp(row * columns[1] + 128 * k)
            for i in range(np.uintp(min(128, columns[1] - 128 * k))):
                values[target + i] = np.float32(sticks[source + i])


@implements(reference.decode_weights)
def decode_weights(sticks: Bytes, values: Singles, place: Place, rows: Span, columns: Span) -> None:
    """Read a block of one matrix of INT8 weights as FP32 values; it begins at an even row."""
    for k in range((columns[1] + 63) // 64):
        corner = place[0] + (columns[0] // 64 + k) * place[2] + rows[0] // 2 * 128
        for row in range(rows[1]):
            source = np.uintp(corner + row // 2 * 128 + row % 2)
            target = np.uintp(row * columns[1] + 64 * k)
            for i in range(np.uintp(min(64, columns[1] - 64 * k))):
                values[target + i] = np.float32(sticks[source + np.uintp(2) * i])


@implements(reference.column_sums)
def column_sums(sticks: Bytes, sums: Sums, place: Place, rows: int, columns: int) -> None:
    """Sum each column of one matrix of INT8 weights."""
    for k in range((columns + 63) // 64):
        for row in range(rows):
            source = np.uintp(place[0] + k * place[2] + row // 2 * 128 + row % 2)
            target = np.uintp(64 * k)
            for i in range(np.uintp(min(64, columns - 64 * k))):
                sums[target + i] += sticks[source + np.uintp(2) * i]


@implements(reference.row_sums)
def row_sums(sticks: Bytes, sums: Sums, place: Place, rows: int, columns: int) -> None:
    """Sum each row of one matrix of INT8 features."""
    for k in range((columns + 127) // 128):
        for row in range(rows):
            source = np.uintp(place[0] + k * place[2] + row * 128)
            total = np.int64(0)
            for i in range(np.uintp(min(128, columns - 128 * k))):
                total += sticks[source + i]
            sums[row] += total


@implements(reference.lane_sums)
def lane_sums(sticks: Codes, sums: Singles, place: Place, rows: int, columns: int) -> None:
    """Sum each row of DLFLOAT16 features in FP32 as the library does, in two vectors of four lanes.

    Element i goes to lane i modulo 8; then the vectors are added, then the lanes from left.
    """
    for row in range(rows):
        lanes = np.zeros(8, np.float32)
        for i in range(columns):
            cell = np.uintp(place[0] + i // 64 * place[2] + row * 64 + i % 64)
            lanes[i % 8] = np.float32(lanes[i % 8] + decode(sticks[cell]))
        four = lanes[:4] + lanes[4:]
        sums[row] = np.float32(np.float32(np.float32(four[0] + four[1]) + four[2]) + four[3])


@implements(reference.quantize)
def quantize(values: Singles, scale: np.float32, offset: np.float32, clips: Span) -> bool:
    """Quantize in place: round(x * scale + offset), half to even, clipped; NaN becomes zero.

    Returns whether a NaN was met.
    """
    low, high = np.float32(clips[0]), np.float32(clips[1])
    met = np.uint8(0)
    for i in range(np.uintp(values.size)):
        rounded = np.rint(np.float32(values[i] * scale) + offset)
        unknown = rounded != rounded
        met = np.uint8(met | np.uint8(unknown))
        clipped = np.float32(min(max(rounded, low), high))
        values[i] = np.float32(0) if unknown else clipped
    return bool(met)


@implements(reference.finish)
def finish(
    sticks: Codes, place: Place, rows: int, columns: int,
    terms_a: Singles, terms_b: Singles, how: Finish,
) -> None:  # fmt: skip
    """Correct, round, clip and dequantize the results of one matrix in place, in FP32."""
    clipping, dequantizing, low, high, offset, scale = how
    for row in range(rows):
        for e1 in range(columns):
            cell = np.uintp(place[0] + e1 // 64 * place[2] + row * 64 + e1 % 64)
            term = np.float32(terms_b[e1] + terms_a[row])
            value = np.float32(decode(sticks[cell]) - term)
            if clipping:
                value = np.float32(min(max(np.float32(np.rint(value)), low), high))
            if dequantizing:
                value = np.float32(np.float32(value - offset) * scale)
            sticks[cell] = encode_result(value)
