# SPDX-License-Identifier: Apache-2.0
"""Products of matrices on 4DFEATURE sticks, in FP32 and in the order of the inner dimension.

The right matrix is taken as panels: every row has 64 FP32 values, zero behind the last column; a
stick column is one as it lies. Tiles of sums are rounded and stored while they are in the
first-level cache. Operands may be turned: stored with rows and columns exchanged.
Source: zDNN API Reference 1.2.0, zdnn_matmul_op and zdnn_matmul_transpose_op; "Stickified tensors".
"""

import numpy as np

from nnpa_emulator.kernels.convert import MAGNITUDE16, Codes, Words, decode_run, encode_result
from nnpa_emulator.kernels.jit import implements, inlined, kernel
from nnpa_emulator.kernels.tiles import ROWS, accumulate
from nnpa_emulator.reference import matmul as reference
from nnpa_emulator.reference.layout import NINF, Bytes, Singles
from nnpa_emulator.reference.matmul import EQUAL, GREATER, LESS, ONE, Shape

Turned = tuple[bool, bool]
"""Whether a and b are."""

CELLS = np.uintp(64)
PANEL = 64
INNER = 1 << 12
"""Most rows of a panel that are multiplied at once: 1 MiB, half of a second-level cache."""
LEFT = 1 << 17
"""Most elements of a block of a, with the 16 to 31 behind a row that keep rows off each other's
cache lines: 512 KiB."""
TURN = 16
"""Rows that are turned together."""
C = LEFT + INNER * PANEL
"""Where a row of c is in scratch, behind a block of a and a panel."""
TURNING = C + PANEL
"""Where rows are that are being turned."""
SUMS = TURNING + TURN * PANEL
"""Where sums are: one tile, or a panel for all rows of a block where the inner dimension is cut."""
WORK = SUMS + (LEFT // INNER + ROWS) * PANEL
"""Elements of scratch."""


@inlined
def _turn(
    sticks: Codes, cell: int, words: Words, target: int, stride: int, rows: int, columns: int
) -> None:
    """Widen rows of a stick column from a cell on to columns, whose rows are `stride` apart.

    `words` is scratch, and has room at `TURNING`.
    """
    for first in range(0, rows, TURN):
        count = min(TURN, rows - first)
        for row in range(count):
            source = np.uintp(cell + (first + row) * PANEL)
            buffer = np.uintp(TURNING + row * PANEL)
            decode_run(sticks, source, words, buffer, np.uintp(columns))
        for column in range(np.uintp(columns)):
            place = np.uintp(target + first) + column * np.uintp(stride)
            for row in range(np.uintp(count)):
                words[place + row] = words[np.uintp(TURNING) + row * CELLS + column]


@kernel
def widen_panel(
    sticks: Codes, first: int, words: Words, word: int, rows: int, columns: int
) -> None:
    """Widen rows of one stick column from cell `first` to a panel of FP32 bits at `word`."""
    if columns == PANEL:
        decode_run(sticks, np.uintp(first), words, np.uintp(word), np.uintp(rows * PANEL))
        return
    for row in range(rows):
        cell, target = np.uintp(first + row * PANEL), np.uintp(word + row * PANEL)
        decode_run(sticks, cell, words, target, np.uintp(columns))
        for i in range(np.uintp(columns), CELLS):
            words[target + i] = 0


@kernel
def turned_panel(
    sticks: Codes, first: int, page: int, work: Words, word: int, rows: int, columns: int
) -> None:
    """Widen rows of a turned panel, whose columns begin at cell `first` of sticks of rows.

    Sticks of the next 64 rows are `page` cells behind; `work` is scratch.
    """
    for k in range((rows + 63) // 64):
        target = word + k * 64 * PANEL
        _turn(sticks, first + k * page, work, target, PANEL, columns, min(64, rows - 64 * k))
    for row in range(np.uintp(rows)):
        for i in range(np.uintp(columns), CELLS):
            work[np.uintp(word) + row * CELLS + i] = 0


@implements(reference.all_panels)
def all_panels(
    buffer: Bytes, panels: Singles, stacks: int, rows: int, columns: int, turned: bool,
    work: Singles,
) -> None:  # fmt: skip
    """Widen stacks of matrices to panels, one after the other; rows and columns as multiplied."""
    sticks, words = buffer.view(np.uint16), panels.view(np.uint32)
    count, column = (columns + 63) // 64, (rows + 31) // 32 * 2048
    for k in range(stacks * count):
        real = min(PANEL, columns - k % count * PANEL)
        if not turned:
            widen_panel(sticks, k * column, words, k * rows * PANEL, rows, real)
            continue
        page = (columns + 31) // 32 * 2048
        corner = k // count * ((rows + 63) // 64) * page + k % count * 64 * PANEL
        for first in range(0, rows, INNER):
            length, cell = min(INNER, rows - first), corner + first // 64 * page
            turned_panel(sticks, cell, page, work.view(np.uint32), LEFT, length, real)
            for i in range(length * PANEL):
                panels[np.uintp((k * rows + first) * PANEL + i)] = work[np.uintp(LEFT + i)]


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
def _turn_left(
    sticks: Codes, corner: int, page: int, words: Words, stride: int, top: int, count: int,
    length: int,
) -> None:  # fmt: skip
    """Widen rows of a turned a to dense rows; from cell `corner` on, `length` of each row.

    Sticks of the next 64 rows are `page` cells behind.
    """
    for k in range(top // 64, (top + count + 63) // 64):
        first, behind = max(top, 64 * k), min(top + count, 64 * k + 64)
        cell = corner + k * page + first % 64
        _turn(sticks, cell, words, (first - top) * stride, stride, length, behind - first)


@inlined
def _store_added(
    sums: Singles, item: int, c: int, rows: int, sticks: Codes, cell: int, columns: int
) -> np.uint16:
    """Add a row of c to rows of sums, round them and store them with padding behind the columns.

    Returns the largest magnitude. The row of c is in the same array, at `c`.
    """
    largest = np.uint16(0)
    real = np.uintp(columns)
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
    sums: Singles, item: int, c: int, rows: int, sticks: Codes, cell: int, columns: int,
    relations: int,
) -> np.uint16:  # fmt: skip
    """Compare rows of sums with a row of c and store 1.0 or 0; see `store_relations`."""
    largest = np.uint16(0)
    for row in range(rows):
        source, target = np.uintp(item + row * PANEL), np.uintp(cell + row * PANEL)
        for i in range(CELLS):
            left, right = sums[source + i], sums[np.uintp(c) + i]
            relation = LESS * (left < right) + EQUAL * (left == right)
            relation += GREATER * (left > right)
            code = ONE if relation & relations else np.uint16(0)
            code = code if relation else NINF
            code = code if i < columns else np.uint16(0)
            largest = np.uint16(max(largest, code))
            sticks[target + i] = code
    return largest


@inlined
def _multiply_panel(
    shape: Shape, panels: Singles, panel: int, first: int, count: int, work: Singles, rows: int,
    stride: int, output: Codes, cell: int, columns: int, relations: int,
) -> np.uint16:  # fmt: skip
    """Multiply a block of rows by rows of one panel; store the sums that are complete."""
    largest = np.uint16(0)
    inner = shape[5]
    tiles = (rows + ROWS - 1) // ROWS
    for tile in range(tiles):
        top, bottom = tile * rows // tiles, (tile + 1) * rows // tiles
        at = SUMS if inner <= INNER else SUMS + top * PANEL
        accumulate(
            work, at, work, top * stride, stride, panels, panel, PANEL, columns, count,
            bottom - top, first == 0,
        )  # fmt: skip
        if first + count < inner:
            continue
        if relations == 0:
            high = _store_added(work, at, C, bottom - top, output, cell + top * PANEL, columns)
        else:
            high = _store_compared(
                work, at, C, bottom - top, output, cell + top * PANEL, columns, relations
            )
        largest = np.uint16(max(largest, high))
    return largest


@inlined
def _left_block(
    sticks: Codes, stack: int, words: Words, stride: int, top: int, count: int, first: int,
    length: int, shape: Shape, turned: bool,
) -> None:  # fmt: skip
    """Widen a block of a: `count` rows from `top` on, `length` of each from `first` on."""
    rows, inner = shape[4], shape[5]
    if turned:
        page = (inner + 31) // 32 * 2048
        corner = stack * ((rows + 63) // 64) * page + first * 64
        _turn_left(sticks, corner, page, words, stride, top, count, length)
    else:
        page = (rows + 31) // 32 * 2048
        corner = (stack * ((inner + 63) // 64) + first // 64) * page + top * 64
        _widen_left(sticks, corner, page, words, stride, count, length)


@inlined
def _right_panel(
    sticks: Codes, stack: int, k: int, words: Words, first: int, length: int, shape: Shape,
    turned: bool,
) -> None:  # fmt: skip
    """Widen `length` rows of a panel of b from `first` on."""
    inner, columns = shape[5], shape[6]
    real = min(PANEL, columns - 64 * k)
    if turned:
        page = (columns + 31) // 32 * 2048
        corner = (stack * ((inner + 63) // 64) + first // 64) * page + k * 64 * PANEL
        turned_panel(sticks, corner, page, words, LEFT, length, real)
    else:
        page = (inner + 31) // 32 * 2048
        corner = (stack * ((columns + 63) // 64) + k) * page + first * 64
        widen_panel(sticks, corner, words, LEFT, length, real)


@implements(reference.multiply)
def multiply(
    a: Bytes, b: Bytes, panels: Singles, c: Bytes, output: Bytes, shape: Shape, turned: Turned,
    relations: int, work: Singles,
) -> np.uint16:  # fmt: skip
    """Multiply stacks of matrices, add c or compare with it, and store codes with zero padding.

    `panels` are the widened panels of b, or nothing: then they are widened one by one. `relations`
    is 0 for the addition, else the relations that hold. An operand with one stack serves all
    stacks. `work` has `WORK` elements; `output` shares no memory with an operand. Returns the
    largest magnitude.
    """
    largest = np.uint16(0)
    stacks_a, stacks_b, stacks_c, stacks, rows, inner, columns = shape
    words = work.view(np.uint32)
    a_cells, b_cells = a.view(np.uint16), b.view(np.uint16)
    c_cells, cells = c.view(np.uint16), output.view(np.uint16)
    across, page = (columns + 63) // 64, (rows + 31) // 32 * 2048
    stride = (min(inner, INNER) + 15) // 16 * 16 + 16
    block = LEFT // stride
    parts = (rows + block - 1) // block
    for stack in range(stacks):
        stack_a, stack_b = stack % stacks_a, stack % stacks_b
        for part in range(parts):
            top = part * rows // parts
            count = (part + 1) * rows // parts - top
            for k in range(across):
                real, cell = min(PANEL, columns - 64 * k), (stack * across + k) * page
                widen_panel(c_cells, (stack % stacks_c * across + k) * 2048, words, C, 1, real)
                for first in range(0, inner, INNER):
                    length = min(INNER, inner - first)
                    if inner > INNER or k == 0:
                        _left_block(
                            a_cells, stack_a, words, stride, top, count, first, length, shape,
                            turned[0],
                        )  # fmt: skip
                    source, panel = panels, ((stack_b * across + k) * inner + first) * PANEL
                    if panels.size == 0:
                        source, panel = work, LEFT
                        _right_panel(b_cells, stack_b, k, words, first, length, shape, turned[1])
                    high = _multiply_panel(
                        shape, source, panel, first, length, work, count, stride, cells,
                        cell + top * 64, real, relations,
                    )  # fmt: skip
                    largest = np.uint16(max(largest, high))
                for i in range(np.uintp(cell + rows * 64), np.uintp(cell + page)):
                    cells[i] = 0
    return largest
