# SPDX-License-Identifier: Apache-2.0
"""The networks in NumPy FP32, with which the accelerator's answers are compared."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nnpa_client.networks.digits import Floats, weights


def cnn(images: Floats) -> Floats:
    """Return the logits (n, 10) of images (n, 8, 8)."""
    trained = weights("cnn")
    x = images[..., None]
    for stage in ("conv1", "conv2"):
        around = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = sliding_window_view(around, (3, 3), axis=(1, 2))
        x = np.einsum("nhwcij,ijck->nhwk", windows, trained[f"{stage}_kernel"])
        x = np.maximum(x + trained[f"{stage}_bias"], 0)
        n, h, w, k = x.shape
        x = x.reshape(n, h // 2, 2, w // 2, 2, k).max(axis=(2, 4))
    logits: Floats = x.reshape(len(x), -1) @ trained["dense_weights"] + trained["dense_bias"]
    return logits


def lstm(images: Floats) -> Floats:
    """Return the logits (n, 10) of images (n, 8, 8), read row by row."""
    trained = weights("lstm")
    h = np.zeros((len(images), trained["dense_weights"].shape[0]), np.float32)
    c = h
    for row in images.transpose(1, 0, 2):
        sums = row @ trained["lstm_weights"] + h @ trained["lstm_hidden_weights"]
        forget, enter, cell, leave = sums + trained["lstm_biases"][:, None]
        c = _sigmoid(forget) * c + _sigmoid(enter) * np.tanh(cell)
        h = _sigmoid(leave) * np.tanh(c)
    logits: Floats = h @ trained["dense_weights"] + trained["dense_bias"]
    return logits


def _sigmoid(x: Floats) -> Floats:
    result: Floats = np.float32(1) / (np.float32(1) + np.exp(-x))
    return result
