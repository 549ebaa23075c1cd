# SPDX-License-Identifier: Apache-2.0
"""Fixtures that tests of this folder share."""

from collections.abc import Iterator

import pytest
from nnpa_client import (
    Session,
    Ztensor,
    connect,
)

from tests.client.faults.test_faults import DATA
from tests.client.server_process import serving


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The socket of a server that allows faults."""
    socket = tmp_path_factory.mktemp("faults") / "nnpa.sock"
    with serving([f"unix:{socket}"], "--allow-faults") as targets:
        yield targets[0]


@pytest.fixture
def session(target: str) -> Iterator[Session]:
    """A session in which faults may be injected."""
    with connect(target) as opened:
        yield opened


@pytest.fixture
def a(session: Session) -> Ztensor:
    """A tensor of 0 to 7."""
    return session.ztensor(DATA)
