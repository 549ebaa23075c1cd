# SPDX-License-Identifier: Apache-2.0
"""The library of these sources, and a server for the programs that use it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.server_process import serving
from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import Prefix


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here: it builds with Rust and C, which the README's test command does not."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.libzdnn)


@pytest.fixture(scope="session", autouse=True)
def plain_stage() -> None:
    """Have all programs go without shortcuts in the plain stage, and this process if it is one."""
    if toolchain.PLAIN:
        os.environ["ZDNN_PLAIN"] = "1"


@pytest.fixture(scope="session")
def prefix() -> Prefix:
    """Where the library is installed."""
    return toolchain.installed()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server process, as ZDNN_SERVER takes it."""
    socket = Path(tmp_path_factory.mktemp("libzdnn")) / "nnpa.sock"
    with serving([f"unix:{socket}"], "--max-sessions", "256", "--shared-memory") as targets:
        yield targets[0]
