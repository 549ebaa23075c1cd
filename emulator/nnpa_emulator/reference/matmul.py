# SPDX-License-Identifier: Apache-2.0
"""Products of matrices on 4DFEATURE sticks, and blocks of them in and out of dense matrices.

Sums are FP32, in the order of the inner dimension; c is added last, and the result rounded once.
Source: zDNN API Reference 1.2.0, zdnn_matmul_op and zdnn_matmul_transpose_op.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import (
    CELLS,
    NINF,
    Bytes,
    Codes,
    Place,
    Singles,
    Span,
    Words,
    block_view,
    fill,
    matrices,
    matrix_pages,
    read_block,
    write_block,
)
from nnpa_emulator.reference.sums import multiply_in_order

Shape: TypeAlias = tuple[int, int, int, int, int, int, int]
"""Stacks of a, b, c and output; rows, inner dimension and columns of the product."""
Floats: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64]

LESS, EQUAL, GREATER = 1, 2, 4
"""Bits of the relation between a sum and its operand."""
ONE = np.uint16(dlfloat.ONE)


def multiply(
    a: Bytes, b: Bytes, panels: Singles, c: Bytes, output: Bytes, shape: Shape,
    turned: tuple[bool, bool], relations: int, work: Singles,
) -> np.uint16:  # fmt: skip
    """Multiply stacks of matrices, add c or compare with it; return the largest magnitude.

    `relations` is 0 for the addition, else the relations that hold. An operand of one stack serves
    all stacks. Turned operands are stored with rows and columns exchanged.
    """
    del panels, work
    stacks_a, stacks_b, stacks_c, stacks, rows, inner, columns = shape
    left = _turned(a, stacks_a, rows, inner, turned[0])
    right = _turned(b, stacks_b, inner, columns, turned[1])
    operand = matrices(c, stacks_c, 1, columns)[:, 0]
    results = np.empty((stacks, 1, rows, columns), np.uint16)
    for stack in range(stacks):
        sums = multiply_in_order(left[stack % stacks_a], right[stack % stacks_b])
        row = operand[stack % stacks_c]
        results[stack, 0] = (
            _compare(sums, row, relations) if relations else dlfloat.result_from_fp32(sums + row)
        )
    fill(output.view(np.uint16), results, matrix_pages(rows, columns))
    return dlfloat.largest(results)


def _turned(buffer: Bytes, stacks: int, rows: int, columns: int, turned: bool) -> Singles:
    """Return matrices of `rows` and `columns`, which are stored the other way round if `turned`."""
    if turned:
        return matrices(buffer, stacks, columns, rows).swapaxes(1, 2)
    return matrices(buffer, stacks, rows, columns)


def _compare(sums: Floats, operand: Floats, relations: int) -> Codes:
    """Return 1.0 where one of the relations holds, else 0; NaN on either side gives NINF."""
    relation = LESS * (sums < operand) + EQUAL * (sums == operand) + GREATER * (sums > operand)
    codes = np.where(relation & relations, ONE, np.uint16(0))
    return np.where(relation == 0, NINF, codes)


def all_panels(
    buffer: Bytes, panels: Singles, stacks: int, rows: int, columns: int, turned: bool,
    work: Singles,
) -> None:  # fmt: skip
    """Widen stacks of matrices to panels of 64 columns, zero behind the last column."""
    del work
    count = -(-columns // CELLS)
    dense = np.zeros((stacks, rows, count * CELLS), np.float32)
    dense[:, :, :columns] = _turned(buffer, stacks, rows, columns, turned)
    panels[:] = dense.reshape(stacks, rows, count, CELLS).transpose(0, 2, 1, 3).ravel()


def decode_block(sticks: Codes, words: Words, place: Place, rows: Span, columns: Span) -> np.uint16:
    """Widen a block of matrices to FP32 bits; return the largest magnitude of the codes."""
    codes = read_block(sticks, place, rows, columns)
    words[:] = dlfloat.to_fp32(codes).view(np.uint32).ravel()
    return dlfloat.largest(codes)


def store_relations(
    sums: Floats, operand: Floats, sticks: Codes, place: Place, rows: Span, columns: Span,
    relations: int,
) -> np.uint16:  # fmt: skip
    """Compare dense sums with an operand, one row for all stacks or one each, and store 1.0 or 0.

    Returns the largest magnitude.
    """
    row = operand.reshape(-1, 1, columns[1])
    codes = _compare(sums.reshape(place[3], rows[1], columns[1]), row, relations)
    write_block(codes, sticks, place, rows, columns)
    return dlfloat.largest(codes)


def store_codes(codes: Codes, sticks: Codes, place: Place, rows: Span, columns: Span) -> None:
    """Copy dense codes into sticks."""
    write_block(codes.reshape(place[3], rows[1], columns[1]), sticks, place, rows, columns)


def clear_padding(sticks: Codes, place: Place, rows: int, columns: int) -> None:
    """Zero the cells behind the last row and the last column of whole matrices."""
    cells = block_view(sticks, place, (0, place[2] // CELLS), (0, columns))
    cells[:, :, rows:] = 0
    cells[:, -1, :rows, (columns - 1) % CELLS + 1 :] = 0
