# SPDX-License-Identifier: Apache-2.0
"""Quantized products: blocks of INT8 sticks, their sums, and the pass over the results.

Source: zDNN API Reference 1.2.0, zdnn_quantized_matmul_op; the order of sums is the zDNN library's.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import (
    CELLS,
    STICK_BYTES,
    Codes,
    Integers,
    Place,
    Singles,
    Span,
    read_block,
    write_block,
)

Sums: TypeAlias = npt.NDArray[np.int64]
Finish: TypeAlias = tuple[bool, bool, np.float32, np.float32, np.float32, np.float32]
"""Whether to round and clip, whether to dequantize, clip_min, clip_max, offset, scale."""


def decode_bytes(
    sticks: Integers, values: Singles, place: Place, rows: Span, columns: Span
) -> None:
    """Read a block of one matrix of INT8 features as FP32 values."""
    values[:] = read_block(sticks, place, rows, columns).ravel()


def decode_weights(
    sticks: Integers, values: Singles, place: Place, rows: Span, columns: Span
) -> None:
    """Read a block of one matrix of INT8 weights as FP32 values; it begins at an even row."""
    values[:] = _weights(sticks, place, rows, columns).ravel()


def _weights(sticks: Integers, place: Place, rows: Span, columns: Span) -> Integers:
    """Return weights, whose rows share sticks in pairs, as dense rows and columns."""
    first = place[0] + columns[0] // CELLS * place[2] + rows[0] // 2 * STICK_BYTES
    pairs, count = -(-rows[1] // 2), -(-columns[1] // CELLS)
    shape, strides = (pairs, 2, count, CELLS), (STICK_BYTES, 1, place[2], 2)
    cells = np.lib.stride_tricks.as_strided(sticks[first:], shape, strides)
    return cells.reshape(2 * pairs, count * CELLS)[: rows[1], : columns[1]]


def column_sums(sticks: Integers, sums: Sums, place: Place, rows: int, columns: int) -> None:
    """Sum each column of one matrix of INT8 weights."""
    sums += _weights(sticks, place, (0, rows), (0, columns)).sum(axis=0, dtype=np.int64)


def row_sums(sticks: Integers, sums: Sums, place: Place, rows: int, columns: int) -> None:
    """Sum each row of one matrix of INT8 features."""
    sums += read_block(sticks, place, (0, rows), (0, columns))[0].sum(axis=1, dtype=np.int64)


def lane_sums(sticks: Codes, sums: Singles, place: Place, rows: int, columns: int) -> None:
    """Sum each row of DLFLOAT16 features in FP32 as the library does, in two vectors of four lanes.

    Element i goes to lane i modulo 8; then the vectors are added, then the lanes from left.
    """
    values = dlfloat.to_fp32(read_block(sticks, place, (0, rows), (0, columns))[0])
    lanes = np.zeros((rows, 8), np.float32)
    for column in range(columns):
        lanes[:, column % 8] += values[:, column]
    four = lanes[:, :4] + lanes[:, 4:]
    sums[:] = four[:, 0] + four[:, 1] + four[:, 2] + four[:, 3]


def quantize(values: Singles, scale: np.float32, offset: np.float32, clips: Span) -> bool:
    """Quantize in place: round(x * scale + offset), half to even, clipped; NaN becomes zero.

    Returns whether a NaN was met.
    """
    with np.errstate(all="ignore"):
        rounded = np.rint(values * scale + offset)
    unknown = np.isnan(rounded)
    clipped = _clip(rounded, np.float32(clips[0]), np.float32(clips[1]))
    values[:] = np.where(unknown, np.float32(0), clipped)
    return bool(unknown.any())


def _clip(values: Singles, low: np.float32, high: np.float32) -> Singles:
    """Clip values; NaN stays, and so does the sign of a zero."""
    raised = np.where(values < low, low, values)
    return np.where(raised > high, high, raised)


def finish(
    sticks: Codes, place: Place, rows: int, columns: int,
    terms_a: Singles, terms_b: Singles, how: Finish,
) -> None:  # fmt: skip
    """Correct, round, clip and dequantize the results of one matrix in place, in FP32."""
    clipping, dequantizing, low, high, offset, scale = how
    whole = (0, rows), (0, columns)
    with np.errstate(all="ignore"):
        values = dlfloat.to_fp32(read_block(sticks, place, *whole)[0])
        values = values - (terms_b[:columns] + terms_a[:rows, None])
        if clipping:
            values = _clip(np.rint(values), low, high)
        if dequantizing:
            values = (values - offset) * scale
    write_block(dlfloat.result_from_fp32(values)[None], sticks, place, *whole)
