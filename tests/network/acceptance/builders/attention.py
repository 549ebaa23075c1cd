# SPDX-License-Identifier: Apache-2.0
"""Encoders of transformers: BERT, DistilBERT, ViT, sentence embeddings, one of opset 11."""

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.network.acceptance.builders.export import (
    conv,
    dim,
    erf_gelu,
    export,
    floats,
    gemm,
    layer_norm,
    linear,
    number,
    words,
)
from tests.network.real_models import WORDS, Net, encoder

WIDTH, HEADS, EACH = 32, 4, 8
FREE = ("batch_size", "sequence_length")


def heads(net: Net, value: str, shape: str, order: list[int]) -> str:
    """Split the last axis into heads, by a shape that may be computed."""
    apart = net.node("Reshape", value, shape, allowzero=0)
    return net.node("Transpose", apart, perm=order)


def _self_attention(
    net: Net, value: str, shapes: tuple[str, str], mask: str | None, width: int
) -> str:
    """Attention whose Reshapes take computed shapes, as torch traces `view`."""
    query, key, content = (linear(net, value, width, width) for _ in range(3))
    query = heads(net, query, shapes[0], [0, 2, 1, 3])
    key = heads(net, key, shapes[0], [0, 2, 3, 1])
    content = heads(net, content, shapes[0], [0, 2, 1, 3])
    scores = net.node("MatMul", net.node("Div", query, number(net, (width // HEADS) ** 0.5)), key)
    if mask is not None:
        scores = net.node("Where", mask, number(net, float(np.finfo("f4").min)), scores)
    mixed = net.node("MatMul", net.node("Softmax", scores, axis=-1), content)
    joined = net.node("Reshape", net.node("Transpose", mixed, perm=[0, 2, 1, 3]), shapes[1])
    return linear(net, joined, width, width)


def _computed_shapes(net: Net, value: str, width: int) -> tuple[str, str]:
    """Return (batch, sequence, heads, size) and (batch, sequence, width), from Shape."""
    batch, sequence = dim(net, value, 0), dim(net, value, 1)
    sizes = net.integers(HEADS), net.integers(width // HEADS)
    apart = net.node("Concat", batch, sequence, *sizes, axis=0)
    return apart, net.node("Concat", batch, sequence, net.integers(width), axis=0)


def _layers(
    net: Net, value: str, mask: str | None, count: int = 2, width: int = WIDTH, wide: int = 2
) -> str:
    """Layers of a width, which is `wide` times as large inside."""
    shapes, inside = _computed_shapes(net, value, width), wide * width
    for _ in range(count):
        mixed = _self_attention(net, value, shapes, mask, width)
        value = layer_norm(net, net.node("Add", mixed, value), width)
        inner = erf_gelu(net, linear(net, value, width, inside))
        value = layer_norm(net, net.node("Add", linear(net, inner, inside, width), value), width)
    return value


def _embedded(net: Net, width: int = WIDTH, longest: int = 64) -> str:
    """Words, and positions sliced from a constant as far as the sequence is long."""
    embedded = net.node("Gather", net.weights(WORDS, width, fan=1), "input_ids")
    numbers = net.constant(np.arange(longest, dtype=np.int64).reshape(1, longest))
    length = dim(net, "input_ids", 1)
    positions = net.node("Slice", numbers, net.integers(0), length, net.integers(1))
    places = net.node("Gather", net.weights(longest, width, fan=4), positions)
    return net.node("Add", embedded, places)


def bert_deep() -> bytes:
    """BERT of 12 layers and width 128 (J. Devlin and others, 2018; I. Turc and others, 2019)."""
    net, width = Net(20240205), 128
    value = layer_norm(net, _embedded(net, width, 128), width)
    value = _layers(net, value, None, 12, width, 4)
    first = net.node("Gather", value, net.constant(np.array(0, np.int64)), axis=1)
    out = gemm(net, net.node("Tanh", gemm(net, first, width, width)), width, 2)
    return export(net, [words("input_ids", *FREE)], {out: floats("logits", "batch_size", 2)})


def distilbert() -> bytes:
    """DistilBERT with batch and sequence free: masks by Expand, Equal and Where."""
    net = Net(31)
    value = layer_norm(net, _embedded(net), WIDTH)
    masked = net.node("Equal", "attention_mask", net.constant(np.array(0, np.int64)))
    units = net.integers(1)
    shape = net.node("Concat", dim(net, value, 0), units, units, dim(net, value, 1), axis=0)
    narrow = net.node("Reshape", masked, shape)
    full = net.node(
        "Concat",
        dim(net, value, 0),
        net.integers(HEADS),
        dim(net, value, 1),
        dim(net, value, 1),
        axis=0,
    )
    value = _layers(net, value, net.node("Expand", narrow, full))
    first = net.node("Gather", value, net.constant(np.array(0, np.int64)), axis=1)
    out = gemm(net, net.node("Relu", gemm(net, first, WIDTH, WIDTH)), WIDTH, 2)
    ends = [words("input_ids", *FREE), words("attention_mask", *FREE)]
    return export(net, ends, {out: floats("logits", "batch_size", 2)})


def sentence_embedding() -> bytes:
    """Mean over the words that are not masked, scaled to length one (sentence-transformers)."""
    net = Net(32)
    value = _layers(net, layer_norm(net, _embedded(net), WIDTH), None)
    mask = net.node("Cast", net.node("Unsqueeze", "attention_mask", net.integers(-1)), to=1)
    mask = net.node("Expand", mask, net.node("Shape", value))
    total = net.node("ReduceSum", net.node("Mul", value, mask), net.integers(1), keepdims=0)
    count = net.node("ReduceSum", mask, net.integers(1), keepdims=0)
    mean = net.node("Div", total, net.node("Clip", count, number(net, 1e-9)))
    length = net.node("ReduceL2", mean, axes=[1], keepdims=1)
    length = net.node(
        "Expand", net.node("Clip", length, number(net, 1e-12)), net.node("Shape", mean)
    )
    out = net.node("Div", mean, length)
    ends = [words("input_ids", *FREE), words("attention_mask", *FREE)]
    return export(net, ends, {out: floats("sentence_embedding", "batch_size", WIDTH)})


def vit() -> bytes:
    """Patches by Conv, a class token that Expand repeats for the batch, LayerNormalization."""
    net = Net(33)
    weights, bias = net.weights(WIDTH, 3, 8, 8, fan=192), net.weights(WIDTH, fan=100)
    value = net.node("Conv", "x", weights, bias, kernel_shape=[8, 8], strides=[8, 8])
    value = net.node("Reshape", value, net.integers(0, WIDTH, -1))
    value = net.node("Transpose", value, perm=[0, 2, 1])
    shape = net.node("Concat", dim(net, "x", 0), net.integers(-1, -1), axis=0)
    minus = net.node("Equal", shape, net.integers(-1, -1, -1))
    filled = net.node("Where", minus, net.integers(1, 1, 1), shape)
    token = net.node("Expand", net.weights(1, 1, WIDTH, fan=1), filled)
    value = net.node("Concat", token, value, axis=1)
    value = net.node("Add", value, net.weights(1, 17, WIDTH, fan=4))
    value = _layers(net, value, None)
    out = gemm(net, net.node("Gather", value, net.constant(np.array(0)), axis=1), WIDTH, 10)
    return export(net, [floats("x", "batch", 3, 32, 32)], {out: floats("logits", "batch", 10)})


def _old_norm(net: Net, value: str) -> str:
    """LayerNormalization before opset 17: ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div."""
    centred = net.node("Sub", value, net.node("ReduceMean", value, axes=[-1]))
    square = net.node("ReduceMean", net.node("Pow", centred, number(net, 2)), axes=[-1])
    root = net.node("Sqrt", net.node("Add", square, number(net, 1e-5)))
    scaled = net.node("Mul", net.node("Div", centred, root), net.weights(WIDTH, fan=1))
    return net.node("Add", scaled, net.weights(WIDTH, fan=100))


def _old_bert(norm: Callable[[Net, str], str]) -> bytes:
    """Masks by Sub and Mul, Reshapes that keep dims by 0, a pooler; opset 11."""
    net = Net(34)
    value = norm(net, _embedded(net))
    wide = net.node("Unsqueeze", net.node("Unsqueeze", "attention_mask", axes=[1]), axes=[2])
    visible = net.node("Cast", wide, to=TensorProto.FLOAT)
    mask = net.node("Mul", net.node("Sub", number(net, 1), visible), number(net, -10000))
    shape = net.constant(np.array([0, 0, HEADS, EACH]))
    query, key, content = (linear(net, value, WIDTH, WIDTH) for _ in range(3))
    query, content = (
        net.node("Transpose", net.node("Reshape", part, shape), perm=[0, 2, 1, 3])
        for part in (query, content)
    )
    key = net.node("Transpose", net.node("Reshape", key, shape), perm=[0, 2, 3, 1])
    scores = net.node("Div", net.node("MatMul", query, key), number(net, EACH**0.5))
    shares = net.node("Softmax", net.node("Add", scores, mask), axis=3)
    mixed = net.node("Transpose", net.node("MatMul", shares, content), perm=[0, 2, 1, 3])
    joined = linear(net, net.node("Reshape", mixed, net.integers(0, 0, WIDTH)), WIDTH, WIDTH)
    value = norm(net, net.node("Add", joined, value))
    first = net.node("Gather", value, net.constant(np.array(0)), axis=1)
    pooled = net.node("Tanh", gemm(net, first, WIDTH, WIDTH))
    ends = [words("input_ids", *FREE), words("attention_mask", *FREE)]
    outputs = {
        value: floats("last_hidden_state", *FREE, WIDTH),
        pooled: floats("pooler_output", "batch_size", WIDTH),
    }
    return _old_axes(export(net, ends, outputs, 11))


def bert_opset11() -> bytes:
    """BERT of older exports: LayerNormalization in its nine nodes."""
    return _old_bert(_old_norm)


def bert_fused_opset11() -> bytes:
    """The same after ONNX Runtime's fusion: LayerNormalization, which ONNX has since opset 17."""
    return _old_bert(lambda net, value: layer_norm(net, value, WIDTH))


def _old_axes(model: bytes) -> bytes:
    """Write Unsqueeze's axes as the attribute that they were before opset 13."""
    proto = onnx.ModelProto.FromString(model)
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Unsqueeze" and len(node.input) == 2:
            axes = arrays[node.input.pop()].tolist()
            node.attribute.append(helper.make_attribute("axes", axes))
        for attribute in list(node.attribute):
            if attribute.name == "allowzero":
                node.attribute.remove(attribute)
    return proto.SerializeToString()


def detection_transformer() -> bytes:
    """DETR in short: picture to words by Conv, cross attention of learnt questions, boxes."""
    net = Net(35)
    value = net.node("Relu", conv(net, "pixel_values", 3, WIDTH, 7, stride=4))
    value = net.node("Reshape", value, net.integers(0, WIDTH, -1))
    memory = net.node("Transpose", value, perm=[0, 2, 1])
    queries = net.weights(1, 5, WIDTH, fan=1)
    key = net.node("Transpose", linear(net, memory, WIDTH, WIDTH), perm=[0, 2, 1])
    scores = net.node("MatMul", linear(net, queries, WIDTH, WIDTH), key)
    scores = net.node("Mul", scores, number(net, WIDTH**-0.5))
    mixed = net.node(
        "MatMul", net.node("Softmax", scores, axis=-1), linear(net, memory, WIDTH, WIDTH)
    )
    value = layer_norm(net, net.node("Add", queries, mixed), WIDTH)
    logits, boxes = linear(net, value, WIDTH, 6), net.node("Sigmoid", linear(net, value, WIDTH, 4))
    ends = [floats("pixel_values", "batch", 3, 32, 32)]
    outputs = {logits: floats("logits", "batch", 5, 6), boxes: floats("boxes", "batch", 5, 4)}
    return export(net, ends, outputs)


MODELS = {
    "bert_mini": encoder,
    "bert_deep": bert_deep,
    "distilbert": distilbert,
    "sentence_embedding": sentence_embedding,
    "vit": vit,
    "bert_opset11": bert_opset11,
    "bert_fused_opset11": bert_fused_opset11,
    "detection_transformer": detection_transformer,
}
