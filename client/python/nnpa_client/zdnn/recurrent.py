# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: A002, ARG001 - names and places of C functions and their parameters
"""Recurrent layers: 2 verbs of zDNN."""

from nnpa.zdnn.v1.operation_pb2 import (
    Gru,
    Lstm,
    Operation,
)

from nnpa_client._wire import c_enum
from nnpa_client.zdnn._verb import Verb
from nnpa_client.ztensor import Ztensor

__all__ = [
    "gru",
    "lstm",
]


def lstm(
    input: Ztensor,
    h0: Ztensor,
    c0: Ztensor,
    weights: Ztensor,
    biases: Ztensor,
    hidden_weights: Ztensor,
    hidden_biases: Ztensor,
    direction: int,
    work_area: object = None,
    hn_output: Ztensor | None = None,
    cf_output: Ztensor | None = None,
    *,
    all_timesteps: bool = False,
) -> tuple[Ztensor, Ztensor]:
    """Run a long short-term memory layer; return (hn_output, cf_output).

    `direction` is FWD, BWD or BIDIR; weights and biases are concatenated ZDNN_FICO. When
    hn_output is left out, `all_timesteps` says whether it holds all hidden states or the last.
    Source: zDNN API Reference 1.2.0, zdnn_lstm.
    """
    verb = Verb(
        "lstm",
        {"hn_output": hn_output, "cf_output": cf_output},
        input=input,
        h0=h0,
        c0=c0,
        weights=weights,
        biases=biases,
        hidden_weights=hidden_weights,
        hidden_biases=hidden_biases,
    )
    first, second = verb.run(
        Operation(lstm=Lstm(**verb.refs, direction=c_enum(direction), all_timesteps=all_timesteps))
    )
    return first, second


def gru(
    input: Ztensor,
    h0: Ztensor,
    weights: Ztensor,
    biases: Ztensor,
    hidden_weights: Ztensor,
    hidden_biases: Ztensor,
    direction: int,
    work_area: object = None,
    hn_output: Ztensor | None = None,
    *,
    all_timesteps: bool = False,
) -> Ztensor:
    """Run a gated recurrent unit layer; return hn_output.

    Weights and biases are concatenated ZDNN_ZRH; otherwise as `lstm`.
    Source: zDNN API Reference 1.2.0, zdnn_gru.
    """
    verb = Verb(
        "gru",
        {"hn_output": hn_output},
        input=input,
        h0=h0,
        weights=weights,
        biases=biases,
        hidden_weights=hidden_weights,
        hidden_biases=hidden_biases,
    )
    return verb.result(
        Operation(gru=Gru(**verb.refs, direction=c_enum(direction), all_timesteps=all_timesteps))
    )
