# SPDX-License-Identifier: Apache-2.0
"""The library of these sources."""

from pathlib import Path

import pytest

from tests.libmli import toolchain
from tests.libmli.toolchain import Prefix


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder: they need a C compiler; the README's command does not."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.libmli)


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Prefix:
    """Where the library is installed."""
    return toolchain.installed(tmp_path_factory.mktemp("libmli"))
