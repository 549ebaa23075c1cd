# SPDX-License-Identifier: Apache-2.0
"""Chains of element-wise operations on DLFLOAT16 sticks, in one pass over them.

A block of cells is widened to FP32 once, goes through all links, each rounded as the machine rounds
its result, and is written once. A value that is on the line of codes is rounded in FP32 by its
bits, without the code in between. Only real cells are read and written, packed without the gaps
behind the last stick column. A NINF anywhere ends in False: then the links are run one by one.
Source: zDNN API Reference 1.2.0, zdnn_add, zdnn_relu, zdnn_batchnorm; z/Architecture VCRNF, VCLFNH.
"""

import numpy as np
import numpy.typing as npt

from nnpa_emulator.kernels.convert import (
    DROPPED_BITS,
    HALF_WORD,
    LINE_HIGH32,
    LINE_LOW32,
    MAGNITUDE32,
    SIGN16,
    Codes,
    as_bits,
    as_float,
    decode_bits,
)
from nnpa_emulator.kernels.elementwise import ADD, DIV, MIN, MUL, SUB
from nnpa_emulator.kernels.jit import implements, inlined, kernel
from nnpa_emulator.kernels.normalization import scaled
from nnpa_emulator.reference import chains as reference
from nnpa_emulator.reference.chains import LOAD, RELU, SCALE, SPLAT, STORE
from nnpa_emulator.reference.elementwise import Region
from nnpa_emulator.reference.layout import Singles

Links = npt.NDArray[np.int64]
Registers = npt.NDArray[np.float32]
Runs = npt.NDArray[np.uintp]
"""Runs of real cells that follow each other in memory: (first cell, how many)."""
Planes = tuple[int, int, int, int]
"""(first, the one behind the last, rows, real cells of a stick)."""

BLOCK = 4096
"""Cells of a block: 16 KiB in a register, so that those of a chain stay near."""
STICK = np.uintp(64)
STEP = 8
"""Codes that are copied at a time."""
HALF_UNIT32, KEPT32, SIGN32 = np.uint32(0x2000), np.uint32(0xFFFFC000), np.uint32(0x80000000)
FLIP32 = np.int32(0x7FFFFFFF)


@implements(reference.chain)
def chain(
    links: Links, sources: tuple[Codes, ...], out: Codes, second: Codes, numbers: Singles,
    channels: Singles, region: Region,
) -> bool:  # fmt: skip
    """Run links over all real cells of a region; False: a NINF was met, what was written is void.

    A row of `links` is (operation, register that it writes, first and second operand). The second
    of SCALE is the first of two rows of `channels`, of STORE 0 for `out` and 1 for `second`.
    """
    planes, per_column, columns, rows, last = region
    registers = np.empty((links.shape[0], BLOCK), np.float32)
    packed, runs = np.empty(BLOCK + STEP, np.uint16), np.empty((BLOCK, 2), np.uintp)
    widths = np.empty((channels.shape[0], BLOCK), np.float32)
    for number in range(links.shape[0]):
        if links[number, 0] == SPLAT:
            registers[links[number, 1]] = numbers[links[number, 2]]
    span = planes if columns == 1 else per_column  # planes of which as many cells are real
    for first in range(0, planes, span):
        column = first // per_column % columns
        real = last if column == columns - 1 else 64
        _spread(channels, widths, column, real)
        largest = _run_planes(
            links, registers, sources, out, second, numbers, widths, packed, runs,
            (first, first + span, rows, real),
        )  # fmt: skip
        if largest >= LINE_HIGH32:
            return False
    return True


@kernel
def _run_planes(
    links: Links, registers: Registers, sources: tuple[Codes, ...], out: Codes, second: Codes,
    numbers: Singles, widths: Registers, packed: Codes, runs: Runs, place: Planes,
) -> np.uint32:  # fmt: skip
    """Run all links over planes, block by block; return the largest magnitude, FP32 bits.

    Whole sticks of a plane follow each other in memory: they are one run.
    """
    first, end, rows, real = place
    size = (rows + 31) // 32 * 2048
    most, sticks, count = BLOCK // real, 0, 0
    largest = np.uint32(0)
    for plane in range(first, end):
        row = 0
        while row < rows and largest < LINE_HIGH32:
            length = min(rows - row, most - sticks) if real == 64 else 1
            runs[count, 0], runs[count, 1] = plane * size + row * 64, length * real
            row, sticks, count = row + length, sticks + length, count + 1
            if sticks == most or (row == rows and plane == end - 1):
                largest = _run_links(
                    links, registers, sources, out, second, numbers, widths, packed,
                    runs[:count], np.uintp(sticks * real),
                )  # fmt: skip
                sticks, count = 0, 0
    return largest


@kernel
def _run_links(
    links: Links, registers: Registers, sources: tuple[Codes, ...], out: Codes, second: Codes,
    numbers: Singles, widths: Registers, packed: Codes, runs: Runs, count: np.uintp,
) -> np.uint32:  # fmt: skip
    """Run all links over a block of cells; return the largest magnitude, FP32 bits."""
    largest = np.uint32(0)
    for number in range(links.shape[0]):
        if links[number, 0] == SPLAT:
            continue
        met = _run_link(
            links[number], registers, sources, out, second, numbers, widths, packed, runs, count
        )
        largest = np.uint32(max(largest, met))
    return largest


@kernel
def _spread(channels: Singles, widths: Registers, column: int, real: int) -> None:
    """Repeat the channels of a stick column for every stick of a block."""
    for number in range(channels.shape[0]):
        for first in range(0, BLOCK // real * real, real):
            for i in range(real):
                widths[number, first + i] = channels[number, column * 64 + i]


@kernel
def _run_link(
    link: Links, registers: Registers, sources: tuple[Codes, ...], out: Codes, second: Codes,
    numbers: Singles, widths: Registers, packed: Codes, runs: Runs, count: np.uintp,
) -> np.uint32:  # fmt: skip
    """Run a link over `count` cells in `runs`; return the largest magnitude."""
    operation, target, a, b = link[0], registers[link[1]], link[2], link[3]
    if operation == LOAD:
        return _load(sources[a], target, packed, runs, count)
    if operation == STORE:
        _store(registers[a], out if b == 0 else second, packed, runs, count)
        return np.uint32(0)
    if operation == RELU:
        _rectify(registers[a], target, np.float32(numbers[b]), count)
        return np.uint32(0)
    if operation == SCALE:
        return _scale(registers[a], widths[b], widths[b + 1], target, count)
    return _combine(operation, registers[a], registers[b], target, count)


@inlined
def _rounded(value: np.float32) -> np.uint32:
    """Round an FP32 result to the line of codes, as FP32 bits; see `convert.encode_result`."""
    bits = as_bits(value)
    magnitude = np.uint32(max(np.uint32(bits & MAGNITUDE32), LINE_LOW32))
    line = np.uint32(np.uint32(magnitude + HALF_UNIT32) & KEPT32)
    line = np.uint32(0) if line == LINE_LOW32 else line
    return np.uint32(line | np.uint32(bits & SIGN32))


@kernel
def _combine(operation: int, x: Singles, y: Singles, out: Singles, count: np.uintp) -> np.uint32:
    """Combine two registers as `elementwise.binary` combines tensors."""
    largest = np.uint32(0)
    if operation == ADD:
        for i in range(np.uintp(count)):
            bits = _rounded(np.float32(x[i] + y[i]))
            largest = np.uint32(max(largest, np.uint32(bits & MAGNITUDE32)))
            out[i] = as_float(bits)
    elif operation == SUB:
        for i in range(np.uintp(count)):
            bits = _rounded(np.float32(x[i] - y[i]))
            largest = np.uint32(max(largest, np.uint32(bits & MAGNITUDE32)))
            out[i] = as_float(bits)
    elif operation == MUL:
        for i in range(np.uintp(count)):
            bits = _rounded(np.float32(x[i] * y[i]))
            largest = np.uint32(max(largest, np.uint32(bits & MAGNITUDE32)))
            out[i] = as_float(bits)
    elif operation == DIV:
        for i in range(np.uintp(count)):
            bits = _rounded(np.float32(x[i] / y[i]))
            largest = np.uint32(max(largest, np.uint32(bits & MAGNITUDE32)))
            out[i] = as_float(bits)
    else:
        flip = np.int32(-1) if operation == MIN else np.int32(0)
        for i in range(np.uintp(count)):
            out[i] = _selected(x[i], y[i], flip)
    return largest


@inlined
def _selected(x: np.float32, y: np.float32, flip: np.int32) -> np.float32:
    """Return the greater of two values, or with `flip` -1 the lesser; -0 is less than +0."""
    a, b = np.int32(as_bits(x)), np.int32(as_bits(y))
    left = np.int32((a ^ (np.int32(a >> np.int32(31)) & FLIP32)) ^ flip)
    right = np.int32((b ^ (np.int32(b >> np.int32(31)) & FLIP32)) ^ flip)
    return x if left >= right else y


@kernel
def _rectify(x: Singles, out: Singles, limit: np.float32, count: np.uintp) -> None:
    """Take what is positive, at most `limit`, else +0."""
    for i in range(np.uintp(count)):
        value = limit if x[i] > limit else x[i]
        out[i] = value if value > 0 else np.float32(0)


@kernel
def _scale(
    x: Singles, factors: Singles, added: Singles, out: Singles, count: np.uintp
) -> np.uint32:
    """Multiply and add cell by cell, rounded once; see `normalization.scale`."""
    largest = np.uint32(0)
    for i in range(np.uintp(count)):
        bits = _rounded(scaled(x[i], factors[i], added[i]))
        largest = np.uint32(max(largest, np.uint32(bits & MAGNITUDE32)))
        out[i] = as_float(bits)
    return largest


@kernel
def _load(codes: Codes, out: Singles, packed: Codes, runs: Runs, count: np.uintp) -> np.uint32:
    """Widen the cells of runs into a register; the cells of short runs are packed before."""
    largest, place = np.uint32(0), np.uintp(0)
    if runs[0, 1] >= STICK:
        for run in range(runs.shape[0]):
            met = _widen(codes, runs[run, 0], out, place, runs[run, 1])
            largest, place = np.uint32(max(largest, met)), place + runs[run, 1]
        return largest
    for run in range(runs.shape[0]):
        source, real = runs[run, 0], runs[run, 1]
        for first in range(np.uintp(0), real, np.uintp(STEP)):
            for i in range(np.uintp(STEP)):
                packed[place + first + i] = codes[source + first + i]
        place += real
    return _widen(packed, np.uintp(0), out, np.uintp(0), count)


@kernel
def _widen(
    codes: Codes, start: np.uintp, out: Singles, place: np.uintp, count: np.uintp
) -> np.uint32:
    largest = np.uint32(0)
    for i in range(np.uintp(count)):
        bits = decode_bits(codes[start + i])
        largest = np.uint32(max(largest, np.uint32(bits & MAGNITUDE32)))
        out[place + i] = as_float(bits)
    return largest


@kernel
def _store(x: Singles, codes: Codes, packed: Codes, runs: Runs, count: np.uintp) -> None:
    """Write a register, whose values are on the line of codes, to the cells of runs."""
    place = np.uintp(0)
    if runs[0, 1] >= STICK:
        for run in range(runs.shape[0]):
            _narrow(x, place, codes, runs[run, 0], runs[run, 1])
            place += runs[run, 1]
        return
    _narrow(x, np.uintp(0), packed, np.uintp(0), count)
    for run in range(runs.shape[0]):
        target, real = runs[run, 0], runs[run, 1]
        for i in range(real):
            codes[target + i] = packed[place + i]
        place += real


@kernel
def _narrow(x: Singles, place: np.uintp, codes: Codes, start: np.uintp, count: np.uintp) -> None:
    for i in range(np.uintp(count)):
        bits = as_bits(x[place + i])
        magnitude = np.uint32(bits & MAGNITUDE32)
        code = np.uint32(np.uint32(max(magnitude, LINE_LOW32) - LINE_LOW32) >> DROPPED_BITS)
        codes[start + i] = np.uint16(code | (np.uint32(bits >> HALF_WORD) & SIGN16))
