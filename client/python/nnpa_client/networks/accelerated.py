# SPDX-License-Identifier: Apache-2.0
"""The networks as zDNN operations."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nnpa_client import zdnn
from nnpa_client.networks import reference
from nnpa_client.networks.digits import Floats, weights
from nnpa_client.rnn import lstm_gates
from nnpa_client.session import Session
from nnpa_client.ztensor import Ztensor

Run = Callable[[Ztensor], Ztensor]


@dataclass(frozen=True, slots=True)
class Layer:
    """A zDNN operation of a network: C function, purpose, and a function that runs it."""

    function: str
    purpose: str
    run: Run


@dataclass(frozen=True, slots=True)
class Network:
    """A network that reads digits.

    `arrange` gives images (n, 8, 8) the shape of the first operation's input, in `layout`. `load`
    sends the weights and returns the layers for a batch of n; the last gives likelihoods of the
    ten digits for each image, n times 10 elements. `reference` computes FP32 logits in NumPy.
    """

    name: str
    title: str
    layout: int
    arrange: Callable[[Floats], Floats]
    load: Callable[[Session, int], tuple[Layer, ...]]
    reference: Callable[[Floats], Floats]


def _softmax(x: Ztensor) -> Ztensor:
    return zdnn.softmax(x, None, zdnn.SOFTMAX_ACT_NONE)


def _convolution(session: Session, stage: str) -> Run:
    trained = weights("cnn")
    kernel = session.ztensor(trained[f"{stage}_kernel"], zdnn.ZDNN_HWCK)
    bias = session.ztensor(trained[f"{stage}_bias"])
    return lambda x: zdnn.conv2d(x, kernel, bias, zdnn.SAME_PADDING, 1, 1, zdnn.CONV2D_ACT_RELU)


def _dense(session: Session, network: str) -> Run:
    trained = weights(network)
    matrix = session.ztensor(trained["dense_weights"])
    bias = session.ztensor(trained["dense_bias"])
    return lambda x: zdnn.matmul_op(x, matrix, bias, zdnn.MATMUL_OP_ADDITION)


def _halve(x: Ztensor) -> Ztensor:
    return zdnn.maxpool2d(x, zdnn.VALID_PADDING, 2, 2, 2, 2)


def _flatten(session: Session, batch: int) -> Run:
    features = weights("cnn")["dense_weights"].shape[0]
    pre = zdnn.init_pre_transformed_desc(zdnn.ZDNN_2D, zdnn.FP32, batch, features)
    tfrmd = zdnn.generate_transformed_desc(pre)
    return lambda x: zdnn.reshape_ztensor(x, session.init_ztensor_with_malloc(pre, tfrmd))


def _load_cnn(session: Session, batch: int) -> tuple[Layer, ...]:
    return (
        Layer("conv2d", "to 8x8x8", _convolution(session, "conv1")),
        Layer("maxpool2d", "to 4x4x8", _halve),
        Layer("conv2d", "to 4x4x16", _convolution(session, "conv2")),
        Layer("maxpool2d", "to 2x2x16", _halve),
        Layer("reshape_ztensor", "to 64", _flatten(session, batch)),
        Layer("matmul_op", "to 10", _dense(session, "cnn")),
        Layer("softmax", "of 10", _softmax),
    )


def _recurrent(session: Session, batch: int) -> Run:
    trained = weights("lstm")
    hidden = trained["lstm_biases"].shape[1]

    def gates(usage: int, values: Floats) -> Ztensor:
        forget, enter, cell, leave = values
        return lstm_gates(session, usage, forget=forget, input=enter, cell=cell, output=leave)

    h0 = c0 = session.ztensor(np.zeros((1, batch, hidden), np.float32), zdnn.ZDNN_3DS)
    matrices = gates(zdnn.USAGE_WEIGHTS, trained["lstm_weights"])
    biases = gates(zdnn.USAGE_BIASES, trained["lstm_biases"])
    hidden_matrices = gates(zdnn.USAGE_HIDDEN_WEIGHTS, trained["lstm_hidden_weights"])
    hidden_biases = gates(zdnn.USAGE_HIDDEN_BIASES, np.zeros_like(trained["lstm_biases"]))

    def run(x: Ztensor) -> Ztensor:
        hn_output, _cf_output = zdnn.lstm(
            x, h0, c0, matrices, biases, hidden_matrices, hidden_biases, zdnn.FWD
        )
        return hn_output

    return run


def _load_lstm(session: Session, batch: int) -> tuple[Layer, ...]:
    return (
        Layer("lstm", "of 8 rows", _recurrent(session, batch)),
        Layer("matmul_op", "to 10", _dense(session, "lstm")),
        Layer("softmax", "of 10", _softmax),
    )


NETWORKS = (
    Network(
        "cnn",
        "convolutional network",
        zdnn.ZDNN_NHWC,
        lambda images: images[..., None],
        _load_cnn,
        reference.cnn,
    ),
    Network(
        "lstm",
        "LSTM, row by row",
        zdnn.ZDNN_3DS,
        lambda images: np.ascontiguousarray(images.transpose(1, 0, 2)),
        _load_lstm,
        reference.lstm,
    ),
)
