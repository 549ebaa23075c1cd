# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: A002, ARG001 - names and places of C functions and their parameters
"""Activations: 7 verbs of zDNN."""

from nnpa.zdnn.v1.operation_pb2 import (
    SOFTMAX_ACT_NONE,
    Gelu,
    LeakyRelu,
    Operation,
    Relu,
    Sigmoid,
    Softmax,
    SoftmaxMask,
    Tanh,
)

from nnpa_client._wire import c_enum
from nnpa_client.zdnn._verb import Verb
from nnpa_client.ztensor import Ztensor

__all__ = [
    "gelu",
    "leaky_relu",
    "relu",
    "sigmoid",
    "softmax",
    "softmax_mask",
    "tanh",
]


def relu(
    input: Ztensor, clipping_value: float | None = None, output: Ztensor | None = None
) -> Ztensor:
    """Return max(0, input), at most `clipping_value`.

    None and 0 do not clip. A negative one is ZDNN_INVALID_CLIPPING_VALUE with precheck, else a
    program check.
    Source: zDNN API Reference 1.2.0, zdnn_relu.
    """
    verb = Verb("relu", {"output": output}, input=input)
    return verb.result(Operation(relu=Relu(**verb.refs, clipping_value=clipping_value)))


def leaky_relu(
    input: Ztensor,
    clipping_value: float | None,
    adjustment_factor: float,
    output: Ztensor | None = None,
) -> Ztensor:
    """Return input where positive, else adjustment_factor * input. Telum II.

    `clipping_value` is as in `relu`, `adjustment_factor` 0 to 1.
    Source: zDNN API Reference 1.2.0, zdnn_leaky_relu.
    """
    verb = Verb("leaky_relu", {"output": output}, input=input)
    return verb.result(
        Operation(
            leaky_relu=LeakyRelu(
                **verb.refs, clipping_value=clipping_value, adjustment_factor=adjustment_factor
            )
        )
    )


def tanh(input: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return the hyperbolic tangent of each element.

    Source: zDNN API Reference 1.2.0, zdnn_tanh.
    """
    verb = Verb("tanh", {"output": output}, input=input)
    return verb.result(Operation(tanh=Tanh(**verb.refs)))


def sigmoid(input: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return 1 / (1 + exp(-input)), element by element.

    Source: zDNN API Reference 1.2.0, zdnn_sigmoid.
    """
    verb = Verb("sigmoid", {"output": output}, input=input)
    return verb.result(Operation(sigmoid=Sigmoid(**verb.refs)))


def softmax(
    input: Ztensor,
    save_area: object = None,
    act_func: int = SOFTMAX_ACT_NONE,
    output: Ztensor | None = None,
) -> Ztensor:
    """Return the softmax of each vector along dim1 of a ZDNN_3DS ztensor.

    `save_area` is not used: the server owns that memory. `act_func` is one of SOFTMAX_ACT_*.
    Source: zDNN API Reference 1.2.0, zdnn_softmax.
    """
    verb = Verb("softmax", {"output": output}, input=input)
    return verb.result(Operation(softmax=Softmax(**verb.refs, act_func=c_enum(act_func))))


def softmax_mask(
    input: Ztensor,
    save_area: object,
    act_func: int,
    softmax_mask: int,
    output: Ztensor | None = None,
) -> Ztensor:
    """Return the softmax of the first elements of each vector, the rest 0. Telum II.

    `softmax_mask` is how many take part, 0 for all; otherwise as `softmax`.
    Source: zDNN API Reference 1.2.0, zdnn_softmax_mask.
    """
    verb = Verb("softmax_mask", {"output": output}, input=input)
    return verb.result(
        Operation(
            softmax_mask=SoftmaxMask(
                **verb.refs, act_func=c_enum(act_func), softmax_mask=softmax_mask
            )
        )
    )


def gelu(input: Ztensor, output: Ztensor | None = None) -> Ztensor:
    """Return the Gaussian error linear unit of each element, tanh form. Telum II.

    Source: zDNN API Reference 1.2.0, zdnn_gelu.
    """
    verb = Verb("gelu", {"output": output}, input=input)
    return verb.result(Operation(gelu=Gelu(**verb.refs)))
