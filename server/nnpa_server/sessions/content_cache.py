# SPDX-License-Identifier: Apache-2.0
"""Sticks that a session keeps by name, so that they travel once."""

from collections import OrderedDict

from nnpa_emulator.machine import Memory


class Contents:
    """A session's content cache: sticks by name; what was used longest ago goes first.

    A key is a name, and 0 or the type by which the bytes were swapped on arrival. Nothing writes to
    what is held here, so that operations read it where it is. `held` is bytes, `hits` how often
    something was found.
    """

    def __init__(self, limit: int) -> None:
        self.held = 0
        self.hits = 0
        self._limit = limit
        self._by_key: OrderedDict[tuple[bytes, int], Memory] = OrderedDict()

    def put(self, key: tuple[bytes, int], memory: Memory) -> None:
        """Hold `memory`, which nobody writes to from here on, unless it is too large."""
        self.drop(key)
        if memory.nbytes <= self._limit:
            self._by_key[key] = memory
            self.held += memory.nbytes
            self.shrink(self._limit)

    def get(self, key: tuple[bytes, int]) -> Memory | None:
        """Return what is held under a key, for reading only."""
        memory = self._by_key.get(key)
        if memory is not None:
            self._by_key.move_to_end(key)
            self.hits += 1
        return memory

    def shrink(self, most: int) -> None:
        """Forget until at most `most` bytes are held."""
        while self._by_key and self.held > most:
            self.drop(next(iter(self._by_key)))

    def clear(self) -> None:
        """Forget everything."""
        self._by_key.clear()
        self.held = 0

    def drop(self, key: tuple[bytes, int]) -> None:
        """Forget what is held under a key, if anything is."""
        memory = self._by_key.pop(key, None)
        if memory is not None:
            self.held -= memory.nbytes
