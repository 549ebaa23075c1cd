# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers with drawn operands, called and compared with the oracle."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from nnpa_emulator import Guest, Outcome, Ztensor, run

from tests.emulator.operands import Codes, blank, guest, tensor
from tests.oracle import recurrent as oracle
from tests.oracle.rounding import Precise, rounded

FWD, BWD, BIDIR = 0, 1, 2
GATES = {"lstm": 4, "gru": 3}
Shape = tuple[int, int, int, int]


def padded(size: int) -> int:
    """Return a size in whole sticks."""
    return -(-size // 64) * 64


def concatenated(values: Precise, gates: int) -> Codes:
    """Put gates (gates,d,rows,s) side by side, each in whole sticks: (d,1,rows,g*S)."""
    _, directions, rows, size = values.shape
    codes = np.zeros((directions, 1, rows, gates * padded(size)), np.uint16)
    for k in range(gates):
        start = k * padded(size)
        codes[:, 0, :, start : start + size] = rounded(values[k])
    return codes


@dataclass(frozen=True, slots=True)
class Net:
    """A layer's operands as codes."""

    name: str
    direction: int
    source: Codes
    h0: Codes
    c0: Codes
    weights: Codes
    biases: Codes
    hidden_weights: Codes
    hidden_biases: Codes

    @property
    def hidden(self) -> int:
        """Hidden size."""
        return int(self.h0.shape[3])

    @property
    def side(self) -> int:
        """Columns of the outputs."""
        return 2 * padded(self.hidden) if self.direction == BIDIR else self.hidden

    def expected(self) -> list[oracle.Pass]:
        """Run the oracle on each direction; return its results."""
        passes: list[oracle.Pass] = []
        for half in range(len(self.h0)):
            of_half = slice(half, half + 1)
            parameters = oracle.Weights(
                self.weights[of_half],
                self.biases[of_half],
                self.hidden_weights[of_half],
                self.hidden_biases[of_half],
            )
            backward = self.direction == BWD or half == 1
            if self.name == "lstm":
                passes.append(
                    oracle.lstm(
                        self.source, self.h0[of_half], self.c0[of_half], parameters, backward
                    )
                )
            else:
                passes.append(oracle.gru(self.source, self.h0[of_half], parameters, backward))
        return passes

    def expected_outputs(self, every: bool) -> dict[str, Codes]:
        """Lay the oracle's results out as hn_output and cf_output."""
        timesteps, batch = len(self.source), self.source.shape[2]
        hn = np.zeros((timesteps if every else 1, 1, batch, self.side), np.uint16)
        cf = np.zeros((1, 1, batch, self.side), np.uint16)
        for half, result in enumerate(self.expected()):
            start = half * padded(self.hidden)
            columns = slice(start, start + self.hidden)
            last = 0 if self.direction == BWD or half == 1 else timesteps - 1
            for t in range(timesteps) if every else [last]:
                hn[t if every else 0, ..., columns] = result.hidden[t][0]
            cf[..., columns] = result.cell[0]
        return {"hn_output": hn, "cf_output": cf} if self.name == "lstm" else {"hn_output": hn}


def net(name: str, shape: Shape, direction: int = FWD, seed: int = 0) -> Net:
    """Return a random layer whose weights keep its gates between saturation and nothing."""
    timesteps, batch, features, hidden = shape
    random = np.random.default_rng((*shape, seed))
    directions = 2 if direction == BIDIR else 1

    def gates(rows: int, scale: float) -> Codes:
        values = random.normal(0, scale, (GATES[name], directions, rows, hidden))
        return concatenated(values.astype(np.longdouble), GATES[name])

    def state(scale: float) -> Codes:
        return rounded(random.normal(0, scale, (directions, 1, batch, hidden)))

    return Net(
        name,
        direction,
        rounded(random.normal(0, 1, (timesteps, 1, batch, features))),
        state(0.5),
        state(1.0),
        gates(features, features**-0.5),
        gates(1, 0.3),
        gates(hidden, hidden**-0.5),
        gates(1, 0.3),
    )


def call(
    layer: Net, every: bool, program: Guest | None = None
) -> tuple[Outcome, dict[str, Ztensor]]:
    """Run a layer; return the outcome and the outputs."""
    timesteps, batch = len(layer.source) if every else 1, layer.source.shape[2]
    outputs = {"hn_output": blank((timesteps, 1, batch, layer.side))}
    arguments: dict[str, Any] = {"input": tensor(layer.source), "h0": tensor(layer.h0)}
    if layer.name == "lstm":
        outputs["cf_output"] = blank((1, 1, batch, layer.side))
        arguments["c0"] = tensor(layer.c0)
    for name in ("weights", "biases", "hidden_weights", "hidden_biases"):
        arguments[name] = tensor(getattr(layer, name))
    arguments |= {"direction": layer.direction, **outputs}
    return run(program or guest(precheck=True), layer.name, arguments), outputs
