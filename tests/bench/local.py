# SPDX-License-Identifier: Apache-2.0
"""Calls of the emulator in this process, repeated as the server and hosted networks repeat them."""

from collections.abc import Callable
from typing import Any

from nnpa_emulator import OK, Guest, run
from nnpa_emulator.prepared import prepare


def repeated(guest: Guest, name: str, arguments: dict[str, Any]) -> Callable[[], None]:
    """Return a call that succeeds, prepared."""
    assert run(guest, name, arguments) is OK
    call = prepare(guest, name, arguments)
    assert call is not None

    def once() -> None:
        assert call(guest, arguments) is OK

    return once
