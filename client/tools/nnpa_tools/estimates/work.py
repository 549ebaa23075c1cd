# SPDX-License-Identifier: Apache-2.0
"""The work of the accelerator in a call of zDNN: elements or multiply-accumulates, with padding.

A stick has 64 elements of dim1, a page 32 sticks of dim2. The public measurements do not tell
whether the accelerator works on rows padded to 2 or to 32, so both figures are kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from nnpa.zdnn.v1 import operation_pb2, options_pb2, tensor_pb2
from nnpa_client._values.user_arrays import dims

Dims: TypeAlias = tuple[int, int, int, int]
"""The transformed dims of a tensor: dim4, dim3, dim2, dim1."""

_STICK, _PAGE, _PAIR = 64, 32, 2
_ARMS = operation_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields
_FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        arm.name: options_pb2.Family.Name(
            arm.message_type.GetOptions().Extensions[options_pb2.zdnn_function].family
        )
        for arm in _ARMS
        if arm.message_type is not None
    }
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function, named without prefix, with the facts that its time depends on.

    `tensors` are transformed dims by C parameter name, `window` the elements of a pool's kernel.
    `compiled` says that the compiler's code stickifies in the place of zDNN's, `is_float32` that
    the user's array is FP32.
    """

    function: str
    tensors: Mapping[str, Dims] = field(default_factory=dict[str, Dims])
    window: int = 1
    transpose_a: bool = False
    compiled: bool = False
    is_float32: bool = True

    @property
    def transform(self) -> str:
        """The row of a transform between arrays and sticks, "" for any other call."""
        if self.function == "transform_origtensor":
            return "unstickify" if self.compiled else self.function
        if self.function.startswith("transform_"):
            return "stickify" if self.compiled else "transform_ztensor"
        return ""

    @property
    def label(self) -> str:
        """The function's name, or the name of the compiler's code that replaces it."""
        return self.transform if self.compiled and self.transform else self.function


class Part(NamedTuple):
    """A part of a call: `calls` of the instruction, each with work by the row `row`.

    `useful` is the work without padding, `least` and `most` with rows padded to 2 and to 32.
    """

    row: str
    useful: int
    least: int
    most: int
    calls: int = 1

    @property
    def padded(self) -> float:
        """The work that the sources' figures refer to: the mean of `least` and `most`."""
        return (self.least + self.most) / 2


def family_of(function: str) -> str:
    """Return the family of a function in the wire contract, empty for none."""
    return _FAMILIES.get(function, "")


def call_of(
    message: operation_pb2.Operation,
    structures: Mapping[str, tensor_pb2.Ztensor],
    compiled: bool = False,
) -> Call:
    """Return the call of an operation; `structures` are its ztensors by C parameter name."""
    name = message.WhichOneof("operation") or ""
    arm = getattr(message, name) if name else None
    types = [structure.pre_transformed_desc.type for structure in structures.values()]
    return Call(
        name,
        {operand: dims(structure.transformed_desc) for operand, structure in structures.items()},
        getattr(arm, "kernel_height", 1) * getattr(arm, "kernel_width", 1),
        getattr(arm, "transpose_a", False),
        compiled,
        tensor_pb2.FP32 in types,
    )


def parts(call: Call) -> tuple[Part, ...]:
    """Return the parts of a call; empty for a call that does not use the accelerator.

    It is also empty if a tensor that the work depends on is not known.
    """
    rule = _transform if call.transform else _RULES.get(family_of(call.function))
    try:
        return () if rule is None else rule(call)
    except KeyError:
        return ()


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _elements(row: str, sizes: Dims, times: int = 1) -> Part:
    outer, rows, columns = sizes[0] * sizes[1] * times, sizes[2], sizes[3]
    least, most = (outer * _up(rows, of) * _up(columns, _STICK) for of in (_PAIR, _PAGE))
    return Part(row, outer * rows * columns, least, most)


def _products(row: str, stacks: int, rows: int, inner: int, columns: int) -> Part:
    weights = _up(inner, _STICK) * _up(columns, _STICK)
    least, most = (stacks * _up(rows, of) * weights for of in (_PAIR, _PAGE))
    return Part(row, stacks * rows * inner * columns, least, most)


def _transform(call: Call) -> tuple[Part, ...]:
    return (_elements(call.transform, call.tensors["ztensor"]),)


def _elementwise(call: Call) -> tuple[Part, ...]:
    return (_elements(call.function, call.tensors["output"]),)


def _pass_over_elements(call: Call) -> tuple[Part, ...]:
    """Count the largest tensor, which is reduced or normalised."""
    passes = [_elements(call.function, sizes) for sizes in call.tensors.values()]
    return (max(passes, key=lambda part: part.most),) if passes else ()


def _matmul(call: Call) -> tuple[Part, ...]:
    dim4, dim3, rows, columns = call.tensors["output"]
    inner = call.tensors["input_a"][2 if call.transpose_a else 3]
    return (_products(call.function, dim4 * dim3, rows, inner, columns),)


def _window(call: Call) -> tuple[Part, ...]:
    if "kernel" not in call.tensors:
        return (_elements(call.function, call.tensors["output"], call.window),)
    batch, height, width, outputs = call.tensors["output"]
    kernel_height, kernel_width, inputs, _ = call.tensors["kernel"]
    places = batch * height * width * kernel_height * kernel_width
    macs = places * _up(inputs, _STICK) * _up(outputs, _STICK)
    return (Part(call.function, places * inputs * outputs, macs, macs),)


def _recurrent(call: Call) -> tuple[Part, ...]:
    """Count zDNN's own calls: a product for all steps, then for each a product and an activation.

    Source: zDNN library behaviour, 2 T + 1 calls of NNPA for each direction.
    """
    steps, _, batch, inputs = call.tensors["input"]
    directions, _, _, hidden = call.tensors["h0"]
    gates = call.tensors["weights"][3]
    step = _products(call.function, 1, batch, hidden, gates)
    activation = _elements("recurrent_activation", (1, 1, batch, gates))
    return (
        _products(call.function, steps, batch, inputs, gates)._replace(calls=directions),
        step._replace(calls=steps * directions),
        activation._replace(calls=steps * directions),
    )


_RULES: Mapping[str, Callable[[Call], tuple[Part, ...]]] = MappingProxyType(
    {
        "FAMILY_ELEMENTWISE": _elementwise,
        "FAMILY_ACTIVATION": _elementwise,
        "FAMILY_NORMALIZATION": _pass_over_elements,
        "FAMILY_MATMUL": _matmul,
        "FAMILY_CONVOLUTION": _window,
        "FAMILY_RECURRENT": _recurrent,
    }
)
