# SPDX-License-Identifier: Apache-2.0
"""Lists of operations that a session has read, by their wire form: programs repeat themselves.

Those that name tensors of the session are the same byte for byte. Those of a C program bring their
tensors inline, by names in the content cache, which are others each time: where all other bytes are
those of a list that came before, so is everything that can be read from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_MOST_SIZES, _MOST_OF_A_SIZE = 256, 8  # forms: of so many sizes each so many
_MOST_STEPS = 4096  # of all lists of a session, and of all forms; a step is up to 2 KiB


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


class NamedAt(NamedTuple):
    """A name of contents: the message and its field that have it, where it lies in a list."""

    message: Any
    field: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Form:
    """One form of lists of one size: `fixed` are the bytes around names, `starts` where they begin.

    `steps` are what was read of such a list; those whose number is in `sharing` take arrays from
    shared memory, as their operations there say.
    """

    fixed: Sequence[bytes]
    starts: Sequence[int]
    names: Sequence[NamedAt]
    steps: Sequence[Any]
    sharing: Sequence[tuple[int, Any]]

    def fits(self, raw: bytes) -> bool:
        """Tell whether a list of this size has this form."""
        return all(map(raw.startswith, self.fixed, self.starts))

    def fill(self, raw: bytes) -> None:
        """Have the steps speak of the contents that a list names."""
        for message, name, start, end in self.names:
            setattr(message, name, raw[start:end])


@dataclass(slots=True)
class Forms:
    """Forms by the size of their lists, the last one first."""

    _by_size: dict[int, list[Form]] = field(default_factory=dict[int, list[Form]])
    _steps: int = 0

    def find(self, raw: bytes) -> Form | None:
        """Return the form of a list, if it is known."""
        for form in self._by_size.get(len(raw), ()):
            if form.fits(raw):
                return form
        return None

    def expects(self, size: int) -> bool:
        """Tell whether a list of this size came before: then its form may be worth its while."""
        if size in self._by_size:
            return True
        if len(self._by_size) >= _MOST_SIZES:
            self._forget()
        self._by_size[size] = []
        return False

    def keep(self, size: int, form: Form) -> None:
        """Remember a form; all are forgotten when they have too many steps together."""
        if self._steps + len(form.steps) > _MOST_STEPS:
            self._forget()
        forms = self._by_size.setdefault(size, [])
        forms.insert(0, form)
        self._steps += len(form.steps)
        for old in forms[_MOST_OF_A_SIZE:]:
            self._steps -= len(old.steps)
        del forms[_MOST_OF_A_SIZE:]

    def _forget(self) -> None:
        self._by_size.clear()
        self._steps = 0
