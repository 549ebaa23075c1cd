# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster for tests of work on it."""

from collections.abc import Generator

import pytest

from tests.deploy.fleet import free_port
from tests.tools.evaluation.nodes import Cluster, cluster


@pytest.fixture
def ray_cluster() -> Generator[Cluster]:
    """A cluster without nodes."""
    with cluster(free_port(), free_port()) as empty:
        yield empty
