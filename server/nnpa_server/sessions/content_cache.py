# SPDX-License-Identifier: Apache-2.0
"""The content cache of a session: sticks by name, so that they travel once."""

from collections import OrderedDict

from nnpa_emulator.machine import Memory


class Contents:
    """A cache of sticks by name, which drops the least recently used first.

    A key is a name, and 0 or the type by which the bytes were swapped on arrival. Cached memory is
    never written, so operations read it in place. `held` is the cache's size in bytes, `hits` the
    number of lookups that found sticks.
    """

    def __init__(self, limit: int) -> None:
        self.held = 0
        self.hits = 0
        self._limit = limit
        self._by_key: OrderedDict[tuple[bytes, int], Memory] = OrderedDict()

    def put(self, key: tuple[bytes, int], memory: Memory) -> None:
        """Cache `memory`, which must not be written from now on, unless it is too large."""
        self.drop(key)
        if memory.nbytes <= self._limit:
            self._by_key[key] = memory
            self.held += memory.nbytes
            self.shrink(self._limit)

    def get(self, key: tuple[bytes, int]) -> Memory | None:
        """Return the cached memory of a key, for reading only, or None."""
        memory = self._by_key.get(key)
        if memory is not None:
            self._by_key.move_to_end(key)
            self.hits += 1
        return memory

    def shrink(self, most: int) -> None:
        """Drop entries until at most `most` bytes are held."""
        while self._by_key and self.held > most:
            self.drop(next(iter(self._by_key)))

    def clear(self) -> None:
        """Drop all entries."""
        self._by_key.clear()
        self.held = 0

    def drop(self, key: tuple[bytes, int]) -> None:
        """Drop the entry of a key, if there is one."""
        memory = self._by_key.pop(key, None)
        if memory is not None:
            self.held -= memory.nbytes
