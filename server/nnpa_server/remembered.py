# SPDX-License-Identifier: Apache-2.0
"""Lists of operations that a session has read, by their wire form: programs repeat themselves."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_MOST_STEPS = 4096  # of all lists of a session; a step is a few hundred bytes


@dataclass(slots=True)
class List:
    """A list that was read: its steps, the tensors that they need, whether it has come twice."""

    steps: Sequence[Any]
    ids: frozenset[int]
    again: bool = False


@dataclass(slots=True)
class Remembered:
    """Lists by wire form, all forgotten when they have too many steps together."""

    _lists: dict[bytes, List] = field(default_factory=dict[bytes, List])
    _steps: int = 0

    def find(self, raw: bytes) -> List | None:
        """Return what is known of a list."""
        return self._lists.get(raw)

    def note(self, raw: bytes, found: List) -> None:
        """Remember a list, unless it is too long."""
        if len(found.steps) > _MOST_STEPS or raw in self._lists:
            return
        if self._steps + len(found.steps) > _MOST_STEPS:
            self._lists.clear()
            self._steps = 0
        self._lists[raw] = found
        self._steps += len(found.steps)
