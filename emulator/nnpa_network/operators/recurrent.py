# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: LSTM, GRU.

Gates are the model's i, o, f, c and z, r, h; zDNN's are f, i, c, o and z, r, h, each (directions,
inputs, hidden).
Sources: ONNX operators LSTM and GRU; zDNN API Reference 1.2.0, zdnn_lstm, zdnn_gru.
"""

from dataclasses import dataclass

import numpy as np
from nnpa_emulator.machine import FORMAT_0, FunctionCode
from nnpa_emulator.ztensor import (
    RNN_TYPE_GRU,
    RNN_TYPE_LSTM,
    USAGE_BIASES,
    USAGE_HIDDEN_BIASES,
    USAGE_HIDDEN_WEIGHTS,
    USAGE_WEIGHTS,
    DataLayouts,
    TensorDesc,
    generate_transformed_desc_concatenated,
    init_pre_transformed_desc,
    padded,
)

from nnpa_network.building.arrangement import ELEMENT_TYPES, Arrangement, NotMapped, axes_of, plain
from nnpa_network.building.builder import Builder
from nnpa_network.building.type_inference import OnnxNode, Value
from nnpa_network.operators.table import (
    Graph,
    operator,
    optional_constant,
    part,
    require_float,
    required_input,
    required_output,
    reshaped,
)

DIRECTIONS = {"forward": 0, "reverse": 1, "bidirectional": 2}  # FWD, BWD, BIDIR of zdnn.h
_ORDER = ("input", "h0", "c0", "weights", "biases", "hidden_weights", "hidden_biases")


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: the places of zDNN's gates among the model's, and its sizes."""

    verb: str
    rnn_type: int
    gates: tuple[int, ...]
    direction: int
    directions: int
    timesteps: int
    batch: int
    hidden: int

    @property
    def bidirectional(self) -> bool:
        """Tell whether both directions are computed."""
        return self.directions == 2


@operator("LSTM", functions=("lstm",))
def lstm(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operands, the default activations, layout 0, four times the hidden size padded to 64
    within dim1; no clip, peepholes, input_forget or sequence_lens (unless all timesteps). The host
    takes the gates apart, turns and reorders them, at import where they are constants; missing
    states and biases are zeros. Y_h is cut from Y by the host where both are wanted.
    """
    layer = _layer(node, "lstm", RNN_TYPE_LSTM, (2, 0, 3, 1), ("Sigmoid", "Tanh", "Tanh"))
    if node.attributes.get("input_forget", 0):
        raise NotMapped("input_forget is 1, must be 0")
    if node.input(7) is not None and graph.is_read(node.input(7)):
        raise NotMapped("input P (peepholes) is given, must be left out")
    _emit(builder, node, layer, graph)


@operator("GRU", functions=("gru",))
def gru(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """As LSTM, with linear_before_reset 1, which is not ONNX's default, and three times the hidden
    size padded to 64 within dim1.
    """
    layer = _layer(node, "gru", RNN_TYPE_GRU, (0, 1, 2), ("Sigmoid", "Tanh"))
    if not node.attributes.get("linear_before_reset", 0):
        raise NotMapped("linear_before_reset is 0, must be 1")
    _emit(builder, node, layer, graph)


def _emit(builder: Builder, node: OnnxNode, layer: Layer, graph: Graph) -> None:
    """Emit a layer; LSTM has a cell state beside the hidden one."""
    has_cell, cell = layer.verb == "lstm", None
    operands = _operands(builder, node, layer)
    if has_cell:
        operands["c0"] = _state(builder, node, layer, 6)
    hidden, all_steps = _hidden(builder, node, layer, graph)
    outputs = {"hn_output": hidden}
    if has_cell:
        outputs["cf_output"], cell = _last_state(builder, node, layer, 2)
    arguments = {name: operands[name] for name in _ORDER if name in operands}
    builder.call(layer.verb, **arguments, direction=layer.direction, **outputs)
    _deliver(builder, node, layer, graph, hidden, all_steps)
    if cell is not None and layer.bidirectional and graph.is_read(cell):
        builder.query("transform_origtensor", outputs["cf_output"], cell)


def _layer(
    node: OnnxNode, verb: str, rnn_type: int, gates: tuple[int, ...], default: tuple[str, ...]
) -> Layer:
    """Read and check the attributes."""
    value, recurrence = required_input(node, 0), required_input(node, 2)
    require_float(value)
    direction = str(node.attributes.get("direction", "forward"))
    directions = 2 if direction == "bidirectional" else 1
    activations = tuple(node.attributes.get("activations") or default * directions)
    if [name.lower() for name in activations] != [name.lower() for name in default * directions]:
        raise NotMapped(f"activations are {list(activations)}, must be {list(default)}")
    if node.attributes.get("clip"):
        raise NotMapped(f"clip is {node.attributes['clip']}, must be left out")
    if node.attributes.get("layout", 0):
        raise NotMapped("layout is 1, must be 0")
    timesteps, batch, _ = value.dims
    if node.input(4) is not None:
        lengths = optional_constant(node, 4, "sequence_lens")
        if lengths is None or not bool(np.all(lengths == timesteps)):
            raise NotMapped(f"sequence_lens has other lengths, must be {timesteps} everywhere")
    hidden = recurrence.dims[2]
    number = DIRECTIONS[direction]
    return Layer(verb, rnn_type, gates, number, directions, timesteps, batch, hidden)


def _operands(builder: Builder, node: OnnxNode, layer: Layer) -> dict[str, int]:
    """Return the tensors that LSTM and GRU have in common."""
    builder.require_code(FunctionCode.NNPA_MATMUL_OP_BCAST23, FORMAT_0, layer.verb)
    value, count = required_input(node, 0), len(layer.gates)
    width = count * layer.hidden
    _require_shapes(node, layer, width)
    bias = node.input(3)
    if bias is None:
        bias = builder.constant(np.zeros((layer.directions, 2 * width), value.dtype))
    halves = [part(builder, bias, 1, half * width, (half + 1) * width) for half in (0, 1)]
    return {
        "input": builder.tensor(value, plain(value.dims)),
        "h0": _state(builder, node, layer, 5),
        "weights": _gates(builder, layer, required_input(node, 1), USAGE_WEIGHTS),
        "biases": _gates(builder, layer, halves[0], USAGE_BIASES),
        "hidden_weights": _gates(builder, layer, required_input(node, 2), USAGE_HIDDEN_WEIGHTS),
        "hidden_biases": _gates(builder, layer, halves[1], USAGE_HIDDEN_BIASES),
    }


def _require_shapes(node: OnnxNode, layer: Layer, width: int) -> None:
    """Refuse weights, biases and states whose shapes do not fit the layer."""
    sides, state = layer.directions, (layer.directions, layer.batch, layer.hidden)
    shapes = {
        1: (sides, width, required_input(node, 0).dims[2]),
        2: (sides, width, layer.hidden),
        3: (sides, 2 * width),
        5: state,
        6: state,
    }
    for index, shape in shapes.items():
        value = node.input(index)
        if value is not None and value.dims != shape:
            raise NotMapped(f"input {index} is {list(value.dims)}, must be {list(shape)}")


def _gates(builder: Builder, layer: Layer, value: Value, usage: int) -> int:
    """Return the concatenated tensor of weights (d, g*s, n) or biases (d, g*s)."""
    parts: list[Value] = []
    size = layer.hidden
    for gate in layer.gates:
        cut = part(builder, value, 1, gate * size, (gate + 1) * size)
        weights = usage in (USAGE_WEIGHTS, USAGE_HIDDEN_WEIGHTS)
        parts.append(builder.host("Transpose", [cut], perm=[0, 2, 1]) if weights else cut)
    assert value.dtype is not None
    dims = parts[0].dims
    layout = DataLayouts.ZDNN_3DS if len(dims) == 3 else DataLayouts.ZDNN_2DS
    pre = init_pre_transformed_desc(layout, ELEMENT_TYPES[value.dtype], *dims)
    info = layer.rnn_type | usage
    return builder.sticks(parts, pre, generate_transformed_desc_concatenated(pre, info))


def _state(builder: Builder, node: OnnxNode, layer: Layer, index: int) -> int:
    """Return the tensor of an initial state, zeros where it is left out."""
    value = node.input(index)
    if value is None:
        shape = layer.directions, layer.batch, layer.hidden
        value = builder.constant(np.zeros(shape, required_input(node, 0).dtype))
    return builder.tensor(value, plain(value.dims))


def _states(builder: Builder, layer: Layer, value: Value, timesteps: int) -> int:
    """Return a new tensor for states of some timesteps; in one direction it is the value itself."""
    assert value.dtype is not None
    if not layer.bidirectional:
        dims = (timesteps, 1, layer.batch, layer.hidden)
        return builder.new_tensor(value, Arrangement(axes_of(value.dims), dims))
    shape = timesteps, layer.directions, layer.batch, layer.hidden
    pre = init_pre_transformed_desc(DataLayouts.ZDNN_4DS, ELEMENT_TYPES[value.dtype], *shape)
    width = 2 * padded(layer.hidden)
    transformed = TensorDesc(DataLayouts.ZDNN_NHWC, 0, 0, timesteps, 1, layer.batch, width)
    return builder.declare(pre, transformed)


def _hidden(builder: Builder, node: OnnxNode, layer: Layer, graph: Graph) -> tuple[int, bool]:
    """Return the tensor for hn_output, and whether it holds all timesteps."""
    value = node.output(0)
    if value is not None and graph.is_read(value):
        return _states(builder, layer, value, layer.timesteps), True
    return _last_state(builder, node, layer, 1)[0], False


def _last_state(
    builder: Builder, node: OnnxNode, layer: Layer, index: int
) -> tuple[int, Value | None]:
    """Return a tensor for Y_h or Y_c, and the value that it is if the model has it."""
    value = node.output(index)
    if value is None:
        shape = layer.directions, layer.batch, layer.hidden
        unnamed = Value("state", required_input(node, 0).dtype, shape)
        return _states(builder, layer, unnamed, 1), None
    return _states(builder, layer, value, 1), value


def _deliver(
    builder: Builder, node: OnnxNode, layer: Layer, graph: Graph, hidden: int, all_steps: bool
) -> None:
    """Bring results that cannot stay tensors into arrays: both directions, and Y_h beside Y."""
    y, last = node.output(0), node.output(1)
    if layer.bidirectional:
        target = y if all_steps else last
        if target is not None and graph.is_read(target):
            builder.query("transform_origtensor", hidden, target)
    if not all_steps or last is None or not graph.is_read(last):
        return
    ends = {0: (layer.timesteps - 1,), 1: (0,), 2: (layer.timesteps - 1, 0)}[layer.direction]
    parts = [
        part(builder, part(builder, required_output(node), 0, at, at + 1), 1, side, side + 1)
        for side, at in enumerate(ends)
    ]
    joined = builder.host("Concat", parts, axis=1)
    last.view = (reshaped(joined, last.dims), tuple(range(3)))
