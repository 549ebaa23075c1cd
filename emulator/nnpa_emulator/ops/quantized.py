# SPDX-License-Identifier: Apache-2.0
"""The quantized matrix product: quantized_matmul_op, normal and on the fly.

The formulas are in `engines.quantized`. On the fly the machine quantizes input_a:
clip(round(a*Sa + Za)), half to even. After a range violation the library leaves results as the
machine stored them.

Fidelity: integer sums are exact. Rounding mode and precision of M' on hardware are not public.
Scratch: 16 MB each of input_a and input_b, 32 MB of sums, and c~.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from nnpa_emulator import stick
from nnpa_emulator.dlfloat import MAGNITUDE, MAX_VALUE, NINF, scalar_to_dlfloat, text_of
from nnpa_emulator.engines.matmul import (
    ADDITION,
    LAST_RELATION,
    RELATIONS,
    Range,
    place_of,
    read_block,
    spans,
)
from nnpa_emulator.engines.quantized import (
    Doubles,
    Quantizer,
    Scales,
    Single,
    Singles,
    column_sums,
    factor_of,
    finish,
    number_of,
    scales_of,
    sum_bytes,
)
from nnpa_emulator.fields import dlfloat_field
from nnpa_emulator.instruction import (
    Alignment,
    Argument,
    OperandRule,
    Operation,
    require_storage,
    response,
)
from nnpa_emulator.interruption import go_on
from nnpa_emulator.kernels import convert, matmul_blocks
from nnpa_emulator.machine import FORMAT_1, FunctionCode, Guest, page_memory
from nnpa_emulator.matmul_shapes import (
    is_on_the_fly,
    require_shapes,
    require_types,
    respond_combination,
    respond_operation,
    select,
)
from nnpa_emulator.pipeline import (
    DEFAULT_ULPS,
    Call,
    Outcome,
    define,
    function,
    issue,
    require_facility,
)
from nnpa_emulator.status import Refused, Status
from nnpa_emulator.ztensor import (
    DataFormats,
    DataTypes,
    Ztensor,
    getsize_ztensor,
    name_of,
)

ROWS, COLUMNS = 4096, 1024
"""Most rows and columns of a block of the result."""
_INT8, _FEATURE = DataTypes.ZDNN_BINARY_INT8, DataFormats.ZDNN_FORMAT_4DFEATURE
# GREATER and LESSER, and their forms with equality, change places under a negative scale.
_MIRRORED = {1: 6, 2: 5, 5: 2, 6: 1}


# What the library and the machine check of the instruction.


def _verify(
    code: FunctionCode,
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    output: Ztensor,
    **scalars: Argument,
) -> None:
    """Check as the library does with precheck: c3 to c13."""
    _relate(code, input_a, input_b, input_c, output, **scalars)
    require_types(input_a, input_b, input_c, output, first=12)


def _verify_scalars(
    a_scale: int, a_offset: int, clip_min: int, clip_max: int, **_arguments: object
) -> None:
    """Check the scalars of a product whose first operand the machine quantizes: c9 to c11."""
    if a_scale == 0 or a_scale & MAGNITUDE == NINF:
        value, limit = text_of(a_scale), "numeric and not 0 in DLFLOAT16"
        raise Refused(Status.ZDNN_INVALID_SCALE, "input_a.rec_scale", value, limit, "c9")
    if a_offset & MAGNITUDE == NINF:
        status, limit = Status.ZDNN_INVALID_OFFSET, "numeric in DLFLOAT16"
        raise Refused(status, "input_a.offset", text_of(a_offset), limit, "c10")
    if clip_min >= clip_max:
        status, limit = Status.ZDNN_INVALID_CLIPPING_VALUE, f"less than clip_max {clip_max}"
        raise Refused(status, "clip_min", clip_min, limit, "c11")


def _relate(
    code: FunctionCode,
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    output: Ztensor,
    **scalars: Argument,
) -> None:
    """Check the relations whose violation ends the program: shapes, then offset and clips."""
    require_shapes(code, input_a, input_b, input_c, output, first=3)
    if is_on_the_fly(input_a, input_b):
        _verify_scalars(**scalars)


def _respond(
    op_type: int,
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    output: Ztensor,
    a_scale: int,
    b_scale: int,
    output_scale: int,
    **_arguments: object,
) -> None:
    """Answer F000 (c14), F001 (c15), F002 (c16)."""
    respond_operation(op_type, LAST_RELATION, "c14")
    if not respond_combination("c15", input_a, input_b, input_c, output):
        limit = "ZDNN_BINARY_INT8 (zdnn_matmul_op takes DLFLOAT16)"
        field = "input_b.transformed_desc.type"
        raise response(0xF001, field, "ZDNN_DLFLOAT16", limit, "c15")
    scales = {"input_a": a_scale, "input_b": b_scale, "output": output_scale}
    for name, scale in scales.items():
        if scale & MAGNITUDE in (0, NINF):
            limit = "numeric and not 0 in DLFLOAT16"
            raise response(0xF002, f"{name}.rec_scale", text_of(scale), limit, "c16")
    factor = factor_of(a_scale, b_scale, output_scale)
    if abs(factor) > MAX_VALUE:
        field = "output.rec_scale / (input_a.rec_scale * input_b.rec_scale)"
        raise response(0xF002, field, factor, "numeric in DLFLOAT16", "c16")


# The instruction and what surrounds it.


def _compute(
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    op_type: int,
    a_scale: int,
    a_offset: int,
    b_scale: int,
    output_scale: int,
    clip_min: int,
    clip_max: int,
    output: Ztensor,
) -> bool:
    """Multiply as the machine does; scales and offset are codes, input_c is c~ in DLFLOAT16."""
    quantizer = None
    if input_a.transformed_desc.type != _INT8:
        scale, offset = Single(number_of(a_scale)), Single(number_of(a_offset))
        quantizer = Quantizer(scale, offset, (clip_min, clip_max))
    factor = factor_of(a_scale, b_scale, output_scale)
    desc = output.transformed_desc
    violated = False
    for stack in range(desc.dim4):
        for columns in spans(desc.dim1, COLUMNS):
            bias, _ = read_block(
                input_c, (stack % input_c.transformed_desc.dim4, 1), (0, 1), columns
            )
            for rows in spans(desc.dim2, ROWS):
                go_on()
                sums = sum_bytes(input_a, input_b, stack, rows, columns, quantizer)
                violated |= _store(factor * sums, bias, op_type, output, stack, rows, columns)
    matmul_blocks.clear_padding(
        output.sticks.view(np.uint16), place_of(desc, (0, desc.dim4)), desc.dim2, desc.dim1
    )
    return violated


def _store(
    scaled: Doubles, bias: Singles, op_type: int, output: Ztensor,
    stack: int, rows: Range, columns: Range,
) -> bool:  # fmt: skip
    """Add c~ or compare with it, round once, store; tell whether a NINF was stored."""
    place = place_of(output.transformed_desc, (stack, 1))
    cells, operand = output.sticks.view(np.uint16), bias.astype(np.float64).reshape(-1)
    if op_type != ADDITION:
        relation = RELATIONS[op_type]
        flat = scaled.reshape(-1)
        met = matmul_blocks.store_relations(flat, operand, cells, place, rows, columns, relation)
        return bool(met == NINF)
    codes = np.empty(scaled.size, np.uint16)
    met = convert.encode_fp64((scaled + operand).reshape(-1).view(np.uint64), codes)
    matmul_blocks.store_codes(codes, cells, place, rows, columns)
    return bool(met == NINF)


_UNRULED: dict[str, OperandRule | None] = dict.fromkeys(
    ("input_a", "input_b", "input_c", "output"), None
)
OPERATIONS: dict[FunctionCode, Operation] = {
    code: define(
        _compute,
        code,
        FORMAT_1,
        verify=partial(_verify, code),
        relations=partial(_relate, code),
        responses=_respond,
        operands=_UNRULED,
    )
    for code in (
        FunctionCode.NNPA_MATMUL_OP,
        FunctionCode.NNPA_MATMUL_OP_BCAST23,
        FunctionCode.NNPA_MATMUL_OP_BCAST1,
    )
}


def make_bias(
    code: FunctionCode, a: Ztensor, b: Ztensor, c: Ztensor, y: Ztensor, adding: bool
) -> Ztensor:
    """Return c~ in a work area; zeros where the instruction is going to be refused anyway."""
    if c.transformed_desc.type != _INT8:
        field = "input_c.transformed_desc.type"
        status, kind = Status.ZDNN_INVALID_TYPE, name_of(DataTypes, c.transformed_desc.type)
        raise Refused(status, field, kind, "ZDNN_BINARY_INT8 unless pre_computed", "c2")
    desc = replace(c.transformed_desc, type=DataTypes.ZDNN_DLFLOAT16)
    size = getsize_ztensor(desc)
    memory = page_memory(size)
    if memory is None:
        status = Status.ZDNN_ALLOCATION_FAILURE
        limit = "at most the storage that is left"
        raise Refused(status, "work area", f"{size} bytes", limit)
    bias = Ztensor(desc, desc, size, memory)
    require_storage("input_b", b)
    require_storage("input_c", c)
    weights = (_INT8, DataFormats.ZDNN_FORMAT_4DWEIGHTS)
    kinds = b.transformed_desc.type, b.transformed_desc.format
    if kinds == weights and c.transformed_desc.format == _FEATURE and _fits(code, a, b, c, y):
        qc = stick.read_cells(c.sticks, c.transformed_desc).astype(np.float32)[:, 0, 0]
        on_the_fly = a.transformed_desc.type != _INT8
        inner, scales = a.transformed_desc.dim1, scales_of(a, b, c, y)
        values = scales.bias(qc, column_sums(b), adding, inner, on_the_fly)
        stick.write_fp32(values, desc, memory)
    return bias


def _fits(code: FunctionCode, a: Ztensor, b: Ztensor, c: Ztensor, y: Ztensor) -> bool:
    try:
        require_shapes(code, a, b, c, y)
    except Refused:
        return False
    return all(size > 0 for tensor in (a, b, c, y) for size in tensor.transformed_desc.dims)


def parameters_of(guest: Guest, scales: Scales, adding: bool, on_the_fly: bool) -> dict[str, int]:
    """Return the function specific parameters that scales and offsets become."""
    unit = scalar_to_dlfloat(1.0)
    a_scale = dlfloat_field(guest, float(scales.sa))
    output_scale = a_scale if on_the_fly else unit  # of comparisons
    if adding:
        output_scale = dlfloat_field(guest, float(scales.sy))
    return {
        "a_scale": a_scale if adding or on_the_fly else unit,
        "a_offset": dlfloat_field(guest, float(scales.za)) if on_the_fly else 0,
        "b_scale": dlfloat_field(guest, float(scales.sb)) if adding else unit,
        "output_scale": output_scale,
    }


@function("1.1.0", outputs=("output",), ulps=DEFAULT_ULPS)
def quantized_matmul_op(
    call: Call,
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    op_type: int,
    clip_min: int,
    clip_max: int,
    disable_clipping: bool,
    dequantize: bool,
    pre_computed: bool,
    output: Ztensor,
) -> Outcome:
    """Multiply stacks of quantized matrices, then add input_c or compare with it.

    input_a is INT8, or DLFLOAT16 real values that the machine quantizes on the fly; input_b is INT8
    weights; input_c is INT8, or with pre_computed DLFLOAT16 and c~ itself. op_type as for
    matmul_op; shapes, function codes and stacks of one as for matmul_bcast_op. clip_min and
    clip_max bound results of additions, and on the fly also the quantized input_a.
    A comparison ignores input_b's offset and changes direction under a negative scale.

    1. With pre_computed the offset of input_b is 0, else ZDNN_INVALID_OFFSET, before all others and
       with precheck or without.
    2. Without pre_computed input_c is INT8, else ZDNN_INVALID_TYPE, with precheck or without, after
       the library's look for parameter block format 1.
    3. dim4 as for matmul_bcast_op, else ZDNN_INVALID_SHAPE.
    4. dim3 of input_a, input_b, input_c, then output is 1, else ZDNN_INVALID_SHAPE.
    5. dim2 of input_c is 1, else ZDNN_INVALID_SHAPE.
    6. dim2 of output is dim2 of input_a, else ZDNN_INVALID_SHAPE.
    7. dim2 of input_b is dim1 of input_a, else ZDNN_INVALID_SHAPE.
    8. dim1 of input_c, then output, is dim1 of input_b, else ZDNN_INVALID_SHAPE.
    9. On the fly the reciprocal scale of input_a is numeric in DLFLOAT16 and not +0, else
       ZDNN_INVALID_SCALE.
    10. On the fly the offset of input_a is numeric in DLFLOAT16, else ZDNN_INVALID_OFFSET.
    11. On the fly clip_min is less than clip_max, else ZDNN_INVALID_CLIPPING_VALUE.
    12. input_a is INT8 or DLFLOAT16, input_b INT8, c~ and output DLFLOAT16, else ZDNN_INVALID_TYPE;
        an input_b that is DLFLOAT16 makes it a plain product, all of whose types agree.
    13. input_b is 4DWEIGHTS, all others 4DFEATURE, each tested after the type of its tensor, else
        ZDNN_INVALID_FORMAT.
    14. The machine knows op_type: 0 to 6, else ZDNN_FUNC_RC_F000.
    15. Types and formats are as in 12 and 13, else ZDNN_FUNC_RC_F001; so is a plain product, whose
        bytes the library would sum as if they were weights.
    16. The reciprocal scales that reach the machine, and M', are numeric in DLFLOAT16 and not 0,
        else ZDNN_FUNC_RC_F002.

    Source: zDNN API Reference 1.2.0, zdnn_quantized_matmul_op, whose formula for pre_computed has
    the wrong sign on input_c and lacks the sums of columns; formulas and the order of events are
    the zDNN library's.
    """
    if pre_computed and input_b.offset != 0:
        status = Status.ZDNN_INVALID_OFFSET
        raise Refused(status, "input_b.offset", input_b.offset, "0 with pre_computed", "c1")
    code = select(input_a, input_b)
    if not call.guest.cached.has_parmblk_format(FORMAT_1):
        require_facility(call.guest, code, FORMAT_1)
    adding, on_the_fly = op_type == ADDITION, input_a.transformed_desc.type != _INT8
    alignment = call.alignment
    with np.errstate(all="ignore"):
        bias = input_c
        if not pre_computed:
            bias = make_bias(code, input_a, input_b, input_c, output, adding)
            misaligned = alignment.buffer_misaligned or alignment.work_area_misaligned
            alignment = Alignment(buffer_misaligned=misaligned) if misaligned else alignment
        scales = scales_of(input_a, input_b, input_c, output)
        if not adding and Single(Single(scales.sa * scales.sb) / scales.sc) < 0:
            op_type = _MIRRORED.get(op_type, op_type)
        outcome = issue(
            OPERATIONS[code], Call(call.guest, alignment),
            input_a=input_a, input_b=input_b, input_c=bias, op_type=op_type,
            **parameters_of(call.guest, scales, adding, on_the_fly),
            clip_min=clip_min if on_the_fly else 0, clip_max=clip_max if on_the_fly else 0,
            output=output,
        )  # fmt: skip
        correcting = scales.zb != 0 and not pre_computed
        passing = correcting or dequantize or not disable_clipping
        if outcome.status == Status.ZDNN_OK and adding and passing:
            low, high = Single(clip_min), Single(clip_max)
            rec = Single(Single(1) / scales.sy)
            how = not disable_clipping, bool(dequantize), low, high, scales.zy, rec
            finish(input_a, input_b, output, scales, correcting, how)
    return outcome
