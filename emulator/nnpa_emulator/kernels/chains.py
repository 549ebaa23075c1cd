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

Links = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]
Registers = npt.NDArray[np.float32]
Region = tuple[int, int, int, int, int]

BLOCK = 2048
"""Cells of a block: 8 KiB in a register, so that those of a chain stay near."""
STEP = 8
"""Codes that are copied at a time."""
HALF_UNIT32, KEPT32, SIGN32 = np.uint32(0x2000), np.uint32(0xFFFFC000), np.uint32(0x80000000)
FLIP32 = np.int32(0x7FFFFFFF)


@implements(reference.chain)
def chain(
    links: Links, sources: tuple[Codes, ...], out: Codes, other: Codes, numbers: Singles,
    channels: Singles, region: Region,
) -> bool:  # fmt: skip
    """Run links over all real cells of a region; False: a NINF was met, what was written is void.

    A row of `links` is (operation, register that it writes, first and second operand). The second
    of SCALE is the first of two rows of `channels`, of STORE 0 for `out` and 1 for `other`.
    """
    planes, per_column, columns, rows, last = region
    registers = np.empty((links.shape[0], BLOCK), np.float32)
    packed = np.empty(BLOCK + STEP, np.uint16)
    widths = np.empty((channels.shape[0], BLOCK), np.float32)
    for number in range(links.shape[0]):
        if links[number, 0] == SPLAT:
            registers[links[number, 1]] = numbers[links[number, 2]]
    largest, filled = np.uint32(0), -1
    size = (rows + 31) // 32 * 2048
    for plane in range(planes):
        column = plane // per_column % columns
        real = last if column == columns - 1 else 64
        if column != filled:
            _spread(channels, widths, column, real)
            filled = column
        most = BLOCK // real
        for row in range(0, rows, most):
            sticks, at = min(most, rows - row), plane * size + row * 64
            for number in range(links.shape[0]):
                link = links[number]
                met = _run_link(
                    link, registers, sources, out, other, numbers, widths, packed, at, sticks, real
                )
                largest = np.uint32(max(largest, met))
            if largest >= LINE_HIGH32:
                return False
    return True


@kernel
def _spread(channels: Singles, widths: Registers, column: int, real: int) -> None:
    """Repeat the channels of a stick column for every stick of a block."""
    for number in range(channels.shape[0]):
        for first in range(0, BLOCK // real * real, real):
            for i in range(real):
                widths[number, first + i] = channels[number, column * 64 + i]


@kernel
def _run_link(
    link: Links, registers: Registers, sources: tuple[Codes, ...], out: Codes, other: Codes,
    numbers: Singles, widths: Registers, packed: Codes, at: int, sticks: int, real: int,
) -> np.uint32:  # fmt: skip
    """Run a link over a block of whole sticks; return the largest magnitude, FP32 bits."""
    operation, target, a, b = link[0], registers[link[1]], link[2], link[3]
    count = np.uintp(sticks * real)
    if operation == LOAD:
        return _load(sources[a], target, packed, at, sticks, real)
    if operation == STORE:
        _store(registers[a], out if b == 0 else other, packed, at, sticks, real)
        return np.uint32(0)
    if operation == RELU:
        _rectify(registers[a], target, numbers[b], count)
        return np.uint32(0)
    if operation == SCALE:
        return _scale(registers[a], widths[b], widths[b + 1], target, count)
    if operation == SPLAT:
        return np.uint32(0)
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
def _load(codes: Codes, out: Singles, packed: Codes, at: int, sticks: int, real: int) -> np.uint32:
    """Widen the real cells of sticks into a register."""
    if real == 64:
        return _widen(codes, np.uintp(at), out, np.uintp(sticks * 64))
    for stick in range(sticks):
        for first in range(0, real, STEP):
            source, place = np.uintp(at + stick * 64 + first), np.uintp(stick * real + first)
            for i in range(np.uintp(STEP)):
                packed[place + i] = codes[source + i]
    return _widen(packed, np.uintp(0), out, np.uintp(sticks * real))


@kernel
def _widen(codes: Codes, start: np.uintp, out: Singles, count: np.uintp) -> np.uint32:
    largest = np.uint32(0)
    for i in range(np.uintp(count)):
        bits = decode_bits(codes[start + i])
        largest = np.uint32(max(largest, np.uint32(bits & MAGNITUDE32)))
        out[i] = as_float(bits)
    return largest


@kernel
def _store(x: Singles, codes: Codes, packed: Codes, at: int, sticks: int, real: int) -> None:
    """Write a register, whose values are on the line of codes, to the real cells of sticks."""
    if real == 64:
        _narrow(x, codes, np.uintp(at), np.uintp(sticks * 64))
        return
    _narrow(x, packed, np.uintp(0), np.uintp(sticks * real))
    for stick in range(sticks):
        place, target = np.uintp(stick * real), np.uintp(at + stick * 64)
        for i in range(np.uintp(real)):
            codes[target + i] = packed[place + i]


@kernel
def _narrow(x: Singles, codes: Codes, start: np.uintp, count: np.uintp) -> None:
    for i in range(np.uintp(count)):
        bits = as_bits(x[i])
        magnitude = np.uint32(bits & MAGNITUDE32)
        code = np.uint32(np.uint32(max(magnitude, LINE_LOW32) - LINE_LOW32) >> DROPPED_BITS)
        codes[start + i] = np.uint16(code | (np.uint32(bits >> HALF_WORD) & SIGN16))
