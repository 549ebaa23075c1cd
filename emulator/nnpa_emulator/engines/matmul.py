# SPDX-License-Identifier: Apache-2.0
"""Sums of products of DLFLOAT16 matrices on sticks, block by block.

Products of two codes are exact in FP32. They are summed in FP32, in the order of the inner
dimension, with the same bits on every host, or in float64 by BLAS if the session says so. The bias
is added, and the result is rounded once; comparisons compare the sum before it is rounded. A NINF
operand makes every result that depends on it NINF.
Scratch: 1.6 MiB; for float64 three dense blocks of `BLOCK` elements, and a fourth where the inner
dimension is cut, which exist in FP32 first. Weights are widened once.
Source: zDNN API Reference 1.2.0, zdnn_matmul_op.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from nnpa_emulator import stick
from nnpa_emulator.dlfloat import NINF
from nnpa_emulator.engines import operands
from nnpa_emulator.interruption import go_on
from nnpa_emulator.kernels import convert, matmul, matmul_blocks
from nnpa_emulator.machine import Guest
from nnpa_emulator.reference.layout import Place
from nnpa_emulator.reference.matmul import EQUAL, GREATER, LESS, Shape
from nnpa_emulator.scratch import aligned, borrow, give_back, scratch
from nnpa_emulator.ztensor import (
    CELLS_PER_STICK,
    PAGE,
    STICK,
    STICKS_PER_PAGE,
    Array,
    TensorDesc,
    Ztensor,
    padded,
    stick_bytes,
)

Range: TypeAlias = tuple[int, int]
"""(first, count)."""
Block: TypeAlias = tuple[Range, Range, Range]
"""Stacks, rows and columns of a result that are computed together."""
Panels: TypeAlias = tuple["Panel", "Panel"]
Buffers: TypeAlias = tuple[Array, Array, Array, Array, Array]
"""Sticks of a and of b, panels of b or none, sticks of c and of the output."""

DOUBLE = np.dtype(np.float64)
BLOCK = 1 << 22
"""Most elements of a dense block: 16 MiB of FP32."""
MAX_PANELS = 1 << 24
"""Most elements of a right operand that are kept as panels: 64 MiB."""
INNER = 1 << 12
"""Most columns of input_a in a block, where the block limit binds."""
ADDITION, LAST_RELATION = 0, 6
"""The numbers of zdnn_matmul_ops: 0, then relations of the sum to the operand up to 6."""
MULTIPLICATIONS = 1 << 32
"""Most multiplications of a call of the kernel, where a stick of columns has no more."""
RELATIONS = {
    1: GREATER,
    2: GREATER | EQUAL,
    3: EQUAL,
    4: LESS | GREATER,
    5: LESS | EQUAL,
    6: LESS,
}


NOTHING = np.empty(0, np.float32)


@dataclass(slots=True, eq=False)
class Panel:
    """Dense blocks of one operand, remembering the last one: a broadcast operand is decoded once.

    `dtype` is the type of the sums, `role` the role of the scratch. `transposed` operands are read
    as they are stored, and turned. A `constant` operand is likely to be used again by other calls.
    """

    tensor: Ztensor
    dtype: np.dtype[np.floating]
    role: str
    transposed: bool = False
    constant: bool = False
    _last: tuple[object, ...] = field(default=(), init=False)
    _block: Array = field(default_factory=lambda: NOTHING, init=False)
    _any_ninf: bool = field(default=False, init=False)

    def read(self, stacks: Range, rows: Range, columns: Range) -> tuple[Array, bool]:
        """Return a block (stacks, rows, columns) of the operand as it is multiplied, and NINF.

        Stacks of a broadcast operand are always its only one.
        """
        if self.tensor.transformed_desc.dim4 == 1:
            stacks = (0, 1)
        if self.transposed:
            rows, columns = columns, rows
        place = (stacks, rows, columns)
        if self._last != place:
            widen = partial(self._widen, place)
            if self.constant:
                key = self.tensor.transformed_desc, self.dtype.char, place
                self._block, self._any_ninf = operands.dense(self.tensor.sticks, key, widen)
            else:
                self._block, self._any_ninf = widen(False)
            self._last = place
        block = self._block.swapaxes(1, 2) if self.transposed else self._block
        return block, self._any_ninf

    def _widen(self, block: Block, lasting: bool) -> tuple[Array, bool]:
        """Widen a block as it is stored, into scratch unless it is to last."""
        role = "" if lasting else self.role
        dense, any_ninf = read_block(self.tensor, *block, role=role)
        return dense.astype(self.dtype, copy=False), any_ninf


def place_of(desc: TensorDesc, stacks: Range) -> Place:
    """Return where a run of matrices lies in the buffer of a 4DFEATURE tensor with dim3 = 1."""
    pages = stick.geometry(desc).pages
    cells = PAGE // 2
    return stacks[0] * pages[0] * cells, pages[0] * cells, pages[1] * cells, stacks[1]


def read_block(
    tensor: Ztensor, stacks: Range, rows: Range, columns: Range, *, role: str = ""
) -> tuple[npt.NDArray[np.float32], bool]:
    """Widen a block of a DLFLOAT16 tensor to (stacks, rows, columns); tell whether it has NINF.

    With a `role` into scratch.
    """
    shape = stacks[1], rows[1], columns[1]
    block = scratch(role, shape, np.float32) if role else aligned(shape)
    place = place_of(tensor.transformed_desc, stacks)
    words = block.view(np.uint32).reshape(-1)
    largest = matmul_blocks.decode_block(tensor.sticks.view(np.uint16), words, place, rows, columns)
    return block, bool(largest == NINF)


def spans(size: int, most: int) -> Iterator[Range]:
    """Cut 0 to size into ranges of `most` at most."""
    for first in range(0, size, most):
        yield first, min(most, size - first)


def _block_sizes(rows: int, inner: int, columns: int) -> tuple[int, int, int]:
    """Return the most rows, inner elements and columns of a block: all, or multiples of 64."""
    if max(rows * inner, inner * columns, rows * columns) <= BLOCK:
        return rows, inner, columns
    inner = min(inner, INNER)
    columns = min(columns, BLOCK // max(inner, 64) // 64 * 64)
    rows = min(rows, BLOCK // max(inner, columns) // 64 * 64)
    return rows, inner, columns


@lru_cache(maxsize=256)
def _cut(
    stacks: int, rows: int, inner: int, columns: int
) -> tuple[tuple[Block, ...], tuple[Range, ...]]:
    """Return the blocks of a product in the order they are made, and the pieces of their sums."""
    sizes = _block_sizes(rows, inner, columns)
    together = max(1, BLOCK // max(rows * inner, inner * columns, rows * columns))
    blocks = (
        (some, down, across)
        for some in spans(stacks, together)
        for across in spans(columns, sizes[2])
        for down in spans(rows, sizes[0])
    )
    return tuple(blocks), tuple(spans(inner, sizes[1]))


def _sum_block(panels: Panels, block: Block, pieces: tuple[Range, ...]) -> Array:
    """Sum the products of one block of the result, piece by piece of the inner dimension."""
    stacks, rows, columns = block
    total: Array | None = None
    poisoned: list[Array] = []
    for piece in pieces:
        go_on()
        a, ninf_a = panels[0].read(stacks, rows, piece)
        b, ninf_b = panels[1].read(stacks, piece, columns)
        product = _product(a, b)
        if total is not None:
            total += product
        else:
            total = product if len(pieces) == 1 else product.copy()
        if ninf_a or ninf_b:
            poisoned.append(_poisoned(a, b))
    if total is None:
        raise ValueError("inner is 0, must be at least 1")
    for mask in poisoned:
        total[np.broadcast_to(mask, total.shape)] = np.nan
    return total


def _poisoned(a: Array, b: Array) -> npt.NDArray[np.bool_]:
    """Mark the results that depend on a NINF, whatever BLAS makes of NaN times zero."""
    rows: npt.NDArray[np.bool_] = np.logical_or.reduce(np.isnan(a), axis=2)
    columns: npt.NDArray[np.bool_] = np.logical_or.reduce(np.isnan(b), axis=1)
    return rows[:, :, None] | columns[:, None, :]


def _product(a: Array, b: Array) -> Array:
    """Multiply stacks of matrices in scratch; one matrix b serves all rows of a at once."""
    out: Array = scratch("sums", (max(len(a), len(b)), a.shape[1], b.shape[2]), a.dtype)
    if len(b) == 1 and a.flags.c_contiguous:
        np.dot(a.reshape(-1, a.shape[2]), b[0], out=out.reshape(-1, b.shape[2]))
        return out
    return np.matmul(a, b, out=out)


def _store(sums: Array, bias: Array, output: Ztensor, block: Block, op_type: int) -> bool:
    """Add the bias or compare with it, and write a block of the result; tell whether any NINF."""
    stacks, rows, columns = block
    place = place_of(output.transformed_desc, stacks)
    cells = output.sticks.view(np.uint16)
    flat, operand = sums.reshape(-1), bias.reshape(-1)
    if op_type != ADDITION:
        relations = RELATIONS[op_type]
        met = matmul_blocks.store_relations(flat, operand, cells, place, rows, columns, relations)
        return bool(met == NINF)
    codes = np.empty(flat.size, np.uint16)
    words = (sums + bias).reshape(-1).view(np.uint64)
    met = convert.encode_fp64(words, codes)
    matmul_blocks.store_codes(codes, cells, place, rows, columns)
    return bool(met == NINF)


def panels_of(input_b: Ztensor, turned: bool) -> Callable[[], operands.Values]:
    """Return a function that gives the panels of a right operand that is used again, or none."""
    desc = input_b.transformed_desc
    stacks, rows, columns = desc.dim4, desc.dim2, desc.dim1
    if turned:
        rows, columns = columns, rows
    size = stacks * rows * padded(columns)
    if size > MAX_PANELS:
        return lambda: (NOTHING, False)

    def widen(kept: bool) -> tuple[Array, bool]:
        if not kept:
            return NOTHING, False
        panels, work = aligned((size,)), borrow(matmul.WORK)
        try:
            matmul.all_panels(input_b.sticks, panels, stacks, rows, columns, turned, work)
        finally:
            give_back(work)
        return panels, False

    return operands.repeated(input_b.sticks, ("panels", turned, stacks, rows, columns), widen)


def shape_of(
    input_a: Ztensor, input_b: Ztensor, input_c: Ztensor, output: Ztensor, turned: bool
) -> Shape:
    """Return the sizes of a product, whose left operand may be turned."""
    desc_a, desc = input_a.transformed_desc, output.transformed_desc
    stacks = input_b.transformed_desc.dim4, input_c.transformed_desc.dim4, desc.dim4
    inner = desc_a.dim2 if turned else desc_a.dim1
    return (desc_a.dim4, *stacks, desc.dim2, inner, desc.dim1)


def _in_order(
    input_a: Ztensor, input_b: Ztensor, input_c: Ztensor, op_type: int, output: Ztensor,
    turned: tuple[bool, bool],
) -> bool:  # fmt: skip
    """Multiply in FP32 in the order of the inner dimension."""
    a, b, c, target = input_a.sticks, input_b.sticks, input_c.sticks, output.sticks
    shape = shape_of(input_a, input_b, input_c, output, turned[0])
    relations = 0 if op_type == ADDITION else RELATIONS[op_type]
    shared = any(np.may_share_memory(target, each) for each in (a, b, c))
    results = np.empty_like(target) if shared else target
    buffers = a, b, panels_of(input_b, turned[1])()[0], c, results
    largest, work = 0, borrow(matmul.WORK)
    try:
        for part, size in _parts(buffers, shape, turned):
            go_on()
            largest = max(largest, int(matmul.multiply(*part, size, turned, relations, work)))
    finally:
        give_back(work)
    if shared:
        written = stick_bytes(output.transformed_desc)
        target[:written] = results[:written]
    return bool(largest == NINF)


def _parts(
    buffers: Buffers, shape: Shape, turned: tuple[bool, bool]
) -> Iterator[tuple[Buffers, Shape]]:
    """Cut a large product by stacks and by columns, which lie one after the other in sticks.

    The columns of a turned b do not, and are copied.
    """
    a, b, panels, c, results = buffers
    stacks_a, stacks_b, stacks_c, stacks, rows, inner, columns = shape
    if stacks * rows * inner * columns <= MULTIPLICATIONS:
        yield buffers, shape
        return
    most = MULTIPLICATIONS // (rows * inner)
    widest = whole_sticks(min(most, BLOCK // inner) if turned[1] else most)
    high, wide = (inner, rows) if turned[0] else (rows, inner)
    for stack in range(stacks):
        left = _cut_columns(a, _column(high), stack % stacks_a, wide, (0, wide))
        for part in spans(columns, widest):
            right = (
                _cut_rows(b, stack % stacks_b, columns, inner, part)
                if turned[1]
                else _cut_columns(b, _column(inner), stack % stacks_b, columns, part)
            )
            panel = inner * CELLS_PER_STICK
            parts = (
                left,
                right,
                _cut_columns(panels, panel, stack % stacks_b, columns, part),
                _cut_columns(c, _column(1), stack % stacks_c, columns, part),
                _cut_columns(results, _column(rows), stack, columns, part),
            )
            yield parts, (1, 1, 1, 1, rows, inner, part[1])


def whole_sticks(count: int) -> int:
    """Round down to whole sticks, at least one."""
    return max(1, count // CELLS_PER_STICK) * CELLS_PER_STICK


def _column(rows: int) -> int:
    """Return the bytes of a column of sticks of a matrix."""
    return -(-rows // STICKS_PER_PAGE) * PAGE


def _cut_columns(buffer: Array, size: int, stack: int, columns: int, part: Range) -> Array:
    """Return the sticks, `size` elements per 64 columns, of some columns of one of the matrices."""
    first = stack * -(-columns // CELLS_PER_STICK) + part[0] // CELLS_PER_STICK
    return buffer[first * size : (first - (-part[1] // CELLS_PER_STICK)) * size]


def _cut_rows(sticks: Array, stack: int, rows: int, columns: int, part: Range) -> Array:
    """Return a copy of the sticks of some rows of one of the matrices."""
    whole = _cut_columns(sticks, _column(rows), stack, columns, (0, columns))
    first = part[0] * STICK
    lines = whole.reshape(-1, _column(rows))[:, first : first + _column(part[1])]
    return np.ascontiguousarray(lines).reshape(-1)


def _clear_padding(output: Ztensor) -> None:
    """Zero the cells of whole matrices that are no elements."""
    desc = output.transformed_desc
    if desc.dim2 % STICKS_PER_PAGE or desc.dim1 % CELLS_PER_STICK:
        place = place_of(desc, (0, desc.dim4))
        matmul_blocks.clear_padding(output.sticks.view(np.uint16), place, desc.dim2, desc.dim1)


def multiply(
    guest: Guest,
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    op_type: int,
    output: Ztensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> bool:
    """Multiply stacks of matrices; tell whether a NINF was stored."""
    turned = bool(transpose_a), bool(transpose_b)
    multiply_by = _in_order if guest.accumulate == "fp32" else _in_blocks
    return multiply_by(input_a, input_b, input_c, op_type, output, turned)


def _in_blocks(
    input_a: Ztensor, input_b: Ztensor, input_c: Ztensor, op_type: int, output: Ztensor,
    turned: tuple[bool, bool],
) -> bool:  # fmt: skip
    """Multiply in float64, block by block."""
    desc = output.transformed_desc
    rows, columns = desc.dim2, desc.dim1
    inner = input_a.transformed_desc.dim2 if turned[0] else input_a.transformed_desc.dim1
    blocks, pieces = _cut(desc.dim4, rows, inner, columns)
    panels = (
        Panel(input_a, DOUBLE, "input_a", turned[0]),
        Panel(input_b, DOUBLE, "input_b", turned[1], constant=True),
    )
    bias = Panel(input_c, DOUBLE, "input_c", constant=True)
    violated = False
    for block in blocks:
        operand, _ = bias.read(block[0], (0, 1), block[2])
        violated |= _store(_sum_block(panels, block, pieces), operand, output, block, op_type)
    _clear_padding(output)
    return violated
