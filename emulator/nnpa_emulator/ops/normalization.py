# SPDX-License-Identifier: Apache-2.0
"""Normalisation and reduction: batchnorm, layernorm, meanreduce2d, moments, norm, reduce.

Shapes are transformed dims; tensors are DLFLOAT16 in 4DFEATURE, except the positions that reduce
finds. A NINF operand gives NINF and a range violation. Padding is written as zero.

Fidelity: batchnorm and reduce exact against this reference; the others sum in double precision,
whatever `accumulate` says, so that one result does not depend on its neighbours, and round once.
Against hardware: consistent with the tolerances of IBM's own tests; precision and order of its sums
are not public. Not public either, and refused as operands that contradict each other: mean and
variance of layernorm that are no scalars, and an output type of reduce that does not fit op_type.
"""

from dataclasses import replace
from math import prod

import numpy as np

from nnpa_emulator import dlfloat, stick
from nnpa_emulator.arith import parts
from nnpa_emulator.blocks import images_of
from nnpa_emulator.checks import require_dim, require_dims, require_fields, require_in
from nnpa_emulator.instruction import OperandRule, response
from nnpa_emulator.kernels import normalization as kernels
from nnpa_emulator.kernels import pooling, table
from nnpa_emulator.machine import FORMAT_0, FORMAT_1, FunctionCode
from nnpa_emulator.pipeline import Descriptors, operation
from nnpa_emulator.shape_inference import like_input_a, resized
from nnpa_emulator.status import Refused, Status
from nnpa_emulator.table import Row
from nnpa_emulator.windows import slide, slide_rows, unaliased
from nnpa_emulator.ztensor import DataFormats, DataTypes, Ztensor

MOMENTS_BESSEL_POPULATION, MOMENTS_BESSEL_SAMPLE = 0, 1
REDUCE_OP_MINIMUM, REDUCE_OP_MINIMUM_IDX, REDUCE_OP_MAXIMUM, REDUCE_OP_MAXIMUM_IDX = range(4)
_POSITIONS = (REDUCE_OP_MINIMUM_IDX, REDUCE_OP_MAXIMUM_IDX)
_GREATEST = (REDUCE_OP_MAXIMUM, REDUCE_OP_MAXIMUM_IDX)
MAX_MEAN = 1024  # height and width of meanreduce2d: zDNN API Reference 1.2.0
WIDE_ULPS = 64  # what IBM's own tests allow batchnorm and meanreduce2d
_TYPES = frozenset((DataTypes.ZDNN_DLFLOAT16, DataTypes.ZDNN_BINARY_INT32))
_REDUCED: OperandRule = {DataFormats.ZDNN_FORMAT_4DFEATURE: _TYPES}


def _verify_batchnorm(
    input_a: Ztensor, input_b: Ztensor, input_c: Ztensor, output: Ztensor
) -> None:
    desc = input_a.transformed_desc
    require_dims("input_a", desc, {"output": output}, "c1")
    require_dim(1, desc.dim1, "input_a.dim1", {"input_b": input_b, "input_c": input_c}, "c2")
    for name, tensor in (("input_b", input_b), ("input_c", input_c)):
        for dimension in (4, 3, 2):
            require_dim(dimension, 1, "", {name: tensor}, "c3")
    require_fields(desc.type, desc.format, {"output": output}, "c4", "c5")


@operation(
    FunctionCode.NNPA_BATCHNORMALIZATION,
    FORMAT_0,
    since="1.0.0",
    verify=_verify_batchnorm,
    infer=like_input_a,
    ulps=WIDE_ULPS,
)
def batchnorm(input_a: Ztensor, input_b: Ztensor, input_c: Ztensor, output: Ztensor) -> bool:
    """Scale and shift channels: input_a * input_b + input_c, rounded once.

    1. output has the dims of input_a, else ZDNN_INVALID_SHAPE.
    2. input_b.dim1, then input_c.dim1, is input_a.dim1, else ZDNN_INVALID_SHAPE.
    3. dim4, dim3 and dim2 of input_b, then of input_c, are 1, else ZDNN_INVALID_SHAPE.
    4. output has the type of input_a, else ZDNN_INVALID_TYPE.
    5. output has the format of input_a, else ZDNN_INVALID_FORMAT.

    Types and formats of input_b and input_c are left to the machine. Scratch: both in FP32.
    Source: zDNN API Reference 1.2.0, zdnn_batchnorm.
    """
    factors = stick.read_fp32(input_b.sticks, input_b.transformed_desc)[0].reshape(-1)
    added = stick.read_fp32(input_c.sticks, input_c.transformed_desc)[0].reshape(-1)
    largest = max(
        kernels.scale(codes, out, *block.place, factors, added)
        for block, codes, out in parts(input_a, output)
    )
    return bool(largest == dlfloat.NINF)


def batchnorm_rows(
    input_a: Ztensor, input_b: Ztensor, input_c: Ztensor, output: Ztensor
) -> list[Row]:
    """Return the row that does `batchnorm`; input_b and input_c are constants."""
    shape = stick.geometry(input_a.transformed_desc)
    codes, out = input_a.sticks.view(np.uint16), output.sticks.view(np.uint16)
    factors, added = (
        stick.read_fp32(each.sticks, each.transformed_desc)[0].reshape(-1)
        for each in (input_b, input_c)
    )
    operands = codes, out, shape.dims, shape.pages, factors, added
    return [Row(table.SCALE, operands, dlfloat.NINF, prod(shape.dims))]


def _verify_meanreduce2d(input: Ztensor, output: Ztensor) -> None:
    desc = input.transformed_desc
    require_dim(4, desc.dim4, "input.dim4", {"output": output}, "c1")
    require_dim(1, desc.dim1, "input.dim1", {"output": output}, "c1")
    require_fields(desc.type, desc.format, {"output": output}, "c2", "c3")
    for dimension in (2, 3):
        require_dim(dimension, 1, "", {"output": output}, "c4")


def _mean_responses(input: Ztensor, output: Ztensor) -> None:
    desc = input.transformed_desc
    for field, size in (("dim3", desc.dim3), ("dim2", desc.dim2)):
        if size > MAX_MEAN:
            limit = f"at most {MAX_MEAN}"
            raise response(0xF001, f"input.transformed_desc.{field}", size, limit, "c5")


def _mean_of(input: Ztensor) -> tuple[Descriptors, ...]:
    d4, _, _, d1 = input.transformed_desc.dims
    return (resized(input, (d4, 1, 1, d1)),)


@operation(
    FunctionCode.NNPA_AVGPOOL2D,
    FORMAT_0,
    since="1.0.0",
    verify=_verify_meanreduce2d,
    infer=_mean_of,
    responses=_mean_responses,
    ulps=WIDE_ULPS,
)
def meanreduce2d(input: Ztensor, output: Ztensor) -> bool:
    """Average height and width (dim3 and dim2) away: the pooling of one window, rounded once.

    1. output has the dim4, then the dim1, of input, else ZDNN_INVALID_SHAPE.
    2. output has the type of input, else ZDNN_INVALID_TYPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.
    4. output.dim2 and output.dim3 are 1, else ZDNN_INVALID_SHAPE.
    5. input.dim3 and input.dim2 are at most 1024, else ZDNN_FUNC_RC_F001.

    Scratch: 64 sums in double precision per element of dim2, at most 512 KiB.
    Source: zDNN API Reference 1.2.0, zdnn_meanreduce2d; the library issues NNPA_AVGPOOL2D.
    """
    source, target = stick.geometry(input.transformed_desc), stick.geometry(output.transformed_desc)
    read, window = unaliased(input, output), (source.dims[1], source.dims[2], 1, 1, 0, 0)
    return slide(pooling.average, read.sticks, output.sticks, source, target, window)


def meanreduce2d_rows(input: Ztensor, output: Ztensor) -> list[Row]:
    """Return the row that does `meanreduce2d` over tensors that share no memory."""
    _, high, wide, _ = input.transformed_desc.dims
    return slide_rows(table.AVERAGE, input, output, (high, wide, 1, 1, 0, 0))


def layer_normalization_rows(
    source: Ztensor, output: Ztensor, beta_value: int, gamma_value: int, epsilon_value: int
) -> list[Row]:
    """Return the row that does `moments` and `layernorm` of each dim1 vector where it lies.

    Both tensors have the same dims. Padding is left as it is.
    """
    shape, scalars = (
        stick.geometry(source.transformed_desc),
        (beta_value, gamma_value, epsilon_value),
    )
    codes, out = source.sticks.view(np.uint16), output.sticks.view(np.uint16)
    operands = codes, out, shape.dims, shape.pages, *dlfloat.to_fp32(np.array(scalars, np.uint16))
    return [Row(table.LAYER_NORMALIZATION, operands, dlfloat.NINF, 8 * prod(shape.dims))]


def _verify_norm(input_a: Ztensor, input_b: Ztensor, output: Ztensor) -> None:
    desc = input_a.transformed_desc
    operands = {"input_b": input_b, "output": output}
    require_dim(4, desc.dim4, "input_a.dim4", operands, "c1")
    require_dim(3, 1, "", {"input_a": input_a, **operands}, "c2")
    require_dim(2, desc.dim2, "input_a.dim2", operands, "c3")
    require_dim(1, desc.dim1, "input_a.dim1", {"input_b": input_b}, "c4")
    require_dim(1, 1, "", {"output": output}, "c5")
    require_fields(desc.type, desc.format, operands, "c6", "c7")


def _norm_of(input_a: Ztensor, **_arguments: object) -> tuple[Descriptors, ...]:
    d4, d3, d2, _ = input_a.transformed_desc.dims
    return (resized(input_a, (d4, d3, d2, 1)),)


@operation(FunctionCode.NNPA_NORM, FORMAT_1, since="1.1.0", verify=_verify_norm, infer=_norm_of)
def norm(input_a: Ztensor, input_b: Ztensor, output: Ztensor) -> bool:
    """Take the Euclidean norm of input_a - input_b over every dim1 vector.

    1. input_b.dim4, then output.dim4, is input_a.dim4, else ZDNN_INVALID_SHAPE.
    2. dim3 of input_a, input_b and output is 1, else ZDNN_INVALID_SHAPE.
    3. input_b.dim2, then output.dim2, is input_a.dim2, else ZDNN_INVALID_SHAPE.
    4. input_b.dim1 is input_a.dim1, else ZDNN_INVALID_SHAPE.
    5. output.dim1 is 1, else ZDNN_INVALID_SHAPE.
    6. input_b, then output, has the type of input_a, else ZDNN_INVALID_TYPE.
    7. input_b, then output, has the format of input_a, else ZDNN_INVALID_FORMAT.

    A tensor's type is tested before its format. Scratch: the results in double precision.
    Source: zDNN API Reference 1.2.0, zdnn_norm; the order of checks is the zDNN library's.
    """
    desc = input_a.transformed_desc
    results = np.empty(desc.dim4 * desc.dim2, np.float64)
    for block, left, right in parts(input_a, input_b):
        kernels.distances(left, right, *block.place, results[block.vectors])
    return stick.write_fp32(results, output.transformed_desc, output.sticks)


def _verify_moments(
    input: Ztensor, bessel_correction_type: int, output_a: Ztensor, output_b: Ztensor
) -> None:
    desc, outputs = input.transformed_desc, {"output_a": output_a, "output_b": output_b}
    require_fields(desc.type, desc.format, outputs, "c1", "c2")
    status, field = Status.ZDNN_INVALID_BESSEL_CORRECTION, "bessel_correction_type"
    bessel = (MOMENTS_BESSEL_POPULATION, MOMENTS_BESSEL_SAMPLE)
    require_in(bessel_correction_type, bessel, status, field, "c3")
    single = desc.dim3 == desc.dim2 == desc.dim1 == 1
    if single and bessel_correction_type == MOMENTS_BESSEL_SAMPLE:
        limit = "MOMENTS_BESSEL_POPULATION for one element"
        raise Refused(status, field, bessel_correction_type, limit, "c4")
    for dimension in (3, 2, 1):
        require_dim(dimension, 1, "", outputs, "c5")
    require_dim(4, desc.dim4, "input.dim4", outputs, "c6")


def _moments_of(input: Ztensor, **_arguments: object) -> tuple[Descriptors, ...]:
    described = resized(input, (input.transformed_desc.dim4, 1, 1, 1))
    return (described, described)


@operation(
    FunctionCode.NNPA_MOMENTS,
    FORMAT_1,
    since="1.1.0",
    verify=_verify_moments,
    infer=_moments_of,
    outputs=("output_a", "output_b"),
    marks=("output_a",),
)
def moments(
    input: Ztensor, bessel_correction_type: int, output_a: Ztensor, output_b: Ztensor
) -> bool:
    """Take mean (output_a) and variance (output_b) over dim3, dim2 and dim1 of every dim4.

    1. output_a, then output_b, has the type of input, else ZDNN_INVALID_TYPE.
    2. output_a, then output_b, has the format of input, else ZDNN_INVALID_FORMAT.
    3. bessel_correction_type is MOMENTS_BESSEL_POPULATION or MOMENTS_BESSEL_SAMPLE, else
       ZDNN_INVALID_BESSEL_CORRECTION.
    4. MOMENTS_BESSEL_SAMPLE: there is more than one element, else ZDNN_INVALID_BESSEL_CORRECTION.
    5. dim3, dim2, dim1 of output_a and output_b are 1, else ZDNN_INVALID_SHAPE.
    6. output_a.dim4, then output_b.dim4, is input.dim4, else ZDNN_INVALID_SHAPE.

    A tensor's type is tested before its format. The library leaves output_b unmarked: until it is
    transformed by other means, transform_origtensor of it is ZDNN_INVALID_STATE.
    Scratch: the results in double precision.
    Source: zDNN API Reference 1.2.0, zdnn_moments; state of output_b as in the zDNN library.
    """
    shape, bessel = stick.geometry(input.transformed_desc), int(bessel_correction_type)
    results, codes = np.empty((shape.dims[0], 2), np.float64), input.sticks.view(np.uint16)
    for block in images_of(shape.dims, shape.pages):
        kernels.moments(block.sticks(codes), *block.place, bessel, results[block.images].ravel())
    violated = False
    for values, output in zip(results.T.copy(), (output_a, output_b), strict=True):
        violated |= stick.write_fp32(values, output.transformed_desc, output.sticks)
    return violated


def _verify_layernorm(
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    beta_value: int,
    gamma_value: int,
    epsilon_value: int,
    output: Ztensor,
) -> None:
    for field, code, status, label in (
        ("beta_value", beta_value, Status.ZDNN_INVALID_BETA, "c1"),
        ("gamma_value", gamma_value, Status.ZDNN_INVALID_GAMMA, "c2"),
        ("epsilon_value", epsilon_value, Status.ZDNN_INVALID_EPSILON, "c3"),
    ):
        if code & dlfloat.MAGNITUDE == dlfloat.NINF:
            raise Refused(status, field, dlfloat.text_of(code), "numeric in DLFLOAT16", label)
    desc, mean = input_a.transformed_desc, input_b.transformed_desc
    operands = {"input_b": input_b, "input_c": input_c, "output": output}
    require_dim(4, desc.dim4, "input_a.dim4", operands, "c4")
    for dimension in (1, 2, 3):
        expected, source = desc.dims[4 - dimension], f"input_a.dim{dimension}"
        require_dim(dimension, expected, source, {"output": output}, "c5")
    for dimension in (1, 2, 3):
        expected, source = mean.dims[4 - dimension], f"input_b.dim{dimension}"
        require_dim(dimension, expected, source, {"input_c": input_c}, "c6")
    require_fields(desc.type, desc.format, operands, "c7", "c8")


def _layernorm_relations(input_b: Ztensor, input_c: Ztensor, **arguments: object) -> None:
    _verify_layernorm(input_b=input_b, input_c=input_c, **arguments)  # type: ignore[arg-type] # as given
    for dimension in (1, 2, 3):
        require_dim(dimension, 1, "", {"input_b": input_b}, "c9")


@operation(
    FunctionCode.NNPA_LAYERNORM,
    FORMAT_1,
    since="1.1.0",
    verify=_verify_layernorm,
    relations=_layernorm_relations,
    infer=like_input_a,
)
def layernorm(
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    beta_value: float,
    gamma_value: float,
    epsilon_value: float,
    output: Ztensor,
) -> bool:
    """Take (input_a - input_b) / sqrt(input_c + epsilon) * gamma + beta, rounded once.

    input_b and input_c hold mean and variance of every dim4, as moments gives them. A sum of
    variance and epsilon that is not positive gives NINF.

    1. beta_value is numeric in DLFLOAT16, else ZDNN_INVALID_BETA.
    2. gamma_value is numeric in DLFLOAT16, else ZDNN_INVALID_GAMMA.
    3. epsilon_value is numeric in DLFLOAT16, else ZDNN_INVALID_EPSILON.
    4. dim4 of input_b, input_c and output is input_a.dim4, else ZDNN_INVALID_SHAPE.
    5. output has the dim1, dim2 and dim3 of input_a, else ZDNN_INVALID_SHAPE.
    6. input_c has the dim1, dim2 and dim3 of input_b, else ZDNN_INVALID_SHAPE.
    7. input_b, then input_c, then output, has the type of input_a, else ZDNN_INVALID_TYPE.
    8. input_b, then input_c, then output, has the format of input_a, else ZDNN_INVALID_FORMAT.
    9. dim1, dim2 and dim3 of input_b are 1; the library does not check it, it is a data exception.

    A tensor's type is tested before its format. Scratch: two values in double precision per dim4.
    Source: zDNN API Reference 1.2.0, zdnn_layernorm (whose first step has the sign reversed).
    """
    codes = np.array([int(beta_value), int(gamma_value), int(epsilon_value)], np.uint16)
    beta, gamma, epsilon = dlfloat.to_fp32(codes).astype(np.float64)
    means = stick.read_fp32(input_b.sticks, input_b.transformed_desc)[0].reshape(-1)
    variances = stick.read_fp32(input_c.sticks, input_c.transformed_desc)[0].reshape(-1)
    total = variances.astype(np.float64) + epsilon
    root = np.sqrt(total, out=np.full_like(total, np.nan), where=total > 0)
    mean, scale = means.astype(np.float64), gamma / root
    largest = 0
    for block, source, out in parts(input_a, output):
        lines = mean[block.images], scale[block.images]
        met = kernels.standardise(source, out, *block.place, *lines, beta, False)
        largest = max(largest, int(met))
    return bool(largest == dlfloat.NINF)


def _verify_reduce(input: Ztensor, op_type: int, output: Ztensor) -> None:
    desc, out = input.transformed_desc, output.transformed_desc
    for dimension in (4, 3, 2):
        expected, source = desc.dims[4 - dimension], f"input.dim{dimension}"
        require_dim(dimension, expected, source, {"output": output}, "c1")
    require_dim(1, 1, "", {"output": output}, "c2")
    invalid_format, invalid_type = Status.ZDNN_INVALID_FORMAT, Status.ZDNN_INVALID_TYPE
    require_in(out.format, (desc.format,), invalid_format, "output.transformed_desc.format", "c3")
    number, position = DataTypes.ZDNN_DLFLOAT16, DataTypes.ZDNN_BINARY_INT32
    require_in(desc.type, (number,), invalid_type, "input.transformed_desc.type", "c4")
    require_in(out.type, (number, position), invalid_type, "output.transformed_desc.type", "c5")


def _reduce_responses(input: Ztensor, op_type: int, output: Ztensor) -> None:
    if op_type > REDUCE_OP_MAXIMUM_IDX:
        raise response(0xF000, "op_type", op_type, "0 to 3", "c6")


def _reduce_relations(input: Ztensor, op_type: int, output: Ztensor) -> None:
    _verify_reduce(input, op_type, output)
    expected = _reduced_type(op_type)
    kind, field = output.transformed_desc.type, "output.transformed_desc.type"
    require_in(kind, (expected,), Status.ZDNN_INVALID_TYPE, field, "c7")


def _reduced_type(op_type: int) -> DataTypes:
    return DataTypes.ZDNN_BINARY_INT32 if op_type in _POSITIONS else DataTypes.ZDNN_DLFLOAT16


def _reduced(input: Ztensor, op_type: int) -> tuple[Descriptors, ...]:
    """Derive the output: dim1 is 1, positions are INT32."""
    pre, transformed = resized(input, (*input.transformed_desc.dims[:3], 1))
    number = op_type & 0xFF
    kind = DataTypes.INT32 if number in _POSITIONS else pre.type
    reduced = replace(transformed, type=int(_reduced_type(number)))
    return ((replace(pre, type=int(kind)), reduced),)


@operation(
    FunctionCode.NNPA_REDUCE,
    FORMAT_1,
    since="1.1.0",
    verify=_verify_reduce,
    relations=_reduce_relations,
    infer=_reduced,
    responses=_reduce_responses,
    operands={"output": _REDUCED},
    ulps=0,
)
def reduce(input: Ztensor, op_type: int, output: Ztensor) -> bool:
    """Find the least or greatest element of every dim1 vector, or its first position.

    -0 is less than +0. Where there is a NINF the value is NINF and the position its first one.

    1. output has the dim4, dim3 and dim2 of input, else ZDNN_INVALID_SHAPE.
    2. output.dim1 is 1, else ZDNN_INVALID_SHAPE.
    3. output has the format of input, else ZDNN_INVALID_FORMAT.
    4. input is DLFLOAT16, else ZDNN_INVALID_TYPE.
    5. output is DLFLOAT16 or INT32, else ZDNN_INVALID_TYPE.
    6. The low 8 bits of op_type are REDUCE_OP_MINIMUM to REDUCE_OP_MAXIMUM_IDX, else
       ZDNN_FUNC_RC_F000.
    7. output is INT32 for positions, DLFLOAT16 for values; the library does not check it, it is a
       data exception.

    Scratch: value and position of every vector, and one vector of two-byte keys.
    Source: zDNN API Reference 1.2.0, zdnn_reduce (which lists one of the four operations twice).
    """
    d4, d3, d2, _ = input.transformed_desc.dims
    codes, positions = np.empty(d4 * d3 * d2, np.uint16), np.empty(d4 * d3 * d2, np.int32)
    largest = 0
    for block, source, _ in parts(input, input):
        results = codes[block.vectors], positions[block.vectors]
        met = kernels.extremes(source, *block.place, op_type in _GREATEST, *results)
        largest = max(largest, int(met))
    cells = positions if op_type in _POSITIONS else codes
    stick.write_cells(cells, output.transformed_desc, output.sticks)
    return bool(largest == dlfloat.NINF)
