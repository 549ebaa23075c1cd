# SPDX-License-Identifier: Apache-2.0
"""Products of matrices on 4DFEATURE sticks; blocks of sticks in and out of dense matrices.

A place is (first cell, cells per stack, cells per stick column, stacks): where a run of stacks of
matrices begins in a buffer and how it is laid out. Within a stick column the rows of a matrix are
64 cells apart, pages and all. A span is (first, count), of rows or of columns; columns begin at a
multiple of 64. Dense matrices are one after the other, row by row, as wide as the span.
Panels are stick columns without padding: every row has 64 FP32 values, zero behind the last column.
Source: zDNN API Reference 1.2.0, zdnn_matmul_op; "Stickified tensors".
"""

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.convert import (
    MAGNITUDE16,
    Codes,
    Words,
    decode_run,
    encode_result,
    inlined,
    kernel,
)
from nnpa_emulator.kernels.tiles import ROWS, accumulate

Place = tuple[int, int, int, int]
Span = tuple[int, int]
Singles = npt.NDArray[np.float32]
Buffer = npt.NDArray[np.uint8]
Shape = tuple[int, int, int, int, int, int, int]
"""Stacks of a, b, c and output; rows, inner dimension and columns."""

PANEL = 64
INNER = 1 << 12
"""Most rows of a panel that are multiplied at once: 1 MiB, half of a second-level cache."""
LEFT = 1 << 17
"""Most elements of a block of a, with the 16 to 31 behind a row that keep rows off each other's
cache lines: 512 KiB."""
WORK = LEFT + INNER * PANEL + PANEL + (LEFT // INNER + ROWS) * PANEL
"""Elements of scratch of `multiply`: a block of a, a panel, a row of c, a panel of sums."""

CELLS = np.uintp(64)
BLOCK_ROWS = 32
"""Rows that are moved together: one page of a stick column."""
ONE, NINF = np.uint16(0x3E00), np.uint16(0x7FFF)
LESS, EQUAL, GREATER = 1, 2, 4
"""Bits of the relation between a sum and its operand."""


@kernel
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


@kernel
def store_sums(
    sums: Singles, bias: Singles, sticks: Codes, place: Place, rows: Span, columns: Span
) -> np.uint16:
    """Add a bias to dense FP32 sums and round them into sticks; return the largest magnitude.

    `bias` has one row for all stacks, or one row each. Padding is left to `clear_padding`.
    """
    largest = np.uint16(0)
    biases = bias.size // columns[1]
    width = np.uintp(columns[1])
    for stack in range(place[3]):
        corner = place[0] + stack * place[1] + rows[0] * 64
        for e2 in range(0, rows[1], BLOCK_ROWS):
            count = np.uintp(min(BLOCK_ROWS, rows[1] - e2))
            for k in range((columns[1] + 63) // 64):
                real = np.uintp(min(64, columns[1] - 64 * k))
                cell = np.uintp(corner + (columns[0] // 64 + k) * place[2] + e2 * 64)
                item = np.uintp((stack * rows[1] + e2) * columns[1] + 64 * k)
                start = np.uintp(stack % biases * columns[1] + 64 * k)
                for row in range(count):
                    source, target = item + row * width, cell + row * CELLS
                    for i in range(real):
                        code = encode_result(np.float32(sums[source + i] + bias[start + i]))
                        largest = np.uint16(max(largest, np.uint16(code & MAGNITUDE16)))
                        sticks[target + i] = code
    return largest


@kernel
def store_relations(
    sums: npt.NDArray[np.floating],
    operand: npt.NDArray[np.floating],
    sticks: Codes,
    place: Place,
    rows: Span,
    columns: Span,
    wanted: int,
) -> np.uint16:
    """Compare dense sums with an operand and store 1.0 or 0; return the largest magnitude.

    `wanted` has the bits LESS, EQUAL and GREATER of the relations that hold; NaN on either side
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
                code = ONE if relation & wanted else np.uint16(0)
                code = code if relation else NINF
                largest = np.uint16(max(largest, code))
                column = (columns[0] + e1) // 64 * place[2] + e1 % 64
                sticks[np.uintp(corner + column + e2 * 64)] = code
    return largest


@kernel
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


@kernel
def clear_padding(sticks: Codes, place: Place, rows: int, columns: int) -> None:
    """Zero what lies behind the last row and the last column of whole matrices."""
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


@kernel
def widen_panels(
    sticks: Codes, first: int, words: Words, word: int, rows: int, columns: int
) -> None:
    """Widen rows of one stick column from cell `first` to a panel of FP32 bits at `word`."""
    if columns >= PANEL:
        decode_run(sticks, np.uintp(first), words, np.uintp(word), np.uintp(rows * PANEL))
        return
    for row in range(rows):
        cell, target = np.uintp(first + row * PANEL), np.uintp(word + row * PANEL)
        decode_run(sticks, cell, words, target, np.uintp(columns))
        for i in range(np.uintp(columns), CELLS):
            words[target + i] = 0


@kernel
def all_panels(buffer: Buffer, words: Words, stacks: int, rows: int, columns: int) -> None:
    """Widen stacks of matrices to panels, one after the other."""
    sticks = buffer.view(np.uint16)
    count, column = (columns + 63) // 64, (rows + 31) // 32 * 2048
    for k in range(stacks * count):
        real = columns - k % count * PANEL
        widen_panels(sticks, k * column, words, k * rows * PANEL, rows, real)


@inlined
def _widen_left(
    sticks: Codes, corner: int, column: int, words: Words, stride: int, rows: int, columns: int
) -> None:
    """Widen rows of a from cell `corner` on to dense rows, `stride` apart."""
    for k in range((columns + 63) // 64):
        real = np.uintp(min(64, columns - 64 * k))
        cell = np.uintp(corner + k * column)
        for row in range(np.uintp(rows)):
            source, target = cell + row * CELLS, np.uintp(64 * k) + row * np.uintp(stride)
            if real == CELLS:
                decode_run(sticks, source, words, target, CELLS)
            else:
                decode_run(sticks, source, words, target, real)


@inlined
def _store_added(
    sums: Singles, item: int, c: int, rows: int, sticks: Codes, cell: int, columns: int
) -> np.uint16:
    """Add a row of c to rows of sums, round them and store them with padding behind the columns.

    Returns the largest magnitude. The row of c is in the same array, at `c`.
    """
    largest = np.uint16(0)
    real = np.uintp(min(PANEL, columns))
    for row in range(rows):
        source, target = np.uintp(item + row * PANEL), np.uintp(cell + row * PANEL)
        for i in range(real):
            code = encode_result(np.float32(sums[source + i] + sums[np.uintp(c) + i]))
            largest = np.uint16(max(largest, np.uint16(code & MAGNITUDE16)))
            sticks[target + i] = code
        for i in range(real, CELLS):
            sticks[target + i] = np.uint16(0)
    return largest


@inlined
def _store_compared(
    sums: Singles, item: int, c: int, rows: int, sticks: Codes, cell: int, columns: int, wanted: int
) -> np.uint16:
    """Compare rows of sums with a row of c and store 1.0 or 0; see `store_relations`."""
    largest = np.uint16(0)
    for row in range(rows):
        source, target = np.uintp(item + row * PANEL), np.uintp(cell + row * PANEL)
        for i in range(CELLS):
            left, right = sums[source + i], sums[np.uintp(c) + i]
            relation = LESS * (left < right) + EQUAL * (left == right)
            relation += GREATER * (left > right)
            code = ONE if relation & wanted else np.uint16(0)
            code = code if relation else NINF
            code = code if i < columns else np.uint16(0)
            largest = np.uint16(max(largest, code))
            sticks[target + i] = code
    return largest


@inlined
def _multiply_panel(
    shape: Shape, panels: Singles, panel: int, first: int, count: int, work: Singles, rows: int,
    stride: int, output: Codes, cell: int, columns: int, wanted: int,
) -> np.uint16:  # fmt: skip
    """Multiply a block of rows by rows of one panel; store the sums that are complete."""
    largest = np.uint16(0)
    inner = shape[5]
    c, sums = LEFT + INNER * PANEL, LEFT + INNER * PANEL + PANEL
    tiles = (rows + ROWS - 1) // ROWS
    for tile in range(tiles):
        top, bottom = tile * rows // tiles, (tile + 1) * rows // tiles
        at = sums if inner <= INNER else sums + top * PANEL
        accumulate(
            work, at, work, top * stride, stride, panels, panel, PANEL, count, bottom - top,
            first == 0,
        )  # fmt: skip
        if first + count < inner:
            continue
        if wanted == 0:
            high = _store_added(work, at, c, bottom - top, output, cell + top * PANEL, columns)
        else:
            high = _store_compared(
                work, at, c, bottom - top, output, cell + top * PANEL, columns, wanted
            )
        largest = np.uint16(max(largest, high))
    return largest


@kernel
def multiply(
    a: Buffer, b: Buffer, panels: Singles, c: Buffer, output: Buffer, shape: Shape, wanted: int,
    work: Singles,
) -> np.uint16:  # fmt: skip
    """Multiply stacks of matrices, add c or compare with it, and store codes with zero padding.

    `panels` are those of b, or nothing: then they are widened one by one. `wanted` is 0 for the
    addition, else the relations that hold. Stacks of an operand that has one are always that one.
    `work` has `WORK` elements; `output` shares no memory with an operand. Returns the largest
    magnitude.
    """
    largest = np.uint16(0)
    stacks_a, stacks_b, stacks_c, stacks, rows, inner, columns = shape
    words = work.view(np.uint32)
    a_cells, b_cells = a.view(np.uint16), b.view(np.uint16)
    c_cells, cells = c.view(np.uint16), output.view(np.uint16)
    deep, across = (inner + 63) // 64, (columns + 63) // 64
    page, b_page = (rows + 31) // 32 * 2048, (inner + 31) // 32 * 2048
    stride = (min(inner, INNER) + 15) // 16 * 16 + 16
    block = LEFT // stride
    turns = (rows + block - 1) // block
    for stack in range(stacks):
        a_corner = stack % stacks_a * deep * page
        for turn in range(turns):
            top = turn * rows // turns
            count = (turn + 1) * rows // turns - top
            if inner <= INNER:
                _widen_left(a_cells, a_corner + top * 64, page, words, stride, count, inner)
            for k in range(across):
                real, cell = columns - 64 * k, (stack * across + k) * page
                c_cell = (stack % stacks_c * across + k) * 2048
                widen_panels(c_cells, c_cell, words, LEFT + INNER * PANEL, 1, real)
                b_panel = stack % stacks_b * across + k
                for first in range(0, inner, INNER):
                    length = min(INNER, inner - first)
                    if inner > INNER:
                        corner = a_corner + top * 64 + first // 64 * page
                        _widen_left(a_cells, corner, page, words, stride, count, length)
                    source, panel = panels, (b_panel * inner + first) * PANEL
                    if panels.size == 0:
                        source, panel = work, LEFT
                        b_cell = b_panel * b_page + first * 64
                        widen_panels(b_cells, b_cell, words, LEFT, length, real)
                    high = _multiply_panel(
                        shape, source, panel, first, length, work, count, stride, cells,
                        cell + top * 64, real, wanted,
                    )  # fmt: skip
                    largest = np.uint16(max(largest, high))
                for i in range(np.uintp(cell + rows * 64), np.uintp(cell + page)):
                    cells[i] = 0
    return largest
