# SPDX-License-Identifier: Apache-2.0
"""Layers of LSTM and GRU through a whole sequence.

`kernels.recurrent_layers` says how gates lie in panels.
Sources: zDNN API Reference 1.2.0, zdnn_lstm and zdnn_gru; rounding points are the zDNN library's.
"""

from typing import TypeAlias

import numpy as np

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.layout import (
    CELLS,
    NINF,
    STICKS,
    Bytes,
    Codes,
    Doubles,
    Singles,
    Words,
    matrices,
    write_block,
)
from nnpa_emulator.reference.matmul import clear_padding
from nnpa_emulator.reference.recurrent import encode_double, gru_cell, lstm_cell
from nnpa_emulator.reference.sums import multiply_in_order

Shape: TypeAlias = tuple[int, int, int, int, int]
"""Timesteps, batch, features, hidden size, gates (4 of LSTM, 3 of GRU)."""
Target: TypeAlias = tuple[int, int, int, int]
"""Timesteps of the outputs of h and of c; stick columns of a timestep, the first written."""

UNITS = 16
LSTM = 4
COMPLETED, GATES_VIOLATED, STATES_VIOLATED, PADDED = 0, 1, 2, 3
"""How a kernel ends: with NINF among gates, or states, or early: what is between gates counts."""
HARMLESS = 4294967296.0
"""Sums below, half of the largest number, do not violate the range, however they are rounded."""


def gate_panels(
    buffer: Bytes, panels: Words, start: int, rows: int, hidden: int, gates: int
) -> np.float32:
    """Widen weights or biases from index `start` on; return the largest magnitude between gates."""
    dense, between = _gates(buffer, rows, hidden, gates)
    panels[start : start + dense.size] = dense.view(np.uint32).ravel()
    return between


def _gates(buffer: Bytes, rows: int, hidden: int, gates: int) -> tuple[Singles, np.float32]:
    """Return a matrix as (panel, row, gate, unit), and the largest magnitude between gates."""
    width = -(-hidden // CELLS) * CELLS
    matrix = matrices(buffer, 1, rows, gates * width).reshape(rows, gates, width)
    count = -(-hidden // UNITS)
    dense = np.zeros((rows, gates, count * UNITS), np.float32)
    dense[:, :, :hidden] = matrix[:, :, :hidden]
    between = np.abs(matrix[:, :, hidden:]).max(initial=0)
    panels = dense.reshape(rows, gates, count, UNITS).transpose(2, 0, 1, 3)
    return np.ascontiguousarray(panels), np.float32(between)


def _is_harmless(count: int, left: np.float32, right: np.float32, bias: np.float32) -> bool:
    """Tell whether `count` products of such magnitudes and a bias stay in range; NINF does not."""
    return bool(np.float64(count) * left * right + bias < HARMLESS)


def _multiply(rows: Singles, panels: Singles, biases: Singles, width: int) -> Codes:
    """Return rows * weights + biases as codes: (panel, row, gates of its units)."""
    inner = rows.shape[1]
    weights = panels[:-1].reshape(-1, inner, width)
    with np.errstate(all="ignore"):
        sums = [multiply_in_order(rows, panel) for panel in weights]
        return dlfloat.result_from_fp32(np.stack(sums) + biases.reshape(-1, 1, width))


def fuse(
    source: Bytes, panels: Singles, biases: Bytes, fused: Codes, shape: Shape, work: Singles
) -> int:
    """Compute the codes of input * weights + biases of all timesteps; tell how it ended.

    The last element of `panels` is the largest magnitude between gates.
    """
    del work
    timesteps, batch, features, hidden, gates = shape
    rows = matrices(source, timesteps, batch, features).reshape(-1, features)
    bias, between = _gates(biases, 1, hidden, gates)
    codes = _multiply(rows, panels, bias, gates * UNITS)
    order = codes.reshape(len(codes), timesteps, batch, -1).transpose(1, 0, 2, 3)
    fused[: codes.size] = order.ravel()
    if dlfloat.largest(codes) == NINF:
        return GATES_VIOLATED
    highest = np.abs(rows).max(initial=0)
    return COMPLETED if _is_harmless(features, highest, panels[-1], between) else PADDED


def run_layer(
    fused: Codes, panels: Singles, biases: Bytes, h0: Bytes, c0: Bytes, h_output: Bytes,
    c_output: Bytes, shape: Shape, target: Target, backward: bool, probing: bool, work: Singles,
    new: Codes,
) -> int:  # fmt: skip
    """Take the states through the sequence and store them; tell how it ended.

    Without a place for every timestep, the last one is kept. See `kernels.recurrent_layers`.
    """
    del work, new
    timesteps, batch, _, hidden, gates = shape
    h = matrices(h0, 1, batch, hidden)[0]
    bias, between = _gates(biases, 1, hidden, gates)
    # No later h is larger than 1 and than h0.
    highest = np.abs(h).max(initial=1)
    if not _is_harmless(hidden, highest, panels[-1], between):
        return PADDED
    c = h if probing or gates != LSTM else matrices(c0, 1, batch, hidden)[0]
    units = -(-hidden // UNITS)
    fed = dlfloat.to_fp32(fused[: timesteps * units * batch * gates * UNITS])
    fed = fed.reshape(timesteps, units, batch, gates * UNITS)
    outputs = h_output.view(np.uint16), c_output.view(np.uint16)
    for step in range(timesteps):
        timestep = timesteps - 1 - step if backward else step
        added = _multiply(h, panels, bias, gates * UNITS)
        if dlfloat.largest(added) == NINF:
            return GATES_VIOLATED
        if probing:
            break
        x, y = (_units(part, gates, hidden) for part in (fed[timestep], dlfloat.to_fp32(added)))
        codes = _cell(x, y, c.astype(np.float64))
        _store(codes, outputs, target, (timestep, step, timesteps), batch)
        h, c = dlfloat.to_fp32(codes[0]), dlfloat.to_fp32(codes[-1])
        if max(map(dlfloat.largest, codes)) == NINF:
            return STATES_VIOLATED
    return COMPLETED


def _units(panels: Singles, gates: int, hidden: int) -> Doubles:
    """Return gates in panels as (gate, row, hidden unit)."""
    count, batch, _ = panels.shape
    dense = panels.reshape(count, batch, gates, UNITS).transpose(2, 1, 0, 3)
    return dense.reshape(gates, batch, -1)[..., :hidden].astype(np.float64)


def _cell(x: Doubles, y: Doubles, state: Doubles) -> tuple[Codes, ...]:
    """Return the codes of the new h, and of c for LSTM; `state` is the old c, or h."""
    with np.errstate(all="ignore"):
        if len(x) == LSTM:
            c, h = lstm_cell(x + y, state)
            return encode_double(h), encode_double(c)
        return (encode_double(gru_cell(x, y, state)),)


def _store(
    codes: tuple[Codes, ...], outputs: tuple[Codes, Codes], target: Target,
    when: tuple[int, int, int], batch: int,
) -> None:  # fmt: skip
    """Store new states; `when` is (timestep, step, timesteps). The first step clears padding."""
    timestep, step, timesteps = when
    hidden, column = codes[0].shape[1], -(-batch // STICKS) * STICKS * CELLS
    every, last = target[0] == timesteps, step == timesteps - 1
    if step == 0:
        for cells, stacks in zip(outputs[: len(codes)], target, strict=False):
            place = target[3] * column, target[2] * column, column, stacks
            clear_padding(cells, place, batch, hidden)
    stored = []
    if every or last or len(codes) == 2:
        stored.append((codes[0], outputs[0], timestep * target[2] if every else 0))
    if last and len(codes) == 2:
        stored.append((codes[1], outputs[1], 0))
    for states, cells, stack in stored:
        place = (stack + target[3]) * column, 0, column, 1
        write_block(states[None], cells, place, (0, batch), (0, hidden))
