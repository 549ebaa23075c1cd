# SPDX-License-Identifier: Apache-2.0
"""Loads and unloads under way: those of a name count in the order in which they began.

Loads compile side by side, and take effect one after the other, under `lock`. A load that ends
when a later change of its name has taken effect has none: it was replaced.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from nnpa_server.open_inference.owners import may_change


@dataclass(eq=False, slots=True)
class Change:
    """A load that an owner makes; `yields` to every change that takes effect meanwhile.

    Loads of what is on disk yield: it may have changed since they read it.
    """

    name: str
    owner: str
    yields: bool = True
    is_superseded: bool = False


class Changes:
    """The loads under way, in the order in which they began."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._begun: list[Change] = []

    @contextmanager
    def under_way(self, change: Change) -> Generator[None]:
        """Count a load as under way while the context lasts."""
        with self.lock:
            self._begun.append(change)
        try:
            yield
        finally:
            with self.lock:
                self._begun.remove(change)

    def supersede(self, name: str, by: Change | None = None) -> bool:
        """Supersede a name's loads for one that takes effect, or for its end; tell if any was.

        Loads of owners whose models the caller may not change go on. The caller has `lock`.
        """
        earlier = self._begun if by is None else self._begun[: self._begun.index(by)]
        loads = [
            change
            for change in self._begun
            if change.name == name
            and change is not by
            and (change.yields or change in earlier)
            and may_change(change.owner)
        ]
        for change in loads:
            change.is_superseded = True
        return bool(loads)
