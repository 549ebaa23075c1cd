# SPDX-License-Identifier: Apache-2.0
"""Fixtures that tests of this folder share."""

import pytest

from tests.server.conftest import Running
from tests.server.mli.test_bad_input import Stub


@pytest.fixture(scope="module")
def stub(running: Running) -> Stub:
    """A stub of the shared server."""
    return Stub(running.channel)
