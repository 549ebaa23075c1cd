# SPDX-License-Identifier: Apache-2.0
"""Measure fixed point on a keyword spotter: python mli_keyword_spotting.py [plot.png] [target].

A network of the size that wakes a device up: 49 frames of 10 coefficients, an LSTM cell of 96
units, a layer to 12 keywords. It runs in fx8, fx16 and fx8w16d, bit for bit as embARC MLI computes
it, each in one request; the error is measured against the same network in float. Weights and
sound are synthetic, drawn from a seed. The plot needs matplotlib (`pip install matplotlib`).
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from nnpa_client import mli

FRAMES, COEFFICIENTS, UNITS, KEYWORDS = 49, 10, 96, 12
CELL_LIMIT = 8.0  # the cell state of this network stays below; a power of two
VARIANTS = {
    "fx8": (mli.MLI_EL_FX_8, mli.MLI_EL_FX_8, mli.krn_lstm_cell_fx8, mli.krn_fully_connected_fx8),
    "fx16": (
        mli.MLI_EL_FX_16,
        mli.MLI_EL_FX_16,
        mli.krn_lstm_cell_fx16,
        mli.krn_fully_connected_fx16,
    ),
    "fx8w16d": (
        mli.MLI_EL_FX_16,
        mli.MLI_EL_FX_8,
        mli.krn_lstm_cell_fx8w16d,
        mli.krn_fully_connected_fx8w16d,
    ),
}
COLOURS = {"float": "black", "fx8": "tab:blue", "fx16": "tab:orange", "fx8w16d": "tab:green"}

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Network:
    """Sound [49, 10]; LSTM weights [4, 96, 106] and bias [4, 96] (i, g, f, o); output layer."""

    sound: Floats
    weights: Floats
    bias: Floats
    keyword_weights: Floats
    keyword_bias: Floats


@dataclass(frozen=True, slots=True)
class Run:
    """Hidden states [49, 96] and keyword scores [12], as floats."""

    states: Floats
    scores: Floats


def make_network(seed: int = 7) -> Network:
    """Draw a network whose gates are open for some units and closed for others."""
    rng = np.random.default_rng(seed)
    time = np.linspace(0, 1, FRAMES)[:, None]
    pitch = rng.uniform(1, 6, COEFFICIENTS)
    sound = np.sin(2 * np.pi * (pitch * time + rng.uniform(0, 1, COEFFICIENTS)))
    sound *= np.exp(-(((time - 0.5) / 0.3) ** 2)) * 2
    weights = rng.normal(0, 1, (4, UNITS, COEFFICIENTS + UNITS))
    weights[..., :COEFFICIENTS] *= 0.35
    weights[..., COEFFICIENTS:] *= 0.8 / np.sqrt(UNITS)
    bias = rng.normal(0, 0.3, (4, UNITS))
    bias[2] += 1.0  # forget gates begin open
    return Network(
        sound,
        weights,
        bias,
        rng.normal(0, 1.5 / np.sqrt(UNITS), (KEYWORDS, UNITS)),
        rng.normal(0, 0.1, KEYWORDS),
    )


def run_float(network: Network) -> Run:
    """Run the network in float64."""
    state, cell = np.zeros(UNITS), np.zeros(UNITS)
    states = np.empty((FRAMES, UNITS))
    for frame, x in enumerate(network.sound):
        gates = network.weights @ np.concatenate([x, state]) + network.bias
        enter, forget, leave = (1 / (1 + np.exp(-gates[k])) for k in (0, 2, 3))
        cell = forget * cell + enter * np.tanh(gates[1])
        states[frame] = state = leave * np.tanh(cell)
        if np.abs(cell).max() >= CELL_LIMIT:
            raise ValueError(f"cell: {np.abs(cell).max():.2f}, must be below {CELL_LIMIT}")
    return Run(states, network.keyword_weights @ state + network.keyword_bias)


def run_fixed(network: Network, variant: str, scores: Floats) -> Run:
    """Run the network in fixed point, in one request; `scores` tell the range of the output."""
    data, weight, lstm_cell, fully_connected = VARIANTS[variant]
    bits = 8 if data == mli.MLI_EL_FX_8 else 16
    x = mli.quantise(network.sound, data)
    weights = mli.quantise(network.weights, weight)
    bias = mli.quantise(network.bias, weight)
    state = mli.quantise(np.zeros(UNITS), data, mli.FxParams(bits - 1))
    cell = mli.quantise(np.zeros(UNITS), data, mli.FxParams(bits - 1 - int(np.log2(CELL_LIMIT))))
    cfg = mli.RnnCellCfg(mli.RNN_BATCH_TO_BATCH, mli.RNN_ACT_TANH, mli.empty((4, UNITS), data))
    last = mli.SubTensorCfg((FRAMES - 1, 0), (1, UNITS), 1)
    with mli.batch():
        states = lstm_cell(x, state, weights, bias, cfg, cell)
        layer = fully_connected(
            mli.hlp_subtensor(states, last),
            mli.quantise(network.keyword_weights, weight),
            mli.quantise(network.keyword_bias, weight),
            frac_bits=mli.fit_fx(scores, bits).frac_bits,
        )
    return Run(mli.dequantise(states), mli.dequantise(layer))


def print_table(exact: Run, runs: dict[str, Run]) -> None:
    """Print the errors of the hidden states and scores, and the keyword that wins."""
    heading = f"{'':<9}{'rms error':>11}{'max error':>11}{'in LSBs':>9}{'scores':>11}  keyword"
    print(f"{heading}\n{'float':<9}{'':>42}  {exact.scores.argmax()}")
    for variant, run in runs.items():
        error = np.abs(run.states - exact.states)
        unit = 2.0**-7 if variant == "fx8" else 2.0**-15
        rms, worst = np.sqrt((error**2).mean()), error.max()
        off = np.abs(run.scores - exact.scores).max()
        print(
            f"{variant:<9}{rms:>11.2e}{worst:>11.2e}{rms / unit:>9.1f}{off:>11.2e}"
            f"  {run.scores.argmax()}"
        )


def plot(exact: Run, runs: dict[str, Run], path: Path) -> None:
    """Draw the error of the hidden states per frame, and the scores."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure: Any
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for variant, run in runs.items():
        error = np.sqrt(((run.states - exact.states) ** 2).mean(axis=1))
        left.semilogy(error, label=variant, linewidth=2, color=COLOURS[variant])
    left.axhline(2.0**-7, color="grey", linestyle=":", label="1 LSB of fx8 (2^-7)")
    left.axhline(2.0**-15, color="grey", linestyle="--", label="1 LSB of fx16 (2^-15)")
    left.set(xlabel="frame", ylabel="rms error of 96 hidden states", title="LSTM against float")
    left.set_ylim(1e-5, 1.0)
    left.legend(loc="upper center", ncols=2, fontsize="small")
    places, width = np.arange(KEYWORDS), 0.8 / (len(runs) + 1)
    for index, (label, run) in enumerate([("float", exact), *runs.items()]):
        right.bar(
            places + (index - 1.5) * width, run.scores, width, label=label, color=COLOURS[label]
        )
    right.set(xlabel="keyword", ylabel="score", title="Scores after the last frame")
    right.set_xticks(places)
    right.legend()
    figure.savefig(path, dpi=110)


def main(picture: Path | None = None) -> tuple[Run, dict[str, Run]]:
    """Run all variants, print the table, and draw the plot where a path is given."""
    network = make_network()
    exact = run_float(network)
    runs = {variant: run_fixed(network, variant, exact.scores) for variant in VARIANTS}
    print_table(exact, runs)
    if picture is not None:
        plot(exact, runs, picture)
    return exact, runs


if __name__ == "__main__":
    arguments = [*sys.argv[1:], None, None]
    with mli.connect(arguments[1]):
        main(Path(arguments[0]) if arguments[0] else None)
