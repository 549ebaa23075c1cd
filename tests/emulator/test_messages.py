# SPDX-License-Identifier: Apache-2.0
"""Refusals as a user reads them: argument, value, limit and remedy in zDNN's words, by kind."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import FUNCTIONS, MACHINES, Guest, TensorDesc, Ztensor, run
from nnpa_emulator.custom_machine import Overrides, customise
from nnpa_emulator.execution import execute
from nnpa_emulator.machine import FunctionCode
from nnpa_emulator.status import ProgramCheck
from nnpa_emulator.ztensor import (
    DataFormats,
    DataLayouts,
    DataTypes,
    generate_quantized_transformed_desc,
    generate_transformed_desc,
    generate_transformed_desc_concatenated,
)

from tests.emulator.operands import KERNEL, blank, guest, values

Arguments = Mapping[str, Any]
INT8, FEATURE = DataTypes.ZDNN_BINARY_INT8, DataFormats.ZDNN_FORMAT_4DFEATURE
ONE = (1, 1, 1, 1)

TELUM_2_FUNCTIONS = (
    "sqrt", "invsqrt", "leaky_relu", "gelu", "softmax_mask", "norm", "moments", "layernorm",
    "reduce", "matmul_transpose_op",
)  # fmt: skip


def any_arguments(name: str) -> dict[str, Any]:
    """Return arguments of the right kinds: tensors of one element, 1 for numbers."""
    kinds = {parameter: str(info) for parameter, info in FUNCTIONS[name].parameters.items()}
    return {
        parameter: blank(ONE) if "Ztensor" in kind else 1.0 if "float" in kind else 1
        for parameter, kind in kinds.items()
    }


def refusal_of(name: str, arguments: Arguments, program: Guest) -> str:
    """Return the refusal of a call as the user reads it."""
    return str(run(program, name, arguments).refusal)


@pytest.mark.parametrize("name", TELUM_2_FUNCTIONS)
def test_names_the_machine_that_has_the_function(name: str) -> None:
    """A function of Telum II on a z16 says which machine it needs and where the session runs."""
    assert refusal_of(name, any_arguments(name), guest("telum1")) == (
        f"ZDNN_UNAVAILABLE_FUNCTION: zdnn_{name} needs Telum II (z17); "
        "this session runs on telum1 (z16) [pipeline_c2]"
    )


@pytest.mark.parametrize("machine", ["z15", "telum1-nonnpa", "telum2-nonnpa"])
@pytest.mark.parametrize("name", ["add", "lstm", "gru", "refresh_nnpa_query_result"])
def test_names_the_machines_with_nnpa(machine: str, name: str) -> None:
    """Without NNPA a call says which machines have it, and where the session runs."""
    arguments = any_arguments(name) | ({"direction": 0} if name in ("lstm", "gru") else {})
    label = "refresh_nnpa_query_result_c1" if "refresh" in name else "pipeline_c2"
    assert refusal_of(name, arguments, guest(machine)) == (
        f"ZDNN_UNAVAILABLE_FUNCTION: zdnn_{name} needs Telum I (z16) or Telum II (z17); "
        f"this session runs on {machine} ({MACHINES[machine].title}) [{label}]"
    )


def test_names_the_function_that_a_custom_machine_lacks() -> None:
    """A function that was removed is named as the library and as the instruction name it."""
    removed = Overrides(removed_functions=frozenset((FunctionCode.NNPA_ADD,)))
    program = Guest(customise(MACHINES["telum2"], removed))
    assert refusal_of("add", any_arguments("add"), program) == (
        "ZDNN_UNAVAILABLE_FUNCTION: zdnn_add needs Telum I (z16) or Telum II (z17); this session "
        "runs on telum2-custom (IBM z17, Telum II) without NNPA_ADD [pipeline_c4]"
    )


def test_names_the_call_that_asks_a_new_machine_again() -> None:
    """After a move the refusal names zdnn_refresh_nnpa_query_result."""
    moved = guest("telum1")
    moved.machine = MACHINES["telum2"]
    assert refusal_of("gelu", any_arguments("gelu"), moved) == (
        "ZDNN_UNAVAILABLE_FUNCTION: zdnn_gelu needs Telum II (z17); this session runs on telum2 "
        "(z17), remembered as another machine: call zdnn_refresh_nnpa_query_result [pipeline_c2]"
    )


def test_names_the_machine_where_conversion_is_lacking() -> None:
    """A scalar that needs the conversion instruction ends the program, and says why."""
    with pytest.raises(ProgramCheck) as caught:
        run(
            guest("z15"), "relu", {"input": blank(ONE), "clipping_value": 6.0, "output": blank(ONE)}
        )
    assert str(caught.value) == (
        "operation exception: zdnn_relu needs z16 or later; "
        "this session runs on z15 (IBM z15, no NNPA) [pipeline_c4]"
    )


def test_instruction_names_the_function_and_the_machine() -> None:
    """An instruction by itself names function and machine, and the machine that has both."""
    completion = execute(guest("telum1"), FunctionCode.NNPA_GELU, 0, bytes(4096), {})
    assert str(completion.refusal) == (
        "ZDNN_UNAVAILABLE_FUNCTION: function code is NNPA_GELU, must be a function of "
        "telum1 (z16); Telum II (z17) has it [execution_c1]"
    )
    with pytest.raises(ProgramCheck, match=r"machine is z15 \(.*\), must be Telum I \(z16\) or"):
        execute(guest("z15"), FunctionCode.NNPA_ADD, 0, bytes(4096), {})


def ztensor(*dims: int, kind: int = DataTypes.ZDNN_DLFLOAT16) -> Ztensor:
    """Return a ztensor of NHWC that has no buffer."""
    desc = TensorDesc(DataLayouts.ZDNN_NHWC, FEATURE, kind, *dims)
    return Ztensor(TensorDesc(DataLayouts.ZDNN_NHWC, 0, DataTypes.FP32, *dims), desc)


def changed(tensor: Ztensor, **fields: int) -> Ztensor:
    """Return a ztensor with another transformed descriptor."""
    return replace(tensor, transformed_desc=replace(tensor.transformed_desc, **fields))


def pair(**fields: int) -> Arguments:
    """Return arguments of add, with an input_b whose descriptor is changed."""
    second = changed(blank(ONE), **fields)
    return {"input_a": blank(ONE), "input_b": second, "output": blank(ONE)}


def pooling(**changes: int) -> Arguments:
    """Return arguments of maxpool2d with one window over 2 by 2 elements."""
    numbers = {"padding_type": 0, "kernel_height": 2, "kernel_width": 2, "stride_height": 1}
    tensors = {"input": values(np.ones((1, 2, 2, 1))), "output": blank(ONE)}
    return {**numbers, "stride_width": 1, **tensors, **changes}


def convolution(**changes: int) -> Arguments:
    """Return arguments of conv2d of one element."""
    numbers = {"padding_type": 0, "stride_height": 1, "stride_width": 1, "act_func": 0}
    tensors = {"input": blank(ONE), "bias": blank(ONE), "output": blank(ONE)}
    kernel = blank(ONE, KERNEL)
    return {**numbers, "clipping_value": None, **tensors, "kernel": kernel, **changes}


def product(**fields: int) -> Arguments:
    """Return arguments of matmul_op, with an input_b whose descriptor is changed."""
    tensors = {name: blank(ONE) for name in ("input_a", "input_c", "output")}
    return {**tensors, "input_b": changed(blank(ONE), **fields), "op_type": 0}


MESSAGES: Mapping[str, tuple[str, Callable[[], Arguments], str]] = {
    "no elements": (
        "allochelper_ztensor",
        lambda: {"ztensor": ztensor(1, 1, 3, 0)},
        ("ZDNN_INVALID_SHAPE: ztensor.transformed_desc.dim1 is 0, must be 1 to 2097152 on telum2 "
        "(z17): zDNN has no tensor without elements [allochelper_ztensor_c1]"),
    ),
    "too many elements": (
        "allochelper_ztensor",
        lambda: {"ztensor": ztensor(1, 40000, 1, 1)},
        ("ZDNN_INVALID_SHAPE: ztensor.transformed_desc.dim3 is 40000, must be 1 to 32768 on "
        "telum2 (z17) [allochelper_ztensor_c1]"),
    ),
    "an operand without elements": (
        "add",
        lambda: pair(dim2=0),
        ("ZDNN_EXCEEDS_MDIS: input_b.transformed_desc.dim2 is 0, must be 1 to 1048576 on telum2 "
        "(z17): zDNN has no tensor without elements [pipeline_c6]"),
    ),
    "a known type": (
        "add",
        lambda: pair(type=INT8),
        ("ZDNN_UNSUPPORTED_TYPE: input_b.transformed_desc.type is ZDNN_BINARY_INT8, must be "
        "ZDNN_DLFLOAT16 [pipeline_c5]"),
    ),
    "an unknown format": (
        "add",
        lambda: pair(format=7),
        ("ZDNN_UNSUPPORTED_FORMAT: input_b.transformed_desc.format is 7, must be "
        "ZDNN_FORMAT_4DFEATURE [pipeline_c5]"),
    ),
    "a layout": (
        "allochelper_ztensor",
        lambda: {"ztensor": changed(ztensor(1, 1, 1, 1), format=1, layout=DataLayouts.ZDNN_NHWC)},
        ("ZDNN_INVALID_LAYOUT: ztensor.transformed_desc.layout is ZDNN_NHWC, must be ZDNN_HWCK "
        "[allochelper_ztensor_c1]"),
    ),
    "transformed twice": (
        "transform_ztensor",
        lambda: {"ztensor": values(np.ones(ONE)), "data": (np.ones(1, np.float32),)},
        ("ZDNN_INVALID_STATE: ztensor.is_transformed is true, must be false: call "
        "zdnn_reset_ztensor first [transform_ztensor_c4]"),
    ),
    "not transformed": (
        "transform_origtensor",
        lambda: {"ztensor": replace(values(np.ones(ONE)), is_transformed=False)},
        ("ZDNN_INVALID_STATE: ztensor.is_transformed is false, must be true: transform the ztensor "
        "first [transform_origtensor_c4]"),
    ),
    "no buffer": (
        "transform_ztensor",
        lambda: {"ztensor": ztensor(*ONE), "data": (np.ones(1, np.float32),)},
        ("ZDNN_INVALID_BUFFER: ztensor.buffer is NULL, must be allocated: zdnn_allochelper_ztensor "
        "[transform_ztensor_c3]"),
    ),
    "a user's type": (
        "transform_ztensor",
        lambda: {
            "ztensor": replace(
                ztensor(*ONE), pre_transformed_desc=TensorDesc(0, 0, DataTypes.INT8, dim1=1)
            ),
            "data": (np.ones(1, np.int8),),
        },
        ("ZDNN_INVALID_TYPE: ztensor.pre_transformed_desc.type is INT8, must be one of BFLOAT, "
        "FP16, FP32 [transform_ztensor_c1]"),
    ),
    "one stride of 0": (
        "maxpool2d",
        lambda: pooling(stride_width=0),
        ("ZDNN_INVALID_STRIDES: (stride_height, stride_width) is (1, 0), must be both 0 or both "
        "positive [maxpool2d_c6]"),
    ),
    "windows and output": (
        "maxpool2d",
        lambda: pooling(kernel_height=1),
        "ZDNN_INVALID_SHAPE: output.transformed_desc.dim3 is 1, must be 2 (windows) [maxpool2d_c8]",
    ),
    "a stride of convolution": (
        "conv2d",
        lambda: convolution(stride_width=14),
        "ZDNN_FUNC_RC_F004: stride_width is 14, must be at most 13 [conv2d_c18]",
    ),
    "an epsilon": (
        "invsqrt",
        lambda: {"input": blank(ONE), "epsilon": np.inf, "output": blank(ONE)},
        ("ZDNN_INVALID_EPSILON: epsilon is NINF (beyond 8573157376 in magnitude), must be numeric "
        "in DLFLOAT16 [invsqrt_c4]"),
    ),
    "INT8 weights": (
        "matmul_op",
        lambda: product(type=INT8, format=DataFormats.ZDNN_FORMAT_4DWEIGHTS),
        ("ZDNN_INVALID_SCALE: input_b.transformed_desc.type is ZDNN_BINARY_INT8, must be "
        "ZDNN_DLFLOAT16 (zdnn_quantized_matmul_op takes INT8 weights) [matmul_op_c7]"),
    ),
}  # fmt: skip
VERIFIED = ("one stride of 0", "windows and output", "an epsilon", "INT8 weights")


@pytest.mark.parametrize("kind", MESSAGES)
def test_names_argument_value_limit_and_remedy(kind: str) -> None:
    """A refusal names the C argument, the value, the limit and the remedy in zDNN's words."""
    name, arguments, text = MESSAGES[kind]
    assert refusal_of(name, arguments(), guest(precheck=kind in VERIFIED)) == text


def test_descriptors_name_layouts_and_types() -> None:
    """Generating a descriptor refuses layouts and types by zDNN's names."""
    concatenated = TensorDesc(DataLayouts.ZDNN_FICO, 0, DataTypes.FP32)
    with pytest.raises(Exception, match=r"layout is ZDNN_FICO, must be ZDNN_1D, ZDNN_2D, .*HWCK"):
        generate_transformed_desc(concatenated)
    integers = TensorDesc(DataLayouts.ZDNN_1D, 0, DataTypes.INT8, dim1=1)
    with pytest.raises(Exception, match="type is INT8, must be FP32, FP16, BFLOAT or INT32"):
        generate_transformed_desc(integers)
    with pytest.raises(Exception, match="transform_type is 3, must be QUANTIZED_DLFLOAT16, "):
        generate_quantized_transformed_desc(integers, 3)
    weights = TensorDesc(DataLayouts.ZDNN_2DS, 0, DataTypes.FP32, dim2=1, dim1=1)
    with pytest.raises(Exception, match="layout is ZDNN_2DS, must be ZDNN_3DS"):
        generate_transformed_desc_concatenated(weights, 0)
    with pytest.raises(Exception, match="info is 0x00000400, must be USAGE_WEIGHTS, "):
        generate_transformed_desc_concatenated(weights, 0x400)
