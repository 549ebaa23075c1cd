# SPDX-License-Identifier: Apache-2.0
"""The functions of the NNPA instruction: their operands and parameters in the block, by format.

Where the library knows several functions for one code, the block's format and the types of the
operands tell them apart. A function that came with format 1 does not exist in format 0: our
reading, as is that all others take both formats.
Sources: nnpa.h of zDNN 1.2.0; zDNN API Reference 1.2.0, "NNPA function codes".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nnpa_emulator.function_codes import CODES_OF_FORMAT_1, FORMAT_0, FORMAT_1, FunctionCode
from nnpa_emulator.instruction import Operation
from nnpa_emulator.matrix import is_quantized
from nnpa_emulator.ops import matmul, quantized
from nnpa_emulator.ops.recurrent_activation import GRUACT, LSTMACT
from nnpa_emulator.ops.transform_function import TRANSFORM
from nnpa_emulator.parameter_block import Field
from nnpa_emulator.pipeline import FUNCTIONS
from nnpa_emulator.ztensor import Ztensor


@dataclass(frozen=True, slots=True)
class MachineFunction:
    """A function: what computes it, and its arguments in the order of descriptors and by word."""

    operation: Operation
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ("output",)
    parameters: Mapping[str, Field] = field(default_factory=dict[str, Field])


_TWO, _ONE = ("input_a", "input_b"), ("input",)
_THREE = (*_TWO, "input_c")
_DLFLOAT_1, _DLFLOAT_2 = Field(1, 16), Field(2, 16)
_POOLING = {
    "padding_type": Field(1, 3),
    "stride_width": Field(2, 32),
    "stride_height": Field(3, 32),
    "kernel_width": Field(4, 32),
    "kernel_height": Field(5, 32),
}
_CONVOLUTION = {
    "act_func": Field(1, 4, right=4),
    "padding_type": Field(1, 3),
    "stride_width": Field(2, 32),
    "stride_height": Field(3, 32),
    "clipping_value": Field(4, 16),
}
_PRODUCT = {"op_type": Field(1, 8)}
_TRANSPOSED = _PRODUCT | {"transpose_a": Field(2, 1), "transpose_b": Field(2, 1, right=1)}
_QUANTIZED = _PRODUCT | {
    "a_scale": Field(3, 16),
    "a_offset": Field(4, 16),
    "b_scale": Field(5, 16),
    "output_scale": Field(7, 16),
    "clip_min": Field(9, 8, signed=True),
    "clip_max": Field(10, 8, signed=True),
}
_LAYERNORM = {
    "beta_value": _DLFLOAT_1,
    "gamma_value": _DLFLOAT_2,
    "epsilon_value": Field(3, 16),
}
_TRANSFORM = {
    "saturation": Field(1, 1, right=31),
    "operation_code": Field(1, 8),
    "scale": _DLFLOAT_2,
    "offset": Field(3, 16),
    "clip_min": Field(4, 8, signed=True),
    "clip_max": Field(5, 8, signed=True),
}


def _library(
    name: str,
    inputs: tuple[str, ...],
    parameters: Mapping[str, Field] | None = None,
    outputs: tuple[str, ...] = ("output",),
) -> MachineFunction:
    """Return what a function of the library issues."""
    operation = FUNCTIONS[name].operation
    if operation is None:
        raise LookupError(f"{name} issues no instruction of its own")
    return MachineFunction(operation, inputs, outputs, parameters or {})


_CLIPPED = {"clipping_value": _DLFLOAT_1}
_MASKED = {"act_func": Field(1, 4), "softmax_mask": Field(2, 32)}
_ALIKE = (
    *(_library(name, _TWO) for name in ("add", "sub", "mul", "div", "min", "max", "norm")),
    *(_library(name, _ONE) for name in ("log", "exp", "sqrt", "tanh", "sigmoid", "gelu")),
    *(_library(name, _ONE, _POOLING) for name in ("maxpool2d", "avgpool2d")),
    _library("invsqrt", _ONE, {"epsilon": _DLFLOAT_1}),
    _library("batchnorm", _THREE),
    _library("moments", _ONE, {"bessel_correction_type": Field(1, 32)}, ("output_a", "output_b")),
    _library("layernorm", _THREE, _LAYERNORM),
    _library("reduce", _ONE, {"op_type": Field(1, 8)}),
    _library("conv2d", ("input", "kernel", "bias"), _CONVOLUTION),
    MachineFunction(LSTMACT, ("fused", "added", "state"), ("h", "c")),
    MachineFunction(GRUACT, ("fused", "added", "state"), ("h",)),
    MachineFunction(TRANSFORM, _ONE, parameters=_TRANSFORM),
)
_FUNCTIONS: dict[tuple[int, int], MachineFunction] = {
    (int(function.operation.code), number): function
    for function in _ALIKE
    for number in (FORMAT_0, FORMAT_1)
    if number == FORMAT_1 or function.operation.code not in CODES_OF_FORMAT_1
} | {
    (FunctionCode.NNPA_RELU, FORMAT_0): _library("relu", _ONE, _CLIPPED),
    (FunctionCode.NNPA_RELU, FORMAT_1): _library(
        "leaky_relu", _ONE, _CLIPPED | {"adjustment_factor": _DLFLOAT_2}
    ),
    (FunctionCode.NNPA_SOFTMAX, FORMAT_0): _library("softmax", _ONE, {"act_func": Field(1, 4)}),
    (FunctionCode.NNPA_SOFTMAX, FORMAT_1): _library("softmax_mask", _ONE, _MASKED),
    (FunctionCode.NNPA_MATMUL_OP, FORMAT_0): _library("matmul_op", _THREE, _PRODUCT),
    (FunctionCode.NNPA_MATMUL_OP_BCAST23, FORMAT_0): _library("matmul_bcast_op", _THREE, _PRODUCT),
}
_PLAIN = {
    code: MachineFunction(operation, _THREE, parameters=_TRANSPOSED)
    for code, operation in matmul.TRANSPOSING.items()
}
_OF_BYTES = {
    code: MachineFunction(operation, _THREE, parameters=_QUANTIZED)
    for code, operation in quantized.OPERATIONS.items()
}


def find_function(code: int, number: int, *operands: Ztensor) -> MachineFunction | None:
    """Return the function of a code in a format of the block, None where there is none.

    `operands` are the inputs and the first output: of a product in format 1 their types decide.
    """
    if number == FORMAT_1 and code in _PLAIN:
        function_code = FunctionCode(code)
        return _OF_BYTES[function_code] if is_quantized(*operands) else _PLAIN[function_code]
    return _FUNCTIONS.get((code, number))
