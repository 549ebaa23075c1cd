# SPDX-License-Identifier: Apache-2.0
"""A list of operations that takes seconds."""

from typing import Any

import numpy as np

from tests.server.process import PLAIN
from tests.server.wire import Client, begun, load, op

LENGTH = 120 if PLAIN else 1_200
"""Operations that take seconds."""


def long_list(client: Client, count: int = LENGTH) -> Any:
    """Return the call of a list that runs."""
    client.run(*load(1, np.ones((8, 32, 32, 64), np.float32)))
    return begun(client, *[op("exp", input=1, output=1)] * count)
