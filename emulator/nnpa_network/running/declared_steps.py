# SPDX-License-Identifier: Apache-2.0
"""Host steps whose outputs are as large as declared: they move, convert or combine elements.

Lowering emits them around calls of the accelerator. Nodes of the model that no zDNN function
computes are another matter: what they take is known only when they run.
Source: ONNX operator specifications.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx

from nnpa_network.program import ABSENT, Array, ArrayInfo, HostStep, Program

Shapes: TypeAlias = Sequence[tuple[int, ...]]
Constants: TypeAlias = Sequence[Array | None]
IsDeclared: TypeAlias = Callable[[Shapes, Constants, tuple[int, ...]], bool]
"""Tells from shapes and constants of a node's inputs whether its output is that large at most."""
_KINDS = "fiub"


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
    if ABSENT in step.inputs or len(step.outputs) != 1:
        return False
    infos = [_info(program, number) for number in (*step.inputs, *step.outputs)]
    if any(info is None or -1 in info.shape or info.dtype.kind not in _KINDS for info in infos):
        return False
    shapes = [info.shape for info in infos if info is not None]
    rule = _RULES.get(_op_type(step.onnx))
    constants = [_array(program, number) for number in step.inputs]
    try:
        return rule is not None and rule(shapes[:-1], constants, shapes[-1])
    except (ValueError, IndexError):
        return False


def _op_type(serialised: bytes) -> str:
    """Return the operator of a node that has neither subgraphs nor tensors, else nothing."""
    try:
        node = onnx.NodeProto.FromString(serialised)
    except Exception:  # protobuf's DecodeError, whose package is not ours to import
        return ""
    simple = (onnx.AttributeProto.INT, onnx.AttributeProto.INTS, onnx.AttributeProto.FLOAT)
    if node.domain not in ("", "ai.onnx") or any(
        attribute.type not in simple for attribute in node.attribute
    ):
        return ""
    return node.op_type


def _info(program: Program, number: int) -> ArrayInfo | None:
    constant = program.constants.get(number)
    if isinstance(constant, np.ndarray):
        return ArrayInfo(constant.dtype, constant.shape)
    return program.arrays.get(number)


def _array(program: Program, number: int) -> Array | None:
    constant = program.constants.get(number)
    return constant if isinstance(constant, np.ndarray) else None


def _as_first(inputs: Shapes, _constants: Constants, output: tuple[int, ...]) -> bool:
    return math.prod(output) == math.prod(inputs[0])


def _within_first(inputs: Shapes, _constants: Constants, output: tuple[int, ...]) -> bool:
    return math.prod(output) <= math.prod(inputs[0])


def _broadcast(inputs: Shapes, _constants: Constants, output: tuple[int, ...]) -> bool:
    return np.broadcast_shapes(*inputs) == output


def _joined(inputs: Shapes, _constants: Constants, output: tuple[int, ...]) -> bool:
    return math.prod(output) == sum(map(math.prod, inputs))


def _padded(inputs: Shapes, constants: Constants, output: tuple[int, ...]) -> bool:
    """Check that ends are constant: `output` is the first input with so many elements more."""
    ends = constants[1]
    if len(inputs) > 3 or ends is None or ends.shape != (2 * len(inputs[0]),):
        return False
    return output == tuple(
        size + int(before) + int(after)
        for size, before, after in zip(
            inputs[0], ends[: len(inputs[0])], ends[len(inputs[0]) :], strict=True
        )
    )


def _expanded(inputs: Shapes, constants: Constants, output: tuple[int, ...]) -> bool:
    target = constants[1]
    if target is None or target.ndim != 1:
        return False
    return np.broadcast_shapes(inputs[0], tuple(map(int, target))) == output


_RULES: Mapping[str, IsDeclared] = {
    **dict.fromkeys(("Cast", "Clip", "Reshape", "Transpose", "Identity"), _as_first),
    **dict.fromkeys(("Neg", "Sqrt", "Floor", "Round", "QuantizeLinear"), _as_first),
    **dict.fromkeys(("Slice", "ReduceMin", "ReduceMax"), _within_first),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Min", "Max", "Equal", "Where"), _broadcast),
    "Concat": _joined,
    "Pad": _padded,
    "Expand": _expanded,
}
