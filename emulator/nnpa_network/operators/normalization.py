# SPDX-License-Identifier: Apache-2.0
"""Softmax, normalisation, means, extremes and their positions.

Sources: ONNX operators of the names given; zDNN API Reference 1.2.0, the functions of the names
given.
"""

import math

import numpy as np
from nnpa_emulator.ztensor import DataTypes, generate_transformed_desc

from nnpa_network.building.arrangement import (
    Arrangement,
    NotMapped,
    axes_of,
    channels_last,
    describe,
    plain,
)
from nnpa_network.building.builder import Builder
from nnpa_network.building.type_inference import OnnxNode, Value
from nnpa_network.operators.elementwise import combine
from nnpa_network.operators.table import (
    Graph,
    axis_in,
    axis_last,
    become,
    ends_of,
    expanded,
    operator,
    optional_constant,
    require_float,
    require_rank,
    required_input,
    required_output,
    reshaped,
)
from nnpa_network.operators.windows import as_images, require_images, unfolded

# Numbers of zDNN API Reference 1.2.0: zdnn_softmax, zdnn_moments, zdnn_reduce, zdnn_meanreduce2d.
ACT_NONE, ACT_LOG = 0, 1
BESSEL_POPULATION = 0
REDUCE = {"ReduceMin": 0, "ArgMin": 1, "ReduceMax": 2, "ArgMax": 3}
MAX_MEAN = 1024


@operator("Softmax", "LogSoftmax", functions=("softmax",))
def softmax(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand, the last axis. `all`: any other axis is brought last by the host, and before
    opset 13 all axes from `axis` on are one vector. Magnitudes beyond 512 lose their differences.
    """
    value, output = ends_of(builder, node, "softmax")
    shape, rank = value.dims, max(len(value.dims), 1)
    axis = axis_in(int(node.attributes.get("axis", 1 if node.opset < 13 else -1)), rank)
    if axis < rank - 1:
        does = "flattens the axes" if node.opset < 13 else "turns it"
        graph.beyond(f"axis is {axis}, must be the last", does)
    if node.opset < 13:
        rows, columns = math.prod(shape[:axis]), math.prod(shape[axis:])
        arrangement = Arrangement(axes_of(shape), (1, 1, rows, columns))
    else:
        arrangement, _ = axis_last(shape, (axis,) if shape else ())
    act = ACT_LOG if node.op_type == "LogSoftmax" else ACT_NONE
    source = builder.tensor(value, arrangement)
    result = builder.new_tensor(output, arrangement)
    builder.call("softmax", input=source, act_func=act, output=result)


@operator("GlobalAveragePool", functions=("meanreduce2d",))
def global_average(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand of rank 4, height and width at most 1024. `all`: or of rank 3, as images of
    height 1.
    """
    value = required_input(node, 0)
    require_images(value, graph)
    _mean_of_images(builder, as_images(value), unfolded(builder, required_output(node)))


@operator("ReduceMean", functions=("meanreduce2d",))
def reduce_mean(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand of rank 4, axes exactly 2 and 3, height and width at most 1024; `all`: also
    without keepdims.
    """
    value, output = required_input(node, 0), required_output(node)
    require_rank(value, 4)
    if _axes(node, 18, 4) != (2, 3):
        raise NotMapped(f"axes are {list(_axes(node, 18, 4))}, must be 2 and 3")
    if not node.attributes.get("keepdims", 1):
        graph.beyond("keepdims is 0, must be 1", "drops the axes")
    n, c, _, _ = value.dims
    images = Value(f"{output.name}_part", output.dtype, (n, c, 1, 1))
    _mean_of_images(builder, value, images)
    become(builder, output, images)


def _mean_of_images(builder: Builder, value: Value, output: Value) -> None:
    require_float(value)
    require_rank(value, 4)
    builder.require("meanreduce2d")
    for name, size in zip(("height", "width"), value.dims[2:], strict=True):
        if size > MAX_MEAN:
            raise NotMapped(f"the {name} is {size}, must be at most {MAX_MEAN}")
    source = builder.tensor(value, channels_last(value.dims))
    result = builder.new_tensor(output, channels_last(output.dims))
    builder.call("meanreduce2d", input=source, output=result)


def _axes(node: OnnxNode, since: int, rank: int) -> tuple[int, ...]:
    """Return the axes of a reduction, from an input since some opset; none given means all."""
    axes_attribute = node.attributes.get("axes")
    if node.opset >= since:
        axes_attribute = optional_constant(node, 1, "axes")
    if axes_attribute is None or len(axes_attribute) == 0:
        if node.attributes.get("noop_with_empty_axes", 0):
            raise NotMapped("noop_with_empty_axes is 1 without axes, must be 0")
        return tuple(range(rank))
    return tuple(sorted({axis_in(int(axis), rank) for axis in axes_attribute}))


@operator("BatchNormalization", functions=("batchnorm",))
def batch_normalization(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand of rank 4 (`all`: 2 to 4), inference only. Scale and bias of the channels are
    computed by the host, at import where they are constants: scale / sqrt(var + epsilon), bias -
    mean * that.
    """
    value, output = required_input(node, 0), required_output(node)
    require_float(value)
    require_rank(value, 2, 3, 4)
    if node.attributes.get("training_mode", 0) or any(
        graph.is_read(node.output(index)) for index in range(1, len(node.outputs))
    ):
        raise NotMapped("training_mode is 1 or its outputs are read, must be 0")
    builder.require("batchnorm")
    if len(value.dims) < 4:
        graph.beyond(f"rank {len(value.dims)}, must be 4", "folds it")
    scale, bias, mean, var = (required_input(node, index) for index in (1, 2, 3, 4))
    epsilon = builder.constant(np.array(node.attributes.get("epsilon", 1e-5), var.dtype))
    root = builder.host("Sqrt", [builder.host("Add", [var, epsilon])])
    factor = builder.host("Div", [scale, root])
    offset = builder.host("Sub", [bias, builder.host("Mul", [mean, factor])])
    shape = value.dims
    order = axes_of(shape, (0, *range(2, len(shape)), 1))
    n, c, h, w = (*shape, 1, 1)[:4]
    arrangement = Arrangement(order, (n, h, w, c))
    source = builder.tensor(value, arrangement)
    factors, offsets = (
        builder.tensor(coefficient, plain(coefficient.dims)) for coefficient in (factor, offset)
    )
    result = builder.new_tensor(output, arrangement)
    builder.call("batchnorm", input_a=source, input_b=factors, input_c=offsets, output=result)


@operator("LayerNormalization", functions=("moments", "layernorm", "mul", "add", "invsqrt"))
def layer_normalization(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand whose leading axes fit in dim4. moments, then layernorm with gamma 1 and beta
    0, because zDNN takes scalars there; Scale and B by mul and add, expanded to the operand, where
    its vectors share pages. InvStdDev is an invsqrt of the variance.
    """
    value, output = ends_of(builder, node, "moments")
    builder.require("layernorm")
    shape = value.dims
    axis = axis_in(int(node.attributes.get("axis", -1)), len(shape))
    epsilon = float(node.attributes.get("epsilon", 1e-5))
    lead, inner = math.prod(shape[:axis]), math.prod(shape[axis:])
    source = builder.tensor(value, Arrangement(axes_of(shape), (lead, 1, 1, inner)))
    mean, variance = _moments(builder, node, source, axis)
    normal = Value(f"{output.name}_part", output.dtype, shape)
    result = builder.new_tensor(normal, Arrangement(axes_of(shape), (lead, 1, 1, inner)))
    scalars = {"beta_value": 0.0, "gamma_value": 1.0, "epsilon_value": epsilon}
    operands = {"input_a": source, "input_b": mean, "input_c": variance}
    builder.call("layernorm", **operands, **scalars, output=result)
    _scale_and_shift(builder, node, normal, output, dense=axis == len(shape) - 1)
    if graph.is_read(node.output(2)):
        deviation = required_output(node, 2)
        made_tensor = builder.new_tensor(deviation, _one_each(deviation, lead))
        builder.call("invsqrt", input=variance, epsilon=epsilon, output=made_tensor)


def _one_each(value: Value, lead: int) -> Arrangement:
    return Arrangement(axes_of(value.dims), (lead, 1, 1, 1))


def _moments(builder: Builder, node: OnnxNode, source: int, axis: int) -> tuple[int, int]:
    """Emit moments; return the tensors of mean and variance, one element per dim4."""
    shape = required_input(node, 0).dims
    reduced = shape[:axis] + (1,) * (len(shape) - axis)
    mean = node.output(1) or Value("mean", required_output(node).dtype, reduced)
    variance = Value("variance", required_output(node).dtype, reduced)
    arrangement = _one_each(variance, math.prod(shape[:axis]))
    results = builder.new_tensor(mean, arrangement), builder.new_tensor(variance, arrangement)
    builder.call(
        "moments",
        input=source,
        bessel_correction_type=BESSEL_POPULATION,
        output_a=results[0],
        output_b=results[1],
    )
    return results


def _scale_and_shift(
    builder: Builder, node: OnnxNode, value: Value, output: Value, *, dense: bool
) -> None:
    """Multiply by Scale and add B, as far as they do anything.

    `dense` are vectors that share pages first: moments have a page for each.
    """
    for index, verb, neutral in ((1, "mul", 1), (2, "add", 0)):
        operand = node.input(index)
        if operand is None:
            continue
        if operand.constant is not None and bool(np.all(operand.constant == neutral)):
            continue
        if dense:
            builder.tensor(value, plain(value.dims))
        result = Value(f"{output.name}_part", output.dtype, output.shape)
        combine(builder, verb, value, expanded(builder, operand, output.dims), result)
        value = result
    become(builder, output, value)


@operator("ReduceMin", "ReduceMax", functions=("reduce",))
def reduce_extreme(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand that is not empty, the last axis, with keepdims. `all`: without them, and other
    axes, or several, which the host brings last, as one vector.
    """
    value, output = ends_of(builder, node, "reduce")
    rank = len(value.dims)
    axes = _axes(node, 18, rank)
    if axes != (rank - 1,):
        graph.beyond(f"axes are {list(axes)}, must be the last", "makes one vector of them")
    if not node.attributes.get("keepdims", 1):
        graph.beyond("keepdims is 0, must be 1", "drops the axes")
    arrangement, kept = axis_last(value.dims, axes)
    keepdims = tuple(value.dims[axis] if axis in kept else 1 for axis in range(rank))
    result = Value(f"{output.name}_part", output.dtype, keepdims)
    source = builder.tensor(value, arrangement)
    target = builder.new_tensor(result, Arrangement(axes_of(keepdims), (*arrangement.dims[:3], 1)))
    builder.call("reduce", input=source, op_type=REDUCE[node.op_type], output=target)
    become(builder, output, reshaped(result, output.dims))


@operator("ArgMin", "ArgMax", functions=("reduce",))
def reduce_position(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operand, the last axis; the INT32 positions become INT64 on the host. `all`: any other
    axis, which the host brings last, and select_last_index, for which it turns the axis round.
    Values that are equal in DLFLOAT16 tie.
    """
    value, output = ends_of(builder, node, "reduce")
    rank = len(value.dims)
    axis = axis_in(int(node.attributes.get("axis", 0)), rank)
    last = bool(node.attributes.get("select_last_index", 0))
    if axis < rank - 1:
        graph.beyond(f"axis is {axis}, must be the last", "turns it")
    if last:
        graph.beyond("select_last_index is 1, must be 0", "turns the axis round")
        ends = [builder.integers(bound) for bound in (-1, np.iinfo(np.int64).min, axis, -1)]
        value = builder.host("Slice", [value, *ends])
    arrangement, _ = axis_last(value.dims, (axis,))
    source = builder.tensor(value, arrangement)
    positions = _positions(builder, source, arrangement, node.op_type)
    if last:
        most = builder.constant(np.array(value.dims[axis] - 1, np.int32))
        positions = builder.host("Sub", [most, positions])
    positions_int64 = builder.host("Cast", [positions], to=7)  # TensorProto.INT64
    become(builder, output, reshaped(positions_int64, output.dims))


def _positions(builder: Builder, source: int, arrangement: Arrangement, op_type: str) -> Value:
    """Emit reduce to positions; return them as an INT32 array."""
    dims = (*arrangement.dims[:3], 1)
    shape, single = tuple(dims), np.dtype(np.float32)
    pre, _ = describe(shape, Arrangement(axes_of(shape), dims), single)
    pre = type(pre)(pre.layout, pre.format, DataTypes.INT32, *pre.dims)
    target = builder.declare(pre, generate_transformed_desc(pre))
    builder.call("reduce", input=source, op_type=REDUCE[op_type], output=target)
    result = Value("positions", np.dtype(np.int32), shape)
    builder.query("transform_origtensor", target, result)
    return result
