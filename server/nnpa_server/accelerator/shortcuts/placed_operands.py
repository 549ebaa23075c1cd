# SPDX-License-Identifier: Apache-2.0
"""Placed operands: arrays and sticks in mapped memory are used in place, without a copy."""

from nnpa_emulator.machine import Memory

from nnpa_server.sessions.shared_memory import MappedMemory

_PAGE = 4096  # bytes, of sticks
_ALIGNMENT = 8  # bytes, of the largest numbers that arrays hold


class PlacedMemory(MappedMemory):
    """Mapped memory whose parts become operands.

    If the client changes an array while a call runs, the results are undefined numbers.
    """

    def view(self, offset: int, size: int, path: str) -> Memory | None:
        """Return the memory of an array in place, or None if its offset is not aligned."""
        self.require(offset, size, path)
        return self.contents[offset : offset + size] if offset % _ALIGNMENT == 0 else None

    def place(self, offset: int, size: int, path: str) -> Memory | None:
        """Return the memory for sticks in place, or None if its offset is no page boundary."""
        return self.view(offset, size, path) if offset % _PAGE == 0 else None
