# SPDX-License-Identifier: Apache-2.0
"""Layers with their gradients in plain NumPy, for the training of the digits networks.

Arrays are channels last, any float type. A forward function returns its result and the arrays that
the backward function of the same name needs.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

Array = npt.NDArray[Any]  # of one float type
Params = dict[str, Array]


def conv3x3(x: Array, kernel: Array, bias: Array) -> tuple[Array, Array]:
    """Convolve (n, h, w, c) with (3, 3, c, k), stride 1, zeros around; also return the patches."""
    n, h, w, c = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = sliding_window_view(padded, (3, 3), axis=(1, 2))
    patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(n * h * w, 9 * c)
    result = patches @ kernel.reshape(9 * c, -1) + bias
    return result.reshape(n, h, w, -1), patches


def conv3x3_backward(grad: Array, patches: Array, kernel: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of x, kernel and bias."""
    n, h, w, k = grad.shape
    c = kernel.shape[2]
    flat = grad.reshape(-1, k)
    spread = (flat @ kernel.reshape(9 * c, k).T).reshape(n, h, w, 3, 3, c)
    padded = np.zeros((n, h + 2, w + 2, c), dtype=grad.dtype)
    for row in range(3):
        for column in range(3):
            padded[:, row : row + h, column : column + w] += spread[:, :, :, row, column]
    return padded[:, 1:-1, 1:-1], (patches.T @ flat).reshape(kernel.shape), flat.sum(axis=0)


def maxpool2x2(x: Array) -> tuple[Array, Array]:
    """Return the largest of each 2x2 square, and its place, shared among equal elements."""
    n, h, w, c = x.shape
    squares = x.reshape(n, h // 2, 2, w // 2, 2, c)
    result = squares.max(axis=(2, 4))
    chosen = (squares == result[:, :, None, :, None]).astype(x.dtype)
    return result, chosen / chosen.sum(axis=(2, 4), keepdims=True)


def maxpool2x2_backward(grad: Array, chosen: Array) -> Array:
    """Return the gradient of x."""
    n, h, w, c = grad.shape
    return (chosen * grad[:, :, None, :, None]).reshape(n, 2 * h, 2 * w, c)


def cross_entropy(logits: Array, labels: npt.NDArray[np.integer]) -> tuple[float, Array]:
    """Return the mean loss of logits (n, classes) and its gradient."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    likely = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -float(np.log(likely[rows, labels]).mean())
    grad = likely.copy()
    grad[rows, labels] -= 1
    return loss, grad / len(labels)


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + e^-x)."""
    return 1 / (1 + np.exp(-x))


def cnn(params: Params, images: Array) -> tuple[Array, list[Array]]:
    """Return the logits of images (n, 8, 8, 1), and the arrays for cnn_backward."""
    kept: list[Array] = []
    x = images
    for stage in ("conv1", "conv2"):
        y, patches = conv3x3(x, params[f"{stage}_kernel"], params[f"{stage}_bias"])
        positive = np.maximum(y, 0)
        x, chosen = maxpool2x2(positive)
        kept += [patches, y, chosen]
    flat = x.reshape(len(x), -1)
    return flat @ params["dense_weights"] + params["dense_bias"], [*kept, flat]


def cnn_backward(params: Params, kept: list[Array], grad: Array) -> Params:
    """Return the gradient of every parameter."""
    flat = kept[-1]
    gradients = {"dense_weights": flat.T @ grad, "dense_bias": grad.sum(axis=0)}
    x = (grad @ params["dense_weights"].T).reshape(len(flat), 2, 2, -1)
    for place, stage in ((3, "conv2"), (0, "conv1")):
        patches, y, chosen = kept[place : place + 3]
        x = maxpool2x2_backward(x, chosen) * (y > 0)
        x, kernel, bias = conv3x3_backward(x, patches, params[f"{stage}_kernel"])
        gradients |= {f"{stage}_kernel": kernel, f"{stage}_bias": bias}
    return gradients


def lstm(params: Params, images: Array) -> tuple[Array, list[tuple[Array, ...]]]:
    """Return the logits of images (n, 8, 8), row after row, and the arrays for lstm_backward.

    Gates in zDNN's order forget, input, cell, output: weights (4, 8, s), hidden_weights (4, s, s),
    biases (4, s).
    """
    hidden = params["lstm_biases"].shape[1]
    h = np.zeros((len(images), hidden), dtype=images.dtype)
    c = h
    kept: list[tuple[Array, ...]] = []
    for row in range(images.shape[1]):
        x = images[:, row]
        sums = np.matmul(x, params["lstm_weights"]) + np.matmul(h, params["lstm_hidden_weights"])
        sums = sums + params["lstm_biases"][:, None]
        f, i, o = sigmoid(sums[0]), sigmoid(sums[1]), sigmoid(sums[3])
        g = np.tanh(sums[2])
        kept.append((x, h, c, f, i, g, o))
        c = f * c + i * g
        h = o * np.tanh(c)
    return h @ params["dense_weights"] + params["dense_bias"], [*kept, (h, c)]


def lstm_backward(params: Params, kept: list[tuple[Array, ...]], grad: Array) -> Params:
    """Return the gradient of every parameter, back through the rows."""
    last, c_next = kept[-1]
    gradients = {name: np.zeros_like(value) for name, value in params.items()}
    gradients["dense_weights"] = last.T @ grad
    gradients["dense_bias"] = grad.sum(axis=0)
    dh = grad @ params["dense_weights"].T
    dc = np.zeros_like(dh)
    for x, h, c, f, i, g, o in reversed(kept[:-1]):
        squashed = np.tanh(c_next)
        dc = dc + dh * o * (1 - squashed**2)
        sums = np.stack(
            [
                dc * c * f * (1 - f),
                dc * g * i * (1 - i),
                dc * i * (1 - g**2),
                dh * squashed * o * (1 - o),
            ]
        )
        gradients["lstm_weights"] += np.matmul(x.T, sums)
        gradients["lstm_hidden_weights"] += np.matmul(h.T, sums)
        gradients["lstm_biases"] += sums.sum(axis=1)
        dh = np.matmul(sums, params["lstm_hidden_weights"].transpose(0, 2, 1)).sum(axis=0)
        dc, c_next = dc * f, c
    return gradients
