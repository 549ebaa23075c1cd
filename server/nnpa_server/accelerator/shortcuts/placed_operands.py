# SPDX-License-Identifier: Apache-2.0
"""Placed operands: arrays and sticks are used where they lie in mapped memory, without a copy."""

from nnpa_emulator.machine import Memory

from nnpa_server.sessions.shared_memory import MappedMemory

_PAGE = 4096  # bytes, of sticks
_ALIGNMENT = 8  # bytes, of the largest numbers that arrays hold


class PlacedMemory(MappedMemory):
    """Mapped memory whose parts become operands.

    The client may change the numbers of an array meanwhile, and then has others.
    """

    def view(self, offset: int, size: int, path: str) -> Memory | None:
        """Return an array where it is, if an array can be there."""
        self.require(offset, size, path)
        return self.contents[offset : offset + size] if offset % _ALIGNMENT == 0 else None

    def place(self, offset: int, size: int, path: str) -> Memory | None:
        """Return a place where sticks can be computed."""
        return self.view(offset, size, path) if offset % _PAGE == 0 else None
