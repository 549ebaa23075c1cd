# SPDX-License-Identifier: Apache-2.0
"""Blocks of 4DFEATURE sticks in and out of dense matrices, for sums of products.

A place is (first cell, cells per stack, cells per stick column, stacks): where a run of stacks of
matrices begins in a buffer and how it is laid out. Within a stick column the rows of a matrix are
64 cells apart, pages and all. A span is (first, count), of rows or of columns; columns begin at a
multiple of 64. Dense matrices are one after the other, row by row, as wide as the span.
Source: zDNN API Reference 1.2.0, zdnn_matmul_op; "Stickified tensors".
"""

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.convert import Codes, Words, decode_run
from nnpa_emulator.kernels.jit import implements
from nnpa_emulator.reference import matmul as reference
from nnpa_emulator.reference.layout import NINF, Place, Span
from nnpa_emulator.reference.matmul import EQUAL, GREATER, LESS, ONE

CELLS = np.uintp(64)
BLOCK_ROWS = 32
"""Rows that are moved together: one page of a stick column."""


@implements(reference.decode_block)
def decode_block(sticks: Codes, words: Words, place: Place, rows: Span, columns: Span) -> np.uint16:
    """Widen blocks of several stacks to FP32 bits; return the largest magnitude of the codes."""
    largest = np.uint16(0)
    width = np.uintp(columns[1])
    for stack in range(place[3]):
        corner = place[0] + stack * place[1] + rows[0] * 64
        for e2 in range(0, rows[1], BLOCK_ROWS):
            count = np.uintp(min(BLOCK_ROWS, rows[1] - e2))
            for k in range((columns[1] + 63) // 64):
                real = np.uintp(min(64, columns[1] - 64 * k))
                cell = np.uintp(corner + (columns[0] // 64 + k) * place[2] + e2 * 64)
                word = np.uintp((stack * rows[1] + e2) * columns[1] + 64 * k)
                for row in range(count):
                    source, target = cell + row * CELLS, word + row * width
                    if real == CELLS:
                        high = decode_run(sticks, source, words, target, CELLS)
                    else:
                        high = decode_run(sticks, source, words, target, real)
                    largest = np.uint16(max(largest, high))
    return largest


@implements(reference.store_relations)
def store_relations(
    sums: npt.NDArray[np.floating],
    operand: npt.NDArray[np.floating],
    sticks: Codes,
    place: Place,
    rows: Span,
    columns: Span,
    relations: int,
) -> np.uint16:
    """Compare dense sums with an operand and store 1.0 or 0; return the largest magnitude.

    `relations` has the bits LESS, EQUAL and GREATER of the relations that hold; NaN on either side
    gives NINF. `operand` has one row for all stacks, or one row each.
    """
    largest = np.uint16(0)
    operands = operand.size // columns[1]
    for stack in range(place[3]):
        corner = place[0] + stack * place[1] + rows[0] * 64
        for e2 in range(rows[1]):
            for e1 in range(columns[1]):
                left = sums[np.uintp((stack * rows[1] + e2) * columns[1] + e1)]
                right = operand[np.uintp(stack % operands * columns[1] + e1)]
                relation = LESS * (left < right) + EQUAL * (left == right)
                relation += GREATER * (left > right)
                code = ONE if relation & relations else np.uint16(0)
                code = code if relation else NINF
                largest = np.uint16(max(largest, code))
                column = (columns[0] + e1) // 64 * place[2] + e1 % 64
                sticks[np.uintp(corner + column + e2 * 64)] = code
    return largest


@implements(reference.store_codes)
def store_codes(codes: Codes, sticks: Codes, place: Place, rows: Span, columns: Span) -> None:
    """Copy dense codes into sticks."""
    for stack in range(place[3]):
        corner = place[0] + stack * place[1] + rows[0] * 64
        for e2 in range(rows[1]):
            for k in range((columns[1] + 63) // 64):
                cell = np.uintp(corner + (columns[0] // 64 + k) * place[2] + e2 * 64)
                item = np.uintp((stack * rows[1] + e2) * columns[1] + 64 * k)
                for i in range(np.uintp(min(64, columns[1] - 64 * k))):
                    sticks[cell + i] = codes[item + i]


@implements(reference.clear_padding)
def clear_padding(sticks: Codes, place: Place, rows: int, columns: int) -> None:
    """Zero the cells behind the last row and the last column of whole matrices."""
    real = columns % 64
    for stack in range(place[3]):
        for k in range((columns + 63) // 64):
            column = place[0] + stack * place[1] + k * place[2]
            sticks[np.uintp(column + rows * 64) : np.uintp(column + place[2])] = 0
        if real:
            last = place[0] + stack * place[1] + columns // 64 * place[2]
            for row in range(rows):
                stick = last + row * 64
                sticks[np.uintp(stick + real) : np.uintp(stick + 64)] = 0
