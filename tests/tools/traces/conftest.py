# SPDX-License-Identifier: Apache-2.0
"""Fixtures that tests of this folder share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nnpa_client import Session, trace

from tests.client.server_process import serving
from tests.tools.traces.programs import small_program


@pytest.fixture
def recorded(session: Session, tmp_path: Path) -> trace.Trace:
    """The trace of the small program, with contents."""
    with session.trace(tmp_path / "recorded", contents=True) as recording:
        small_program(session)
    return recording.read()


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose messages are small, so that kilobytes are streamed."""
    socket = Path(tmp_path_factory.mktemp("narrow")) / "nnpa.sock"
    with serving([f"unix:{socket}"], "--max-message", "4MiB") as (target,):
        yield target
