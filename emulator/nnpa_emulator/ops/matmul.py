# SPDX-License-Identifier: Apache-2.0
"""Matrix products: matmul_op, matmul_bcast_op, matmul_transpose_op.

Shapes and the selection of function codes are in `matmul_shapes`, sums of products in
`engines.matmul`. A NINF operand makes every result that depends on it NINF, with a range violation.

Fidelity: within one unit in the last place of the exactly rounded value on well-conditioned data.
Neither the order of summation on hardware nor whether it compares rounded sums is public.
"""

from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from nnpa_emulator.dlfloat import NINF
from nnpa_emulator.engines.matmul import (
    ADDITION,
    LAST_RELATION,
    MULTIPLICATIONS,
    NOTHING,
    RELATIONS,
    multiply,
    panels_of,
    shape_of,
)
from nnpa_emulator.instruction import Argument, OperandRule, Operation, response
from nnpa_emulator.kernels import matmul, table
from nnpa_emulator.machine import FORMAT_0, FORMAT_1, LIBRARY_VERSIONS, FunctionCode, Guest
from nnpa_emulator.matmul_shapes import (
    infer_product,
    is_on_the_fly,
    require_shapes,
    require_types,
    respond_combination,
    respond_operation,
    select,
)
from nnpa_emulator.pipeline import (
    FUNCTIONS,
    Call,
    Outcome,
    define,
    function,
    issue,
    operation,
)
from nnpa_emulator.status import Refused, Status
from nnpa_emulator.table import Row, Scratch, Supply
from nnpa_emulator.ztensor import Ztensor


def _verify(
    code: FunctionCode,
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    output: Ztensor,
    **scalars: Argument,
) -> None:
    """Check as the library does with precheck: c1 to c9."""
    require_shapes(code, input_a, input_b, input_c, output, **scalars)
    if is_on_the_fly(input_a, input_b):
        raise Refused(Status.ZDNN_INVALID_SCALE, _WEIGHTS, "ZDNN_BINARY_INT8", _PLAIN, "c7")
    require_types(input_a, input_b, input_c, output, first=8)


def _respond(
    highest: int,
    combining: bool,
    *,
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    op_type: int,
    output: Ztensor,
    **_arguments: object,
) -> None:
    """Answer F000 (c10), and where types and formats are judged together F001 and F002."""
    respond_operation(op_type, highest, "c10")
    if combining and respond_combination("c11", input_a, input_b, input_c, output):
        raise response(0xF002, _WEIGHTS, "ZDNN_BINARY_INT8", _PLAIN, "c12")


# The library hands the machine no scales here, and INT8 weights need them.
_WEIGHTS = "input_b.transformed_desc.type"
_PLAIN = "ZDNN_DLFLOAT16 (zdnn_quantized_matmul_op takes INT8 weights)"
_ULPS = 64  # tolerance of IBM's own matmul tests
_UNRULED: dict[str, OperandRule | None] = dict.fromkeys(("input_a", "input_b", "input_c", "output"))


@operation(
    FunctionCode.NNPA_MATMUL_OP,
    FORMAT_0,
    since="1.0.0",
    verify=partial(_verify, FunctionCode.NNPA_MATMUL_OP),
    relations=partial(require_shapes, FunctionCode.NNPA_MATMUL_OP),
    responses=partial(_respond, LAST_RELATION, False),
    infer=infer_product,
    ulps=_ULPS,
)
def matmul_op(
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    op_type: int,
    output: Ztensor,
    *,
    guest: Guest,
) -> bool:
    """Multiply stacks of matrices, then add input_c or compare with it.

    op_type 0 is input_a * input_b + input_c; 1 GREATER, 2 GREATER_EQUAL, 3 EQUAL, 4 NOT_EQUAL,
    5 LESSER_EQUAL, 6 LESSER store 1.0 where the product has that relation to input_c, else 0. The
    machine reads the low 8 bits.

    1. input_b, input_c, then output has the dim4 of input_a, else ZDNN_INVALID_SHAPE.
    2. dim3 of input_a, input_b, input_c, then output is 1, else ZDNN_INVALID_SHAPE.
    3. dim2 of input_c is 1, else ZDNN_INVALID_SHAPE.
    4. dim2 of output is dim2 of input_a, else ZDNN_INVALID_SHAPE.
    5. dim2 of input_b is dim1 of input_a, else ZDNN_INVALID_SHAPE.
    6. dim1 of input_c, then output, is dim1 of input_b, else ZDNN_INVALID_SHAPE.
    7. Not both input_a DLFLOAT16 and input_b INT8, else ZDNN_INVALID_SCALE: such operands are
       quantized and there is no scale.
    8. input_b, input_c, then output has the type of input_a, else ZDNN_INVALID_TYPE; an
       input_b that is not DLFLOAT16 is judged as INT8 weights of a quantized product instead.
    9. The same of formats, each tested after the type of its tensor, else ZDNN_INVALID_FORMAT.
    10. The machine knows op_type: 0 to 6, else ZDNN_FUNC_RC_F000.

    Source: zDNN API Reference 1.2.0, zdnn_matmul_op (which says "Since 1.1.0"; the function is in
    1.0.0); the order of checks is the zDNN library's.
    """
    return multiply(guest, input_a, input_b, input_c, op_type, output)


def _define(code: FunctionCode, parmblk_format: int, *, transposing: bool = False) -> Operation:
    """Define the use of a function code in a parameter block format."""
    combining = parmblk_format == FORMAT_1
    adds_only = code == FunctionCode.NNPA_MATMUL_OP_BCAST23 and not combining
    return define(
        multiply if transposing else matmul_op,
        code,
        parmblk_format,
        verify=partial(_verify, code),
        relations=partial(require_shapes, code),
        responses=partial(_respond, ADDITION if adds_only else LAST_RELATION, combining),
        operands=_UNRULED if combining else None,
    )


_STACKED = _define(FunctionCode.NNPA_MATMUL_OP, FORMAT_0)
_BCAST23 = _define(FunctionCode.NNPA_MATMUL_OP_BCAST23, FORMAT_0)
_BCAST23_COMPARING = _define(FunctionCode.NNPA_MATMUL_OP_BCAST23, FORMAT_1)
_BCAST1 = _define(FunctionCode.NNPA_MATMUL_OP_BCAST1, FORMAT_1)
TRANSPOSING = {
    code: _define(code, FORMAT_1, transposing=True)
    for code in (
        FunctionCode.NNPA_MATMUL_OP,
        FunctionCode.NNPA_MATMUL_OP_BCAST23,
        FunctionCode.NNPA_MATMUL_OP_BCAST1,
    )
}


def _choose(guest: Guest, input_a: Ztensor, input_b: Ztensor, op_type: int) -> Operation:
    """Return the operation that the library issues for zdnn_matmul_bcast_op."""
    if guest.library_version < LIBRARY_VERSIONS["1.1.0"]:
        return _BCAST23
    code = select(input_a, input_b)
    if code == FunctionCode.NNPA_MATMUL_OP:
        return _STACKED
    if code == FunctionCode.NNPA_MATMUL_OP_BCAST1:
        return _BCAST1
    return _BCAST23 if op_type == ADDITION else _BCAST23_COMPARING


@function("1.0.0", outputs=("output",), infer=infer_product, ulps=_ULPS)
def matmul_bcast_op(
    call: Call,
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    op_type: int,
    output: Ztensor,
) -> Outcome:
    """Multiply stacks of matrices, one of which may serve a whole stack; see matmul_op.

    The library takes MATMUL_OP_BCAST1 when only input_a has dim4 = 1, MATMUL_OP_BCAST23 when only
    input_b has, else MATMUL_OP. BCAST1, and BCAST23 with a comparison, need parameter block
    format 1. Library 1.0.x takes BCAST23 in format 0, whatever the operands.

    1. dim4 fits, else ZDNN_INVALID_SHAPE. MATMUL_OP: input_b, input_c, then output have input_a's.
       BCAST23: output has input_a's, then input_b and input_c have 1. BCAST1: input_a has 1, then
       input_c and output have input_b's.
    2. dim3 of input_a, input_b, input_c, then output is 1, else ZDNN_INVALID_SHAPE.
    3. dim2 of input_c is 1, else ZDNN_INVALID_SHAPE.
    4. dim2 of output is dim2 of input_a, else ZDNN_INVALID_SHAPE.
    5. dim2 of input_b is dim1 of input_a, else ZDNN_INVALID_SHAPE.
    6. dim1 of input_c, then output, is dim1 of input_b, else ZDNN_INVALID_SHAPE.
    7. Not both input_a DLFLOAT16 and input_b INT8, else ZDNN_INVALID_SCALE.
    8. Types as for matmul_op, else ZDNN_INVALID_TYPE.
    9. Formats as for matmul_op, else ZDNN_INVALID_FORMAT.
    10. The machine knows op_type: 0 to 6, else ZDNN_FUNC_RC_F000; BCAST23 in format 0 adds only.
    11. In format 1 types and formats combine: DLFLOAT16 features, or INT8 weights as input_b and
        INT8 or DLFLOAT16 features as input_a, else ZDNN_FUNC_RC_F001.
    12. In format 1 operands are not quantized, as there are no scales, else ZDNN_FUNC_RC_F002.

    Source: zDNN API Reference 1.2.0, zdnn_matmul_bcast_op (which says "Since 1.1.0"; the function
    is in 1.0.0); function codes, formats and the order of checks are the zDNN library's.
    """
    chosen = _choose(call.guest, input_a, input_b, op_type)
    return issue(
        chosen, call,
        input_a=input_a, input_b=input_b, input_c=input_c, op_type=op_type, output=output,
    )  # fmt: skip


# What the function was in 1.0.0, and what recurrent layers issue.
FUNCTIONS["matmul_bcast_op"] = replace(FUNCTIONS["matmul_bcast_op"], operation=_BCAST23)


@function("1.1.0", outputs=("output",), infer=infer_product, ulps=_ULPS)
def matmul_transpose_op(
    call: Call,
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    transpose_a: bool,
    transpose_b: bool,
    op_type: int,
    output: Ztensor,
) -> Outcome:
    """Multiply stacks of matrices, turning one or both on the way; see matmul_bcast_op.

    A turned input_a is stored (s,1,n,m), a turned input_b (s,1,p,n). Parameter block format 1.

    1. dim4 as for matmul_bcast_op, else ZDNN_INVALID_SHAPE.
    2. dim3 of input_a, input_b, input_c, then output is 1, else ZDNN_INVALID_SHAPE.
    3. dim2 of input_c is 1, else ZDNN_INVALID_SHAPE.
    4. dim2 of output is m, else ZDNN_INVALID_SHAPE.
    5. input_a and input_b have the same n, else ZDNN_INVALID_SHAPE.
    6. dim1 of input_c, then output, is p, else ZDNN_INVALID_SHAPE.
    7. Not both input_a DLFLOAT16 and input_b INT8, else ZDNN_INVALID_SCALE.
    8. Types as for matmul_op, else ZDNN_INVALID_TYPE.
    9. Formats as for matmul_op, else ZDNN_INVALID_FORMAT.
    10. The machine knows op_type: 0 to 6, else ZDNN_FUNC_RC_F000.
    11. Types and formats combine: DLFLOAT16 features, or INT8 weights as input_b and
        INT8 or DLFLOAT16 features as input_a, else ZDNN_FUNC_RC_F001.
    12. Operands are not quantized, as there are no scales, else ZDNN_FUNC_RC_F002.

    Source: zDNN API Reference 1.2.0, zdnn_matmul_transpose_op (which says "Since 1.0.0"; the
    function is in 1.1.0); the order of checks is the zDNN library's.
    """
    return issue(
        TRANSPOSING[select(input_a, input_b)], call,
        input_a=input_a, input_b=input_b, input_c=input_c,
        transpose_a=bool(transpose_a), transpose_b=bool(transpose_b),
        op_type=op_type, output=output,
    )  # fmt: skip


FUNCTIONS["matmul_transpose_op"] = replace(
    FUNCTIONS["matmul_transpose_op"],
    operation=TRANSPOSING[FunctionCode.NNPA_MATMUL_OP],
)


def multiply_rows(
    guest: Guest,
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    op_type: int,
    output: Ztensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    *,
    constant: bool,
) -> list[Row] | None:
    """Return the row that multiplies tensors that share no memory; None: no rows.

    The memory of input_b never changes if it is `constant`.
    """
    turned = bool(transpose_a), bool(transpose_b)
    shape = shape_of(input_a, input_b, input_c, output, turned[0])
    products = prod(shape[3:])
    if guest.accumulate == "fp64" or products > MULTIPLICATIONS:
        return None
    panels = panels_of(input_b, turned[1])
    supply: Supply = (lambda _: panels()[0]) if constant else (lambda _: NOTHING)
    operands = (
        input_a.sticks, input_b.sticks, supply, input_c.sticks, output.sticks, shape, turned,
        0 if op_type == ADDITION else RELATIONS[op_type],
        Scratch("products", matmul.WORK, np.float32),
    )  # fmt: skip
    weights = shape[1] * shape[5] * shape[6]
    return [Row(table.MULTIPLY, operands, NINF, max(products // 16, weights))]
