# SPDX-License-Identifier: Apache-2.0
"""Element by element: add, sub, mul, div, min, max, log, exp, sqrt, invsqrt.

Shapes are transformed dims, all equal, no broadcast; tensors are DLFLOAT16 in 4DFEATURE, whatever
layout the user's data had. Formulas of two operands work on their FP32 values. A NINF operand gives
NINF and a range violation, an overflow NINF with its sign, an underflow zero with its sign; -0 is
less than +0. Padding is written as zero.

Fidelity: exact against this reference. Against hardware: consistent with the tolerances of IBM's
own tests; ties and the approximations behind log, exp, sqrt and invsqrt are not public, and log(2)
is known to be one ulp higher on a z16.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat
from nnpa_emulator.arith import apply
from nnpa_emulator.blocks import regions_of
from nnpa_emulator.checks import require_dims, require_fields, require_same, verify_like
from nnpa_emulator.kernels import elementwise
from nnpa_emulator.machine import FORMAT_0, FORMAT_1, FunctionCode
from nnpa_emulator.pipeline import DEFAULT_ULPS, operation
from nnpa_emulator.reference.elementwise import FORMULAS, Formula, region_of
from nnpa_emulator.shape_inference import like_input, like_input_a
from nnpa_emulator.status import Refused, Status
from nnpa_emulator.ztensor import Ztensor

Singles = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


def _verify_binary(input_a: Ztensor, input_b: Ztensor, output: Ztensor) -> None:
    require_same("input_a", input_a, {"output": output, "input_b": input_b})


def _binary(
    code: FunctionCode, number: int, *, ulps: int = DEFAULT_ULPS
) -> Callable[[Formula], Formula]:
    """Register an operation by its formula, which works on the FP32 values of both operands.

    The result is rounded to DLFLOAT16 once; infinities and NaN become 7FFF. `number` names the
    compiled kernel, which is proven to compute the same.
    """

    def decorate(formula: Formula) -> Formula:
        def combine(input_a: Ztensor, input_b: Ztensor, output: Ztensor) -> bool:
            sticks = input_a.sticks, input_b.sticks, output.sticks
            a, b, out = (cells.view(np.uint16) for cells in sticks)
            violated = False
            for first, part in regions_of(region_of(output.transformed_desc)):
                met = elementwise.binary(number, a[first:], b[first:], out[first:], part, False)
                violated |= met == dlfloat.NINF
            return bool(violated)

        FORMULAS[number] = formula
        combine.__name__, combine.__doc__ = formula.__name__, formula.__doc__
        register = operation(
            code, FORMAT_0, since="1.0.0", verify=_verify_binary, infer=like_input_a, ulps=ulps
        )
        register(combine)
        return formula

    return decorate


@_binary(FunctionCode.NNPA_ADD, elementwise.ADD)
def add(input_a: Singles, input_b: Singles) -> Singles:
    """Add: output = input_a + input_b, rounded once.

    1. output, then input_b, has the dims of input_a, else ZDNN_INVALID_SHAPE.
    2. output, then input_b, has the type of input_a, else ZDNN_INVALID_TYPE.
    3. output, then input_b, has the format of input_a, else ZDNN_INVALID_FORMAT.

    A tensor's type is tested before its format, and output before input_b.
    Source: zDNN API Reference 1.2.0, zdnn_add.
    """
    return input_a + input_b


@_binary(FunctionCode.NNPA_SUB, elementwise.SUB)
def sub(input_a: Singles, input_b: Singles) -> Singles:
    """Subtract: output = input_a - input_b, rounded once.

    1. output, then input_b, has the dims of input_a, else ZDNN_INVALID_SHAPE.
    2. output, then input_b, has the type of input_a, else ZDNN_INVALID_TYPE.
    3. output, then input_b, has the format of input_a, else ZDNN_INVALID_FORMAT.

    A tensor's type is tested before its format, and output before input_b.
    Source: zDNN API Reference 1.2.0, zdnn_sub (which says "Since 1.1.0"; the function is in 1.0.0).
    """
    return input_a - input_b


@_binary(FunctionCode.NNPA_MUL, elementwise.MUL)
def mul(input_a: Singles, input_b: Singles) -> Singles:
    """Multiply: output = input_a * input_b, rounded once.

    1. output, then input_b, has the dims of input_a, else ZDNN_INVALID_SHAPE.
    2. output, then input_b, has the type of input_a, else ZDNN_INVALID_TYPE.
    3. output, then input_b, has the format of input_a, else ZDNN_INVALID_FORMAT.

    A tensor's type is tested before its format, and output before input_b.
    Source: zDNN API Reference 1.2.0, zdnn_mul.
    """
    return input_a * input_b


@_binary(FunctionCode.NNPA_DIV, elementwise.DIV)
def div(input_a: Singles, input_b: Singles) -> Singles:
    """Divide: output = input_a / input_b, rounded once; anything by zero is NINF.

    1. output, then input_b, has the dims of input_a, else ZDNN_INVALID_SHAPE.
    2. output, then input_b, has the type of input_a, else ZDNN_INVALID_TYPE.
    3. output, then input_b, has the format of input_a, else ZDNN_INVALID_FORMAT.

    A tensor's type is tested before its format, and output before input_b.
    Source: zDNN API Reference 1.2.0, zdnn_div.
    """
    return input_a / input_b


@_binary(FunctionCode.NNPA_MIN, elementwise.MIN, ulps=0)
def min(input_a: Singles, input_b: Singles) -> Singles:  # noqa: A001 - zDNN's name
    """Select the lesser of input_a and input_b, exactly.

    1. output, then input_b, has the dims of input_a, else ZDNN_INVALID_SHAPE.
    2. output, then input_b, has the type of input_a, else ZDNN_INVALID_TYPE.
    3. output, then input_b, has the format of input_a, else ZDNN_INVALID_FORMAT.

    A tensor's type is tested before its format, and output before input_b.
    Source: zDNN API Reference 1.2.0, zdnn_min.
    """
    negative_first = np.where(np.signbit(input_a), input_a, input_b)
    return np.where(input_a == input_b, negative_first, np.minimum(input_a, input_b))


@_binary(FunctionCode.NNPA_MAX, elementwise.MAX, ulps=0)
def max(input_a: Singles, input_b: Singles) -> Singles:  # noqa: A001 - zDNN's name
    """Select the greater of input_a and input_b, exactly.

    1. output, then input_b, has the dims of input_a, else ZDNN_INVALID_SHAPE.
    2. output, then input_b, has the type of input_a, else ZDNN_INVALID_TYPE.
    3. output, then input_b, has the format of input_a, else ZDNN_INVALID_FORMAT.

    A tensor's type is tested before its format, and output before input_b.
    Source: zDNN API Reference 1.2.0, zdnn_max.
    """
    positive_first = np.where(np.signbit(input_a), input_b, input_a)
    return np.where(input_a == input_b, positive_first, np.maximum(input_a, input_b))


def _log(values: Doubles) -> Doubles:
    """Natural logarithm; every value that is not positive gives minus infinity."""
    return np.log(values, out=np.full_like(values, -np.inf), where=values > 0)


@operation(FunctionCode.NNPA_LOG, FORMAT_0, since="1.0.0", verify=verify_like, infer=like_input)
def log(input: Ztensor, output: Ztensor) -> bool:
    """Take the natural logarithm; zero and negative elements give negative NINF.

    1. output has the dims of input, else ZDNN_INVALID_SHAPE.
    2. output has the type of input, else ZDNN_INVALID_TYPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.

    Source: zDNN API Reference 1.2.0, zdnn_log.
    """
    return apply(_log, input, output)


@operation(FunctionCode.NNPA_EXP, FORMAT_0, since="1.0.0", verify=verify_like, infer=like_input)
def exp(input: Ztensor, output: Ztensor) -> bool:
    """Raise e to each element.

    1. output has the dims of input, else ZDNN_INVALID_SHAPE.
    2. output has the type of input, else ZDNN_INVALID_TYPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.

    Source: zDNN API Reference 1.2.0, zdnn_exp.
    """
    return apply(np.exp, input, output)


@operation(FunctionCode.NNPA_SQRT, FORMAT_1, since="1.1.0", verify=verify_like, infer=like_input)
def sqrt(input: Ztensor, output: Ztensor) -> bool:
    """Take the square root; negative elements give NINF.

    1. output has the dims of input, else ZDNN_INVALID_SHAPE.
    2. output has the type of input, else ZDNN_INVALID_TYPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.

    Source: zDNN API Reference 1.2.0, zdnn_sqrt.
    """
    return apply(np.sqrt, input, output)


def _verify_invsqrt(input: Ztensor, epsilon: int, output: Ztensor) -> None:
    desc = input.transformed_desc
    require_fields(desc.type, desc.format, {"output": output}, "c1", "c2")
    require_dims("input", desc, {"output": output}, "c3")
    if epsilon & dlfloat.MAGNITUDE == dlfloat.NINF:
        value, limit = dlfloat.text_of(epsilon), "numeric in DLFLOAT16"
        raise Refused(Status.ZDNN_INVALID_EPSILON, "epsilon", value, limit, "c4")


def _invsqrt(values: Doubles, epsilon: float) -> Doubles:
    """1 / sqrt(x + epsilon); a sum that is not positive or rounds out of DLFLOAT16 gives NaN."""
    total = values + epsilon
    numeric = (total > 0) & (dlfloat.from_fp64(total) != dlfloat.NINF)
    return 1 / np.sqrt(total, out=np.full_like(total, np.nan), where=numeric)


@operation(
    FunctionCode.NNPA_INVSQRT, FORMAT_1, since="1.1.0", verify=_verify_invsqrt, infer=like_input
)
def invsqrt(input: Ztensor, epsilon: float, output: Ztensor) -> bool:
    """Take 1 / sqrt(input + epsilon); epsilon is reduced to DLFLOAT16 first.

    1. output has the type of input, else ZDNN_INVALID_TYPE.
    2. output has the format of input, else ZDNN_INVALID_FORMAT.
    3. output has the dims of input, else ZDNN_INVALID_SHAPE.
    4. epsilon is numeric in DLFLOAT16, else ZDNN_INVALID_EPSILON.

    Source: zDNN API Reference 1.2.0, zdnn_invsqrt; the order of checks is the zDNN library's.
    """
    return apply(_invsqrt, input, output, int(epsilon))
