# SPDX-License-Identifier: Apache-2.0
"""Sessions for tests of the tools, as in the client's tests; vectors and answers to them."""

import json
import shutil
from pathlib import Path

import pytest
from nnpa_tools.conformance.suites import Tree

from tests.client.conftest import (
    make_transport,
    open_session,
    plain_clients,
    server_target,
    session,
    store,
)
from tests.score import shared_vectors
from tests.vector_runner import VECTORS

__all__ = ["make_transport", "open_session", "plain_clients", "server_target", "session", "store"]


@pytest.fixture
def no_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the repository's own results out of scores, so that tests can add results."""
    monkeypatch.setattr(Tree, "results", Path("absent"))


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A folder with the vectors of relu."""
    folder = tmp_path / "vectors"
    folder.mkdir()
    shutil.copy(VECTORS / "relu.jsonl", folder)
    return folder


@pytest.fixture(scope="module")
def answers(server_target: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The emulator's answers to the vectors of relu for Telum II."""
    folder = tmp_path_factory.mktemp("answers")
    shutil.copy(VECTORS / "relu.jsonl", folder)
    _, cases = shared_vectors.cases(folder, server_target, folder / "kept")
    machines = {case.name: case.machine for case in cases}
    lines = (folder / "kept").read_text().splitlines()
    return [line for line in lines if machines[json.loads(line)["name"]] == "telum2"]
