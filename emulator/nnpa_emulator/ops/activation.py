# SPDX-License-Identifier: Apache-2.0
"""Activations: relu, leaky_relu, tanh, sigmoid, softmax, softmax_mask, gelu.

Shapes are transformed dims, all equal; tensors are DLFLOAT16 in 4DFEATURE. A NINF operand gives
NINF and a range violation, an underflow zero with its sign. Padding is written as zero.

Fidelity: exact against this reference, which rounds the formula once; softmax sums in double
precision, whatever `accumulate` says, so that a row does not depend on the rows around it. Against
hardware: consistent with the tolerances of IBM's own tests; the approximations behind tanh,
sigmoid, gelu and softmax are not public, and gelu is known to be about 0.0025 too low near results
of -0.026 on hardware. Not public either: relu of NINF and of -0 (+0 here).
"""

from math import prod

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat, stick
from nnpa_emulator.arith import apply, parts
from nnpa_emulator.checks import verify_like
from nnpa_emulator.instruction import response
from nnpa_emulator.kernels import activation as kernels
from nnpa_emulator.kernels import table
from nnpa_emulator.machine import FORMAT_0, FORMAT_1, FunctionCode
from nnpa_emulator.pipeline import operation
from nnpa_emulator.shape_inference import like_input
from nnpa_emulator.status import Refused, Status
from nnpa_emulator.table import Row
from nnpa_emulator.ztensor import Ztensor

Doubles = npt.NDArray[np.float64]

SOFTMAX_ACT_NONE, SOFTMAX_ACT_LOG = 0, 1


def _verify_relu(input: Ztensor, clipping_value: int, output: Ztensor) -> None:
    verify_like(input, output)
    if clipping_value & dlfloat.SIGN or clipping_value == dlfloat.NINF:
        value, limit = dlfloat.text_of(clipping_value), "0 or a positive number"
        raise Refused(Status.ZDNN_INVALID_CLIPPING_VALUE, "clipping_value", value, limit, "c4")


def _rectified(values: Doubles, clipping_value: float, adjustment_factor: float) -> Doubles:
    """Multiply values up to 0 by the factor (+0 for factor 0), clip the others if asked."""
    low = values * adjustment_factor if adjustment_factor else 0.0
    high = np.minimum(values, clipping_value) if clipping_value else values
    return np.where(values > 0, high, np.where(np.isnan(values), np.nan, low))


@operation(
    FunctionCode.NNPA_RELU, FORMAT_0, since="1.0.0", verify=_verify_relu, infer=like_input, ulps=0
)
def relu(input: Ztensor, *, clipping_value: float | None = None, output: Ztensor) -> bool:
    """Rectify: max(0, input), then at most clipping_value unless that is 0 or NULL.

    1. output has the dims of input, else ZDNN_INVALID_SHAPE.
    2. output has the type of input, else ZDNN_INVALID_TYPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.
    4. clipping_value, rounded to DLFLOAT16, is neither negative (-0 included) nor NINF, else
       ZDNN_INVALID_CLIPPING_VALUE.

    Source: zDNN API Reference 1.2.0, zdnn_relu; a clipping_value that rounds to +0 clips nothing.
    """
    return apply(_rectified, input, output, int(clipping_value or 0), 0)


def _verify_leaky_relu(
    input: Ztensor, clipping_value: int, adjustment_factor: int, output: Ztensor
) -> None:
    _verify_relu(input, clipping_value, output)
    if adjustment_factor > dlfloat.ONE:
        status, value = Status.ZDNN_INVALID_ADJUSTMENT_FACTOR, dlfloat.text_of(adjustment_factor)
        raise Refused(status, "adjustment_factor", value, "0 to 1", "c5")


@operation(
    FunctionCode.NNPA_RELU, FORMAT_1, since="1.1.0", verify=_verify_leaky_relu, infer=like_input
)
def leaky_relu(
    input: Ztensor,
    *,
    clipping_value: float | None = None,
    adjustment_factor: float,
    output: Ztensor,
) -> bool:
    """Rectify with a slope: adjustment_factor * input where that is negative, else as relu.

    1. output has the dims of input, else ZDNN_INVALID_SHAPE.
    2. output has the type of input, else ZDNN_INVALID_TYPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.
    4. clipping_value, rounded to DLFLOAT16, is neither negative (-0 included) nor NINF, else
       ZDNN_INVALID_CLIPPING_VALUE.
    5. adjustment_factor, rounded to DLFLOAT16, is +0 to 1, else ZDNN_INVALID_ADJUSTMENT_FACTOR.

    Source: zDNN API Reference 1.2.0, zdnn_leaky_relu; not on Telum I, whatever the factor is.
    """
    clip, factor = int(clipping_value or 0), int(adjustment_factor)
    return apply(_rectified, input, output, clip, factor)


@operation(FunctionCode.NNPA_TANH, FORMAT_0, since="1.0.0", verify=verify_like, infer=like_input)
def tanh(input: Ztensor, output: Ztensor) -> bool:
    """Take the hyperbolic tangent.

    1. output has the dims of input, else ZDNN_INVALID_SHAPE.
    2. output has the type of input, else ZDNN_INVALID_TYPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.

    Source: zDNN API Reference 1.2.0, zdnn_tanh.
    """
    return apply(np.tanh, input, output)


def _logistic(values: Doubles) -> Doubles:
    return 1 / (1 + np.exp(-values))


@operation(FunctionCode.NNPA_SIGMOID, FORMAT_0, since="1.0.0", verify=verify_like, infer=like_input)
def sigmoid(input: Ztensor, output: Ztensor) -> bool:
    """Take the logistic function: 1 / (1 + exp(-input)).

    1. output has the dims of input, else ZDNN_INVALID_SHAPE.
    2. output has the type of input, else ZDNN_INVALID_TYPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.

    Source: zDNN API Reference 1.2.0, zdnn_sigmoid.
    """
    return apply(_logistic, input, output)


def _gelu(values: Doubles) -> Doubles:
    """Evaluate x/2 * (1 + tanh(u)) as x / (1 + exp(-2u)), which does not cancel for negative x."""
    cubic = 0.7978845608 * values * (1 + 0.044715 * values * values)
    return values * _logistic(2 * cubic)


@operation(FunctionCode.NNPA_GELU, FORMAT_1, since="1.1.0", verify=verify_like, infer=like_input)
def gelu(input: Ztensor, output: Ztensor) -> bool:
    """Take 0.5 * x * (1 + tanh(0.7978845608 * x * (1 + 0.044715 * x**2))).

    1. output has the dims of input, else ZDNN_INVALID_SHAPE.
    2. output has the type of input, else ZDNN_INVALID_TYPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.

    Source: zDNN API Reference 1.2.0, zdnn_gelu; the zDNN library's tests have this formula.
    """
    return apply(_gelu, input, output)


def _softmax_responses(
    input: Ztensor, act_func: int, output: Ztensor, softmax_mask: int = 0
) -> None:
    desc = input.transformed_desc
    if desc.dim3 != 1:
        raise response(0xF000, "input.transformed_desc.dim3", desc.dim3, "1", "c4")
    if act_func not in (SOFTMAX_ACT_NONE, SOFTMAX_ACT_LOG):
        limit = "SOFTMAX_ACT_NONE or SOFTMAX_ACT_LOG"
        raise response(0xF001, "act_func", act_func, limit, "c5")
    if softmax_mask > desc.dim1:
        limit = f"at most {desc.dim1} (input.dim1)"
        raise response(0xF002, "softmax_mask", softmax_mask, limit, "c6")


def _softmax(input: Ztensor, count: int, act_func: int, output: Ztensor) -> bool:
    log = act_func == SOFTMAX_ACT_LOG
    largest = max(
        kernels.softmax(codes, out, *block.place, count, log)
        for block, codes, out in parts(input, output)
    )
    return bool(largest == dlfloat.NINF)


@operation(
    FunctionCode.NNPA_SOFTMAX,
    FORMAT_0,
    since="1.0.0",
    verify=verify_like,
    infer=like_input,
    responses=_softmax_responses,
)
def softmax(input: Ztensor, act_func: int, output: Ztensor) -> bool:
    """Take exp(x - max) / sum of exp(x - max) over every dim1 vector, or the logarithm of that.

    1. output has the dims of input, else ZDNN_INVALID_SHAPE.
    2. output has the type of input, else ZDNN_INVALID_TYPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.
    4. input.dim3 is 1, else ZDNN_FUNC_RC_F000.
    5. The low 4 bits of act_func are SOFTMAX_ACT_NONE or SOFTMAX_ACT_LOG, else ZDNN_FUNC_RC_F001.

    Scratch: one dim1 vector in double precision.
    Source: zDNN API Reference 1.2.0, zdnn_softmax.
    """
    return _softmax(input, input.transformed_desc.dim1, act_func, output)


@operation(
    FunctionCode.NNPA_SOFTMAX,
    FORMAT_1,
    since="1.1.0",
    verify=verify_like,
    infer=like_input,
    responses=_softmax_responses,
)
def softmax_mask(input: Ztensor, act_func: int, softmax_mask: int, output: Ztensor) -> bool:
    """Take the softmax over the first softmax_mask elements of dim1, 0 being all of them.

    The other elements are not looked at; their results are 0, also with SOFTMAX_ACT_LOG.

    1. output has the dims of input, else ZDNN_INVALID_SHAPE.
    2. output has the type of input, else ZDNN_INVALID_TYPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.
    4. input.dim3 is 1, else ZDNN_FUNC_RC_F000.
    5. The low 4 bits of act_func are SOFTMAX_ACT_NONE or SOFTMAX_ACT_LOG, else ZDNN_FUNC_RC_F001.
    6. softmax_mask is at most input.dim1, else ZDNN_FUNC_RC_F002.

    Scratch: one dim1 vector in double precision.
    Source: zDNN API Reference 1.2.0, zdnn_softmax_mask; not on Telum I, whatever the mask is.
    """
    return _softmax(input, softmax_mask or input.transformed_desc.dim1, act_func, output)


def softmax_rows(
    input: Ztensor, act_func: int, output: Ztensor, softmax_mask: int = 0
) -> list[Row]:
    """Return the row that does `softmax` or `softmax_mask` over tensors that share no memory."""
    shape = stick.geometry(input.transformed_desc)
    codes, out = input.sticks.view(np.uint16), output.sticks.view(np.uint16)
    count, log = softmax_mask or shape.dims[3], act_func == SOFTMAX_ACT_LOG
    operands = codes, out, shape.dims, shape.pages, count, log
    return [Row(table.SOFTMAX, operands, dlfloat.NINF, 8 * prod(shape.dims))]
