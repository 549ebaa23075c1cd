# SPDX-License-Identifier: Apache-2.0
"""Which operations have rows: calls of kernels over fixed tensors, see `table`."""

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from nnpa_emulator import blocks
from nnpa_emulator.kernels import table
from nnpa_emulator.ops.activation import softmax_rows
from nnpa_emulator.ops.convolution import conv2d_rows
from nnpa_emulator.ops.matmul import multiply_rows
from nnpa_emulator.ops.normalization import batchnorm_rows, meanreduce2d_rows
from nnpa_emulator.ops.pooling import pool_rows
from nnpa_emulator.pipeline import FUNCTIONS
from nnpa_emulator.prepared import binary_rows, lookup_rows
from nnpa_emulator.reference.layout import Codes
from nnpa_emulator.table import Row
from nnpa_emulator.ztensor import (
    DataLayouts,
    DataTypes,
    TensorDesc,
    Ztensor,
    generate_transformed_desc,
)

_CONSTANT: Mapping[str, frozenset[str]] = {
    "batchnorm": frozenset(("input_b", "input_c")),
    "conv2d": frozenset(("kernel", "bias")),
}
"""Operands that are read before a row runs."""
_UNARY = ("exp", "gelu", "invsqrt", "leaky_relu", "log", "relu", "sigmoid", "sqrt", "tanh")


def rows_of(
    verb: str, tensors: Mapping[str, Ztensor], constants: Collection[str], arguments: dict[str, Any]
) -> list[Row] | None:
    """Return the rows that do an operation over tensors that share no memory, None without rows.

    `constants` are the operands whose memory never changes. Padding of the output stays as it is.
    """
    make = _ROWS.get(verb)
    large = any(is_large(tensor.transformed_desc) for tensor in tensors.values())
    if make is None or large or not _CONSTANT.get(verb, frozenset()).issubset(constants):
        return None
    values = {**tensors, **arguments}
    if make is multiply_rows:
        values["constant"] = "input_b" in constants
    return make(**values)


def is_large(desc: TensorDesc) -> bool:
    """Tell whether functions cut a tensor, so that a run can end between blocks."""
    return prod(desc.dims) > blocks.ELEMENTS


def _by_table(verb: str, input: Ztensor, output: Ztensor, **arguments: Any) -> list[Row]:  # noqa: A002 - zDNN's name
    """Return the rows of a function that works code by code."""
    return lookup_rows(_results(verb, tuple(arguments.items())), input, output)


@lru_cache(maxsize=64)
def _results(verb: str, arguments: tuple[tuple[str, Any], ...]) -> Codes:
    """Return what an operation makes of each of 65,536 codes."""
    pre = TensorDesc(DataLayouts.ZDNN_NHWC, 0, DataTypes.FP32, 1, 1, 1024, 64)
    desc, operation = generate_transformed_desc(pre), FUNCTIONS[verb].operation
    codes, results = np.arange(1 << 16, dtype=np.uint16), np.empty(1 << 16, np.uint16)
    source, target = (
        Ztensor(pre, desc, cells.nbytes, cells.view(np.uint8)) for cells in (codes, results)
    )
    assert operation is not None, "what works code by code is an operation"
    operation.compute(input=source, output=target, **dict(arguments))
    results.setflags(write=False)
    return results


_ROWS: Mapping[str, Callable[..., list[Row] | None]] = {
    **{verb: partial(binary_rows, number)
       for number, verb in enumerate(("add", "sub", "mul", "div", "min", "max"))},
    **{verb: partial(_by_table, verb) for verb in _UNARY},
    **dict.fromkeys(("softmax", "softmax_mask"), softmax_rows),
    **dict.fromkeys(("matmul_op", "matmul_bcast_op", "matmul_transpose_op"), multiply_rows),
    "avgpool2d": partial(pool_rows, table.AVERAGE),
    "batchnorm": batchnorm_rows,
    "conv2d": conv2d_rows,
    "maxpool2d": partial(pool_rows, table.MAXIMUM),
    "meanreduce2d": meanreduce2d_rows,
}  # fmt: skip
