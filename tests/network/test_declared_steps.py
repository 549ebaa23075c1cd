# SPDX-License-Identifier: Apache-2.0
"""Host steps that a server runs by itself: values have the sizes that the program declares."""

from dataclasses import replace

import numpy as np
import pytest
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.plan import ForeignExecutor
from nnpa_network.program import Array, ArrayInfo, DType, HostStep, Port, Program
from nnpa_network.running.declared_steps import only_declared
from nnpa_network.running.results import StepFailed
from nnpa_network.shortcuts import SHORTCUTS
from onnx import NodeProto, helper, numpy_helper

FLOATS = np.dtype(np.float32)
GUEST = find_machine("telum1")


def _stepped(node: NodeProto, constants: dict[int, Array], declared: tuple[int, ...],
             *shapes: tuple[int, ...], dtype: DType = FLOATS) -> Program:  # fmt: skip
    """Return a program of one host step over inputs of shapes, then constants."""
    inputs = tuple(range(10, 10 + len(shapes)))
    arrays = {number: ArrayInfo(dtype, shape) for number, shape in zip(inputs, shapes, strict=True)}
    ports = tuple(Port(f"x{number}", dtype, arrays[number].shape) for number in inputs)
    step = HostStep(-1, node.SerializeToString(), (*inputs, *constants), (1,), 17)
    arrays |= {number: ArrayInfo(array.dtype, array.shape) for number, array in constants.items()}
    arrays[1] = ArrayInfo(FLOATS, declared)
    return Program("p", "telum1", ports, (Port("y", FLOATS, declared),), inputs, (1,), arrays, {},
                   constants, (step,))  # fmt: skip


def numbers(*integers: int) -> Array:
    """Return integers as a constant has them."""
    return np.array(integers, np.int64)


make = helper.make_node


def _depthwise(
    *declared: int, size: int = 6, kernel: int = 3, dtype: DType = FLOATS, group: int = 4
) -> Program:
    weights = {2: np.ones((4, 1, kernel, kernel), dtype)}
    node = make("Conv", ["x", "w"], ["y"], group=group, auto_pad="NOTSET")
    return _stepped(node, weights, declared, (1, 4, size, size), dtype=dtype)


def _gather(*declared: int, axis: int = 1) -> Program:
    node = make("Gather", ["a", "i"], ["y"], axis=axis)
    return _stepped(node, {2: numbers(0, -1, 1)}, declared, (4, 2))


DECLARED = {
    "convolution": _depthwise(1, 4, 4, 4),
    "gather": _gather(4, 3),
    "gather from behind": _gather(4, 3, axis=-1),
    "least": _stepped(make("ReduceMin", ["a"], ["y"], keepdims=0), {}, (), (3,)),
    "hard swish": _stepped(make("HardSwish", ["a"], ["y"]), {}, (3,), (3,)),
    "reshape": _stepped(make("Reshape", ["a", "s"], ["y"]), {2: numbers(0, -1)}, (2, 6), (2, 3, 2)),
    "add": _stepped(make("Add", ["a", "b"], ["y"]), {}, (3, 4), (3, 1), (4,)),
    "pad": _stepped(make("Pad", ["a", "p"], ["y"]), {2: numbers(1, 2)}, (6,), (3,)),
    "expand": _stepped(make("Expand", ["a", "s"], ["y"]), {2: numbers(5, 1)}, (5, 3), (3,)),
    "concat": _stepped(make("Concat", ["a", "b"], ["y"], axis=0), {}, (7,), (3,), (4,)),
}
LARGER = {
    "gather": _gather(4, 3, axis=0),
    "gather of no axis": _gather(4, 3, axis=2),
    "convolution": _depthwise(1, 4, 3, 3),
    "convolution of one group": _depthwise(1, 4, 4, 4, group=1),
    "convolution in float64": _depthwise(1, 4, 4, 4, dtype=np.dtype(np.float64)),
    "convolution without end": _depthwise(1, 4, 301, 301, size=600, kernel=300),
    "expand": _stepped(make("Expand", ["a", "s"], ["y"]), {2: numbers(9, 3)}, (5, 3), (3,)),
    "pad": _stepped(make("Pad", ["a", "p"], ["y"]), {2: numbers(1, 1 << 40)}, (6,), (3,)),
    "shape of a run": _stepped(make("Expand", ["a", "s"], ["y"]), {}, (3,), (3,), (1,)),
    "broadcast": _stepped(make("Add", ["a", "b"], ["y"]), {}, (4,), (3, 1), (4,)),
    "concat": _stepped(make("Concat", ["a", "a"], ["y"], axis=0), {}, (3,), (3,), (3,)),
    "unknown": _stepped(make("Identity", ["a"], ["y"]), {}, (-1,), (3,)),
    "what ONNX Runtime computes": _stepped(make("Erf", ["a"], ["y"]), {}, (3,), (3,)),
    "operator": _stepped(make("NonZero", ["a"], ["y"]), {}, (3,), (3,)),
    "tensor inside": _stepped(
        make("Cast", ["a"], ["y"], to=1, extra=numpy_helper.from_array(np.ones(3))), {}, (3,), (3,)
    ),
    "domain": _stepped(make("Add", ["a", "b"], ["y"], domain="ai.onnx.ml"), {}, (3,), (3,), (3,)),
    "garbage": replace(
        _stepped(make("Identity", ["a"], ["y"]), {}, (3,), (3,)),
        steps=(HostStep(-1, b"\xff\xff", (10,), (1,), 17),),
    ),
}


@pytest.mark.parametrize("name", DECLARED)
def test_declared_steps(name: str) -> None:
    """Steps whose outputs follow from shapes and constants are run by the server."""
    program = DECLARED[name]
    assert only_declared(program)
    feeds = {port.name: np.ones(port.shape, np.float32) for port in program.inputs}
    result = ForeignExecutor(program, Guest(GUEST), SHORTCUTS).run(feeds)
    assert result.outputs["y"].shape == program.outputs[0].shape


@pytest.mark.parametrize("name", LARGER)
def test_steps_that_may_take_more_go_to_a_worker(name: str) -> None:
    """A step that may exceed its declaration, or is unknown, does not run in the server."""
    assert not only_declared(LARGER[name])


def test_a_false_declaration_fails_the_run() -> None:
    """A value of another shape than declared ends the run before it is used."""
    node = make("Slice", ["a", "from", "to"], ["y"])
    program = _stepped(node, {2: numbers(0), 3: numbers(3)}, (1,), (3,))
    assert only_declared(program)
    with pytest.raises(StepFailed, match="do not fit together"):
        ForeignExecutor(program, Guest(GUEST)).run({"x10": np.ones(3, np.float32)})
