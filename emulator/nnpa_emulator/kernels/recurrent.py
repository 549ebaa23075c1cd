# SPDX-License-Identifier: Apache-2.0
"""Steps of recurrent layers: gates are rounded to DLFLOAT16, values inside of a cell are not.

Dense rows hold the gates one after the other, each as wide as whole sticks. Inside a cell
everything is double precision; sigmoid and tanh come from exponentials with a relative error below
1e-11, quotients are joined where that saves a division. Cell state and hidden state are rounded.
Source: zDNN API Reference 1.2.0, zdnn_lstm and zdnn_gru; rounding points are the zDNN library's.
"""

import numpy as np

from nnpa_emulator.kernels.convert import DROPPED_BITS64 as DROPPED
from nnpa_emulator.kernels.convert import (
    HALF_UNIT64,
    INFINITY64,
    LINE_HIGH64,
    LINE_LOW64,
    LINE_START64,
    MAGNITUDE16,
    MAGNITUDE64,
    Codes,
    decode,
    encode_result,
)
from nnpa_emulator.kernels.jit import implements, inlined
from nnpa_emulator.reference import recurrent as reference
from nnpa_emulator.reference.layout import Doubles, Singles
from nnpa_emulator.reference.recurrent import Corner, Sizes

SIGN64, TO_SIGN16 = np.uint64(0x8000), np.uint64(48)
LOG2_E = 1.4426950408889634
# Adding 1.5 * 2**52 leaves the nearest integer in the low bits of the significand.
ROUNDER = 6755399441055744.0
# Products of two exponentials stay finite; what is beyond rounds to the same code.
MAX_EXPONENT = 350.0
FRACTION_BITS = np.int64(52)
# (2**f - 1) / f by powers of f; exact at the eight Chebyshev nodes of -1/2 to 1/2, its relative
# error is below 6e-12, that of 2**f below 3e-12.
Q0, Q1 = float.fromhex("0x1.62e42fef9cc69p-1"), float.fromhex("0x1.ebfbdff82a734p-3")
Q2, Q3 = float.fromhex("0x1.c6b08da70cce3p-5"), float.fromhex("0x1.3b2ab70ad2568p-7")
Q4, Q5 = float.fromhex("0x1.5d8775983509fp-10"), float.fromhex("0x1.4308c7183d394p-13")
Q6, Q7 = float.fromhex("0x1.00c0e4e154772p-16"), float.fromhex("0x1.63b2d79741c48p-20")


@inlined
def _exp(value: float, factor: float) -> float:
    """Return e to `factor` times a value that is held between -350 and 350; factor is -1 or -2.

    Powers are added in pairs (G. Estrin, "Organization of Computer Systems: the Fixed Plus Variable
    Structure Computer", 1960), as the chain of operations is what takes the time.
    """
    scale = factor * LOG2_E
    held = min(max(value, MAX_EXPONENT / factor), -MAX_EXPONENT / factor)
    shifted = held * scale + ROUNDER
    f = held * scale - (shifted - ROUNDER)
    square = f * f
    low = (Q0 + f * Q1) + square * (Q2 + f * Q3)
    high = (Q4 + f * Q5) + square * (Q6 + f * Q7)
    series = np.float64(1.0 + f * (low + square * square * high)).view(np.int64)
    power = np.int64(np.float64(shifted).view(np.int64) << FRACTION_BITS)
    result: float = np.int64(series + power).view(np.float64)
    return result


@inlined
def encode_double(value: float) -> np.uint16:
    """Round a double to a code: overflow keeps its sign, NaN is 7FFF."""
    bits = np.float64(value).view(np.uint64)
    magnitude = np.uint64(bits & MAGNITUDE64)
    clamped = np.uint64(min(max(magnitude, LINE_LOW64), LINE_HIGH64))
    code = np.uint64((clamped + HALF_UNIT64) >> DROPPED) - LINE_START64
    sign = np.uint64(bits >> TO_SIGN16) & SIGN64
    return np.uint16(code | (np.uint64(0) if magnitude >= INFINITY64 else sign))


@implements(reference.round_sums)
def round_sums(sums: Singles, bias: Singles) -> np.uint16:
    """Add a bias to rows of FP32 sums and round them in place to DLFLOAT16 values.

    Returns the largest magnitude of the codes.
    """
    largest = np.uint16(0)
    width = np.uintp(bias.size)
    for row in range(np.uintp(sums.size // bias.size)):
        start = row * width
        for i in range(width):
            code = encode_result(np.float32(sums[start + i] + bias[i]))
            largest = np.uint16(max(largest, np.uint16(code & MAGNITUDE16)))
            sums[start + i] = decode(code)
    return largest


@implements(reference.round_doubles)
def round_doubles(sums: Doubles, bias: Singles, rounded: Singles) -> np.uint16:
    """Add a bias to rows of float64 sums and round to DLFLOAT16 values; return the largest code."""
    largest = np.uint16(0)
    width = np.uintp(bias.size)
    for row in range(np.uintp(sums.size // bias.size)):
        start = row * width
        for i in range(width):
            code = encode_double(sums[start + i] + bias[i])
            largest = np.uint16(max(largest, np.uint16(code & MAGNITUDE16)))
            rounded[start + i] = decode(code)
    return largest


@inlined
def lstm_cell(f: float, i: float, g: float, o: float, c: float) -> tuple[float, float]:
    """Return the new cell state and the hidden state of sums of gates and a cell state."""
    ef, ei, eg, eo = _exp(f, -1.0), _exp(i, -1.0), _exp(g, -2.0), _exp(o, -1.0)
    cell = c / (1.0 + ef) + (1.0 - eg) / ((1.0 + ei) * (1.0 + eg))
    ec = _exp(cell, -2.0)
    # The last factor is 1, or NaN for a cell that is NaN.
    return cell, (1.0 - ec) / ((1.0 + eo) * (1.0 + ec)) * (1.0 + (cell - cell))


@inlined
def gru_cell(z: float, r: float, x: float, y: float, h: float) -> float:
    """Return the new hidden state of gates Z and R, both parts of gate H, and a hidden state."""
    ez, er = _exp(z, -1.0), _exp(r, -1.0)
    en = _exp(x + y / (1.0 + er), -2.0)
    return (ez * ((1.0 - en) / (1.0 + en)) + h) / (1.0 + ez)


@implements(reference.lstm_step, contracted=True)
def lstm_step(
    fused: Singles, added: Singles, h: Singles, c: Singles, sizes: Sizes,
    h_cells: Codes, h_place: Corner, c_cells: Codes, c_place: Corner,
) -> np.uint16:  # fmt: skip
    """Update h and c, gates F, I, C, O in each row, and store h, and c where it has a place.

    A place that begins below 0 is none. Returns the largest magnitude of the new codes.
    """
    largest = np.uint16(0)
    rows, hidden = np.uintp(sizes[0]), np.uintp(sizes[1])
    wide, wide_added = np.uintp(sizes[2]), np.uintp(sizes[3])
    for row in range(rows):
        gates, gates_added = row * wide * np.uintp(4), row * wide_added * np.uintp(4)
        for k in range(np.uintp((sizes[1] + 63) // 64)):
            first = np.uintp(64) * k
            x, y, at = gates + first, gates_added + first, row * hidden + first
            h_stick = np.uintp(h_place[0] + int(k) * h_place[1] + int(row) * 64)
            c_stick = np.uintp(c_place[0] + int(k) * c_place[1] + int(row) * 64)
            real = min(np.uintp(64), hidden - first)
            for i in range(real):
                u, v = x + wide + i, y + wide_added + i
                g, n = u + wide, v + wide_added
                o, p = g + wide, n + wide_added
                cell, out = lstm_cell(
                    np.float64(fused[x + i]) + added[y + i], np.float64(fused[u]) + added[v],
                    np.float64(fused[g]) + added[n], np.float64(fused[o]) + added[p], c[at + i],
                )  # fmt: skip
                c_code, h_code = encode_double(cell), encode_double(out)
                top = max(np.uint16(c_code & MAGNITUDE16), np.uint16(h_code & MAGNITUDE16))
                largest = np.uint16(max(largest, np.uint16(top)))
                c[at + i], h[at + i] = decode(c_code), decode(h_code)
            if h_place[0] >= 0:
                for i in range(real):
                    h_cells[h_stick + i] = encode_result(h[at + i])
            if c_place[0] >= 0:
                for i in range(real):
                    c_cells[c_stick + i] = encode_result(c[at + i])
    return largest


@implements(reference.gru_step, contracted=True)
def gru_step(
    fused: Singles, added: Singles, h: Singles, sizes: Sizes, h_cells: Codes, h_place: Corner
) -> np.uint16:
    """Update h, gates Z, R, H in each row, and store it where it has a place; see `lstm_step`."""
    largest = np.uint16(0)
    rows, hidden = np.uintp(sizes[0]), np.uintp(sizes[1])
    wide, wide_added = np.uintp(sizes[2]), np.uintp(sizes[3])
    for row in range(rows):
        gates, gates_added = row * wide * np.uintp(3), row * wide_added * np.uintp(3)
        for k in range(np.uintp((sizes[1] + 63) // 64)):
            first = np.uintp(64) * k
            x, y, at = gates + first, gates_added + first, row * hidden + first
            h_stick = np.uintp(h_place[0] + int(k) * h_place[1] + int(row) * 64)
            real = min(np.uintp(64), hidden - first)
            for i in range(real):
                u, v = x + wide + i, y + wide_added + i
                g, n = u + wide, v + wide_added
                state = gru_cell(
                    np.float64(fused[x + i]) + added[y + i], np.float64(fused[u]) + added[v],
                    np.float64(fused[g]), np.float64(added[n]), np.float64(h[at + i]),
                )  # fmt: skip
                code = encode_double(state)
                largest = np.uint16(max(largest, np.uint16(code & MAGNITUDE16)))
                h[at + i] = decode(code)
            if h_place[0] >= 0:
                for i in range(real):
                    h_cells[h_stick + i] = encode_result(h[at + i])
    return largest
