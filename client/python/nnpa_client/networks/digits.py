# SPDX-License-Identifier: Apache-2.0
"""Held-out digits and trained weights: the contents of digits.npz."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

__all__ = ["MODEL_FILE", "Digits", "held_out", "onnx_cnn", "weights"]

Floats = npt.NDArray[np.float32]

MODEL_FILE = Path(__file__).with_name("digits_cnn.onnx")
"""The convolutional network as an ONNX file."""


@dataclass(frozen=True, slots=True)
class Digits:
    """Images (n, 8, 8), pixels 0 to 1 as FP32, and which digit each one shows."""

    images: Floats
    labels: npt.NDArray[np.uint8]


@cache
def _arrays() -> Mapping[str, npt.NDArray[np.generic]]:
    with (files("nnpa_client.networks") / "digits.npz").open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        return MappingProxyType({name: stored[name] for name in stored.files})


def held_out() -> Digits:
    """Return the 360 digits that the networks were not trained with."""
    arrays = _arrays()
    images = arrays["images"].astype(np.float32) / np.float32(16)
    return Digits(images, arrays["labels"].astype(np.uint8))


def weights(network: str) -> Mapping[str, Floats]:
    """Return the weights of "cnn" or "lstm" by name, FP32."""
    prefix = f"{network}_"
    trained = {
        name.removeprefix(prefix): array.astype(np.float32)
        for name, array in _arrays().items()
        if name.startswith(prefix)
    }
    if not trained:
        raise ValueError(f"network: {network!r}, expected 'cnn' or 'lstm'")
    return MappingProxyType(trained)


def onnx_cnn() -> bytes:
    """Return the convolutional network as an ONNX file: image (batch, 1, 8, 8), logits."""
    return MODEL_FILE.read_bytes()
