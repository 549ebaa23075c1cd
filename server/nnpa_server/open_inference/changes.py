# SPDX-License-Identifier: Apache-2.0
"""Order the loads and unloads of models by the time at which they began.

Loads compile side by side, and take effect in turn under `lock`. If a later change of the same name
takes effect first, the earlier load is superseded and takes no effect.
"""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from nnpa_server.open_inference.owners import may_change


@dataclass(eq=False, slots=True)
class Change:
    """A load by an owner.

    If it `yields`, every change that takes effect meanwhile supersedes it, earlier ones too. Loads
    from disk yield, because the files may have changed since they were read.
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
        """Keep a load among the loads under way while the context lasts."""
        with self.lock:
            self._begun.append(change)
        try:
            yield
        finally:
            with self.lock:
                self._begun.remove(change)

    def supersede(self, name: str, by: Change | None = None) -> bool:
        """Supersede loads of a name, by a load that takes effect or (None) by an unload.

        Return True if there were any. Loads of owners whose models the caller may not change are
        not superseded. `lock` must be held.
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
