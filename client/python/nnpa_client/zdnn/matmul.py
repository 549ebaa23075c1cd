# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: ARG001 - names and places of C functions and their parameters

"""Products of matrices: 4 verbs of zDNN."""

from nnpa.zdnn.v1.operation_pb2 import (
    MATMUL_BCAST_OP_ADDITION,
    MATMUL_OP_ADDITION,
    MatmulBcastOp,
    MatmulOp,
    MatmulTransposeOp,
    Operation,
    QuantizedMatmulOp,
)

from nnpa_client._wire import c_enum
from nnpa_client.zdnn._verb import Verb
from nnpa_client.ztensor import Ztensor

__all__ = [
    "matmul_bcast_op",
    "matmul_op",
    "matmul_transpose_op",
    "quantized_matmul_op",
]


def matmul_op(
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    op_type: int = MATMUL_OP_ADDITION,
    output: Ztensor | None = None,
) -> Ztensor:
    """Return the product of two stacks of matrices, with input_c added or compared.

    input_a (s, m, n), input_b (s, n, p): ZDNN_3DS or ZDNN_2D; input_c (s, p): ZDNN_2DS or
    ZDNN_1D. `op_type` is one of MATMUL_OP_*.
    Source: zDNN API Reference 1.2.0, zdnn_matmul_op.
    """
    verb = Verb("matmul_op", {"output": output}, input_a=input_a, input_b=input_b, input_c=input_c)
    return verb.result(Operation(matmul_op=MatmulOp(**verb.refs, op_type=c_enum(op_type))))


def matmul_bcast_op(
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    op_type: int = MATMUL_BCAST_OP_ADDITION,
    output: Ztensor | None = None,
) -> Ztensor:
    """As `matmul_op`, one input may be a single matrix that is used for the whole stack.

    `op_type` is one of MATMUL_BCAST_OP_*.
    Source: zDNN API Reference 1.2.0, zdnn_matmul_bcast_op.
    """
    verb = Verb(
        "matmul_bcast_op", {"output": output}, input_a=input_a, input_b=input_b, input_c=input_c
    )
    return verb.result(
        Operation(matmul_bcast_op=MatmulBcastOp(**verb.refs, op_type=c_enum(op_type)))
    )


def matmul_transpose_op(
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    transpose_a: bool,
    transpose_b: bool,
    op_type: int = MATMUL_OP_ADDITION,
    output: Ztensor | None = None,
) -> Ztensor:
    """As `matmul_op` or `matmul_bcast_op`, with inputs transposed on the way. Telum II.

    Source: zDNN API Reference 1.2.0, zdnn_matmul_transpose_op.
    """
    verb = Verb(
        "matmul_transpose_op", {"output": output}, input_a=input_a, input_b=input_b, input_c=input_c
    )
    return verb.result(
        Operation(
            matmul_transpose_op=MatmulTransposeOp(
                **verb.refs,
                transpose_a=transpose_a,
                transpose_b=transpose_b,
                op_type=c_enum(op_type),
            )
        )
    )


def quantized_matmul_op(
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    op_type: int,
    clip_min: int,
    clip_max: int,
    disable_clipping: bool,
    dequantize: bool,
    pre_computed: bool,
    work_area: object,
    output: Ztensor,
) -> Ztensor:
    """Compute the product of quantized stacks into `output`, and return that. Telum II.

    `output` carries its own scale and offset, so it must be given. `clip_min` and `clip_max`
    bound quantized values, -128 to 127. `work_area` is not used.
    Source: zDNN API Reference 1.2.0, zdnn_quantized_matmul_op.
    """
    verb = Verb(
        "quantized_matmul_op", {"output": output}, input_a=input_a, input_b=input_b, input_c=input_c
    )
    return verb.result(
        Operation(
            quantized_matmul_op=QuantizedMatmulOp(
                **verb.refs,
                op_type=c_enum(op_type),
                clip_min=clip_min,
                clip_max=clip_max,
                disable_clipping=disable_clipping,
                dequantize=dequantize,
                pre_computed=pre_computed,
            )
        )
    )
