# SPDX-License-Identifier: Apache-2.0
"""The MLI library's reference cases through client, wire and a server process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nnpa_client import mli

from tests.client.mli.golden import redirect
from tests.mli.golden import run_file

FOLDER = Path(__file__).parents[2] / "vectors" / "mli"
FILES = sorted(FOLDER.glob("*.json"))
QUICK = {"v1_lstm_fx8", "v1_fully_connected_fx16", "v1_tanh_fx8", "v2_helpers", "v2_subtensor"}


@pytest.fixture
def remote(server_target: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The runner calls a server process through the client."""
    redirect(monkeypatch)
    with mli.connect(server_target):
        yield


@pytest.mark.usefixtures("remote")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem in QUICK else pytest.mark.heavy)
        for path in FILES
    ],
)
def test_reference_cases_through_the_wire(path: Path) -> None:
    """Values, fields and status of every case of an asserted file equal the reference."""
    row = run_file(path)
    assert row.cases > 0
    if row.asserted:
        assert not row.differences, "\n".join(row.differences[:5])
    assert row.agree + row.mapped + len(row.differences) == row.cases


def test_reference_files_are_found() -> None:
    """The folder has the quick files, and others."""
    assert {path.stem for path in FILES} > QUICK
