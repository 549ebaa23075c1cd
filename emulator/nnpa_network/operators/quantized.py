# SPDX-License-Identifier: Apache-2.0
"""Integers, with the option `offload_integer`: MatMulInteger, QLinearMatMul, dynamic ranges.

zDNN multiplies INT8 by INT8 weights and rounds the exact sum to DLFLOAT16, so that integers beyond
1024 are no longer exact. Zero points are subtracted before, so that no large correction has to
cancel; a difference that does not fit INT8 goes as two halves, 2 * (d >> 1) + (d & 1).
Sources: ONNX operators MatMulInteger, QLinearMatMul and DynamicQuantizeLinear; zDNN API Reference
1.2.0, zdnn_quantized_matmul_op and zdnn_getrange_ztensor.
"""

import numpy as np
from nnpa_emulator.machine import FORMAT_1, FunctionCode
from nnpa_emulator.ztensor import (
    DataLayouts,
    DataTypes,
    QuantizedTransformTypes,
    generate_quantized_transformed_desc,
    init_pre_transformed_desc,
)

from nnpa_network.building.arrangement import NotMapped, describe, plain, stacked
from nnpa_network.building.builder import Builder
from nnpa_network.building.type_inference import OnnxNode, Value
from nnpa_network.operators.table import (
    Graph,
    operator,
    preferred,
    require_float,
    required_input,
    required_output,
    reshaped,
)

_INTEGERS = (np.dtype(np.int8), np.dtype(np.uint8))
_INT8, _INT16, _FLOAT, _INT32, _UINT8 = 3, 5, 1, 6, 2  # TensorProto.DataType


@operator("MatMulInteger", functions=("quantized_matmul_op",))
def matmul_integer(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """With `offload_integer`: INT8 or UINT8 operands, zero points per tensor, ranks as MatMul but
    with equal stacks or one matrix on the right. The host subtracts zero points. Sums beyond 1024
    are rounded to DLFLOAT16, where ONNX asks for exact integers.
    """
    sums = _product(builder, node, graph, (0, 2), (1, 3))
    result = builder.host("Cast", [sums], to=_INT32)
    output = required_output(node)
    output.view = (reshaped(result, output.dims), tuple(range(len(output.dims))))


@operator("QLinearMatMul", functions=("quantized_matmul_op",))
def qlinear_matmul(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """With `offload_integer`: as MatMulInteger, scales FP32 and per tensor. The host multiplies the
    sums by a_scale * b_scale / y_scale and quantises; results are within one of ONNX's.
    """
    scales = [required_input(node, index) for index in (1, 4, 6)]
    if any(scale.dtype != np.float32 or np.prod(scale.dims) != 1 for scale in scales):
        raise NotMapped("scales are of another type or several, must be one FP32 number each")
    if any(np.prod(required_input(node, index).dims) != 1 for index in (2, 5, 7)):
        raise NotMapped("zero points are several, must be one per tensor")
    output = required_output(node)
    sums = _product(builder, node, graph, (0, 2), (3, 5))
    factor = builder.host("Div", [builder.host("Mul", scales[:2]), scales[2]])
    real = builder.host("Mul", [sums, reshaped(factor, ())])
    unit = builder.constant(np.array(1, np.float32))
    result = builder.host("QuantizeLinear", [real, unit, reshaped(required_input(node, 7), ())])
    output.view = (reshaped(result, output.dims), tuple(range(len(output.dims))))


@operator("DynamicQuantizeLinear", functions=("getrange_ztensor",))
def dynamic_quantize(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """With `offload_integer`: FP32 operand; least and greatest element by getrange_ztensor, rounded
    to DLFLOAT16. The host makes scale and zero point of them, and quantises.
    """
    _require_offload(graph)
    builder.require("getrange_ztensor")
    value = required_input(node, 0)
    require_float(value)
    source = builder.tensor(value, preferred(builder, value))
    ends = Value("range", np.dtype(np.float32), (2,))
    builder.functions.append("getrange_ztensor")
    builder.query("getrange_ztensor", source, ends)
    zero, steps = _number(builder, 0.0), _number(builder, 255.0)
    low = builder.host("ReduceMin", [builder.host("Min", [ends, zero])], keepdims=0)
    high = builder.host("ReduceMax", [builder.host("Max", [ends, zero])], keepdims=0)
    scale = builder.host("Div", [builder.host("Sub", [high, low]), steps])
    nothing = builder.host("Equal", [scale, zero])  # all zeros: any scale will do
    scale = builder.host("Where", [nothing, _number(builder, 1.0), scale])
    point = builder.host("Round", [builder.host("Neg", [builder.host("Div", [low, scale])])])
    point = builder.host("Clip", [point, zero, steps])
    byte = builder.host("Cast", [point], to=_UINT8)
    codes = builder.host("QuantizeLinear", [value, scale, byte])
    for output, result in zip(node.outputs, (codes, scale, byte), strict=False):
        if output is not None:
            output.view = (result, tuple(range(len(result.dims))))


def _require_offload(graph: Graph) -> None:
    if not graph.offload_integer:
        raise NotMapped("integers stay exact on the host; offload_integer moves them")


def _product(
    builder: Builder, node: OnnxNode, graph: Graph, a: tuple[int, int], b: tuple[int, int]
) -> Value:
    """Return the integer product as an FP32 array; `a` and `b` are indices of value, zero point."""
    _require_offload(graph)
    builder.require("quantized_matmul_op")
    builder.require_code(FunctionCode.NNPA_MATMUL_OP, FORMAT_1, "quantized_matmul_op")
    left, right = (_pieces(builder, node, *operand) for operand in (a, b))
    total: Value | None = None
    for factor_a, piece_a in left:
        for factor_b, piece_b in right:
            part = _multiply(builder, piece_a, piece_b)
            if factor_a * factor_b != 1:
                factor = builder.constant(np.array(factor_a * factor_b, np.float32))
                part = builder.host("Mul", [part, factor])
            total = part if total is None else builder.host("Add", [total, part])
    assert total is not None
    return total


def _pieces(builder: Builder, node: OnnxNode, index: int, zero: int) -> list[tuple[int, Value]]:
    """Return (factor, INT8 array) pairs whose sum is an operand less its zero point."""
    value, point = required_input(node, index), node.input(zero)
    if value.dtype not in _INTEGERS:
        raise NotMapped(f"element type is {value.dtype}, must be int8 or uint8")
    if point is not None and np.prod(point.dims) != 1:
        raise NotMapped("zero points are several, must be one per tensor")
    shift = None if point is None else point.constant
    is_constant = point is None or shift is not None
    offset = 0 if shift is None else int(np.asarray(shift).reshape(-1)[0])
    if is_constant and offset == 0 and value.dtype == np.int8:
        return [(1, value)]
    wide = builder.host("Cast", [value], to=_INT16)
    if point is not None:
        narrow = builder.host("Cast", [reshaped(point, ())], to=_INT32)
        wide = builder.host("Sub", [builder.host("Cast", [value], to=_INT32), narrow])
    else:
        wide = builder.host("Cast", [wide], to=_INT32)
    if value.constant is not None and wide.constant is not None:
        fits = bool(np.all(np.abs(wide.constant) <= 127))
        if fits:
            return [(1, builder.host("Cast", [wide], to=_INT8))]
    real = builder.host("Cast", [wide], to=_FLOAT)
    half = builder.host("Floor", [builder.host("Mul", [real, _number(builder, 0.5)])])
    rest = builder.host("Sub", [real, builder.host("Mul", [half, _number(builder, 2.0)])])
    return [
        (2, builder.host("Cast", [half], to=_INT8)),
        (1, builder.host("Cast", [rest], to=_INT8)),
    ]


def _number(builder: Builder, value: float) -> Value:
    return builder.constant(np.array(value, np.float32))


def _multiply(builder: Builder, a: Value, b: Value) -> Value:
    """Emit one product of INT8 arrays with scale 1 and offset 0; return FP32 sums."""
    a = reshaped(a, (1, 1, *a.dims)[-2:]) if len(a.dims) < 2 else a
    b = reshaped(b, (*b.dims, 1)) if len(b.dims) < 2 else b
    stack_a, stack_b = stacked(a.dims)[0], stacked(b.dims)[0]
    if stack_b not in (1, stack_a) or (stack_b > 1 and a.dims[:-2] != b.dims[:-2]):
        raise NotMapped(f"stacks of {stack_a} and {stack_b} matrices")
    rows, columns = a.dims[-2], b.dims[-1]
    shape = (*a.dims[:-2], rows, columns)
    zeros = builder.constant(np.zeros((stack_b, columns), np.float32))
    single = np.dtype(np.float32)
    pre = init_pre_transformed_desc(DataLayouts.ZDNN_2DS, DataTypes.FP32, stack_b, columns)
    bias = describe((stack_b, 1, columns), plain((stack_b, 1, columns)), single)[1]
    sums = Value("sums", single, shape)
    arrangement = plain(shape)
    dims = (stack_a, 1, rows, columns)
    target = builder.declare(*describe(dims, plain(dims), single), 1.0)
    builder.call(
        "quantized_matmul_op",
        input_a=_bytes(builder, a, QuantizedTransformTypes.QUANTIZED_INT8),
        input_b=_bytes(builder, b, QuantizedTransformTypes.QUANTIZED_WEIGHTS_INT8),
        input_c=builder.sticks([zeros], pre, bias, 1.0),
        op_type=0,
        clip_min=-128,
        clip_max=127,
        disable_clipping=True,
        dequantize=False,
        pre_computed=True,
        output=target,
    )
    sums.tensors[arrangement] = target
    return sums


def _bytes(builder: Builder, value: Value, kind: QuantizedTransformTypes) -> int:
    """Return the INT8 tensor of an array, as features or as weights."""
    stack, _, rows, columns = stacked(value.dims)
    layout = DataLayouts.ZDNN_3DS
    pre = init_pre_transformed_desc(layout, DataTypes.INT8, stack, rows, columns)
    return builder.sticks([value], pre, generate_quantized_transformed_desc(pre, kind), 1.0)
