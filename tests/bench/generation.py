# SPDX-License-Identifier: Apache-2.0
"""Decoders whose keys and values of the past grow by one row at each token, of two layers.

With opset 18 attention is spelled out, and its past joined by Concat; with opset 23 it is one
Attention that takes the past and returns the present. Weights are fixed random numbers.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.network.acceptance.builders.export import (
    export,
    floats,
    layer_norm,
    linear,
    nodes,
    number,
    words,
)
from tests.network.real_models import Net

LAYERS, WIDTH, HEADS, VOCABULARY, PLACES = 2, 512, 8, 1000, 512
_EACH = WIDTH // HEADS
Arrays = Mapping[str, npt.NDArray[Any]]


def decoder(opset: int) -> bytes:
    """Return a decoder for one token and a past of any length, in the form of an opset."""
    net, attention = Net(20261129), _attention if opset >= 23 else _attention_spelled_out
    embedded = net.node("Gather", net.weights(VOCABULARY, WIDTH, fan=1), "input_ids")
    place = net.node("Gather", net.weights(PLACES, WIDTH, fan=4), "position_ids")
    value, presents = net.node("Add", embedded, place), dict[str, str]()
    for layer in range(LAYERS):
        normal = layer_norm(net, value, WIDTH)
        parts = (linear(net, normal, WIDTH, WIDTH) for _ in "qkv")
        past = f"past_key_{layer}", f"past_value_{layer}"
        mixed, *present = attention(net, [_heads(net, part) for part in parts], past)
        presents |= {present[0]: f"present_key_{layer}", present[1]: f"present_value_{layer}"}
        joined = net.node("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = net.node("Reshape", joined, net.integers(0, 0, WIDTH))
        value = net.node("Add", value, linear(net, joined, WIDTH, WIDTH))
        inner = linear(net, layer_norm(net, value, WIDTH), WIDTH, 4 * WIDTH)
        inner = linear(net, net.node("Relu", inner), 4 * WIDTH, WIDTH)
        value = net.node("Add", value, inner)
    logits = linear(net, layer_norm(net, value, WIDTH), WIDTH, VOCABULARY)
    ends = [words("input_ids", "batch", 1), words("position_ids", "batch", 1)]
    ends += [floats(name, "batch", HEADS, "past", _EACH) for name in _pasts()]
    outputs = {logits: floats("logits", "batch", 1, VOCABULARY)}
    outputs |= {value: floats(name, "batch", HEADS, "total", _EACH)
                for value, name in presents.items()}  # fmt: skip
    return export(net, ends, outputs, opset)


def _heads(net: Net, value: str) -> str:
    apart = net.node("Reshape", value, net.integers(0, 0, HEADS, _EACH))
    return net.node("Transpose", apart, perm=[0, 2, 1, 3])


def _attention(net: Net, parts: list[str], past: tuple[str, str]) -> list[str]:
    return nodes(net, "Attention", [*parts, "", *past], 3)


def _attention_spelled_out(net: Net, parts: list[str], past: tuple[str, str]) -> list[str]:
    query, key, content = parts
    key = net.node("Concat", past[0], key, axis=2)
    content = net.node("Concat", past[1], content, axis=2)
    scores = net.node("MatMul", query, net.node("Transpose", key, perm=[0, 1, 3, 2]))
    scores = net.node("Mul", scores, number(net, _EACH**-0.5))
    return [net.node("MatMul", net.node("Softmax", scores, axis=-1), content), key, content]


def _pasts() -> list[str]:
    return [f"past_{part}_{layer}" for layer in range(LAYERS) for part in ("key", "value")]


def first_feeds(length: int = 1) -> dict[str, npt.NDArray[Any]]:
    """Return the inputs of a token after a random past of a length."""
    rng = np.random.default_rng(0)
    shape = (1, HEADS, length, _EACH)
    return _feeds(1, {name: rng.normal(size=shape).astype(np.float32) for name in _pasts()})


def next_feeds(outputs: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Return the inputs of the token after the one that gave these outputs."""
    pasts = {name: outputs[name.replace("past", "present")] for name in _pasts()}
    return _feeds(int(outputs["logits"].argmax()), pasts)


def _feeds(token: int, pasts: Arrays) -> dict[str, npt.NDArray[Any]]:
    place = pasts["past_key_0"].shape[2]
    return {"input_ids": np.array([[token]]), "position_ids": np.array([[place]]), **pasts}


def generate(run: Callable[[Arrays], Arrays], count: int, length: int = 1) -> Arrays:
    """Run a decoder for some tokens; return the last outputs."""
    outputs: Arrays = {}
    for token in range(count):
        outputs = run(next_feeds(outputs) if token else first_feeds(length))
    return outputs
