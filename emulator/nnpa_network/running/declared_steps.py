# SPDX-License-Identifier: Apache-2.0
"""Host steps whose outputs have their declared sizes: they move, convert or combine elements.

Lowering emits them around calls of the accelerator, and models have them between other nodes. The
memory of all other nodes is known only when they run.
Source: ONNX operator specifications.
"""

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import onnx

from nnpa_network.program import ABSENT, ArrayInfo, HostStep, Program
from nnpa_network.running.host_operators import Operation, convolved

IsDeclared: TypeAlias = Callable[[Operation, tuple[int, ...]], bool]
"""Tells whether an output of a node is that large at most."""
_KINDS = "fiub"
_FP32 = np.dtype(np.float32)
_SIMPLE = frozenset((onnx.AttributeProto.INT, onnx.AttributeProto.INTS,
                     onnx.AttributeProto.FLOAT, onnx.AttributeProto.STRING))  # fmt: skip
_MAX_PRODUCTS = 1 << 28
"""Products of a convolution on the host, which nothing ends before it is done."""


def only_declared(program: Program) -> bool:
    """Tell whether no value of a run is larger than the program declares.

    That holds as long as every value has its declared shape, which `ForeignExecutor` requires.
    """
    inputs = zip(program.inputs, program.input_ids, strict=True)
    infos = [(port, _info(program, number)) for port, number in inputs]
    return all(
        info is not None and info.shape == port.shape and -1 not in port.shape
        for port, info in infos
    ) and all(_is_declared(program, step) for step in program.steps if isinstance(step, HostStep))


def _is_declared(program: Program, step: HostStep) -> bool:
    if ABSENT in (*step.inputs, *step.outputs) or not step.outputs:
        return False
    infos = [_info(program, number) for number in (*step.inputs, *step.outputs)]
    if any(info is None or -1 in info.shape or info.dtype.kind not in _KINDS for info in infos):
        return False
    node, count = _simple_node(step.onnx), len(step.inputs)
    if node is None or len(node.input) != count or (rule := _RULES.get(node.op_type)) is None:
        return False
    if node.op_type == "Conv" and any(info is None or info.dtype != _FP32 for info in infos):
        return False
    shapes = [info.shape for info in infos if info is not None]
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    values = map(program.constants.get, step.inputs)
    constants = [value if isinstance(value, np.ndarray) else None for value in values]
    operation = Operation(attributes, shapes[:count], constants, len(step.outputs))
    try:
        return all(rule(operation, shape) for shape in shapes[count:])
    except (ValueError, IndexError, TypeError):
        return False


def _simple_node(serialised: bytes) -> onnx.NodeProto | None:
    """Return a node that has neither subgraphs nor tensors, None for any other."""
    try:
        node = onnx.NodeProto.FromString(serialised)
    except Exception:  # protobuf's DecodeError, whose package is not ours to import
        return None
    if node.domain not in ("", "ai.onnx") or any(
        attribute.type not in _SIMPLE for attribute in node.attribute
    ):
        return None
    return node


def _info(program: Program, number: int) -> ArrayInfo | None:
    constant = program.constants.get(number)
    if isinstance(constant, np.ndarray):
        return ArrayInfo(constant.dtype, constant.shape)
    return program.arrays.get(number)


def _as_first(operation: Operation, output: tuple[int, ...]) -> bool:
    return math.prod(output) == math.prod(operation.shapes[0])


def _within_first(operation: Operation, output: tuple[int, ...]) -> bool:
    return math.prod(output) <= math.prod(operation.shapes[0])


def _broadcast(operation: Operation, output: tuple[int, ...]) -> bool:
    return np.broadcast_shapes(*operation.shapes) == output


def _joined(operation: Operation, output: tuple[int, ...]) -> bool:
    return math.prod(output) == sum(map(math.prod, operation.shapes))


def _padded(operation: Operation, output: tuple[int, ...]) -> bool:
    """Check that constant pads make the first input's shape into the shape of `output`."""
    shape, ends = operation.shapes[0], operation.constants[1]
    if len(operation.shapes) > 3 or ends is None or ends.shape != (2 * len(shape),):
        return False
    return output == tuple(
        size + int(before) + int(after)
        for size, before, after in zip(shape, ends[: len(shape)], ends[len(shape) :], strict=True)
    )


def _expanded(operation: Operation, output: tuple[int, ...]) -> bool:
    target = operation.constants[1]
    if target is None or target.ndim != 1:
        return False
    return np.broadcast_shapes(operation.shapes[0], tuple(map(int, target))) == output


def _gathered(operation: Operation, output: tuple[int, ...]) -> bool:
    shape, indices = operation.shapes
    axis = range(len(shape))[operation.attributes.get("axis", 0)]
    return output == (*shape[:axis], *indices, *shape[axis + 1 :])


def _convolved(operation: Operation, output: tuple[int, ...]) -> bool:
    """Check that an operator of our own computes it."""
    sizes = convolved(operation)
    if sizes is None:
        return False
    (height, width, *_), (count, lines, places, channels) = sizes
    products = math.prod(output) * height * width
    return output == (count, channels, lines, places) and products <= _MAX_PRODUCTS


# What lowering adds, and operators of our own: nothing more is ONNX Runtime's outside of workers.
_ELEMENTWISE = (
    "Cast", "Clip", "Floor", "HardSigmoid", "HardSwish", "Neg", "QuantizeLinear", "Round", "Sqrt"
)  # fmt: skip
_REDUCTIONS = ("ReduceMax", "ReduceMin")
_RULES: Mapping[str, IsDeclared] = {
    **dict.fromkeys((*_ELEMENTWISE, "Reshape", "Transpose", "Identity"), _as_first),
    **dict.fromkeys((*_REDUCTIONS, "Slice", "Split"), _within_first),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Min", "Max", "Equal", "Where"), _broadcast),
    "Concat": _joined,
    "Conv": _convolved,
    "Expand": _expanded,
    "Gather": _gathered,
    "Pad": _padded,
}
