# SPDX-License-Identifier: Apache-2.0
"""The destination of an array that the server sends, whole or in chunks."""

import numpy as np
import numpy.typing as npt

__tracebackhide__ = True  # pytest shows the line that called, not these


class Sink:
    """Writes an array into the caller's buffer, or into a new one."""

    def __init__(self, buffer: npt.NDArray[np.uint8] | None) -> None:
        self._buffer = buffer
        self._position = 0

    @property
    def filled(self) -> npt.NDArray[np.uint8]:
        """The buffer as bytes; empty before a size was announced."""
        return np.empty(0, np.uint8) if self._buffer is None else self._buffer

    def expect(self, total: int) -> None:
        """Make room for `total` bytes; raise ValueError if the caller's buffer has another size."""
        if self._buffer is None:
            self._buffer = np.empty(total, np.uint8)
        elif self._buffer.nbytes != total:
            raise ValueError(f"out_buf: {self._buffer.nbytes} bytes, expected {total}")

    def append(self, chunk: bytes | memoryview) -> None:
        """Copy a chunk behind the chunks before it."""
        end = self._position + len(chunk)
        self.filled[self._position : end] = np.frombuffer(chunk, np.uint8)
        self._position = end

    def fill(self, array: bytes | memoryview) -> None:
        """Write a whole array; a writable view becomes the buffer if the caller has none."""
        if self._buffer is None and isinstance(array, memoryview) and not array.readonly:
            self._buffer = np.frombuffer(array, np.uint8)
            return
        self.expect(len(array))
        self.append(array)
