# SPDX-License-Identifier: Apache-2.0
"""The namespace of ztensors beside array-api-strict: sessions, values, and how they differ."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import array_api_strict
import numpy as np
import numpy.typing as npt
from nnpa_client import Session, Ztensor, array_api, dlfloat16
from nnpa_client._guest.options import session_options
from nnpa_client.array_api import Difference
from nnpa_server.sessions.store import Store

from tests.client.in_process import InProcessTransport

xp: Any = array_api
strict: Any = array_api_strict

TWO_OPERANDS = ("add", "divide", "maximum", "minimum", "multiply", "subtract")
LAST_AXIS = ("argmax", "argmin", "max", "min")


@contextmanager
def entered_session(store: Store, machine: str) -> Generator[Session]:
    """Enter a session of a server in process."""
    transport = InProcessTransport(store)
    message, _fields = session_options(transport, machine)
    with Session(transport, message) as session:
        yield session


def values_of(array: Any) -> npt.NDArray[Any]:
    """Return an array's values, or a number; a ztensor's elements that are no numbers are NaN."""
    if isinstance(array, Ztensor):
        return array.numpy(strict=False)
    is_strict = isinstance(array, type(strict.asarray(0.0)))
    return np.from_dlpack(array) if is_strict else np.asarray(array)


def differences(values: npt.NDArray[Any], expected: npt.NDArray[Any]) -> set[Difference]:
    """Return the kinds of differences between values and the standard's."""
    edges = dlfloat16.finfo
    size = np.abs(expected)
    is_finite = np.isfinite(expected)
    is_out = is_finite & ((size > edges.max) | ((size > 0) & (size < edges.smallest_normal)))
    seen = {
        Difference.PRECISION: is_finite & ~is_out & (values != expected),
        Difference.RANGE: is_out & (values != expected),
        Difference.INFINITIES: np.isinf(expected) & np.isnan(values),
    }
    assert np.isnan(values[np.isnan(expected)]).all()
    return {difference for difference, places in seen.items() if places.any()}
