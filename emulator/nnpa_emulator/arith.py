# SPDX-License-Identifier: Apache-2.0
"""Shared arithmetic of operations: unary functions by table, range violations, jitter.

Every value stored as DLFLOAT16 is rounded once, to nearest, ties away from zero. A unary function
is a table over all 65 536 codes: the double precision value of the formula, rounded once.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from nnpa_emulator.blocks import Block, blocks_of, regions_of
from nnpa_emulator.dlfloat import (
    MAGNITUDE,
    MAX,
    NINF,
    SIGN,
    Codes,
    from_fp32,
    from_fp64,
    to_fp32,
    widen_bfloat,
)
from nnpa_emulator.kernels import elementwise, scan
from nnpa_emulator.machine import FunctionCode
from nnpa_emulator.reference.elementwise import region_of
from nnpa_emulator.stick import Buffer, geometry
from nnpa_emulator.ztensor import (
    CELLS_PER_STICK,
    PAGE,
    STICK,
    Array,
    DataTypes,
    TensorDesc,
    Ztensor,
    stick_bytes,
)

MAX_EXPLAINED = 8


@dataclass(frozen=True, slots=True)
class ViolatingElement:
    """One non-numeric element: its (e4, e3, e2, e1), its bits, and whether it lies in padding.

    `operand_values` are the inputs' values at the same index if the function works element by
    element; for a transform it is the value in the user's array.
    """

    index: tuple[int, ...]
    code: int
    padding: bool = False
    operand_values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class OperandViolation:
    """One operand with non-numeric elements: how many, and the first eight in row-major order."""

    operand: str
    count: int
    elements: tuple[ViolatingElement, ...]


@dataclass(frozen=True, slots=True)
class RangeViolation:
    """Why a call ended with ZDNN_ELEMENT_RANGE_VIOLATION or ZDNN_CONVERT_FAILURE.

    `function` is the NNPA function that met it, None for conversions in software.
    """

    function: FunctionCode | None
    operands: tuple[OperandViolation, ...]

    def __str__(self) -> str:
        """Say it in one sentence per operand."""
        return "; ".join(
            f"{operand.operand}: {operand.count} non-numeric, first at {operand.elements[0].index}"
            for operand in self.operands
        )


def explain_violation(
    function: FunctionCode | None,
    tensors: Mapping[str, Ztensor],
    inputs: tuple[str, ...],
    least: int = NINF,
) -> RangeViolation:
    """Find the elements of magnitude `least` or more of every DLFLOAT16 operand."""
    sources = tuple(tensors[name] for name in inputs)
    violations = (
        _explain_operand(name, tensor, sources, least) for name, tensor in tensors.items()
    )
    return RangeViolation(function, tuple(filter(None, violations)))


def _explain_operand(
    name: str, tensor: Ztensor, sources: tuple[Ztensor, ...], least: int
) -> OperandViolation | None:
    desc = tensor.transformed_desc
    if desc.type != DataTypes.ZDNN_DLFLOAT16 or tensor.buffer is None:
        return None
    indices = np.zeros((MAX_EXPLAINED, 4), np.int64)
    count = int(scan.find_codes(_cells(tensor), desc.dim1, least, indices))
    if not count:
        return None
    elementwise = all(source.transformed_desc.dims == desc.dims for source in sources)
    elements: list[ViolatingElement] = []
    for row in indices[:count]:
        index = tuple(int(i) for i in row)
        values = tuple(_value_at(source, index) for source in sources) if elementwise else ()
        elements.append(ViolatingElement(index, _code_at(tensor, index), False, values))
    return OperandViolation(name, count, tuple(elements))


def explain_source(function: FunctionCode | None, arrays: Mapping[str, Array]) -> RangeViolation:
    """Find the values of user arrays (dim4, dim3, dim2, dim1) that have no DLFLOAT16 number.

    BFLOAT arrays are their `uint16` bits.
    """
    violations: list[OperandViolation] = []
    for name, array in arrays.items():
        count, elements = 0, list[ViolatingElement]()
        for e4, part in enumerate(array):
            wide = _single(part)
            bad = np.argwhere(from_fp32(wide) & MAGNITUDE == NINF)
            count += len(bad)
            for at in bad[: MAX_EXPLAINED - len(elements)]:
                value = wide[tuple(at)]
                index = (e4, *(int(i) for i in at))
                code = int(from_fp32(value))
                elements.append(ViolatingElement(index, code, False, (float(value),)))
        if count:
            violations.append(OperandViolation(name, count, tuple(elements)))
    return RangeViolation(function, tuple(violations))


def _single(array: Array) -> npt.NDArray[np.float32]:
    if array.dtype == np.uint16:
        return widen_bfloat(array)
    with np.errstate(invalid="ignore"):
        return np.asarray(array, np.float32)


def code_range_of(tensor: Ztensor) -> tuple[int, int]:
    """Return the codes of the least element or -0 and of the greatest or +0 of a tensor."""
    least, greatest = scan.code_range(_cells(tensor), tensor.transformed_desc.dim1)
    return int(least), int(greatest)


def _cells(tensor: Ztensor) -> npt.NDArray[np.uint16]:
    """View the real rows of DLFLOAT16 sticks as (dim4, stick columns, dim3, dim2, 64)."""
    shape = geometry(tensor.transformed_desc)
    d4, d3, d2, _ = shape.dims
    strides = (*(PAGE * pages for pages in shape.pages), STICK, 2)
    needed = stick_bytes(tensor.transformed_desc)
    if tensor.sticks.nbytes < needed:
        raise ValueError(f"ztensor.buffer has {tensor.sticks.nbytes} bytes, must have {needed}")
    codes = tensor.sticks.view(np.uint16)
    return np.lib.stride_tricks.as_strided(
        codes, (d4, shape.columns, d3, d2, CELLS_PER_STICK), strides
    )


def _code_at(tensor: Ztensor, index: tuple[int, ...]) -> int:
    e4, e3, e2, e1 = index
    return int(_cells(tensor)[e4, e1 // CELLS_PER_STICK, e3, e2, e1 % CELLS_PER_STICK])


def _value_at(tensor: Ztensor, index: tuple[int, ...]) -> float:
    return float(to_fp32(np.array(_code_at(tensor, index), np.uint16)))


@lru_cache(maxsize=256)
def unary_table(
    formula: Callable[..., npt.NDArray[np.float64]], *parameters: int
) -> npt.NDArray[np.uint16]:
    """Return formula(x, *parameters) for all 65 536 codes x; parameters are codes too.

    The formula works on float64 arrays; where it gives no number the entry is NINF, with the sign
    of an infinity, positive for NaN and for a NINF operand.
    """
    codes = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    values = to_fp32(codes).astype(np.float64)
    arguments = (float(to_fp32(np.array(code, np.uint16))) for code in parameters)
    with np.errstate(all="ignore"):
        results = formula(values, *arguments)
    table = from_fp64(results)
    table[np.isnan(results) | (codes & MAGNITUDE == NINF)] = NINF
    table.flags.writeable = False
    return table


def apply(
    formula: Callable[..., npt.NDArray[np.float64]],
    tensor: Ztensor,
    output: Ztensor,
    *parameters: int,
) -> bool:
    """Store formula(x, *parameters) of all elements; tell whether the result has any NINF."""
    table = unary_table(formula, *parameters)
    return lookup(table, tensor.sticks, output.sticks, output.transformed_desc)


def lookup(table: Codes, codes: Buffer, out: Buffer, desc: TensorDesc) -> bool:
    """Apply a unary function, a table of 65 536 codes; tell whether the result has any NINF."""
    source, target = codes.view(np.uint16), out.view(np.uint16)
    largest = 0
    for first, part in regions_of(region_of(desc)):
        code = elementwise.lookup(table, source[first:], target[first:], part)
        largest = max(largest, int(code))
    return bool(largest == NINF)


def parts(first: Ztensor, second: Ztensor) -> Iterator[tuple[Block, Codes, Codes]]:
    """Cut tensors of the same dimensions into blocks; yield each, and the cells of both."""
    shape = geometry(first.transformed_desc)
    left, right = first.sticks.view(np.uint16), second.sticks.view(np.uint16)
    for block in blocks_of(shape.dims, shape.pages):
        yield block, block.sticks(left), block.sticks(right)


def jitter(tensor: Ztensor, ulps: int, seed: int, sequence: int) -> None:
    """Move every number of a DLFLOAT16 tensor by up to `ulps` units in the last place.

    Zeros, signs and NINF stay; the same seed and sequence number give the same moves.
    """
    cells = _cells(tensor)
    dim1 = tensor.transformed_desc.dim1
    for e4, e3 in np.ndindex(cells.shape[0], cells.shape[2]):
        random = np.random.Generator(np.random.Philox(key=[seed, sequence], counter=[0, 0, e4, e3]))
        for column in range(cells.shape[1]):
            codes = cells[e4, column, e3, :, : dim1 - CELLS_PER_STICK * column]
            moves = random.integers(-ulps, ulps, codes.shape, np.int32, endpoint=True)
            magnitude = (codes & MAGNITUDE).astype(np.int32)
            moved = np.clip(magnitude + moves, 1, MAX).astype(np.uint16) | (codes & SIGN)
            fixed = (magnitude == 0) | (magnitude == NINF)
            codes[...] = np.where(fixed, codes, moved)
