# SPDX-License-Identifier: Apache-2.0
"""Every vector of every function, in this process."""

import json

import pytest

from tests import vector_runner
from tests.emulator.local_target import local
from tests.emulator.target import emulator
from tests.vector_runner import Vector


@pytest.mark.heavy
@pytest.mark.parametrize("vector", vector_runner.load(), ids=str)
def test_vector(vector: Vector) -> None:
    """A vector's statuses, bits, values and flags are what its source says."""
    vector_runner.run(vector, emulator)


@pytest.mark.parametrize("vector", vector_runner.load(vector_runner.VECTORS / "local"), ids=str)
def test_local_vector(vector: Vector) -> None:
    """A local function's result or status agrees with the vector's source."""
    vector_runner.run_local(vector, local)


def test_runner_finds_a_wrong_bit() -> None:
    """The runner refuses a result that differs from the vector in one bit."""
    vector = next(item for item in vector_runner.load() if str(item) == "add-hand_telum2")
    line = json.loads(json.dumps(vector.line).replace("4100 3E01", "4100 3E00"))
    with pytest.raises(AssertionError, match="output"):
        vector_runner.run(Vector("add", line), emulator)


def test_names_are_unique() -> None:
    """No function has two vectors of the same name."""
    names = [str(vector) for vector in vector_runner.load()]
    assert len(names) == len(set(names))


def test_sources_are_told() -> None:
    """Every vector says where its expectation comes from: a document, a hand, or an oracle."""
    kinds = {vector.line["source"].partition(":")[0] for vector in vector_runner.load()}
    assert kinds == {"document", "hand", "oracle"}
