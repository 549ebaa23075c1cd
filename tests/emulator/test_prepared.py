# SPDX-License-Identifier: Apache-2.0
"""Prepared calls answer without checks as a full call does, and refuse after any change."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import (
    ALIGNED,
    MACHINES,
    OK,
    Alignment,
    Guest,
    Outcome,
    Status,
    TensorDesc,
    Ztensor,
    run,
)
from nnpa_emulator.prepared import PreparedCall, prepare

from tests import vector_runner
from tests.emulator.target import emulator
from tests.vector_runner import Vector

NINF = 0x7FFF
pytestmark = pytest.mark.shortcut


def copied(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Copy arguments; tensors keep their descriptors, and share the memory that they shared."""
    buffers: dict[int, Any] = {}

    def copy(ztensor: Any) -> Any:
        if not isinstance(ztensor, Ztensor) or ztensor.buffer is None:
            return ztensor
        if id(ztensor.buffer) not in buffers:
            buffers[id(ztensor.buffer)] = ztensor.buffer.copy()
        return replace(ztensor, buffer=buffers[id(ztensor.buffer)])

    return {name: copy(ztensor) for name, ztensor in arguments.items()}


@pytest.mark.heavy
@pytest.mark.parametrize("vector", vector_runner.load(), ids=str)
def test_vectors_by_prepared_calls(vector: Vector, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prepared call gives the results that the vector states for the first call."""

    def run_prepared(
        guest: Guest, name: str, arguments: Mapping[str, Any], alignment: Alignment = ALIGNED
    ) -> Outcome:
        first = copied(arguments)
        outcome = run(guest, name, first, alignment)
        call = None
        if outcome is OK and alignment == ALIGNED:
            call = prepare(guest, name, first)
        if call is None:
            return run(guest, name, arguments, alignment)
        repeated = call(guest, arguments)
        assert repeated is not None
        return repeated

    monkeypatch.setattr("tests.emulator.target.run", run_prepared)
    vector_runner.run(vector, emulator)


@pytest.fixture
def guest() -> Guest:
    """Return a program on a Telum II."""
    return Guest(MACHINES["telum2"])


def tensors_of(guest: Guest, *dims: int) -> dict[str, Ztensor]:
    """Return the tensors of an addition, zero."""
    pre, desc = TensorDesc(8, 0, 255, *dims), TensorDesc(8, 0, 0, *dims)
    tensors = {name: Ztensor(pre, desc) for name in ("input_a", "input_b", "output")}
    for ztensor in tensors.values():
        run(guest, "allochelper_ztensor", {"ztensor": ztensor})
    return tensors


def addition(guest: Guest, tensors: Mapping[str, Ztensor]) -> PreparedCall:
    """Add, and return the prepared call."""
    assert run(guest, "add", tensors) is OK
    call = prepare(guest, "add", tensors)
    assert call is not None
    return call


def changed_desc(_guest: Guest, tensors: dict[str, Ztensor]) -> None:
    """Give the output other dims."""
    tensors["output"].transformed_desc = TensorDesc(8, 0, 0, 1, 1, 1, 63)


def equal_desc(_guest: Guest, tensors: dict[str, Ztensor]) -> None:
    """Give an input a descriptor that is equal, and may be changed elsewhere."""
    tensors["input_a"].transformed_desc = replace(tensors["input_a"].transformed_desc)


def freed(_guest: Guest, tensors: dict[str, Ztensor]) -> None:
    """Free an input."""
    tensors["input_b"].buffer = None


def small(_guest: Guest, tensors: dict[str, Ztensor]) -> None:
    """Give the output less memory than it needs."""
    tensors["output"].buffer = np.zeros(64, np.uint8)


def moved(guest: Guest, _tensors: dict[str, Ztensor]) -> None:
    """Move the program to another machine."""
    guest.machine = MACHINES["telum1"]


def recached(guest: Guest, _tensors: dict[str, Ztensor]) -> None:
    """Have the library remember another machine."""
    guest.cached = replace(guest.cached)


def prechecking(guest: Guest, _tensors: dict[str, Ztensor]) -> None:
    """Have the library check before the machine does."""
    guest.precheck = True


def jittering(guest: Guest, _tensors: dict[str, Ztensor]) -> None:
    """Perturb results."""
    guest.numerics = "jitter"


@pytest.mark.parametrize(
    "change",
    [changed_desc, equal_desc, freed, small, moved, recached, prechecking, jittering],
    ids=lambda change: change.__name__,
)
def test_nothing_is_done_after_a_change(
    guest: Guest, change: Callable[[Guest, dict[str, Ztensor]], None]
) -> None:
    """After a change of an input of the checks, a prepared call refuses and writes nothing."""
    tensors = tensors_of(guest, 1, 1, 1, 64)
    call = addition(guest, tensors)
    tensors["output"].sticks[:] = 0x55
    change(guest, tensors)
    before = tensors["output"].sticks.copy()
    assert call(guest, tensors) is None
    assert np.array_equal(before, tensors["output"].sticks)


def test_violation_is_explained(guest: Guest) -> None:
    """A prepared call that meets a NINF answers as the pipeline does."""
    tensors = tensors_of(guest, 1, 1, 1, 64)
    call = addition(guest, tensors)
    tensors["input_b"].sticks.view(np.uint16)[3] = NINF
    answered, expected = call(guest, tensors), run(guest, "add", tensors)
    assert repr(answered) == repr(expected), "repr, as NaN is no NaN's equal"
    assert expected.status == Status.ZDNN_ELEMENT_RANGE_VIOLATION


def test_only_operations_are_prepared(guest: Guest) -> None:
    """A function that computes nothing gets no prepared call: it decides anew each time."""
    tensors = tensors_of(guest, 1, 1, 1, 64)
    assert prepare(guest, "free_ztensor_buffer", {"ztensor": tensors["output"]}) is None


def test_nothing_is_done_with_another_parameter(guest: Guest) -> None:
    """Checks depend on parameters: a prepared call has those that passed."""
    tensors = tensors_of(guest, 1, 1, 1, 64)
    arguments = {"input": tensors["input_a"], "output": tensors["output"], "clipping_value": 6.0}
    assert run(guest, "relu", arguments) is OK
    call = prepare(guest, "relu", arguments)
    assert call is not None
    assert call(guest, arguments) is OK
    assert call(guest, {**arguments, "clipping_value": -1.0}) is None
