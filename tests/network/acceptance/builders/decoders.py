# SPDX-License-Identifier: Apache-2.0
"""Decoders of transformers: GPT-2 with and without its cache, LLaMA, T5's attention."""

import numpy as np

from tests.network.acceptance.builders.attention import EACH, FREE, HEADS, WIDTH
from tests.network.acceptance.builders.export import (
    dim,
    end,
    export,
    floats,
    layer_norm,
    linear,
    nodes,
    number,
    silu,
    words,
)
from tests.network.real_models import WORDS, Net

LEAST = float(np.finfo(np.float32).min)


def _conv1d(net: Net, value: str, inputs: int, outputs: int) -> str:
    """GPT-2's linear layer: Reshape to two dims, Gemm, Reshape back by computed sizes."""
    shape = net.node(
        "Concat", dim(net, value, 0), dim(net, value, 1), net.integers(outputs), axis=0
    )
    flat = net.node("Reshape", value, net.integers(-1, inputs))
    weights, bias = net.weights(inputs, outputs, fan=inputs), net.weights(outputs, fan=100)
    return net.node("Reshape", net.node("Gemm", flat, weights, bias), shape)


def _new_gelu(net: Net, value: str) -> str:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    cube = net.node("Mul", net.node("Pow", value, number(net, 3)), number(net, 0.044715))
    inner = net.node("Mul", net.node("Add", value, cube), number(net, (2 / np.pi) ** 0.5))
    bent = net.node("Add", net.node("Tanh", inner), number(net, 1))
    return net.node("Mul", net.node("Mul", value, number(net, 0.5)), bent)


def _split_heads(net: Net, value: str, order: list[int]) -> str:
    apart = net.node("Reshape", value, net.integers(0, 0, HEADS, EACH))
    return net.node("Transpose", apart, perm=order)


def _joined(net: Net, mixed: str) -> str:
    return net.node(
        "Reshape", net.node("Transpose", mixed, perm=[0, 2, 1, 3]), net.integers(0, 0, WIDTH)
    )


def _gpt2_block(
    net: Net, value: str, mask: str, past: tuple[str, str] | None = None
) -> tuple[str, str, str]:
    """Return the value, and the keys and contents of past and present."""
    parts = nodes(
        net,
        "Split",
        [_conv1d(net, layer_norm(net, value, WIDTH), WIDTH, 3 * WIDTH), net.integers(*[WIDTH] * 3)],
        3,
        axis=2,
    )
    query, key, content = (_split_heads(net, part, [0, 2, 1, 3]) for part in parts)
    if past is not None:
        key = net.node("Concat", past[0], key, axis=-2)
        content = net.node("Concat", past[1], content, axis=-2)
    scores = net.node("MatMul", query, net.node("Transpose", key, perm=[0, 1, 3, 2]))
    scores = net.node("Div", scores, number(net, EACH**0.5))
    scores = net.node("Where", mask, scores, number(net, LEAST))
    mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), content)
    value = net.node("Add", _conv1d(net, _joined(net, mixed), WIDTH, WIDTH), value)
    inner = _new_gelu(net, _conv1d(net, layer_norm(net, value, WIDTH), WIDTH, 2 * WIDTH))
    return net.node("Add", value, _conv1d(net, inner, 2 * WIDTH, WIDTH)), key, content


def gpt2() -> bytes:
    """GPT-2 with batch and sequence free; the causal mask is sliced out of a constant triangle."""
    net = Net(41)
    length = dim(net, "input_ids", 1)
    zero, steps = net.integers(0), net.integers(1)
    places = net.node("Slice", net.weights(64, WIDTH, fan=4), zero, length, zero, steps)
    value = net.node(
        "Add", net.node("Gather", net.weights(WORDS, WIDTH, fan=1), "input_ids"), places
    )
    triangle = net.constant(np.tri(64, dtype=np.bool_)[None, None])
    rows = net.node("Slice", triangle, zero, length, net.integers(2), steps)
    mask = net.node("Slice", rows, zero, length, net.integers(3), steps)
    for _ in range(2):
        value, _, _ = _gpt2_block(net, value, mask)
    out = net.node("MatMul", layer_norm(net, value, WIDTH), net.weights(WIDTH, WORDS, fan=WIDTH))
    return export(net, [words("input_ids", *FREE)], {out: floats("logits", *FREE, WORDS)})


def gpt2_with_past() -> bytes:
    """One step of generation: keys and values of the past come in and go out longer."""
    net = Net(42)
    value = net.node("Gather", net.weights(WORDS, WIDTH, fan=1), "input_ids")
    mask = net.constant(np.ones((1, 1, 1, 1), np.bool_))
    value, key, content = _gpt2_block(net, value, mask, ("past_key", "past_value"))
    out = net.node("MatMul", layer_norm(net, value, WIDTH), net.weights(WIDTH, WORDS, fan=WIDTH))
    before, after = (("batch_size", HEADS, name, EACH) for name in ("past_length", "length"))
    ends = [
        words("input_ids", "batch_size", 1),
        floats("past_key", *before),
        floats("past_value", *before),
    ]
    outputs = {
        out: floats("logits", "batch_size", 1, WORDS),
        key: floats("present_key", *after),
        content: floats("present_value", *after),
    }
    return export(net, ends, outputs)


def _rms_norm(net: Net, value: str) -> str:
    square = net.node("ReduceMean", net.node("Pow", value, number(net, 2)), axes=[-1])
    root = net.node("Sqrt", net.node("Add", square, number(net, 1e-6)))
    scaled = net.node("Mul", value, net.node("Reciprocal", root))
    return net.node("Mul", net.constant(net.rng.uniform(0.9, 1.1, WIDTH).astype("f4")), scaled)


def _rotated(net: Net, value: str, cos: str, sin: str) -> str:
    """Rotary positions: halves are sliced, one is negated, both are put together again."""
    half, last = net.integers(EACH // 2), net.integers(3)
    first = net.node("Slice", value, net.integers(0), half, last)
    second = net.node("Slice", value, half, net.integers(2**63 - 1), last)
    turned = net.node("Concat", net.node("Neg", second), first, axis=-1)
    return net.node("Add", net.node("Mul", value, cos), net.node("Mul", turned, sin))


def llama() -> bytes:
    """LLaMA: rotary positions from position_ids by Cos and Sin, RMS norm, SiLU gate, Trilu mask."""
    net = Net(43)
    value = net.node("Gather", net.weights(WORDS, WIDTH, fan=1), "input_ids")
    waves = net.constant((10.0 ** -np.arange(EACH // 2)).astype(np.float32).reshape(1, 1, -1))
    places = net.node("Cast", net.node("Unsqueeze", "position_ids", net.integers(2)), to=1)
    angles = net.node("Mul", places, waves)
    angles = net.node("Unsqueeze", net.node("Concat", angles, angles, axis=-1), net.integers(1))
    cos, sin = net.node("Cos", angles), net.node("Sin", angles)
    length = dim(net, "input_ids", 1)
    square = net.node("Concat", length, length, axis=0)
    least = net.node("Expand", number(net, LEAST), square)
    mask = net.node("Trilu", least, net.constant(np.array(1)), upper=1)
    for _ in range(2):
        normal = _rms_norm(net, value)
        parts = (net.node("MatMul", normal, net.weights(WIDTH, WIDTH, fan=WIDTH)) for _ in "qkv")
        query, key, content = (_split_heads(net, part, [0, 2, 1, 3]) for part in parts)
        query, key = _rotated(net, query, cos, sin), _rotated(net, key, cos, sin)
        scores = net.node("MatMul", query, net.node("Transpose", key, perm=[0, 1, 3, 2]))
        scores = net.node("Add", net.node("Mul", scores, number(net, EACH**-0.5)), mask)
        mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), content)
        out = net.node("MatMul", _joined(net, mixed), net.weights(WIDTH, WIDTH, fan=WIDTH))
        value = net.node("Add", value, out)
        normal = _rms_norm(net, value)
        gate, up = (net.node("MatMul", normal, net.weights(WIDTH, 64, fan=WIDTH)) for _ in "gu")
        inner = net.node("Mul", silu(net, gate), up)
        value = net.node("Add", value, net.node("MatMul", inner, net.weights(64, WIDTH, fan=64)))
    out = net.node("MatMul", _rms_norm(net, value), net.weights(WIDTH, WORDS, fan=WIDTH))
    ends = [words("input_ids", *FREE), words("position_ids", *FREE)]
    return export(net, ends, {out: floats("logits", *FREE, WORDS)})


def relative_bias() -> bytes:
    """T5's buckets of distances: Range, Sub, Abs, Log, Min, Where, Gather of a bias per head."""
    net = Net(44)
    value = net.node("Gather", net.weights(WORDS, WIDTH, fan=1), "input_ids")
    length = net.node("Squeeze", dim(net, "input_ids", 1), net.integers(0))
    zero, unit = (net.constant(np.array(number)) for number in (0, 1))
    numbers = net.node("Range", zero, length, unit)
    across = net.node("Unsqueeze", numbers, net.integers(0))
    down = net.node("Unsqueeze", numbers, net.integers(1))
    distance = net.node("Abs", net.node("Sub", across, down))
    near = net.node("Less", distance, net.constant(np.array(8)))
    wide = net.node("Cast", net.node("Max", distance, unit), to=1)
    far = net.node("Cast", net.node("Mul", net.node("Log", wide), number(net, 4)), to=7)
    far = net.node("Min", far, net.constant(np.array(15)))
    bucket = net.node("Where", near, distance, far)
    bias = net.node("Gather", net.weights(16, HEADS, fan=1), bucket)
    bias = net.node("Unsqueeze", net.node("Transpose", bias, perm=[2, 0, 1]), net.integers(0))
    query, key, content = (
        _split_heads(net, linear(net, value, WIDTH, WIDTH), order)
        for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = net.node("Add", net.node("MatMul", query, key), bias)
    mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), content)
    out = net.node("Add", value, linear(net, _joined(net, mixed), WIDTH, WIDTH))
    return export(net, [words("input_ids", *FREE)], {out: floats("hidden", *FREE, WIDTH)})


def half_precision() -> bytes:
    """A feed-forward block of FP16 weights and values, FP16 ends (onnxconverter-common)."""
    net = Net(45)

    def half(*shape: int) -> str:
        drawn = net.rng.normal(0, shape[0] ** -0.5, shape)
        return net.constant(drawn.astype(np.float16))

    inner = net.node("Add", net.node("MatMul", "x", half(64, 128)), half(128))
    inner = net.node("Relu", inner)
    out = net.node("Add", net.node("MatMul", inner, half(128, 32)), half(32))
    ends = [end("x", np.float16, "batch", 64)]
    return export(net, ends, {out: end("y", np.float16, "batch", 32)})


MODELS = {
    "gpt2": gpt2,
    "gpt2_with_past": gpt2_with_past,
    "llama": llama,
    "relative_bias": relative_bias,
    "half_precision": half_precision,
}
