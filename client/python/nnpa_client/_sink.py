# SPDX-License-Identifier: Apache-2.0
"""Where an array lands that comes from the server, whole or in chunks."""

import numpy as np
import numpy.typing as npt

__tracebackhide__ = True  # pytest shows the line that called, not these


class Sink:
    """The buffer that an array is written to: the caller's own, or a new one.

    `room` is the most bytes that the array has.
    """

    def __init__(self, buffer: npt.NDArray[np.uint8] | None, room: int = 0) -> None:
        self.room = room
        self._buffer = buffer
        self._position = 0
        self._placed: memoryview | None = None

    @property
    def filled(self) -> npt.NDArray[np.uint8]:
        """The buffer, bytes; of no size before one was announced."""
        return np.empty(0, np.uint8) if self._buffer is None else self._buffer

    def place(self, size: int) -> memoryview:
        """Return where an array of so many bytes may be written before `fill` takes it."""
        if self._buffer is not None and self._buffer.nbytes == size:
            self._placed = self._buffer.data
            return self._placed
        return np.empty(size, np.uint8).data

    def expect(self, total: int) -> None:
        """Make room for so many bytes; raise ValueError if the caller's buffer has others."""
        if self._buffer is None:
            self._buffer = np.empty(total, np.uint8)
        elif self._buffer.nbytes != total:
            raise ValueError(f"out_buf: {self._buffer.nbytes} bytes, expected {total}")

    def append(self, chunk: bytes | memoryview) -> None:
        """Copy a chunk behind those before it."""
        end = self._position + len(chunk)
        self.filled[self._position : end] = np.frombuffer(chunk, np.uint8)
        self._position = end

    def fill(self, array: bytes | memoryview) -> None:
        """Take a whole array; without a copy where it is in place, or may become the buffer."""
        if array is self._placed:
            return
        if self._buffer is None and isinstance(array, memoryview) and not array.readonly:
            self._buffer = np.frombuffer(array, np.uint8)
            return
        self.expect(len(array))
        self.append(array)
