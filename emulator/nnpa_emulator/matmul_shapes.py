# SPDX-License-Identifier: Apache-2.0
"""Function codes, shapes, types and results' descriptors of matrix products.

Transformed shapes, with the function code that the library selects by dim4:

    MATMUL_OP           a (s,1,m,n)  b (s,1,n,p)  c (s,1,1,p)  output (s,1,m,p)
    MATMUL_OP_BCAST23   a (s,1,m,n)  b (1,1,n,p)  c (1,1,1,p)  output (s,1,m,p)
    MATMUL_OP_BCAST1    a (1,1,m,n)  b (s,1,n,p)  c (s,1,1,p)  output (s,1,m,p)

Source: zDNN API Reference 1.2.0, zdnn_matmul_op and zdnn_matmul_bcast_op; zDNN library behaviour.
"""

from dataclasses import replace
from typing import TypeAlias

from nnpa_emulator.checks import Operands, require_dim, require_fields
from nnpa_emulator.instruction import response
from nnpa_emulator.machine import FunctionCode
from nnpa_emulator.ztensor import (
    DataFormats,
    DataLayouts,
    DataTypes,
    TensorDesc,
    Ztensor,
    name_of,
)

Descriptors: TypeAlias = tuple[TensorDesc, TensorDesc]
"""Pre-transformed and transformed."""

# Layouts whose dim2 and dim1 are those of the transformed matrix.
_MATRIX_LAYOUTS = frozenset(
    (
        DataLayouts.ZDNN_2D,
        DataLayouts.ZDNN_3D,
        DataLayouts.ZDNN_3DS,
        DataLayouts.ZDNN_4D,
        DataLayouts.ZDNN_NHWC,
    )
)


def select(input_a: Ztensor, input_b: Ztensor) -> FunctionCode:
    """Return the function code that the library takes for two stacks.

    Source: zDNN library behaviour; zDNN API Reference 1.2.0, zdnn_matmul_bcast_op.
    """
    a, b = input_a.transformed_desc.dim4, input_b.transformed_desc.dim4
    if a == 1 and b != 1:
        return FunctionCode.NNPA_MATMUL_OP_BCAST1
    if a != 1 and b == 1:
        return FunctionCode.NNPA_MATMUL_OP_BCAST23
    return FunctionCode.NNPA_MATMUL_OP


def require_shapes(
    code: FunctionCode,
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    output: Ztensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    first: int = 1,
    **_arguments: object,
) -> None:
    """Check that the dims of the operands fit each other: six constraints.

    They are numbered from `first`: dim4, dim3 and dim2 of input_c, then rows, inner, columns.
    """
    tensors = {"input_a": input_a, "input_b": input_b, "input_c": input_c, "output": output}
    stacks, threes, rows_of_c, rows, inner, columns = (f"c{first + i}" for i in range(6))
    _require_stacks(code, input_a, input_b, {"input_c": input_c, "output": output}, stacks)
    require_dim(3, 1, "", tensors, threes)
    require_dim(2, 1, "", {"input_c": input_c}, rows_of_c)
    a, b = input_a.transformed_desc, input_b.transformed_desc
    of_rows, of_inner = ("dim1", "dim2") if transpose_a else ("dim2", "dim1")
    height, depth = (a.dim1, a.dim2) if transpose_a else (a.dim2, a.dim1)
    require_dim(2, height, f"input_a.{of_rows}", {"output": output}, rows)
    require_dim(1 if transpose_b else 2, depth, f"input_a.{of_inner}", {"input_b": input_b}, inner)
    width, of_columns = (b.dim2, "dim2") if transpose_b else (b.dim1, "dim1")
    results = {"input_c": input_c, "output": output}
    require_dim(1, width, f"input_b.{of_columns}", results, columns)


def _require_stacks(
    code: FunctionCode, a: Ztensor, b: Ztensor, results: Operands, label: str
) -> None:
    """Check dim4 as the function code asks; `results` are input_c and output."""
    dim_a, dim_b = a.transformed_desc.dim4, b.transformed_desc.dim4
    if code == FunctionCode.NNPA_MATMUL_OP:
        require_dim(4, dim_a, "input_a.dim4", {"input_b": b, **results}, label)
    elif code == FunctionCode.NNPA_MATMUL_OP_BCAST23:
        require_dim(4, dim_a, "input_a.dim4", {"output": results["output"]}, label)
        require_dim(4, 1, "", {"input_b": b, "input_c": results["input_c"]}, label)
    else:
        require_dim(4, 1, "", {"input_a": a}, label)
        require_dim(4, dim_b, "input_b.dim4", results, label)


def require_types(
    input_a: Ztensor, input_b: Ztensor, input_c: Ztensor, output: Ztensor, first: int
) -> None:
    """Check types (numbered `first`) and formats (the next number), tensor by tensor.

    With an input_b that is not DLFLOAT16 the product is judged as a quantized one.
    """
    labels = f"c{first}", f"c{first + 1}"
    kind, feature = input_a.transformed_desc.type, DataFormats.ZDNN_FORMAT_4DFEATURE
    plain, byte = DataTypes.ZDNN_DLFLOAT16, DataTypes.ZDNN_BINARY_INT8
    results = {"input_c": input_c, "output": output}
    if input_b.transformed_desc.type == plain:
        fmt = input_a.transformed_desc.format
        require_fields(kind, fmt, {"input_b": input_b, **results}, *labels)
        return
    expected = plain if kind == plain else byte
    require_fields(expected, feature, {"input_a": input_a}, *labels)
    require_fields(byte, DataFormats.ZDNN_FORMAT_4DWEIGHTS, {"input_b": input_b}, *labels)
    require_fields(plain, feature, results, *labels)


def is_on_the_fly(input_a: Ztensor, input_b: Ztensor) -> bool:
    """Tell whether real values meet INT8 weights, so that the machine quantizes input_a."""
    plain, byte = DataTypes.ZDNN_DLFLOAT16, DataTypes.ZDNN_BINARY_INT8
    return input_a.transformed_desc.type == plain and input_b.transformed_desc.type == byte


_PLAIN = (DataTypes.ZDNN_DLFLOAT16, DataFormats.ZDNN_FORMAT_4DFEATURE)
_BYTES = (DataTypes.ZDNN_BINARY_INT8, DataFormats.ZDNN_FORMAT_4DFEATURE)
_WEIGHTS = (DataTypes.ZDNN_BINARY_INT8, DataFormats.ZDNN_FORMAT_4DWEIGHTS)
_COMBINATIONS = (
    (_PLAIN, _PLAIN, _PLAIN, _PLAIN),
    (_BYTES, _WEIGHTS, _PLAIN, _PLAIN),
    (_PLAIN, _WEIGHTS, _PLAIN, _PLAIN),
)


def respond_operation(op_type: int, highest: int, label: str) -> None:
    """Answer F000 for an operation number that the machine does not know."""
    if op_type > highest:
        raise response(0xF000, "op_type", op_type, f"0 to {highest}", label)


def respond_combination(label: str, *tensors: Ztensor) -> bool:
    """Answer F001 for types and formats that do not combine; tell whether they are quantized.

    `tensors` are input_a, input_b, input_c and output; parameter block format 1 only.
    """
    descs = [tensor.transformed_desc for tensor in tensors]
    combination = tuple((desc.type & 0xFF, desc.format & 0xFF) for desc in descs)
    if combination not in _COMBINATIONS:
        value = ", ".join(
            f"{name_of(DataTypes, kind)} in {name_of(DataFormats, layout)}"
            for kind, layout in combination
        )
        limit = "all DLFLOAT16 in 4DFEATURE, or input_b INT8 in 4DWEIGHTS and input_a INT8 as well"
        raise response(0xF001, "input_a, input_b, input_c, output", value, limit, label)
    quantized = combination != _COMBINATIONS[0]
    wide = max(max(desc.type, desc.format) for desc in descs)
    if quantized and wide > 0xFF:
        limit = "a number that zDNN defines"
        raise response(0xF001, "transformed_desc.type or format", wide, limit, label)
    return quantized


def is_quantized(*tensors: Ztensor) -> bool:
    """Tell whether types and formats of input_a, input_b, input_c, output are quantized ones."""
    descs = [tensor.transformed_desc for tensor in tensors]
    return tuple((desc.type, desc.format) for desc in descs) in _COMBINATIONS[1:]


def _matrix_like(model: Ztensor, rows: int, columns: int) -> tuple[Descriptors, ...]:
    """Describe a result with the stacks of `model` and its own rows and columns."""
    pre, desc = model.pre_transformed_desc, model.transformed_desc
    dims = (desc.dim4, desc.dim3, rows, columns)
    if pre.layout in _MATRIX_LAYOUTS:
        user = replace(pre, dim2=rows, dim1=columns)
    else:
        user = TensorDesc(DataLayouts.ZDNN_NHWC, pre.format, pre.type, *dims)
    return ((user, desc.with_dims(dims)),)


def infer_product(
    input_a: Ztensor,
    input_b: Ztensor,
    transpose_a: bool = False,
    transpose_b: bool = False,
    **_arguments: object,
) -> tuple[Descriptors, ...]:
    """Describe the result of any matmul: the stacks are input_b's when only input_a is one."""
    a, b = input_a.transformed_desc, input_b.transformed_desc
    first = select(input_a, input_b) != FunctionCode.NNPA_MATMUL_OP_BCAST1
    rows = a.dim1 if transpose_a else a.dim2
    columns = b.dim2 if transpose_b else b.dim1
    return _matrix_like(input_a if first else input_b, rows, columns)
