# SPDX-License-Identifier: Apache-2.0
"""Sticks: where every element of a transformed tensor lies, and the ways in and out of a buffer.

A buffer is a one-dimensional `uint8` array of whole pages of 4096 bytes, cells in native order.
A page holds 32 sticks of 128 bytes: up to 32 consecutive dim2 positions of one (dim4, dim3, stick
column of dim1).  Arrays that go in and out are dense, in the order of the transformed dims.
Source: zDNN API Reference 1.2.0, "Stickified tensors" and the transform functions; zDNN library
behaviour (offsets, flags).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias, TypeVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat
from nnpa_emulator.blocks import Block, blocks_of, images_of
from nnpa_emulator.dlfloat import Codes, Flags
from nnpa_emulator.kernels import convert, integers, planar, sticks, tables
from nnpa_emulator.reference.layout import Dims, Pages
from nnpa_emulator.ztensor import (
    CELLS_PER_STICK,
    LAYOUT_GATES,
    PAGE,
    STICK,
    STICKS_PER_PAGE,
    DataFormats,
    DataLayouts,
    DataTypes,
    TensorDesc,
    getsize_ztensor,
    padded,
)
from nnpa_emulator.ztensor import Array as Array

_Bits = TypeVar("_Bits", np.uint16, np.uint32)
Buffer: TypeAlias = npt.NDArray[np.uint8]
"""One-dimensional stick buffer, whole pages."""
Fill: TypeAlias = Callable[
    [convert.Words, Codes, Dims, Pages, np.uint32, bool], tuple[np.uint32, np.uint32]
]
"""A kernel that rounds FP32 bits into sticks."""

BFLOAT16: Final[np.dtype[np.generic]] = np.dtype(ml_dtypes.bfloat16)
_CELL_DTYPES: Final[dict[int, np.dtype[np.generic]]] = {
    DataTypes.ZDNN_BINARY_INT8: np.dtype(np.int8),
    DataTypes.ZDNN_BINARY_INT32: np.dtype(np.int32),
}
INFINITY, OVERFLOW, _UNDERFLOW = 0x7F800000, 0x4FFFA000, 0x2FFFE000
"""FP32 magnitudes: infinity, first that overflows, first that does not signal underflow."""
_HALVES: Final = frozenset((DataLayouts.ZDNN_BIDIR_FICO, DataLayouts.ZDNN_BIDIR_ZRH))


@dataclass(frozen=True, slots=True)
class Conversion:
    """The events of a conversion: its IEEE flags, and whether any NINF was stored or read.

    Finite overflow stores NINF without a flag.
    """

    flags: Flags
    any_ninf: bool


@dataclass(frozen=True, slots=True)
class Geometry:
    """How a tensor lies in its pages.

    `dims` outermost first; `pages` are the page strides of dim4, of the stick column of dim1 and of
    dim3; `cells` elements of dim1 per stick; `rows` is how many dim2 positions share one stick.
    """

    dims: tuple[int, int, int, int]
    pages: tuple[int, int, int]
    cells: int
    cell_bytes: int
    rows: int = 1

    @property
    def columns(self) -> int:
        """Number of stick columns of dim1."""
        return -(-self.dims[3] // self.cells)


@lru_cache(maxsize=1024)
def geometry(desc: TensorDesc) -> Geometry:
    """Lay out a transformed descriptor; any type other than the integers has two-byte cells."""
    cell_bytes = _cell_dtype(desc).itemsize
    is_of_weights = desc.format == DataFormats.ZDNN_FORMAT_4DWEIGHTS
    rows = 2 if is_of_weights and desc.type == DataTypes.ZDNN_BINARY_INT8 else 1
    cell_bytes *= rows
    cells = STICK // cell_bytes
    d4, d3, d2, d1 = desc.dims
    height = -(-d2 // (rows * STICKS_PER_PAGE))
    columns = -(-d1 // cells)
    if desc.format == DataFormats.ZDNN_FORMAT_4DKERNEL:
        pages = (d3 * height, d4 * d3 * height, height)
    else:
        pages = (columns * d3 * height, d3 * height, height)
    return Geometry(desc.dims, pages, cells, cell_bytes, rows)


def offset(desc: TensorDesc, e4: int, e3: int, e2: int, e1: int) -> int:
    """Return the byte offset of an element; memory goes by pages, then dim2 rows, then cells.

    4DFEATURE orders pages by dim4, stick column, dim3; 4DKERNEL by stick column, dim4, dim3; in
    4DWEIGHTS a stick interleaves the bytes of two dim2 rows.
    """
    shape = geometry(desc)
    row = e2 // shape.rows
    page = (
        e4 * shape.pages[0]
        + e1 // shape.cells * shape.pages[1]
        + e3 * shape.pages[2]
        + row // STICKS_PER_PAGE
    )
    within = row % STICKS_PER_PAGE * STICK + e1 % shape.cells * shape.cell_bytes
    return page * PAGE + within + e2 % shape.rows


def stickify(
    array: Array,
    desc: TensorDesc,
    buffer: Buffer,
    *,
    saturate: bool = False,
    nchw: bool = False,
    fresh: bool = False,
) -> Conversion:
    """Write dense data into sticks, converted by its dtype; all padding of the tensor becomes zero.

    A DLFLOAT16 tensor takes float32, float16, and BFLOAT as `ml_dtypes.bfloat16` or `uint16` bits;
    INT8 and INT32 tensors take bytes and words as they are.  `saturate` clamps finite FP32 and
    BFLOAT values to ±8573157376.  `nchw` says that the data is in NCHW order.  `fresh` promises
    that the buffer is zero already.
    """
    dims = desc.dims
    fp32 = desc.type not in _CELL_DTYPES and array.dtype == np.float32
    if nchw and not fp32:
        array = array.reshape(dims[0], dims[3], dims[1], dims[2]).transpose(0, 2, 3, 1)
    if desc.type in _CELL_DTYPES:
        write_cells(array, desc, buffer, fresh=fresh)
        return Conversion(Flags.NONE, False)
    return _stickify_floats(
        flat(array, dims), buffer.view(np.uint16), geometry(desc), saturate, fresh, nchw
    )


def stickify_gate(
    array: Array, desc: TensorDesc, buffer: Buffer, *, index: int, gate: int
) -> Conversion:
    """Write one gate of one slice of a concatenated tensor: (rows, columns), biases (columns,).

    The buffer's padding must be zero already (see `clear`).  `index` is the dim4 slice.  Behind a
    bidirectional layer the rows are two halves, each padded to a multiple of 64 rows.
    """
    columns = array.shape[-1]
    rows = array.size // columns
    width = padded(columns) // CELLS_PER_STICK
    height = -(-desc.dim2 // STICKS_PER_PAGE)
    first = (index * LAYOUT_GATES[desc.layout] + gate) * width * height
    halves = 2 if desc.layout in _HALVES else 1
    shape = Geometry((1, halves, rows // halves, columns), (0, height, height // halves), 64, 2)
    cells = buffer.view(np.uint16)[first * sticks.PAGE_CELLS :]
    return _stickify_floats(flat(array, shape.dims), cells, shape, False, True, False)


def unstickify(
    buffer: Buffer,
    desc: TensorDesc,
    kind: int,
    *,
    nchw: bool = False,
    target: Buffer | None = None,
) -> tuple[Array, Conversion]:
    """Read sticks into a dense array of the pre-transformed type `kind`, NCHW order if asked.

    FP32 goes into `target`, if there is one of that size.

    FP32, FP16 and BFLOAT (as `ml_dtypes.bfloat16`) for DLFLOAT16 tensors; INT8 and INT32 tensors
    give their cells whatever `kind` says.  The shape is (dim4, dim3, dim2, dim1) or its NCHW order.
    """
    if desc.type in _CELL_DTYPES:
        array, met = read_cells(buffer, desc), Conversion(Flags.NONE, False)
    elif kind == DataTypes.FP32:
        array, any_ninf = read_fp32(buffer, desc, target, nchw=nchw)
        return array, Conversion(Flags.INVALID if any_ninf else Flags.NONE, any_ninf)
    else:
        array, met = _unstickify_16(buffer.view(np.uint16), desc, kind)
    return (np.ascontiguousarray(array.transpose(0, 3, 1, 2)) if nchw else array), met


def quantize(
    array: npt.NDArray[np.float32],
    desc: TensorDesc,
    buffer: Buffer,
    *,
    rec_scale: float,
    offset: float,
    clip_min: int,
    clip_max: int,
) -> Conversion:
    """Write FP32 data into INT8 sticks: `clip(round(x * rec_scale + offset))`.

    Scale and offset are reduced to DLFLOAT16 first; product and sum are single FP32 operations,
    rounding is half to even. NaN, whose stored value the machine leaves open, counts as zero.
    `any_ninf` tells whether a NaN or an infinity was met.
    Source: NNPA-TRANSFORM, operation 6.
    """
    reduced = dlfloat.to_fp32(dlfloat.from_fp32(np.array([rec_scale, offset], np.float32)))
    shape = geometry(desc)
    values, cells = flat(array, desc.dims), buffer.view(np.int8)
    limits = np.array([clip_min, clip_max], np.float32)
    nonfinite = False
    for block in blocks_of(shape.dims, shape.pages):
        source, target = values[block.elements], block.sticks(cells)
        place = block.place
        nonfinite |= integers.stickify_quantized(source, target, *place, reduced, limits, False)
    flags = dlfloat.flags_from_fp32(values) & ~Flags.UNDERFLOW if nonfinite else Flags.NONE
    return Conversion(flags, nonfinite)


def read_cells(buffer: Buffer, desc: TensorDesc) -> Array:
    """Read the cells as they are into (dim4, dim3, dim2, dim1): uint16 codes, int8 or int32."""
    shape = geometry(desc)
    dtype = _cell_dtype(desc)
    array = np.empty(desc.dims, dtype)
    raw = np.dtype(f"u{dtype.itemsize}")
    read = integers.unstickify_weights if shape.rows == 2 else sticks.unstickify_copy
    cells, line = buffer.view(raw), array.view(raw).reshape(-1)
    for block in _blocks(shape):
        read(block.sticks(cells), line[block.elements], *block.place)
    return array


def write_cells(array: Array, desc: TensorDesc, buffer: Buffer, *, fresh: bool = False) -> None:
    """Write cells as they are; the array has the tensor's cell type, padding becomes zero."""
    shape = geometry(desc)
    dtype = _cell_dtype(desc)
    raw = np.dtype(f"u{dtype.itemsize}")
    line = flat(array, desc.dims).astype(dtype, copy=False).view(raw)
    if shape.rows == 2 and not fresh:
        clear(buffer, desc)
    for block in _blocks(shape):
        source, target = line[block.elements], block.sticks(buffer.view(raw))
        if shape.rows == 2:
            integers.stickify_weights(source, target, *block.place)
        else:
            sticks.stickify_copy(source, target, *block.place, fresh)


def _blocks(shape: Geometry) -> Iterable[Block]:
    """Cut a tensor; of weights, whose sticks have two rows, only dim4."""
    return (images_of if shape.rows == 2 else blocks_of)(shape.dims, shape.pages)


def read_fp32(
    buffer: Buffer, desc: TensorDesc, target: Buffer | None = None, *, nchw: bool = False
) -> tuple[npt.NDArray[np.float32], bool]:
    """Decode a DLFLOAT16 tensor to float32 (dim4, dim3, dim2, dim1); tell whether it has NINF.

    NINF decodes to NaN. The array is made in `target`, if that has its size, and has the order
    (dim4, dim1, dim3, dim2) if `nchw`.
    """
    shape, (d4, d3, d2, d1) = geometry(desc), desc.dims
    sizes, blocks = ((d4, d1, d3, d2), images_of) if nchw else (desc.dims, blocks_of)
    if target is None or target.nbytes != 4 * d4 * d3 * d2 * d1:
        array = np.empty(sizes, np.float32)
    else:
        array = target.view(np.float32).reshape(sizes)
    cells, words, largest = buffer.view(np.uint16), array.view(np.uint32).reshape(-1), 0
    read = planar.unstickify_nchw if nchw else sticks.unstickify_fp32
    for block in blocks(shape.dims, shape.pages):
        met = read(block.sticks(cells), words[block.elements], *block.place)
        largest = max(largest, int(met))
    return array, largest == dlfloat.NINF


def write_fp32(values: npt.NDArray[np.floating], desc: TensorDesc, buffer: Buffer) -> bool:
    """Round results into a DLFLOAT16 tensor, once, float64 too; tell whether any became NINF.

    Overflow keeps its sign, NaN is 7FFF; padding becomes zero.
    """
    if values.dtype == np.float64:
        codes = np.empty(values.size, np.uint16)
        largest = convert.encode_fp64(flat(values, desc.dims).view(np.uint64), codes)
        write_cells(codes, desc, buffer)
        return bool(largest == dlfloat.NINF)
    met = stickify(values, desc, buffer)
    if Flags.INVALID in met.flags:
        return stickify(
            np.where(np.isnan(values), np.float32(np.nan), values), desc, buffer
        ).any_ninf
    return met.any_ninf


def clear(buffer: Buffer, desc: TensorDesc) -> None:
    """Set all pages of a tensor to zero, padding included."""
    shape = geometry(desc)
    pages = desc.dim4 * desc.dim3 * shape.columns * shape.pages[2]
    buffer[: pages * PAGE] = 0


def byteswapped(buffer: Buffer, desc: TensorDesc) -> Buffer:
    """Return a copy of the sticks in the other byte order; big-endian is the machine's image."""
    dtype = np.dtype(f"u{_cell_dtype(desc).itemsize}")
    return buffer.view(dtype).byteswap().view(np.uint8)


def padding(desc: TensorDesc) -> npt.NDArray[np.bool_]:
    """Return a mask over the buffer's cells in memory order, true where a cell is padding."""
    dtype = _cell_dtype(desc)
    buffer = np.zeros(getsize_ztensor(desc), np.uint8)
    write_cells(np.ones(desc.dims, dtype), desc, buffer, fresh=True)
    mask: npt.NDArray[np.bool_] = np.equal(buffer.view(dtype), 0)
    return mask


def _stickify_floats(
    line: Array, cells: Codes, shape: Geometry, saturate: bool, fresh: bool, nchw: bool
) -> Conversion:
    """Convert a flat float array into DLFLOAT16 sticks by its dtype; FP32 may be in NCHW order."""
    if line.dtype != np.float32:
        return _stickify_16(_to_read(line, np.uint16), line.dtype, cells, shape, saturate, fresh)
    limit = convert.MAX32 if saturate else convert.LINE_HIGH32
    fill: Fill = planar.stickify_nchw if nchw else sticks.stickify_fp32
    words, largest, smallest = _to_read(line, np.uint32), 0, 0xFFFFFFFF
    for block in (images_of if nchw else blocks_of)(shape.dims, shape.pages):
        source, target = words[block.elements], block.sticks(cells)
        high, low = fill(source, target, *block.place, limit, fresh)
        largest, smallest = max(largest, int(high)), min(smallest, int(low))
    if largest >= INFINITY:
        return Conversion(dlfloat.flags_from_fp32(line), True)
    underflow = smallest < _UNDERFLOW - 1
    return Conversion(
        Flags.UNDERFLOW if underflow else Flags.NONE, not saturate and largest >= OVERFLOW
    )


def _stickify_16(
    line: Codes,
    dtype: np.dtype[np.generic],
    cells: Codes,
    shape: Geometry,
    saturate: bool,
    fresh: bool,
) -> Conversion:
    """Convert FP16 or BFLOAT into DLFLOAT16 sticks by table."""
    kind = DataTypes.FP16 if dtype == np.float16 else DataTypes.BFLOAT
    table, bits = tables.from_bits(kind, saturate and kind == DataTypes.BFLOAT), 0
    for block in blocks_of(shape.dims, shape.pages):
        source, target = line[block.elements], block.sticks(cells)
        bits |= int(sticks.stickify_table(source, table, target, *block.place, fresh))
    return Conversion(Flags(bits & 0xF), bool(bits & tables.NINF_BIT))


def _unstickify_16(cells: Codes, desc: TensorDesc, kind: int) -> tuple[Array, Conversion]:
    """Convert DLFLOAT16 sticks to FP16 or BFLOAT by table."""
    shape = geometry(desc)
    array = np.empty(desc.dims, np.uint16)
    line, table, bits = array.reshape(-1), tables.to_bits(kind), 0
    for block in blocks_of(shape.dims, shape.pages):
        source, target = block.sticks(cells), line[block.elements]
        bits |= int(sticks.unstickify_table(source, table, target, *block.place))
    met = Conversion(Flags(bits & 0xF), bool(bits & tables.NINF_BIT))
    return array.view(np.float16 if kind == DataTypes.FP16 else BFLOAT16), met


def flat(array: Array, dims: tuple[int, int, int, int]) -> Array:
    """Return the array as one contiguous line of the tensor's element count."""
    line = array.ravel()
    count = dims[0] * dims[1] * dims[2] * dims[3]
    if line.size != count:
        raise ValueError(f"array: {line.size} elements, dims {dims} have {count}")
    return line


def _to_read(line: Array, dtype: type[_Bits]) -> npt.NDArray[_Bits]:
    """Return a read-only view: kernels are compiled for this kind of array alone."""
    view = line.view(dtype)
    view.setflags(write=False)
    return view


def _cell_dtype(desc: TensorDesc) -> np.dtype[np.generic]:
    """Return the dtype of one cell; whatever is not INT8 or INT32 counts as DLFLOAT16."""
    return _CELL_DTYPES.get(desc.type, np.dtype(np.uint16))
