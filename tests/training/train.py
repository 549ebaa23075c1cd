# SPDX-License-Identifier: Apache-2.0
"""Trains the digits networks of `nnpa demo`: `python -m tests.training.train`.

Data: scikit-learn's copy of the test half of "Optical Recognition of Handwritten Digits"
(E. Alpaydin, C. Kaynak, UCI Machine Learning Repository, 1998, doi:10.24432/C50P49, CC BY 4.0):
1797 images of 8x8 pixels, 0 to 16. 80 % train; the other 20 % are held out and shipped with the
weights, so that the demo is judged by digits that the networks have not seen.

Needs scikit-learn, for the data only; nothing else of the project does. Writes one file,
client/python/nnpa_client/networks/digits.npz, about 40 KB. The seed is fixed: the same NumPy on the
same processor writes the same file; another NumPy or processor trains networks as good.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from tests.training import layers
from tests.training.layers import Array, Params

SEED = 20260110
HIDDEN = 32  # cells of the LSTM
EPOCHS = 150
BATCH = 32
RATE = 4e-3  # of Adam at the start; falls to 0 along a cosine
DECAY = 1e-4  # of the weights, per step and unit of rate
TARGET = Path(__file__).parents[2] / "client/python/nnpa_client/networks/digits.npz"

Labels = npt.NDArray[np.uint8]
Forward = Callable[[Params, Array], tuple[Array, Any]]
Backward = Callable[[Params, Any, Array], Params]


def split() -> tuple[npt.NDArray[np.uint8], Labels, npt.NDArray[np.uint8], Labels]:
    """Return training images (n, 8, 8) and labels, then the held-out ones."""
    from sklearn.datasets import load_digits

    data: Any = load_digits()
    images, labels = data.images.astype(np.uint8), data.target.astype(np.uint8)
    order = np.random.default_rng(SEED).permutation(len(labels))
    count = len(labels) * 4 // 5
    train, held_out = order[:count], order[count:]
    return images[train], labels[train], images[held_out], labels[held_out]


def initial(rng: np.random.Generator, shapes: dict[str, tuple[int, ...]]) -> Params:
    """Return biases of zero and weights of variance 2 / (inputs of a cell)."""
    params: Params = {}
    for name, shape in shapes.items():
        inputs = np.prod(shape[:-1]) if "kernel" in name else shape[-2] if len(shape) > 1 else 1
        scale = 0.0 if "bias" in name else np.sqrt(2.0 / inputs)
        params[name] = (rng.standard_normal(shape) * scale).astype(np.float32)
    return params


def initial_cnn(rng: np.random.Generator) -> Params:
    """Return an untrained convolutional network."""
    return initial(
        rng,
        {
            "conv1_kernel": (3, 3, 1, 8),
            "conv1_bias": (8,),
            "conv2_kernel": (3, 3, 8, 16),
            "conv2_bias": (16,),
            "dense_weights": (64, 10),
            "dense_bias": (10,),
        },
    )


def initial_lstm(rng: np.random.Generator) -> Params:
    """Return an untrained LSTM network; it begins by remembering."""
    params = initial(
        rng,
        {
            "lstm_weights": (4, 8, HIDDEN),
            "lstm_hidden_weights": (4, HIDDEN, HIDDEN),
            "lstm_biases": (4, HIDDEN),
            "dense_weights": (HIDDEN, 10),
            "dense_bias": (10,),
        },
    )
    params["lstm_weights"] *= 0.5
    params["lstm_hidden_weights"] *= 0.5
    params["lstm_biases"][0] = 1
    return params


def accuracy(forward: Forward, params: Params, x: Array, labels: Labels) -> float:
    """Return the share of images whose largest logit is their label's."""
    return float((forward(params, x)[0].argmax(axis=1) == labels).mean())


def fit(forward: Forward, backward: Backward, params: Params, x: Array, labels: Labels) -> None:
    """Train the parameters in place with Adam (Kingma, Ba 2014), weights decaying."""
    rng = np.random.default_rng(SEED)
    first = {name: np.zeros_like(value) for name, value in params.items()}
    second = {name: np.zeros_like(value) for name, value in params.items()}
    steps, step = EPOCHS * (len(x) // BATCH), 0
    for _epoch in range(EPOCHS):
        for batch in np.array_split(rng.permutation(len(x)), len(x) // BATCH):
            rate = RATE * (1 + math.cos(math.pi * step / steps)) / 2
            step += 1
            logits, kept = forward(params, x[batch])
            gradients = backward(params, kept, layers.cross_entropy(logits, labels[batch])[1])
            for name, value in params.items():
                gradient = gradients[name]
                first[name] += 0.1 * (gradient - first[name])
                second[name] += 0.001 * (gradient**2 - second[name])
                mean, square = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
                value -= rate * (mean / (np.sqrt(square) + 1e-8) + DECAY * value)


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=TARGET, show_default=True)
def main(output: Path) -> None:
    """Train both networks, print their accuracies, and write weights and held-out digits."""
    images, labels, unseen, unseen_labels = split()
    stored: dict[str, Any] = {"images": unseen, "labels": unseen_labels}
    rng = np.random.default_rng(SEED)
    for name, params, forward, backward, view in (
        ("cnn", initial_cnn(rng), layers.cnn, layers.cnn_backward, (-1, 8, 8, 1)),
        ("lstm", initial_lstm(rng), layers.lstm, layers.lstm_backward, (-1, 8, 8)),
    ):
        x, held_out = ((a / np.float32(16)).reshape(view) for a in (images, unseen))
        fit(forward, backward, params, x, labels)
        seen = accuracy(forward, params, x, labels)
        new = accuracy(forward, params, held_out, unseen_labels)
        click.echo(f"{name}: {seen:.2%} of training digits, {new:.2%} of held-out digits")
        stored |= {f"{name}_{key}": value for key, value in params.items()}
    output.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(output, allow_pickle=False, **stored)
    click.echo(f"{output}: {output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
