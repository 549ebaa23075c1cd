# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: A002 - names and places of C functions and their parameters
"""Pooling and convolution: 3 verbs of zDNN."""

from nnpa.zdnn.v1.operation_pb2 import (
    CONV2D_ACT_NONE,
    Avgpool2d,
    Conv2d,
    Maxpool2d,
    Operation,
)

from nnpa_client._wire import c_enum
from nnpa_client.zdnn._verb import Verb
from nnpa_client.ztensor import Ztensor

__all__ = [
    "avgpool2d",
    "conv2d",
    "maxpool2d",
]


def avgpool2d(
    input: Ztensor,
    padding_type: int,
    kernel_height: int,
    kernel_width: int,
    stride_height: int,
    stride_width: int,
    output: Ztensor | None = None,
) -> Ztensor:
    """Return the mean over windows of height and width of a ZDNN_NHWC ztensor.

    `padding_type` is VALID_PADDING or SAME_PADDING. Both strides 0: the window is the whole input.
    Source: zDNN API Reference 1.2.0, zdnn_avgpool2d.
    """
    verb = Verb("avgpool2d", {"output": output}, input=input)
    return verb.result(
        Operation(
            avgpool2d=Avgpool2d(
                **verb.refs,
                padding_type=c_enum(padding_type),
                kernel_height=kernel_height,
                kernel_width=kernel_width,
                stride_height=stride_height,
                stride_width=stride_width,
            )
        )
    )


def maxpool2d(
    input: Ztensor,
    padding_type: int,
    kernel_height: int,
    kernel_width: int,
    stride_height: int,
    stride_width: int,
    output: Ztensor | None = None,
) -> Ztensor:
    """Return the maximum over windows of height and width of a ZDNN_NHWC ztensor.

    `padding_type` is VALID_PADDING or SAME_PADDING. Both strides 0: the window is the whole input.
    Source: zDNN API Reference 1.2.0, zdnn_maxpool2d.
    """
    verb = Verb("maxpool2d", {"output": output}, input=input)
    return verb.result(
        Operation(
            maxpool2d=Maxpool2d(
                **verb.refs,
                padding_type=c_enum(padding_type),
                kernel_height=kernel_height,
                kernel_width=kernel_width,
                stride_height=stride_height,
                stride_width=stride_width,
            )
        )
    )


def conv2d(
    input: Ztensor,
    kernel: Ztensor,
    bias: Ztensor,
    padding_type: int,
    stride_height: int,
    stride_width: int,
    act_func: int = CONV2D_ACT_NONE,
    clipping_value: float | None = None,
    output: Ztensor | None = None,
) -> Ztensor:
    """Return the convolution of a ZDNN_NHWC ztensor with a ZDNN_HWCK kernel, plus bias.

    `act_func` is one of CONV2D_ACT_*, `clipping_value` as in `relu`.
    Source: zDNN API Reference 1.2.0, zdnn_conv2d.
    """
    verb = Verb("conv2d", {"output": output}, input=input, kernel=kernel, bias=bias)
    return verb.result(
        Operation(
            conv2d=Conv2d(
                **verb.refs,
                padding_type=c_enum(padding_type),
                stride_height=stride_height,
                stride_width=stride_width,
                act_func=c_enum(act_func),
                clipping_value=clipping_value,
            )
        )
    )
