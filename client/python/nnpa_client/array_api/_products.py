# SPDX-License-Identifier: Apache-2.0
"""Products of matrices and vectors: FP32 sums, each rounded once to DLFLOAT16."""

import math
from collections.abc import Sequence

import numpy as np
from nnpa.zdnn.v1.tensor_pb2 import ZDNN_1D, ZDNN_2DS

from nnpa_client import zdnn
from nnpa_client.array_api._conformance import Difference, entered
from nnpa_client.array_api._operands import operand, require_rank, reshaped, shaped
from nnpa_client.ztensor import Ztensor, _lifecycle

__tracebackhide__ = True  # pytest shows the line that called, not these

_ROUNDED = (Difference.PRECISION, Difference.RANGE)


@entered("matmul_op, matmul_bcast_op", *_ROUNDED, Difference.BROADCASTING, Difference.DIMS)
def matmul(x1: Ztensor, x2: Ztensor, /) -> Ztensor:
    """Return the product of two matrices, of two stacks of one size, or of a stack and a matrix.

    A vector is a matrix of one row, or of one column, whose dim is not in the result. The function
    calls zdnn_matmul_op with a bias of zeros, or zdnn_matmul_bcast_op for a stack and a matrix; a
    matrix and a stack, in this order, need Telum II. Raises ValueError for shapes that do not fit,
    NotImplementedError for two vectors and for stacks of different sizes.
    """
    x1, x2 = operand("matmul", x1, "x1"), operand("matmul", x2, "x2")
    rows = (1, *x1.shape) if x1.ndim == 1 else x1.shape
    columns = (*x2.shape, 1) if x2.ndim == 1 else x2.shape
    stacks = rows[:-2] or columns[:-2]
    if rows[-1] != columns[-2]:
        raise ValueError(f"matmul: shapes {x1.shape} and {x2.shape}, expected (m, n) and (n, p)")
    if rows[:-2] and columns[:-2] not in ((), stacks):
        shapes = f"{x1.shape} and {x2.shape}"
        raise NotImplementedError(f"matmul: shapes {shapes}, expected stacks of one size")
    outer = (() if x1.ndim == 1 else rows[-2:-1]) + (() if x2.ndim == 1 else columns[-1:])
    shape = stacks + outer
    require_rank("matmul", shape)
    return shaped(_product(_stack(x1, rows), _stack(x2, columns)), shape)


@entered("matmul_op", *_ROUNDED, Difference.DIMS, Difference.ARGUMENTS)
def tensordot(
    x1: Ztensor, x2: Ztensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Ztensor:
    """Return the sums of products over the last `axes` of x1 and the first of x2.

    Raises ValueError for sizes that differ, NotImplementedError for lists of axes, and for a
    result of none or more than four dims.
    """
    x1, x2 = operand("tensordot", x1, "x1"), operand("tensordot", x2, "x2")
    if not isinstance(axes, int):
        raise NotImplementedError(f"tensordot: axes {axes}, expected a number of axes")
    kept = x1.ndim - axes
    if not 0 <= axes <= x1.ndim or x1.shape[kept:] != x2.shape[:axes]:
        shapes = f"{x1.shape} and {x2.shape}"
        raise ValueError(f"tensordot: axes {axes} of shapes {shapes}, expected equal sizes there")
    shape, inner = x1.shape[:kept] + x2.shape[axes:], math.prod(x2.shape[:axes])
    require_rank("tensordot", shape)
    rows = shaped(x1, (math.prod(x1.shape[:kept]), inner))
    return shaped(rows @ shaped(x2, (inner, math.prod(x2.shape[axes:]))), shape)


@entered("matmul_op", *_ROUNDED, Difference.BROADCASTING, Difference.DIMS, Difference.AXES)
def vecdot(x1: Ztensor, x2: Ztensor, /, *, axis: int = -1) -> Ztensor:
    """Return the sums of products along the last axis, of equal shapes.

    Raises ValueError for shapes that differ, NotImplementedError for another axis, and for two
    vectors.
    """
    x1, x2 = operand("vecdot", x1, "x1"), operand("vecdot", x2, "x2")
    if x1.shape != x2.shape:
        raise ValueError(f"vecdot: shapes {x1.shape} and {x2.shape}, expected equal ones")
    if axis != -1:
        raise NotImplementedError(f"vecdot: axis {axis}, expected -1")
    *shape, inner = x1.shape
    require_rank("vecdot", shape)
    count = math.prod(shape)
    product = reshaped(x1, (count, 1, inner)) @ reshaped(x2, (count, inner, 1))
    return shaped(product, shape)


def _product(a: Ztensor, b: Ztensor) -> Ztensor:
    if a.ndim == b.ndim:
        return a @ b
    *stack, _inner, columns = b.shape
    layout = ZDNN_2DS if stack else ZDNN_1D
    zeros = _lifecycle.from_array(a.guest, np.zeros((*stack, columns), np.float32), layout)
    return zdnn.matmul_bcast_op(a, b, zeros)


def _stack(x: Ztensor, shape: tuple[int, ...]) -> Ztensor:
    """Return a matrix, or a stack whose outer dims are merged into one."""
    return shaped(x, (math.prod(shape[:-2]), *shape[-2:]) if len(shape) > 2 else shape)
