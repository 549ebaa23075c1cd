# SPDX-License-Identifier: Apache-2.0
"""Cells of LSTM and GRU, and their steps: gates are rounded to DLFLOAT16, cells are not inside.

Inside a cell everything is double precision. Cell state and hidden state are rounded.
Source: zDNN API Reference 1.2.0, zdnn_lstm and zdnn_gru; rounding points are the zDNN library's.
"""

from typing import TypeAlias

import numpy as np

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import NINF, Codes, Doubles, Singles, write_block

Sizes: TypeAlias = tuple[int, int, int, int]
"""Rows, hidden size, columns of a gate in a row of fused and of added gates."""
Corner: TypeAlias = tuple[int, int]
"""(cell of the first element, cells per stick column) of one matrix in a buffer; below 0 none."""

MAX_EXPONENT = 350.0


def encode_double(values: Doubles) -> Codes:
    """Round float64 values to codes; NaN and infinity are 7FFF."""
    return np.where(np.isfinite(values), dlfloat.from_fp64(values), NINF)


def _exp(values: Doubles) -> Doubles:
    """Return e to a power; beyond the limits, results round to the same codes."""
    return np.exp(np.clip(values, -MAX_EXPONENT, MAX_EXPONENT))


def sigmoid(values: Doubles) -> Doubles:
    """Return 1 / (1 + e^-x)."""
    return 1 / (1 + _exp(-values))


def tanh(values: Doubles) -> Doubles:
    """Return (1 - e^-2x) / (1 + e^-2x)."""
    power = _exp(-2 * values)
    return (1 - power) / (1 + power)


def lstm_cell(gates: Doubles, c: Doubles) -> tuple[Doubles, Doubles]:
    """Return the new cell state and the hidden state of gates F, I, C, O and a cell state."""
    f, i, g, o = gates
    cell = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return cell, sigmoid(o) * tanh(cell)


def gru_cell(x: Doubles, y: Doubles, h: Doubles) -> Doubles:
    """Return the new hidden state; gates Z, R, H of the input and of the hidden state, which is h.

    R scales what the hidden state contributes to H.
    """
    z, r = sigmoid(x[0] + y[0]), sigmoid(x[1] + y[1])
    return (1 - z) * tanh(x[2] + r * y[2]) + z * h


def round_sums(sums: Singles, bias: Singles) -> np.uint16:
    """Add a bias to rows of FP32 sums and round them in place; return the largest magnitude."""
    codes = dlfloat.result_from_fp32(sums.reshape(-1, bias.size) + bias)
    sums[:] = dlfloat.to_fp32(codes).ravel()
    return dlfloat.largest(codes)


def round_doubles(sums: Doubles, bias: Singles, rounded: Singles) -> np.uint16:
    """Add a bias to rows of float64 sums and round them; return the largest magnitude."""
    codes = encode_double(sums.reshape(-1, bias.size) + bias)
    rounded[:] = dlfloat.to_fp32(codes).ravel()
    return dlfloat.largest(codes)


def lstm_step(
    fused: Singles, added: Singles, h: Singles, c: Singles, sizes: Sizes,
    h_cells: Codes, h_place: Corner, c_cells: Codes, c_place: Corner,
) -> np.uint16:  # fmt: skip
    """Update h and c, gates F, I, C, O in each row, and store each where it has a place.

    Returns the largest magnitude of the new codes.
    """
    x, y = _gates(fused, sizes, sizes[2], 4), _gates(added, sizes, sizes[3], 4)
    with np.errstate(all="ignore"):
        cell, out = lstm_cell(x + y, c.reshape(sizes[:2]).astype(np.float64))
    c_codes, h_codes = encode_double(cell), encode_double(out)
    c[:], h[:] = dlfloat.to_fp32(c_codes).ravel(), dlfloat.to_fp32(h_codes).ravel()
    _store(h_codes, h_cells, h_place)
    _store(c_codes, c_cells, c_place)
    return max(dlfloat.largest(c_codes), dlfloat.largest(h_codes))


def gru_step(
    fused: Singles, added: Singles, h: Singles, sizes: Sizes, h_cells: Codes, h_place: Corner
) -> np.uint16:
    """Update h, gates Z, R, H in each row, and store it where it has a place; see `lstm_step`."""
    x, y = _gates(fused, sizes, sizes[2], 3), _gates(added, sizes, sizes[3], 3)
    with np.errstate(all="ignore"):
        state = gru_cell(x, y, h.reshape(sizes[:2]).astype(np.float64))
    codes = encode_double(state)
    h[:] = dlfloat.to_fp32(codes).ravel()
    _store(codes, h_cells, h_place)
    return dlfloat.largest(codes)


def _gates(rows: Singles, sizes: Sizes, width: int, gates: int) -> Doubles:
    """Return gates (gate, row, hidden unit) of dense rows of gates that are `width` wide."""
    dense = rows[: sizes[0] * gates * width].reshape(sizes[0], gates, width)
    return dense[:, :, : sizes[1]].swapaxes(0, 1).astype(np.float64)


def _store(codes: Codes, cells: Codes, corner: Corner) -> None:
    """Store a state, unless it has no place."""
    if corner[0] >= 0:
        place = corner[0], 0, corner[1], 1
        write_block(codes[None], cells, place, (0, codes.shape[0]), (0, codes.shape[1]))
