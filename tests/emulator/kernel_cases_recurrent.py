# SPDX-License-Identifier: Apache-2.0
"""Arguments of kernels of recurrent layers."""

from typing import Any

import numpy as np
from nnpa_emulator import dlfloat
from nnpa_emulator.kernels import recurrent_layers as layers
from nnpa_emulator.reference import recurrent_layers as reference

from tests.emulator.kernel_draws import Case, Codes, Random, flag, matrix, numbers, sizes, tensor


def round_sums(random: Random) -> Case:
    """Arguments of `recurrent.round_sums`."""
    width = int(random.integers(1, 70))
    sums = random.standard_normal(5 * width).astype(np.float32) * np.float32(10)
    sums[0] = random.choice([np.nan, 1e11, 0])
    return (sums, numbers(random, width)), (0,)


def round_doubles(random: Random) -> Case:
    """Arguments of `recurrent.round_doubles`."""
    sums, bias = round_sums(random)[0]
    return (sums.astype(np.float64), bias, np.zeros(sums.size, np.float32)), (2,)


def _step(
    random: Random, gates: int
) -> tuple[list[Any], tuple[int, int], Codes, tuple[int, int, int]]:
    _, _, rows, hidden = sizes(random, (1, 1, 33, 129))
    widths = [hidden, -(-hidden // 64) * 64]
    wide, narrow = (int(random.choice(widths)) for _ in range(2))
    dense = [numbers(random, rows * gates * width) for width in (wide, narrow)]
    out, pages = tensor(random, (1, 1, rows, hidden))
    return dense, (wide, narrow), out, (rows, hidden, pages[1] * 2048)


def lstm_step(random: Random) -> Case:
    """Arguments of `recurrent.lstm_step`."""
    dense, widths, out, (rows, hidden, column) = _step(random, 4)
    h, c = np.zeros(rows * hidden, np.float32), numbers(random, rows * hidden)
    c[0] = np.nan if random.integers(0, 4) == 0 else 0
    places = ((0, column), (0 if flag(random) else -1, column))
    sizes_of = rows, hidden, *widths
    return (*dense, h, c, sizes_of, out, places[0], out.copy(), places[1]), (2, 3, 5, 7)


def gru_step(random: Random) -> Case:
    """Arguments of `recurrent.gru_step`."""
    dense, widths, out, (rows, hidden, column) = _step(random, 3)
    h, place = numbers(random, rows * hidden), (0 if flag(random) else -1, column)
    return (*dense, h, (rows, hidden, *widths), out, place), (2, 4)


def gate_panels(random: Random) -> Case:
    """Arguments of `recurrent_layers.gate_panels`."""
    _, _, rows, hidden = sizes(random, (1, 1, 33, 129))
    gates, start = int(random.integers(3, 5)), int(random.integers(0, 5))
    buffer = matrix(random, 1, rows, gates * -(-hidden // 64) * 64)
    size = start + rows * gates * -(-hidden // 16) * 16
    panels = np.zeros(size, np.uint32)
    return (buffer.view(np.uint8), panels, start, rows, hidden, gates), (1,)


def _layer(random: Random) -> tuple[tuple[int, int, int, int, int], int]:
    _, timesteps, batch, hidden = sizes(random, (1, 3, 33, 65))
    features, gates = int(random.choice([1, 17, 65])), int(random.integers(3, 5))
    return (timesteps, batch, features, hidden, gates), gates * -(-hidden // 16) * 16


def _gates(random: Random, rows: int, hidden: int, gates: int) -> Codes:
    """Draw weights or biases; sums stay in range nearly always."""
    kind, width = random.integers(0, 5), -(-hidden // 64) * 64
    cells = matrix(random, 1, rows, gates * width)
    if kind == 0:
        return cells
    drawn = dlfloat.from_fp32(random.standard_normal(cells.size).astype(np.float32))
    if kind != 1:
        drawn.reshape(gates, width // 64, -1, 64)[:, -1, :, (hidden - 1) % 64 + 1 :] = 0
    return drawn


def _panels(random: Random, rows: int, shape: tuple[int, int, int, int, int], width: int) -> Any:
    dense = np.zeros(rows * width + 1, np.float32)
    buffer = _gates(random, rows, shape[3], shape[4]).view(np.uint8)
    dense[-1] = reference.gate_panels(buffer, dense.view(np.uint32), 0, rows, shape[3], shape[4])
    return dense


def fuse(random: Random) -> Case:
    """Arguments of `recurrent_layers.fuse`."""
    shape, width = _layer(random)
    timesteps, batch, features, hidden, gates = shape
    source = matrix(random, timesteps, batch, features).view(np.uint8)
    biases = _gates(random, 1, hidden, gates).view(np.uint8)
    fused = np.zeros(timesteps * batch * width, np.uint16)
    work = np.zeros(layers.LEFT + layers.TILE + width, np.float32)
    return (source, _panels(random, features, shape, width), biases, fused, shape, work), (3,)


def run_layer(random: Random) -> Case:
    """Arguments of `recurrent_layers.run_layer`."""
    shape, width = _layer(random)
    timesteps, batch, _, hidden, gates = shape
    numbers_of = random.standard_normal(timesteps * batch * width).astype(np.float32)
    biases = _gates(random, 1, hidden, gates).view(np.uint8)
    states = [matrix(random, 1, batch, hidden).view(np.uint8) for _ in range(2)]
    if gates == 3:
        states[1] = states[0]
    halves, units = 1 + int(flag(random)), -(-hidden // 16) * 16
    across = -(-hidden // 64)
    every = timesteps if flag(random) else 1
    outputs = [matrix(random, n, batch, halves * across * 64).view(np.uint8) for n in (every, 1)]
    target = every, 1, halves * across, across * int(random.integers(0, halves))
    work = np.zeros(layers.TILE + width + 2 * batch * (units + 16), np.float32)
    new = np.zeros(2 * batch * units, np.uint16)
    weights_of = _panels(random, hidden, shape, width)
    fused = dlfloat.from_fp32(numbers_of)
    probing = random.integers(0, 5) == 0
    inputs = (
        fused,
        weights_of,
        biases,
        *states,
        *outputs,
        shape,
        target,
        flag(random),
        bool(probing),
    )
    return (*inputs, work, new), (5, 6)
