# SPDX-License-Identifier: Apache-2.0
"""Real networks with fixed weights: a residual CNN, a transformer encoder, a BiLSTM tagger.

Weights are drawn from a seed in the usual scale (He, Xavier), so that activations stay in a range
that a trained network has.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
Singles = npt.NDArray[np.float32]


@dataclass
class Net:
    """A graph under construction; `node` and the like return the name of the added value."""

    seed: int
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    initializers: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def constant(self, array: npt.NDArray[Any]) -> str:
        """Add an initializer."""
        name = f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weights(self, *shape: int, fan: int) -> str:
        """Add normal weights with the variance 1 / fan."""
        drawn = self.rng.normal(0, fan**-0.5, shape)
        return self.constant(drawn.astype(np.float32))

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Append a node with one output."""
        output = f"v{len(self.nodes)}"
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=name, **attributes))
        return output

    def integers(self, *numbers: int) -> str:
        """Add an INT64 vector, such as a shape or axes."""
        return self.constant(np.array(numbers, np.int64))

    def model(
        self, name: str, inputs: list[onnx.ValueInfoProto], output: str, shape: list[int | str]
    ) -> bytes:
        """Return the serialised model."""
        out = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, name, inputs, [out], self.initializers)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def _float(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


def _int64(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT64, list(shape))


# The residual CNN.


def _conv(net: Net, value: str, inputs: int, outputs: int, kernel: int, stride: int) -> str:
    """Convolution and batch normalisation."""
    weights = net.weights(outputs, inputs, kernel, kernel, fan=inputs * kernel * kernel // 2)
    pad = kernel // 2
    ends = {"pads": [pad] * 4} if stride == 1 else {"auto_pad": "SAME_UPPER"}
    value = net.node("Conv", value, weights, strides=[stride, stride], **ends)
    rng = net.rng
    drawn = (
        rng.uniform(0.8, 1.2, outputs),
        rng.normal(0, 0.1, outputs),
        rng.normal(0, 0.1, outputs),
        rng.uniform(0.8, 1.2, outputs),
    )
    named = [net.constant(array.astype(np.float32)) for array in drawn]
    return net.node("BatchNormalization", value, *named)


def _block(net: Net, value: str, inputs: int, outputs: int, stride: int) -> str:
    """Two convolutions and a shortcut."""
    inner = net.node("Relu", _conv(net, value, inputs, outputs, 3, stride))
    inner = _conv(net, inner, outputs, outputs, 3, 1)
    short = value
    if stride != 1 or inputs != outputs:
        short = _conv(net, value, inputs, outputs, 1, stride)
    return net.node("Relu", net.node("Add", inner, short))


def residual_cnn() -> bytes:
    """Images (batch, 3, 32, 32) to 10 logits: a stem, three residual blocks, one dense layer."""
    net = Net(20240101)
    value = net.node("Relu", _conv(net, "image", 3, 16, 3, 1))
    value = net.node("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2])
    for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
        value = _block(net, value, inputs, outputs, stride)
    value = net.node("Flatten", net.node("GlobalAveragePool", value))
    weights, bias = net.weights(10, 64, fan=8), net.weights(10, fan=8)
    logits = net.node("Gemm", value, weights, bias, transB=1)
    return net.model("residual_cnn", [_float("image", "batch", 3, 32, 32)], logits, ["batch", 10])


def images(count: int) -> dict[str, Singles]:
    """Return smooth random images."""
    rng = np.random.default_rng(7)
    coarse = rng.normal(0, 1, (count, 3, 8, 8))
    fine = coarse.repeat(4, axis=2).repeat(4, axis=3) + rng.normal(0, 0.3, (count, 3, 32, 32))
    return {"image": fine.astype(np.float32)}


# The transformer encoder.

HIDDEN, HEADS, INNER, SEQUENCE, WORDS, LABELS = 64, 4, 128, 128, 200, 16


def _dense(net: Net, value: str, inputs: int, outputs: int) -> str:
    product = net.node("MatMul", value, net.weights(inputs, outputs, fan=inputs))
    return net.node("Add", product, net.weights(outputs, fan=100))


def _normalised(net: Net, value: str) -> str:
    scale = net.rng.uniform(0.9, 1.1, HIDDEN).astype(np.float32)
    names = net.constant(scale), net.weights(HIDDEN, fan=100)
    return net.node("LayerNormalization", value, *names, axis=-1, epsilon=1e-5)


def _heads(net: Net, value: str, order: list[int]) -> str:
    apart = net.node("Reshape", value, net.integers(0, 0, HEADS, HIDDEN // HEADS))
    return net.node("Transpose", apart, perm=order)


def _attention(net: Net, value: str, mask: str) -> str:
    query = _heads(net, _dense(net, value, HIDDEN, HIDDEN), [0, 2, 1, 3])
    key = _heads(net, _dense(net, value, HIDDEN, HIDDEN), [0, 2, 3, 1])
    content = _heads(net, _dense(net, value, HIDDEN, HIDDEN), [0, 2, 1, 3])
    root = net.constant(np.array((HIDDEN // HEADS) ** 0.5, np.float32))
    scores = net.node("Div", net.node("MatMul", query, key), root)
    shares = net.node("Softmax", net.node("Add", scores, mask), axis=-1)
    mixed = net.node("Transpose", net.node("MatMul", shares, content), perm=[0, 2, 1, 3])
    joined = net.node("Reshape", mixed, net.integers(0, 0, HIDDEN))
    return _dense(net, joined, HIDDEN, HIDDEN)


def _mask(net: Net) -> str:
    """Turn 1 and 0 of attention_mask into 0 and the least FP32 number, as BERT exports do."""
    wide = net.node("Unsqueeze", "attention_mask", net.integers(1, 2))
    visible = net.node("Cast", wide, to=TensorProto.FLOAT)
    off = net.node("Sub", net.constant(np.array(1, np.float32)), visible)
    return net.node("Mul", off, net.constant(np.array(np.finfo(np.float32).min, np.float32)))


def encoder() -> bytes:
    """Word ids and mask (batch, 128) to 16 logits per word: 2 layers, 4 heads, hidden size 64."""
    net = Net(20240202)
    words = net.node("Gather", net.weights(WORDS, HIDDEN, fan=1), "input_ids")
    value = net.node("Add", words, net.weights(SEQUENCE, HIDDEN, fan=4))
    value = _normalised(net, value)
    mask = _mask(net)
    for _ in range(2):
        value = _normalised(net, net.node("Add", value, _attention(net, value, mask)))
        inner = net.node("Gelu", _dense(net, value, HIDDEN, INNER))
        value = _normalised(net, net.node("Add", value, _dense(net, inner, INNER, HIDDEN)))
    logits = _dense(net, value, HIDDEN, LABELS)
    inputs = [_int64("input_ids", "batch", SEQUENCE), _int64("attention_mask", "batch", SEQUENCE)]
    return net.model("encoder", inputs, logits, ["batch", SEQUENCE, LABELS])


def sentences(count: int) -> dict[str, npt.NDArray[np.int64]]:
    """Return word ids and masks, the last quarter of some sentences masked."""
    rng = np.random.default_rng(8)
    ids = rng.integers(0, WORDS, (count, SEQUENCE))
    mask = np.ones((count, SEQUENCE), np.int64)
    mask[::2, SEQUENCE * 3 // 4 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


# The BiLSTM tagger.

STEPS, BATCH, EMBEDDED, STATE, TAGS = 24, 16, 32, 40, 9


def tagger() -> bytes:
    """Word ids (24, batch) to 9 logits per word: embedding, BiLSTM of size 40, dense layer."""
    net = Net(20240303)
    value = net.node("Gather", net.weights(WORDS, EMBEDDED, fan=1), "words")
    tensors = (
        net.weights(2, 4 * STATE, EMBEDDED, fan=EMBEDDED),
        net.weights(2, 4 * STATE, STATE, fan=STATE),
        net.weights(2, 8 * STATE, fan=20),
    )
    value = net.node("LSTM", value, *tensors, hidden_size=STATE, direction="bidirectional")
    value = net.node("Transpose", value, perm=[0, 2, 1, 3])
    value = net.node("Reshape", value, net.integers(0, 0, 2 * STATE))
    product = net.node("MatMul", value, net.weights(2 * STATE, TAGS, fan=4))
    logits = net.node("Add", product, net.weights(TAGS, fan=20))
    return net.model("tagger", [_int64("words", STEPS, "batch")], logits, [STEPS, "batch", TAGS])


def words(count: int) -> dict[str, npt.NDArray[np.int64]]:
    """Return word ids for `count` sentences."""
    rng = np.random.default_rng(9)
    return {"words": rng.integers(0, WORDS, (STEPS, count))}
