# SPDX-License-Identifier: Apache-2.0
"""Fixtures that tests of this folder share."""

from collections.abc import Iterator

import pytest
from nnpa_client import mli


@pytest.fixture(scope="module")
def connection(server_target: str) -> Iterator[mli.Connection]:
    """A connection for MLI alone, entered."""
    with mli.connect(server_target) as opened:
        yield opened
