# SPDX-License-Identifier: Apache-2.0
"""Calls of the emulator in this process, repeated as the server and hosted networks repeat them."""

from collections.abc import Callable
from typing import Any

from nnpa_emulator import OK, Guest, Outcome, run
from nnpa_emulator.prepared import prepare


def repeated(guest: Guest, name: str, arguments: dict[str, Any]) -> Callable[[], Outcome]:
    """Return a call that succeeds, prepared."""
    assert run(guest, name, arguments) is OK
    call = prepare(guest, name, arguments)
    assert call is not None

    def once() -> Outcome:
        outcome = call(guest, arguments)
        assert outcome is OK
        return outcome

    return once
