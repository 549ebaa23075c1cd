# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: A002, ARG001 - names and places of C functions and their parameters
"""Normalization and reduction: 6 verbs of zDNN."""

from nnpa.zdnn.v1.operation_pb2 import (
    Batchnorm,
    Layernorm,
    Meanreduce2d,
    Moments,
    Norm,
    Operation,
    Reduce,
)

from nnpa_client._wire import c_enum
from nnpa_client.zdnn._verb import Verb
from nnpa_client.ztensor import Ztensor

__all__ = [
    "batchnorm",
    "layernorm",
    "meanreduce2d",
    "moments",
    "norm",
    "reduce",
]


def batchnorm(
    input_a: Ztensor, input_b: Ztensor, input_c: Ztensor, output: Ztensor | None = None
) -> Ztensor:
    """Return input_a * input_b + input_c along dim1.

    input_a is (n, h, w, c); input_b, folded scale, and input_c, folded bias, have c elements.
    Source: zDNN API Reference 1.2.0, zdnn_batchnorm.
    """
    verb = Verb("batchnorm", {"output": output}, input_a=input_a, input_b=input_b, input_c=input_c)
    return verb.result(Operation(batchnorm=Batchnorm(**verb.refs)))


def norm(input_a: Ztensor, input_b: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return the Euclidean norm of input_a - input_b along dim1. Telum II.

    Source: zDNN API Reference 1.2.0, zdnn_norm.
    """
    verb = Verb("norm", {"output": output}, input_a=input_a, input_b=input_b)
    return verb.result(Operation(norm=Norm(**verb.refs)))


def moments(
    input: Ztensor,
    bessel_correction_type: int,
    output_a: Ztensor | None = None,
    output_b: Ztensor | None = None,
) -> tuple[Ztensor, Ztensor]:
    """Return mean and variance of each dim4 as (output_a, output_b). Telum II.

    `bessel_correction_type` is one of MOMENTS_BESSEL_*. As in the library, is_transformed of
    output_b stays as it was.
    Source: zDNN API Reference 1.2.0, zdnn_moments.
    """
    verb = Verb("moments", {"output_a": output_a, "output_b": output_b}, input=input)
    first, second = verb.run(
        Operation(
            moments=Moments(**verb.refs, bessel_correction_type=c_enum(bessel_correction_type))
        )
    )
    return first, second


def layernorm(
    input_a: Ztensor,
    input_b: Ztensor,
    input_c: Ztensor,
    beta_value: float,
    gamma_value: float,
    epsilon_value: float,
    output: Ztensor | None = None,
) -> Ztensor:
    """Return (input_a - mean) / sqrt(variance + epsilon) * gamma + beta. Telum II.

    input_b is the mean and input_c the variance of each dim4, as `moments` gives them.
    Source: zDNN API Reference 1.2.0, zdnn_layernorm.
    """
    verb = Verb("layernorm", {"output": output}, input_a=input_a, input_b=input_b, input_c=input_c)
    return verb.result(
        Operation(
            layernorm=Layernorm(
                **verb.refs,
                beta_value=beta_value,
                gamma_value=gamma_value,
                epsilon_value=epsilon_value,
            )
        )
    )


def meanreduce2d(input: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return the mean over height and width of a ZDNN_NHWC ztensor.

    Source: zDNN API Reference 1.2.0, zdnn_meanreduce2d.
    """
    verb = Verb("meanreduce2d", {"output": output}, input=input)
    return verb.result(Operation(meanreduce2d=Meanreduce2d(**verb.refs)))


def reduce(
    input: Ztensor, save_area: object, op_type: int, output: Ztensor | None = None
) -> Ztensor:
    """Return minimum or maximum along dim1, or its position as INT32. Telum II.

    `save_area` is not used. `op_type` is one of REDUCE_OP_*.
    Source: zDNN API Reference 1.2.0, zdnn_reduce.
    """
    verb = Verb("reduce", {"output": output}, input=input)
    return verb.result(Operation(reduce=Reduce(**verb.refs, op_type=c_enum(op_type))))
