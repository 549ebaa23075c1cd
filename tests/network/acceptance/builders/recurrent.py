# SPDX-License-Identifier: Apache-2.0
"""Recurrent networks of torch and tf2onnx, over sound, text and time series."""

import numpy as np
from onnx import helper, numpy_helper

from tests.network.acceptance.builders.export import (
    conv,
    end,
    export,
    floats,
    linear,
    nodes,
    number,
    words,
)
from tests.network.real_models import WORDS, Net, tagger

SIZE = 16


def _weights(net: Net, gates: int, inputs: int, directions: int = 1) -> list[str]:
    return [
        net.weights(directions, gates * SIZE, inputs, fan=inputs),
        net.weights(directions, gates * SIZE, SIZE, fan=SIZE),
        net.weights(directions, 2 * gates * SIZE, fan=50),
    ]


def gru_bidirectional() -> bytes:
    """Two layers of a bidirectional GRU, linear_before_reset, batch and time free (torch)."""
    net, value, inputs = Net(51), "input", 12
    for _ in range(2):
        value = net.node(
            "GRU",
            value,
            *_weights(net, 3, inputs, 2),
            hidden_size=SIZE,
            direction="bidirectional",
            linear_before_reset=1,
        )
        value = net.node("Transpose", value, perm=[0, 2, 1, 3])
        value, inputs = net.node("Reshape", value, net.integers(0, 0, -1)), 2 * SIZE
    out = linear(net, value, 2 * SIZE, 5)
    ends = [floats("input", "time", "batch", 12)]
    return export(net, ends, {out: floats("output", "time", "batch", 5)})


def lstm_stream() -> bytes:
    """An LSTM whose states come in and go out, for one step after the other (torch)."""
    net = Net(52)
    weights = _weights(net, 4, 12)
    value, hidden, cell = nodes(
        net, "LSTM", ["input", *weights, "", "h0", "c0"], 3, hidden_size=SIZE
    )
    out = linear(net, net.node("Squeeze", value, net.integers(1)), SIZE, 5)
    state = (1, "batch", SIZE)
    ends = [floats("input", 1, "batch", 12), floats("h0", *state), floats("c0", *state)]
    outputs = {
        out: floats("output", 1, "batch", 5),
        hidden: floats("hn", *state),
        cell: floats("cn", *state),
    }
    return export(net, ends, outputs)


def lstm_lengths() -> bytes:
    """Sequences of different lengths in one batch: sequence_lens, last state of both directions."""
    net = Net(53)
    value = net.node("Gather", net.weights(WORDS, 12, fan=1), "tokens")
    weights = _weights(net, 4, 12, 2)
    names = ["", "lengths"]
    _, hidden, _ = nodes(
        net, "LSTM", [value, *weights, names[1]], 3, hidden_size=SIZE, direction="bidirectional"
    )
    turned = net.node("Transpose", hidden, perm=[1, 0, 2])
    out = linear(net, net.node("Reshape", turned, net.integers(0, -1)), 2 * SIZE, 3)
    ends = [words("tokens", "time", "batch"), end("lengths", np.int32, "batch")]
    return export(net, ends, {out: floats("logits", "batch", 3)})


def keras_gru() -> bytes:
    """A GRU of keras: Transpose around, initial state expanded from the batch (tf2onnx)."""
    net = Net(54)
    value = net.node("Transpose", "input_1", perm=[1, 0, 2])
    batch = net.node("Slice", net.node("Shape", "input_1"), net.integers(0), net.integers(1))
    shape = net.node("Concat", net.integers(1), batch, net.integers(SIZE), axis=0)
    state = net.node("Expand", number(net, 0), shape)
    _, hidden = nodes(
        net,
        "GRU",
        [value, *_weights(net, 3, 8), "", state],
        2,
        hidden_size=SIZE,
        linear_before_reset=1,
    )
    last = net.node("Squeeze", hidden, net.integers(0))
    product = net.node("MatMul", last, net.weights(SIZE, 1, fan=SIZE))
    out = net.node("Add", product, net.weights(1, fan=1))
    return export(
        net, [floats("input_1", "unk__1", 24, 8)], {out: floats("dense", "unk__2", 1)}, 15
    )


def plain_rnn() -> bytes:
    """An Elman network with Relu, one direction reversed (torch)."""
    net = Net(55)
    value = net.node(
        "RNN",
        "input",
        *_weights(net, 1, 8, 1),
        hidden_size=SIZE,
        activations=["Relu"],
        direction="reverse",
    )
    out = linear(net, net.node("Squeeze", value, net.integers(1)), SIZE, 4)
    return export(net, [floats("input", 10, 1, 8)], {out: floats("output", 10, 1, 4)})


def crnn() -> bytes:
    """A reader of text lines: convolutions, width as time, BiLSTM, LogSoftmax; width free."""
    net = Net(56)
    value = net.node("Relu", conv(net, "image", 1, 8))
    value = net.node("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2])
    value = net.node("Relu", conv(net, value, 8, 16))
    value = net.node("MaxPool", value, kernel_shape=[8, 1], strides=[8, 1])
    value = net.node("Transpose", net.node("Squeeze", value, net.integers(2)), perm=[2, 0, 1])
    value = net.node(
        "LSTM", value, *_weights(net, 4, 16, 2), hidden_size=SIZE, direction="bidirectional"
    )
    value = net.node(
        "Reshape", net.node("Transpose", value, perm=[0, 2, 1, 3]), net.integers(0, 0, -1)
    )
    out = net.node("LogSoftmax", linear(net, value, 2 * SIZE, 20), axis=2)
    ends = [floats("image", "batch", 1, 16, "width")]
    return export(net, ends, {out: floats("log_probs", "time", "batch", 20)})


def wave_features() -> bytes:
    """wav2vec's first layers: Conv over time, InstanceNormalization, Gelu; time free."""
    net = Net(57)
    weights = net.weights(16, 1, 10, fan=10)
    value = net.node("Conv", "wave", weights, kernel_shape=[10], strides=[5], pads=[0, 0])
    units, zeros = (net.constant(np.full(16, number, np.float32)) for number in (1, 0))
    value = net.node("InstanceNormalization", value, units, zeros, epsilon=1e-5)
    half = net.node("Erf", net.node("Div", value, number(net, 2**0.5)))
    value = net.node(
        "Mul", net.node("Mul", value, net.node("Add", half, number(net, 1))), number(net, 0.5)
    )
    weights = net.weights(16, 16, 3, fan=48)
    value = net.node("Conv", value, weights, kernel_shape=[3], strides=[2], pads=[0, 0])
    out = net.node("Transpose", net.node("Relu", value), perm=[0, 2, 1])
    ends = [floats("wave", "batch", 1, "samples")]
    return export(net, ends, {out: floats("features", "batch", "frames", 16)})


def loop_decoder() -> bytes:
    """A Loop of 8 steps around a small cell, with its state and outputs (torch.jit.script)."""
    net, step = Net(58), Net(59)
    inner = step.node("Add", step.node("MatMul", "state", "weights"), "start")
    new = step.node("Tanh", inner)
    step.nodes.append(helper.make_node("Identity", ["go_in"], ["go_out"]))
    step.nodes.append(helper.make_node("Identity", [new], ["seen"]))
    ends = [words("count"), end("go_in", np.bool_), floats("state", 1, 16)]
    outs = [end("go_out", np.bool_), floats(new, 1, 16), floats("seen", 1, 16)]
    body = helper.make_graph(step.nodes, "body", ends, outs, step.initializers)
    drawn = net.rng.normal(0, 0.25, (16, 16)).astype(np.float32)
    net.initializers.append(numpy_helper.from_array(drawn, "weights"))
    trips, go = net.constant(np.array(8)), net.constant(np.array(True))
    last, seen = nodes(net, "Loop", [trips, go, "start"], 2, body=body)
    outputs = {last: floats("last", 1, 16), seen: floats("steps", 8, 1, 16)}
    return export(net, [floats("start", 1, 16)], outputs)


def branches() -> bytes:
    """An If on the size of the input, as torch.jit.script keeps it."""
    net = Net(60)
    many = net.node("Greater", net.node("Size", "x"), net.constant(np.array(40)))
    graphs = {}
    for name, op_type in (("then_branch", "Tanh"), ("else_branch", "Relu")):
        out = f"{name}_out"
        node = helper.make_node(op_type, ["hidden"], [out])
        graphs[name] = helper.make_graph([node], name, [], [floats(out, "n", 16)])
    product = net.node("MatMul", "x", net.weights(8, 16, fan=8))
    net.nodes.append(helper.make_node("Identity", [product], ["hidden"]))
    out = net.node("If", many, **graphs)
    out = net.node("MatMul", out, net.weights(16, 4, fan=16))
    return export(net, [floats("x", "n", 8)], {out: floats("y", "n", 4)})


MODELS = {
    "bilstm_tagger": tagger,
    "gru_bidirectional": gru_bidirectional,
    "lstm_stream": lstm_stream,
    "lstm_lengths": lstm_lengths,
    "keras_gru": keras_gru,
    "plain_rnn": plain_rnn,
    "crnn": crnn,
    "wave_features": wave_features,
    "loop_decoder": loop_decoder,
    "branches": branches,
}
