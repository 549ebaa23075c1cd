# SPDX-License-Identifier: Apache-2.0
"""Violations of LSTM and GRU: NINF, overflow, and what was written before."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import Status
from nnpa_emulator.machine import FunctionCode

from tests.emulator.operands import NINF
from tests.emulator.recurrent_nets import GATES, call, net
from tests.oracle.rounding import rounded

PLACES = {
    "source": (FunctionCode.NNPA_MATMUL_OP_BCAST23, ["input"]),
    "weights": (FunctionCode.NNPA_MATMUL_OP_BCAST23, ["weights"]),
    "biases": (FunctionCode.NNPA_MATMUL_OP_BCAST23, ["biases"]),
    "h0": (FunctionCode.NNPA_MATMUL_OP, ["h0"]),
    "hidden_weights": (FunctionCode.NNPA_MATMUL_OP, ["hidden_weights"]),
    "hidden_biases": (FunctionCode.NNPA_MATMUL_OP, ["hidden_biases"]),
    "c0": (FunctionCode.NNPA_LSTMACT, ["c0", "hn_output"]),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", GATES)
def test_ninf_ends_the_call(name: str, place: str) -> None:
    """A NINF ends the call at the instruction that meets it; outputs are not marked."""
    if (name, place) == ("gru", "c0"):
        place = "h0"
    layer = net(name, (3, 2, 5, 3))
    spoiled = getattr(layer, place).copy()
    spoiled[(-1,) * 4] = NINF
    if place == "source":
        spoiled[-1, 0, 1, 4] = NINF
    changed: dict[str, Any] = {place: spoiled}
    outcome, outputs = call(replace(layer, **changed), True)
    assert outcome.status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    assert not any(output.is_transformed for output in outputs.values())
    assert outcome.violation is not None
    code, operands = PLACES[place]
    assert outcome.violation.function == code
    assert [operand.operand for operand in outcome.violation.operands] == operands


@pytest.mark.parametrize("name", GATES)
def test_overflow_of_the_gates_ends_the_call(name: str) -> None:
    """Sums of numbers that overflow end the call as NINF operands do, also in padded columns."""
    layer = net(name, (2, 1, 2, 3))
    for column in (1, 5):
        big = layer.weights.copy()
        big[..., column] = rounded(8e9)
        source = rounded(np.full(layer.source.shape, 4.0))
        outcome, _ = call(replace(layer, source=source, weights=big), True)
        assert outcome.status == Status.ZDNN_ELEMENT_RANGE_VIOLATION


def test_what_was_written_before_a_violation_stays() -> None:
    """The step in which a NINF arises is written, steps behind it are not."""
    layer = net("lstm", (3, 1, 2, 3))
    spoiled = layer.c0.copy()
    spoiled[0, 0, 0, 1] = NINF
    _, outputs = call(replace(layer, c0=spoiled), True)
    hn = outputs["hn_output"].sticks.view(np.uint16)
    assert hn[1] == NINF
    assert hn[0] != NINF
    assert set(hn[2048 : 2048 + 3].tolist()) == {0x5A5A}
    assert set(outputs["cf_output"].sticks[:6].tolist()) == {0x5A}
