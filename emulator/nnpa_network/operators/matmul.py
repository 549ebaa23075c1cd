# SPDX-License-Identifier: Apache-2.0
"""Matrix products: MatMul, Gemm.

Sources: ONNX operators MatMul and Gemm; zDNN API Reference 1.2.0, zdnn_matmul_op,
zdnn_matmul_bcast_op, zdnn_matmul_transpose_op.
"""

import math
from dataclasses import dataclass

import numpy as np
from nnpa_emulator.machine import FORMAT_1, FunctionCode
from nnpa_emulator.ztensor import (
    DataLayouts,
    generate_transformed_desc,
    init_pre_transformed_desc,
)

from nnpa_network.building.arrangement import ELEMENT_TYPES, Arrangement, Shape, axes_of, plain
from nnpa_network.building.builder import Builder
from nnpa_network.building.type_inference import OnnxNode, Value
from nnpa_network.operators.elementwise import combine
from nnpa_network.operators.table import (
    Graph,
    expanded,
    operator,
    require_float,
    require_rank,
    required_input,
    required_output,
    reshaped,
)

MATMUL_OP_ADDITION = 0


@dataclass(frozen=True, slots=True)
class Product:
    """Operands brought to the stacks of one call; `bias` is (p,) or (s, p), or None for zeros."""

    a: Value
    b: Value
    bias: Value | None = None
    transpose_a: bool = False
    transpose_b: bool = False


def multiply(builder: Builder, product: Product, output: Value) -> None:
    """Emit one matrix product; a and b are (s, m, n), (s, n, p), s either equal or 1."""
    a, b = product.a, product.b
    stacks = max(a.dims[0], b.dims[0])
    columns = b.dims[1] if product.transpose_b else b.dims[2]
    operands = {
        "input_a": builder.tensor(a, plain(a.dims)),
        "input_b": builder.tensor(b, plain(b.dims)),
        "input_c": _bias(builder, product, b.dims[0] if a.dims[0] != 1 else stacks, columns),
    }
    turned = {"transpose_a": product.transpose_a, "transpose_b": product.transpose_b}
    if product.transpose_a or product.transpose_b:
        builder.require("matmul_transpose_op")
        verb, options = "matmul_transpose_op", turned
    elif a.dims[0] != b.dims[0]:
        builder.require("matmul_bcast_op")
        if a.dims[0] == 1:
            code = FunctionCode.NNPA_MATMUL_OP_BCAST1
            builder.require_code(code, FORMAT_1, "matmul_bcast_op")
        verb, options = "matmul_bcast_op", {}
    else:
        verb, options = "matmul_op", {}
    rows = a.dims[2] if product.transpose_a else a.dims[1]
    target = builder.new_tensor(
        output, Arrangement(axes_of(output.dims), (stacks, 1, rows, columns))
    )
    builder.call(verb, **operands, **options, op_type=MATMUL_OP_ADDITION, output=target)


def _bias(builder: Builder, product: Product, stacks: int, columns: int) -> int:
    """Return the tensor of the bias that every product must have, zeros where there is none."""
    dtype = product.a.dtype
    assert dtype is not None
    bias = product.bias
    if bias is None:
        bias = builder.constant(np.zeros((stacks, columns), dtype))
    if bias.dims == (columns,) and stacks > 1:
        bias = builder.host("Expand", [bias, builder.integers(stacks, columns)])
    if stacks == 1:
        return builder.tensor(reshaped(bias, (columns,)), plain((columns,)))
    pre = init_pre_transformed_desc(DataLayouts.ZDNN_2DS, ELEMENT_TYPES[dtype], stacks, columns)
    return builder.sticks([bias], pre, generate_transformed_desc(pre))


@operator("MatMul", functions=("matmul_op", "matmul_bcast_op", "matmul_transpose_op"))
def matmul(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float operands. Leading axes become one stack; a stack of one on the right is BCAST23, on the
    left BCAST1 (Telum I: expanded); other broadcasts are expanded. A matrix that is turned by
    a Transpose is turned by the machine on Telum II. An Add of a constant vector that alone reads
    the result becomes the bias, else the bias is zero.
    """
    a, b, output = required_input(node, 0), required_input(node, 1), required_output(node)
    require_float(a)
    builder.require("matmul_op")
    left = reshaped(a, (1, *a.dims)) if len(a.dims) == 1 else a
    right = reshaped(b, (*b.dims, 1)) if len(b.dims) == 1 else b
    left, right = _stacks(builder, left, right)
    turned = _turned(builder, right)
    bias, result = _added(graph, node, output, right.dims[2])
    if turned is not None:
        multiply(builder, Product(left, turned, bias, transpose_b=True), result)
    else:
        multiply(builder, Product(left, right, bias), result)


def _stacks(builder: Builder, a: Value, b: Value) -> tuple[Value, Value]:
    """Bring operands of any rank to (s, m, n) and (s, n, p), a stack of one where there is none."""
    lead_a, lead_b = a.dims[:-2], b.dims[:-2]
    size_a, size_b = math.prod(lead_a), math.prod(lead_b)
    lead = tuple(np.broadcast_shapes(lead_a, lead_b))
    size = math.prod(lead)
    one_left = size_a == 1 and size_b == size
    if one_left and size > 1:
        one_left = builder.guest.machine.qaf.has_parmblk_format(FORMAT_1)
    if not (one_left or size_a == size):
        a = expanded(builder, a, (*lead, *a.dims[-2:]))
    if not (size_b == 1 or size_b == size):
        b = expanded(builder, b, (*lead, *b.dims[-2:]))
    return _flat(a), _flat(b)


def _flat(value: Value) -> Value:
    shape: Shape = (math.prod(value.dims[:-2]), *value.dims[-2:])
    return reshaped(value, shape)


def _turned(builder: Builder, value: Value) -> Value | None:
    """Return the tensor of which a value is the transposition, where the machine can turn it."""
    source = value
    while source.view is not None and source.view[1] is None:
        source = source.view[0]
    if source.view is None or source.array or not builder.available(source.view[0]):
        return None
    permutation = source.view[1]
    rank = len(source.dims)
    if permutation != (*range(rank - 2), rank - 1, rank - 2):
        return None
    if source.dims[-2:] != value.dims[-2:]:
        return None
    if not builder.guest.machine.qaf.has_parmblk_format(FORMAT_1):
        return None
    return _flat(source.view[0])


def _added(graph: Graph, node: OnnxNode, output: Value, columns: int) -> tuple[Value | None, Value]:
    """Return the bias of an Add behind the product, and the node whose result the product is."""
    follower = graph.follower(output)
    if (
        follower is None
        or follower.op_type != "Add"
        or required_output(follower).dims != output.dims
    ):
        return None, output
    addend = follower.input(1) if follower.input(0) is output else follower.input(0)
    if addend is None or addend.constant is None or len(output.dims) < 2:
        return None, output
    if len(addend.dims) == 0 or addend.dims != (1,) * (len(addend.dims) - 1) + (columns,):
        return None, output
    graph.absorb(follower)
    return reshaped(addend, (columns,)), required_output(follower)


@operator("Gemm", functions=("matmul_op", "matmul_transpose_op", "add"))
def gemm(builder: Builder, node: OnnxNode, graph: Graph) -> None:
    """Float matrices. `all`: alpha and beta other than 1 are multiplied into B and C by the host,
    at import where those are constants. transA and transB: constants at import, others by the
    machine (Telum I: by the host). C of one row is the bias, C with rows is added by add.
    """
    a, b, output = required_input(node, 0), required_input(node, 1), required_output(node)
    require_float(a)
    require_rank(a, 2)
    builder.require("matmul_op")
    b = _scaled(builder, b, float(node.attributes.get("alpha", 1.0)))
    a, turn_a = _oriented(builder, a, bool(node.attributes.get("transA", 0)))
    b, turn_b = _oriented(builder, b, bool(node.attributes.get("transB", 0)))
    beta = float(node.attributes.get("beta", 1.0))
    for name in ("alpha", "beta"):
        if (factor := float(node.attributes.get(name, 1.0))) != 1:
            graph.beyond(f"{name} is {factor:g}, must be 1", "multiplies it in")
    c = node.input(2)
    c = None if c is None or beta == 0 else _scaled(builder, c, beta)
    columns = output.dims[1]
    bias, matrix = None, None
    if c is not None and (len(c.dims) < 2 or c.dims[0] == 1):
        flat = reshaped(c, c.dims[-1:])
        bias = expanded(builder, flat, (columns,))
    elif c is not None:
        matrix = expanded(builder, c, output.dims)
    result = output if matrix is None else Value(f"{output.name}_part", output.dtype, output.shape)
    multiply(builder, Product(_flat(a), _flat(b), bias, turn_a, turn_b), result)
    if matrix is not None:
        combine(builder, "add", result, matrix, output)


def _scaled(builder: Builder, value: Value, factor: float) -> Value:
    if factor == 1:
        return value
    return builder.host("Mul", [value, builder.constant(np.array(factor, value.dtype))])


def _oriented(builder: Builder, value: Value, turned: bool) -> tuple[Value, bool]:
    """Return an operand and whether the machine is to turn it."""
    if not turned:
        return value, False
    if value.constant is None and builder.guest.machine.qaf.has_parmblk_format(FORMAT_1):
        return value, True
    return builder.host("Transpose", [value], perm=[1, 0]), False
