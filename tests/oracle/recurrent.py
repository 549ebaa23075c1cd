# SPDX-License-Identifier: Apache-2.0
"""LSTM and GRU step by step in extended precision, rounded where the zDNN library rounds.

The library rounds the input's gate sums, the hidden gate sums, c and h. Weights and biases are
gates side by side, each as wide as whole sticks.
Source: zDNN API Reference 1.2.0, zdnn_lstm and zdnn_gru.
"""

from dataclasses import dataclass

import numpy as np

from tests.oracle.matmul import matmul
from tests.oracle.rounding import Codes, Precise, decoded, rounded


@dataclass(frozen=True, slots=True)
class Weights:
    """Codes of one direction: (1,1,rows,g*S) and (1,1,1,g*S)."""

    weights: Codes
    biases: Codes
    hidden_weights: Codes
    hidden_biases: Codes


@dataclass(frozen=True, slots=True)
class Pass:
    """Codes of one direction: h of every timestep in the order of the input, and the last c."""

    hidden: list[Codes]
    cell: Codes


def _sigmoid(x: Precise) -> Precise:
    result: Precise = np.longdouble(1) / (1 + np.exp(-x))
    return result


def _gates(codes: Codes, count: int, size: int) -> list[Precise]:
    """Split rows (1,1,b,g*S) into their gates (b,s)."""
    width = codes.shape[3] // count
    return [decoded(codes[0, 0, :, k * width : k * width + size]) for k in range(count)]


def lstm(
    source: Codes, h0: Codes, c0: Codes, gates_weights: Weights, backward: bool = False
) -> Pass:
    """Take (ts,1,b,f) through an LSTM of gates F, I, C, O; states are (1,1,b,s)."""
    h, c = h0, c0
    size = h0.shape[3]
    hidden: dict[int, Codes] = {}
    for t in range(len(source))[:: -1 if backward else 1]:
        fused = matmul(source[t : t + 1], gates_weights.weights, gates_weights.biases, 0)
        added = matmul(h, gates_weights.hidden_weights, gates_weights.hidden_biases, 0)
        x, y = _gates(fused, 4, size), _gates(added, 4, size)
        forget, update, output = (_sigmoid(x[k] + y[k]) for k in (0, 1, 3))
        state = forget * decoded(c[0, 0]) + update * np.tanh(x[2] + y[2])
        c = rounded(state)[None, None]
        h = rounded(output * np.tanh(state))[None, None]
        hidden[t] = h
    return Pass([hidden[t] for t in range(len(source))], c)


def gru(source: Codes, h0: Codes, gates_weights: Weights, backward: bool = False) -> Pass:
    """Take (ts,1,b,f) through a GRU of gates Z, R, H, reset after the linear part."""
    h = h0
    size = h0.shape[3]
    hidden: dict[int, Codes] = {}
    for t in range(len(source))[:: -1 if backward else 1]:
        fused = matmul(source[t : t + 1], gates_weights.weights, gates_weights.biases, 0)
        added = matmul(h, gates_weights.hidden_weights, gates_weights.hidden_biases, 0)
        x, y = _gates(fused, 3, size), _gates(added, 3, size)
        update, reset = _sigmoid(x[0] + y[0]), _sigmoid(x[1] + y[1])
        candidate = np.tanh(x[2] + reset * y[2])
        h = rounded((1 - update) * candidate + update * decoded(h[0, 0]))[None, None]
        hidden[t] = h
    return Pass([hidden[t] for t in range(len(source))], h)
