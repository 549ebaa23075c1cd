# SPDX-License-Identifier: Apache-2.0
"""The library of these sources, and a server for the programs that use it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.server_process import serving
from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import Prefix


@pytest.fixture(scope="session")
def prefix() -> Prefix:
    """Where the library is installed."""
    return toolchain.installed()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server process, as ZDNN_SERVER takes it."""
    socket = Path(tmp_path_factory.mktemp("libzdnn")) / "nnpa.sock"
    with serving([f"unix:{socket}"], "--max-sessions", "256") as targets:
        yield targets[0]
