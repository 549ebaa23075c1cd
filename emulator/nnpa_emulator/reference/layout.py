# SPDX-License-Identifier: Apache-2.0
"""Views of stick buffers as arrays, and dense arrays from and into them.

`dims` are (dim4, dim3, dim2, dim1); `pages` are the page strides of dim4, of the stick column of
dim1, and of dim3. A page has 32 sticks of 128 bytes, one for each row of dim2.
Source: zDNN API Reference 1.2.0, "Stickified tensors".
"""

from typing import Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat

Codes: TypeAlias = npt.NDArray[np.uint16]
Words: TypeAlias = npt.NDArray[np.uint32]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Integers: TypeAlias = npt.NDArray[np.int8]
Singles: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
Dims: TypeAlias = tuple[int, int, int, int]
Pages: TypeAlias = tuple[int, int, int]
Place: TypeAlias = tuple[int, int, int, int]
"""(first cell, cells per stack, cells per stick column, stacks) of matrices."""
Span: TypeAlias = tuple[int, int]
"""(first, count)."""
Cell = TypeVar("Cell", bound=np.integer)

PAGE_BYTES: Final = 4096
STICK_BYTES: Final = 128
STICKS: Final = 32
CELLS: Final = 64
MAGNITUDE: Final = np.uint16(dlfloat.MAGNITUDE)
NINF: Final = np.uint16(dlfloat.NINF)


def view(sticks: npt.NDArray[Cell], dims: Dims, pages: Pages) -> npt.NDArray[Cell]:
    """View a buffer as (dim4, stick columns, dim3, dim2 in whole pages, cells of a stick)."""
    d4, d3, d2, d1 = dims
    cells = STICK_BYTES // sticks.itemsize
    strides = (*(PAGE_BYTES * count for count in pages), STICK_BYTES, sticks.itemsize)
    shape = d4, -(-d1 // cells), d3, -(-d2 // STICKS) * STICKS, cells
    return np.lib.stride_tricks.as_strided(sticks, shape, strides)


def rows_of(cells: npt.NDArray[Cell], dim1: int) -> npt.NDArray[Cell]:
    """Return a view (dim4, stick columns, dim3, dim2, cells) as dense rows of dim1 elements."""
    turned = cells.transpose(0, 2, 3, 1, 4)
    return turned.reshape(*turned.shape[:3], -1)[..., :dim1]


def gather(sticks: npt.NDArray[Cell], dims: Dims, pages: Pages) -> npt.NDArray[Cell]:
    """Return the cells of a tensor as a dense array of its dims."""
    return rows_of(view(sticks, dims, pages)[:, :, :, : dims[2]], dims[3])


def fill(
    sticks: npt.NDArray[Cell], cells: npt.NDArray[Cell], pages: Pages, fresh: bool = False
) -> None:
    """Write a dense array of the tensor's dims into sticks; padding becomes zero unless `fresh`."""
    d4, d3, d2, d1 = cells.shape
    target = view(sticks, (d4, d3, d2, d1), pages)
    if not fresh:
        target[...] = 0
    for column in range(target.shape[1]):
        part = cells[..., column * target.shape[4] :][..., : target.shape[4]]
        target[:, column, :, :d2, : part.shape[-1]] = part


def matrix_pages(rows: int, columns: int) -> Pages:
    """Return the page strides of matrices of two-byte cells in feature format."""
    height = -(-rows // STICKS)
    return -(-columns // CELLS) * height, height, height


def matrices(buffer: Bytes, stacks: int, rows: int, columns: int) -> Singles:
    """Widen stacks of DLFLOAT16 matrices: (stacks, rows, columns)."""
    cells = gather(buffer.view(np.uint16), (stacks, 1, rows, columns), matrix_pages(rows, columns))
    return dlfloat.to_fp32(cells[:, 0])


def block_view(
    sticks: npt.NDArray[Cell], place: Place, rows: Span, columns: Span
) -> npt.NDArray[Cell]:
    """View a block of matrices as (stacks, stick columns, rows, cells of a stick)."""
    cells, size = STICK_BYTES // sticks.itemsize, sticks.itemsize
    first = place[0] + columns[0] // cells * place[2] + rows[0] * cells
    shape = place[3], -(-columns[1] // cells), rows[1], cells
    strides = place[1] * size, place[2] * size, STICK_BYTES, size
    return np.lib.stride_tricks.as_strided(sticks[first:], shape, strides)


def read_block(
    sticks: npt.NDArray[Cell], place: Place, rows: Span, columns: Span
) -> npt.NDArray[Cell]:
    """Return a block of matrices as a dense array (stacks, rows, columns)."""
    block = block_view(sticks, place, rows, columns).transpose(0, 2, 1, 3)
    return block.reshape(*block.shape[:2], -1)[..., : columns[1]]


def write_block(
    cells: npt.NDArray[Cell], sticks: npt.NDArray[Cell], place: Place, rows: Span, columns: Span
) -> None:
    """Write a dense array (stacks, rows, columns) into a block; padding stays as it is."""
    target = block_view(sticks, place, rows, columns)
    for column in range(target.shape[1]):
        part = cells[..., column * target.shape[3] :][..., : target.shape[3]]
        target[:, column, :, : part.shape[-1]] = part


def clear_padding(out: Codes, dims: Dims, pages: Pages) -> None:
    """Set the padding of a feature tensor to zero; see `kernels.padding`."""
    cells = view(out, dims, pages)
    cells[:, -1, :, : dims[2], (dims[3] - 1) % CELLS + 1 :] = 0
    cells[:, :, :, dims[2] :] = 0
