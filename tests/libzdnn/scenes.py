# SPDX-License-Identifier: Apache-2.0
"""Calls that fit together: for every operation operands and scalars that the machine takes.

Source of the shapes: zDNN API Reference 1.2.0, the operations' "Requirements".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from nnpa.zdnn.v1 import options_pb2 as options
from nnpa.zdnn.v1 import tensor_pb2 as tensors
from nnpa.zdnn.v1.operation_pb2 import Operation

Dims = tuple[int, int, int, int]
SIZES = (1, 2, 3, 5, 33, 64, 65)
SMALL = (1, 2, 3, 4)
OPERATIONS = 7  # of products: addition and six comparisons
GATE_CELLS = 64  # a gate of a concatenated tensor begins at a multiple of this


@dataclass(frozen=True, slots=True)
class Shape:
    """An operand's dims, layout, format and type."""

    dims: Dims
    layout: int = tensors.ZDNN_NHWC
    format: int = tensors.ZDNN_FORMAT_4DFEATURE
    type: int = tensors.ZDNN_DLFLOAT16

    def message(self) -> tensors.Ztensor:
        """Return the ztensor; its pre-transformed descriptor has the same dims."""
        ztensor = tensors.Ztensor()
        pre, desc = ztensor.pre_transformed_desc, ztensor.transformed_desc
        pre.layout, desc.layout = tensors.ZDNN_NHWC, self.layout  # type: ignore[assignment]
        pre.type, desc.type = tensors.FP32, self.type  # type: ignore[assignment]
        desc.format = self.format  # type: ignore[assignment]
        for descriptor in (pre, desc):
            descriptor.dim4, descriptor.dim3, descriptor.dim2, descriptor.dim1 = self.dims
        return ztensor


@dataclass(frozen=True, slots=True)
class Scene:
    """A call: operands by C's names, and scalars."""

    operands: Mapping[str, Shape]
    scalars: Mapping[str, Any]


def _any(random: Random) -> Dims:
    d4, d3 = random.choice(SMALL), random.choice(SMALL)
    return d4, d3, random.choice(SIZES), random.choice(SIZES)


def _unary(random: Random) -> Scene:
    shape = Shape(_any(random))
    scalars = {
        "epsilon": random.choice((0.0, 0.5)),
        "clipping_value": random.choice((0.0, 6.0)),
        "adjustment_factor": random.choice((0.0, 0.5, 1.0)),
    }
    return Scene({"input": shape, "output": shape}, scalars)


def _binary(random: Random) -> Scene:
    shape = Shape(_any(random))
    return Scene({"input_a": shape, "input_b": shape, "output": shape}, {})


def _softmax(random: Random) -> Scene:
    d4, _, d2, d1 = _any(random)
    shape = Shape((d4, 1, d2, d1))
    scalars = {"act_func": random.randrange(2), "softmax_mask": random.randrange(d1 + 1)}
    return Scene({"input": shape, "output": shape}, scalars)


def _batchnorm(random: Random) -> Scene:
    dims = _any(random)
    whole, line = Shape(dims), Shape((1, 1, 1, dims[3]))
    return Scene({"input_a": whole, "input_b": line, "input_c": line, "output": whole}, {})


def _norm(random: Random) -> Scene:
    d4, _, d2, d1 = _any(random)
    shape = Shape((d4, 1, d2, d1))
    return Scene({"input_a": shape, "input_b": shape, "output": Shape((d4, 1, d2, 1))}, {})


def _moments(random: Random) -> Scene:
    dims = _any(random)
    moment = Shape((dims[0], 1, 1, 1))
    bessel = random.randrange(2) if dims[1:] != (1, 1, 1) else 0
    operands = {"input": Shape(dims), "output_a": moment, "output_b": moment}
    return Scene(operands, {"bessel_correction_type": bessel})


def _layernorm(random: Random) -> Scene:
    dims = _any(random)
    whole, moment = Shape(dims), Shape((dims[0], 1, 1, 1))
    scalars = {"beta_value": 0.5, "gamma_value": random.choice((1.0, -1.0)), "epsilon_value": 0.5}
    operands = {"input_a": whole, "input_b": moment, "input_c": moment, "output": whole}
    return Scene(operands, scalars)


def _meanreduce2d(random: Random) -> Scene:
    dims = _any(random)
    return Scene({"input": Shape(dims), "output": Shape((dims[0], 1, 1, dims[3]))}, {})


def _reduce(random: Random) -> Scene:
    d4, d3, d2, d1 = _any(random)
    op_type = random.randrange(4)
    kind = tensors.ZDNN_BINARY_INT32 if op_type % 2 else tensors.ZDNN_DLFLOAT16
    output = Shape((d4, d3, d2, 1), type=kind)
    return Scene({"input": Shape((d4, d3, d2, d1)), "output": output}, {"op_type": op_type})


def _turned(plane: tuple[int, int], turn: bool) -> tuple[int, int]:
    return (plane[1], plane[0]) if turn else plane


def _product(random: Random, broadcast: bool = False, transposed: bool = False) -> Scene:
    stacks, inner = random.choice(SMALL), random.choice(SIZES)
    rows, columns = random.choice(SIZES), random.choice(SIZES)
    right_stacks = 1 if broadcast else stacks
    turns = [transposed and random.random() < 0.5 for _ in range(2)]
    a, b = (rows, inner), (inner, columns)
    operands = {
        "input_a": Shape((stacks, 1, *_turned(a, turns[0]))),
        "input_b": Shape((right_stacks, 1, *_turned(b, turns[1]))),
        "input_c": Shape((right_stacks, 1, 1, columns)),
        "output": Shape((stacks, 1, rows, columns)),
    }
    scalars = {
        "op_type": random.randrange(OPERATIONS),
        "transpose_a": turns[0],
        "transpose_b": turns[1],
    }
    return Scene(operands, scalars)


def _quantized(random: Random) -> Scene:
    plain = _product(random, broadcast=random.random() < 0.5)
    int8, on_the_fly = tensors.ZDNN_BINARY_INT8, random.random() < 0.5
    pre_computed = random.random() < 0.5
    kind = tensors.ZDNN_DLFLOAT16 if on_the_fly else int8
    shapes = {name: shape.dims for name, shape in plain.operands.items()}
    weights = tensors.ZDNN_FORMAT_4DWEIGHTS
    operands = {
        "input_a": Shape(shapes["input_a"], type=kind),
        "input_b": Shape(shapes["input_b"], format=weights, type=int8),
        "input_c": Shape(shapes["input_c"], type=tensors.ZDNN_DLFLOAT16 if pre_computed else int8),
        "output": Shape(shapes["output"]),
    }
    scalars = {
        "op_type": plain.scalars["op_type"],
        "clip_min": random.choice((-128, -5)),
        "clip_max": random.choice((5, 127)),
        "disable_clipping": random.random() < 0.5,
        "dequantize": random.random() < 0.5,
        "pre_computed": pre_computed,
    }
    return Scene(operands, scalars)


def _windows(random: Random, size: tuple[int, int]) -> tuple[dict[str, int], tuple[int, int]]:
    """Return kernel, stride and padding for a plane, and the plane of the result."""
    same, kernel = random.randrange(2), tuple(random.randint(1, min(length, 3)) for length in size)
    stride = tuple(random.randint(1, 3) for _ in size)
    result = [
        -(-length // step) if same else (length - window) // step + 1
        for length, window, step in zip(size, kernel, stride, strict=True)
    ]
    names = ("kernel_height", "kernel_width", "stride_height", "stride_width")
    scalars = dict(zip(names, (*kernel, *stride), strict=True))
    return {"padding_type": same, **scalars}, (result[0], result[1])


def _pool(random: Random) -> Scene:
    n, c = random.choice(SMALL), random.choice(SIZES)
    size = (random.randint(1, 6), random.randint(1, 6))
    scalars, result = _windows(random, size)
    return Scene({"input": Shape((n, *size, c)), "output": Shape((n, *result, c))}, scalars)


def _convolution(random: Random) -> Scene:
    n, c, k = random.choice(SMALL), random.choice(SIZES), random.choice(SIZES)
    size = (random.randint(1, 6), random.randint(1, 6))
    scalars, result = _windows(random, size)
    kernel = (scalars["kernel_height"], scalars["kernel_width"], c, k)
    hwck, fmt = tensors.ZDNN_HWCK, tensors.ZDNN_FORMAT_4DKERNEL
    operands = {
        "input": Shape((n, *size, c)),
        "kernel": Shape(kernel, layout=hwck, format=fmt),
        "bias": Shape((1, 1, 1, k)),
        "output": Shape((n, *result, k)),
    }
    act = random.randrange(2)
    return Scene(
        operands, {**scalars, "act_func": act, "clipping_value": random.choice((0.0, 6.0))}
    )


def _recurrent(random: Random, gates: int) -> Scene:
    steps, batch = random.choice((1, 2, 3)), random.choice((1, 2))
    features, hidden = random.choice((1, 2, 5)), random.choice((1, 3))
    direction = random.randrange(3)
    ways, every = 1 + (direction == 2), random.random() < 0.5
    layout = tensors.ZDNN_FICO if gates == 4 else tensors.ZDNN_ZRH
    wide = gates * GATE_CELLS
    last = Shape((ways, 1, batch, hidden))
    columns = hidden if ways == 1 else 2 * GATE_CELLS
    operands = {
        "input": Shape((steps, 1, batch, features)),
        "h0": last,
        "c0": last,
        "weights": Shape((ways, 1, features, wide), layout=layout),
        "biases": Shape((ways, 1, 1, wide), layout=layout),
        "hidden_weights": Shape((ways, 1, hidden, wide), layout=layout),
        "hidden_biases": Shape((ways, 1, 1, wide), layout=layout),
        "hn_output": Shape((steps if every else 1, 1, batch, columns)),
        "cf_output": Shape((1, 1, batch, columns)),
    }
    return Scene(operands, {"direction": direction})


def _of_family(family: options.Family.ValueType, first: str) -> list[str]:
    """Return the operations of a family whose first operand is called `first`."""
    return [
        arm.name
        for arm in Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
        if (message := arm.message_type)
        and message.GetOptions().Extensions[options.zdnn_function].family == family
        and message.fields[0].name == first
    ]


MAKERS: Mapping[str, Callable[[Random], Scene]] = {
    **dict.fromkeys(_of_family(options.FAMILY_ELEMENTWISE, "input_a"), _binary),
    **dict.fromkeys(_of_family(options.FAMILY_ELEMENTWISE, "input"), _unary),
    **dict.fromkeys(_of_family(options.FAMILY_ACTIVATION, "input"), _unary),
    **dict.fromkeys(("softmax", "softmax_mask"), _softmax),
    **dict.fromkeys(("avgpool2d", "maxpool2d"), _pool),
    "batchnorm": _batchnorm,
    "norm": _norm,
    "moments": _moments,
    "layernorm": _layernorm,
    "meanreduce2d": _meanreduce2d,
    "reduce": _reduce,
    "matmul_op": _product,
    "matmul_bcast_op": lambda random: _product(random, broadcast=True),
    "matmul_transpose_op": lambda random: _product(random, transposed=True),
    "quantized_matmul_op": _quantized,
    "conv2d": _convolution,
    "lstm": lambda random: _recurrent(random, gates=4),
    "gru": lambda random: _recurrent(random, gates=3),
}
"""Operation to what makes a call of it."""
