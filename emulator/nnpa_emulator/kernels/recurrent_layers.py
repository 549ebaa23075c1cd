# SPDX-License-Identifier: Apache-2.0
"""Layers of LSTM and GRU through a whole sequence.

A panel has the gates of `UNITS` hidden units side by side, for each row of a matrix of weights: a
tile of sums holds all that a cell needs, and is rounded and used while it is in the first-level
cache. Behind the last hidden unit a panel is zero. The input's contribution to the gates is kept as
codes, timestep by timestep, panel by panel, row by row; so are states, except the multiplied h,
which has dense rows.
The machine sums the columns between the gates, too; only a violation of the range would show. They
are left out if the largest numbers in them and beside them cannot add up to a violation.
Sources: zDNN API Reference 1.2.0, zdnn_lstm and zdnn_gru; rounding points are the zDNN library's.
"""

import numpy as np

from nnpa_emulator.kernels.convert import (
    LINE_HIGH32,
    LINE_LOW32,
    MAGNITUDE16,
    MAGNITUDE32,
    Codes,
    Words,
    as_bits,
    decode,
    decode_bits,
    decode_run,
    encode_result,
)
from nnpa_emulator.kernels.jit import implements, inlined, kernel
from nnpa_emulator.kernels.matmul_blocks import clear_padding
from nnpa_emulator.kernels.recurrent import encode_double, gru_cell, lstm_cell
from nnpa_emulator.kernels.tiles import ROWS, accumulate
from nnpa_emulator.reference import recurrent_layers as reference
from nnpa_emulator.reference.layout import NINF, Bytes, Singles
from nnpa_emulator.reference.recurrent_layers import (
    COMPLETED,
    GATES_VIOLATED,
    HARMLESS,
    LSTM,
    PADDED,
    STATES_VIOLATED,
    UNITS,
    Shape,
    Target,
)

LEFT = 1 << 17
"""Most elements of input that are widened at once: 512 KiB."""
HALF_UNIT, KEPT = np.uint32(0x2000), np.uint32(0xFFFFC000)
"""FP32 bits of half a unit of a DLFLOAT16 number, and those that the number keeps."""
BEYOND = LINE_HIGH32
"""FP32 bits of the first magnitude that is NINF."""
SIGN32 = np.uint32(0x80000000)
TILE = ROWS * 64
"""Most sums of a tile."""


@implements(reference.gate_panels)
def gate_panels(
    buffer: Bytes, panels: Words, start: int, rows: int, hidden: int, gates: int
) -> np.float32:
    """Widen weights or biases from index `start` on; return the largest magnitude between gates."""
    sticks, largest = buffer.view(np.uint16), np.uint16(0)
    column, across = (rows + 31) // 32 * 2048, (hidden + 63) // 64
    target = np.uintp(start)
    for unit in range(0, hidden, UNITS):
        real = np.uintp(min(UNITS, hidden - unit))
        for row in range(rows):
            for gate in range(gates):
                cell = (gate * across + unit // 64) * column + row * 64 + unit % 64
                decode_run(sticks, np.uintp(cell), panels, target, real)
                for i in range(real, np.uintp(UNITS)):
                    panels[target + i] = 0
                target += np.uintp(UNITS)
    for gate in range(gates if hidden % 64 else 0):
        last = (gate * across + across - 1) * column
        for row in range(rows):
            for i in range(np.uintp(last + row * 64 + hidden % 64), np.uintp(last + row * 64 + 64)):
                largest = np.uint16(max(largest, np.uint16(sticks[i] & MAGNITUDE16)))
    return decode(largest)


@kernel
def _is_harmless(count: int, left: np.float32, right: np.float32, bias: np.float32) -> bool:
    """Tell whether `count` products of such magnitudes and a bias stay in range; NINF does not."""
    return bool(np.float64(count) * left * right + bias < HARMLESS)


@inlined
def _widen_rows(
    sticks: Codes, words: Words, start: int, stride: int, first: int, count: int, batch: int,
    columns: int,
) -> np.uint16:  # fmt: skip
    """Widen rows of all timesteps, counted through, to dense rows that are `stride` apart.

    Returns the largest magnitude.
    """
    largest = np.uint16(0)
    column = (batch + 31) // 32 * 2048
    for k in range((columns + 63) // 64):
        real = np.uintp(min(64, columns - 64 * k))
        for row in range(first, first + count):
            stack = row // batch * ((columns + 63) // 64)
            cell = np.uintp((stack + k) * column + row % batch * 64)
            target = np.uintp(start + (row - first) * stride + 64 * k)
            largest = np.uint16(max(largest, decode_run(sticks, cell, words, target, real)))
    return largest


@implements(reference.fuse)
def fuse(
    source: Bytes, panels: Singles, biases: Bytes, fused: Codes, shape: Shape, work: Singles
) -> int:
    """Compute the codes of input * weights + biases of all timesteps; tell how it ended.

    The last element of `panels` is the largest magnitude between gates. `work` has room for `LEFT`
    elements, a tile of sums, and the biases in whole panels.
    """
    timesteps, batch, features, hidden, gates = shape
    largest = np.uint16(0)
    width, stride = gates * UNITS, (features + 15) // 16 * 16 + 16
    units = (hidden + UNITS - 1) // UNITS
    most = max(LEFT // stride, 1)
    cells, words = source.view(np.uint16), work.view(np.uint32)
    between, high = gate_panels(biases, words, LEFT + TILE, 1, hidden, gates), np.uint16(0)
    for first in range(0, timesteps * batch, most):
        count = min(most, timesteps * batch - first)
        widest = _widen_rows(cells, words, 0, stride, first, count, batch, features)
        high = np.uint16(max(high, widest))
        tiles = (count + ROWS - 1) // ROWS
        for unit in range(units):
            for tile in range(tiles):
                top, bottom = tile * count // tiles, (tile + 1) * count // tiles
                accumulate(
                    work, LEFT, work, top * stride, stride, panels, unit * features * width, width,
                    width, features, bottom - top, True,
                )  # fmt: skip
                for row in range(bottom - top):
                    item = np.uintp(LEFT + row * width)
                    timestep, place = divmod(first + top + row, batch)
                    target = np.uintp(((timestep * units + unit) * batch + place) * width)
                    bias = np.uintp(LEFT + TILE + unit * width)
                    for i in range(np.uintp(width)):
                        code = encode_result(np.float32(work[item + i] + work[bias + i]))
                        largest = np.uint16(max(largest, np.uint16(code & MAGNITUDE16)))
                        fused[target + i] = code
    if largest == NINF:
        return GATES_VIOLATED
    harmless = _is_harmless(features, decode(high), panels[panels.size - 1], between)
    return COMPLETED if harmless else PADDED


@inlined
def _round_row(
    sums: Singles, words: Words, item: np.uintp, bias: np.uintp, width: int
) -> np.uint32:
    """Add biases to the sums of a row and round them in place; return the largest magnitude.

    `words` are the bits of `sums`. Magnitudes of `BEYOND` and above are NINF, and not rounded.
    """
    largest = np.uint32(0)
    for i in range(np.uintp(width)):
        bits = as_bits(np.float32(sums[item + i] + sums[bias + i]))
        magnitude = np.uint32(bits & MAGNITUDE32)
        rounded = np.uint32(np.uint32(magnitude + HALF_UNIT) & KEPT)
        largest = np.uint32(max(largest, rounded))
        rounded = np.uint32(0) if rounded <= LINE_LOW32 else rounded
        words[item + i] = np.uint32(rounded | np.uint32(bits & SIGN32))
    return largest


@inlined
def _lstm_row(
    fused: Codes, x: np.uintp, sums: Singles, y: np.uintp, states: Singles, c: np.uintp,
    new: Codes, h_new: np.uintp, c_new: np.uintp,
) -> None:  # fmt: skip
    """Compute the codes of h and c of the units of a panel; gates F, I, C, O."""
    second, third, fourth = np.uintp(UNITS), np.uintp(2 * UNITS), np.uintp(3 * UNITS)
    for i in range(np.uintp(UNITS)):
        u, v = x + i, y + i
        cell, out = lstm_cell(
            np.float64(decode(fused[u])) + sums[v],
            np.float64(decode(fused[u + second])) + sums[v + second],
            np.float64(decode(fused[u + third])) + sums[v + third],
            np.float64(decode(fused[u + fourth])) + sums[v + fourth],
            np.float64(states[c + i]),
        )
        new[c_new + i], new[h_new + i] = encode_double(cell), encode_double(out)


@inlined
def _gru_row(
    fused: Codes, x: np.uintp, sums: Singles, y: np.uintp, states: Singles, h: np.uintp,
    new: Codes, h_new: np.uintp,
) -> None:  # fmt: skip
    """Compute the codes of h of the units of a panel; gates Z, R, H."""
    second, third = np.uintp(UNITS), np.uintp(2 * UNITS)
    for i in range(np.uintp(UNITS)):
        u, v = x + i, y + i
        out = gru_cell(
            np.float64(decode(fused[u])) + sums[v],
            np.float64(decode(fused[u + second])) + sums[v + second],
            np.float64(decode(fused[u + third])),
            np.float64(sums[v + third]),
            np.float64(states[h + i]),
        )
        new[h_new + i] = encode_double(out)


@inlined
def _take_rows(new: Codes, states: Words, first: int, stride: int, batch: int, hidden: int) -> None:
    """Widen new states in panels to dense rows."""
    for unit in range((hidden + UNITS - 1) // UNITS):
        for row in range(batch):
            source = np.uintp((unit * batch + row) * UNITS)
            target = np.uintp(first + row * stride + unit * UNITS)
            for i in range(np.uintp(UNITS)):
                states[target + i] = decode_bits(new[source + i])


@inlined
def _largest(codes: Codes, count: int) -> np.uint16:
    """Return the largest magnitude of the first codes."""
    largest = np.uint16(0)
    for i in range(np.uintp(count)):
        largest = np.uint16(max(largest, np.uint16(codes[i] & MAGNITUDE16)))
    return largest


@kernel
def _store(new: Codes, start: int, cells: Codes, first: int, batch: int, hidden: int) -> None:
    """Copy codes of states in panels into an output, from stick column `first` on."""
    column = (batch + 31) // 32 * 2048
    for unit in range((hidden + UNITS - 1) // UNITS):
        corner = (first + unit // 4) * column + unit % 4 * UNITS
        real = min(UNITS, hidden - unit * UNITS)
        for row in range(batch):
            source = np.uintp(start + (unit * batch + row) * UNITS)
            cell = np.uintp(corner + row * 64)
            for i in range(np.uintp(real)):
                cells[cell + i] = new[source + i]


@inlined
def _clear_half(cells: Codes, timesteps: int, target: Target, batch: int, hidden: int) -> None:
    """Zero the cells behind the rows and the columns of one half of all timesteps."""
    column = (batch + 31) // 32 * 2048
    place = target[3] * column, target[2] * column, column, timesteps
    clear_padding(cells, place, batch, hidden)


@inlined
def _read_rows(
    buffer: Bytes, states: Words, start: int, stride: int, batch: int, hidden: int
) -> np.float32:
    """Widen a state to dense rows; return the largest magnitude."""
    cells = buffer.view(np.uint16)
    return decode(_widen_rows(cells, states, start, stride, 0, batch, batch, hidden))


@inlined
def _read_panels(buffer: Bytes, states: Words, start: int, batch: int, hidden: int) -> np.float32:
    """Widen a state to panels, zero behind the last unit; return the largest magnitude."""
    cells, largest = buffer.view(np.uint16), np.uint16(0)
    column = (batch + 31) // 32 * 2048
    for unit in range((hidden + UNITS - 1) // UNITS):
        corner = unit // 4 * column + unit % 4 * UNITS
        real = np.uintp(min(UNITS, hidden - unit * UNITS))
        for row in range(batch):
            target = np.uintp(start + (unit * batch + row) * UNITS)
            high = decode_run(cells, np.uintp(corner + row * 64), states, target, real)
            largest = np.uint16(max(largest, high))
            for i in range(real, np.uintp(UNITS)):
                states[target + i] = 0
    return decode(largest)


@inlined
def _step_rows(
    fused: Codes, first: int, work: Singles, count: int, state: int, shape: Shape, new: Codes,
    place: int,
) -> None:  # fmt: skip
    """Compute the new states of the units of a panel for the rows of a tile.

    The codes of the gates begin at `first`, states in `work` at `state`, new ones at `place`.
    """
    width, behind = shape[4] * UNITS, shape[1] * ((shape[3] + UNITS - 1) // UNITS) * UNITS
    for row in range(count):
        x, y = np.uintp(first + row * width), np.uintp(row * width)
        old, h_new = np.uintp(state + row * UNITS), np.uintp(place + row * UNITS)
        if shape[4] == LSTM:
            _lstm_row(fused, x, work, y, work, old, new, h_new, h_new + np.uintp(behind))
        else:
            _gru_row(fused, x, work, y, work, old, new, h_new)


@implements(reference.run_layer, contracted=True)
def run_layer(
    fused: Codes, panels: Singles, biases: Bytes, h0: Bytes, c0: Bytes, h_output: Bytes,
    c_output: Bytes, shape: Shape, target: Target, backward: bool, probing: bool, work: Singles,
    new: Codes,
) -> int:  # fmt: skip
    """Take the states through the sequence and store them; tell how it ended.

    `fused` is the input's contribution, `panels` as for `fuse`; `probing` ends after the first
    product, before c0 is read or anything is stored. Without a place for every timestep LSTM
    overwrites h in each, GRU stores the last; c is stored once. For GRU, c0 is h0 and c_output any
    buffer. `work` has room for a tile of sums, the biases in whole panels, and two states, one with
    16 elements behind each row; `new` for two states in whole panels.
    """
    timesteps, batch, _features, hidden, gates = shape
    width, units = gates * UNITS, (hidden + UNITS - 1) // UNITS
    size, stride, tiles = batch * units * UNITS, units * UNITS + 16, (batch + ROWS - 1) // ROWS
    states, h = TILE + units * width, TILE + units * width + size
    h_cells, c_cells = h_output.view(np.uint16), c_output.view(np.uint16)
    words = work.view(np.uint32)
    between = gate_panels(biases, words, TILE, 1, hidden, gates)
    # No later h is larger than 1 and than h0.
    largest_h = max(_read_rows(h0, words, h, stride, batch, hidden), np.float32(1))
    if not _is_harmless(hidden, largest_h, panels[panels.size - 1], between):
        return PADDED
    if not probing:
        _read_panels(c0, words, states, batch, hidden)
    for step in range(timesteps):
        timestep = timesteps - 1 - step if backward else step
        largest = np.uint32(0)
        for unit in range(units):
            for tile in range(tiles):
                top, bottom = tile * batch // tiles, (tile + 1) * batch // tiles
                accumulate(
                    work, 0, work, h + top * stride, stride, panels, unit * hidden * width, width,
                    width, hidden, bottom - top, True,
                )  # fmt: skip
                bias = np.uintp(TILE + unit * width)
                for row in range(bottom - top):
                    top_bits = _round_row(work, words, np.uintp(row * width), bias, width)
                    largest = np.uint32(max(largest, top_bits))
                if not probing:
                    first = ((timestep * units + unit) * batch + top) * width
                    place = (unit * batch + top) * UNITS
                    _step_rows(fused, first, work, bottom - top, states + place, shape, new, place)
        if largest >= BEYOND:
            return GATES_VIOLATED
        if probing:
            break
        if step == 0:
            _clear_half(h_cells, target[0], target, batch, hidden)
            if gates == LSTM:
                _clear_half(c_cells, target[1], target, batch, hidden)
        every, last = target[0] == timesteps, step == timesteps - 1
        if every or last or gates == LSTM:
            stack = timestep * target[2] if every else 0
            _store(new, 0, h_cells, stack + target[3], batch, hidden)
        if last and gates == LSTM:
            _store(new, size, c_cells, target[3], batch, hidden)
        _take_rows(new, words, h, stride, batch, hidden)
        kept = np.uintp(size if gates == LSTM else 0)
        decode_run(new, kept, words, np.uintp(states), np.uintp(size))
        if _largest(new, 2 * size if gates == LSTM else size) == NINF:
            return STATES_VIOLATED
    return COMPLETED
