# SPDX-License-Identifier: Apache-2.0
"""Where an array lands that comes from the server, whole or in chunks."""

import numpy as np
import numpy.typing as npt

__tracebackhide__ = True  # pytest shows the line that called, not these


class Sink:
    """The buffer that an array is written to: the caller's own, or a new one."""

    def __init__(self, buffer: npt.NDArray[np.uint8] | None) -> None:
        self._buffer = buffer
        self._position = 0

    @property
    def filled(self) -> npt.NDArray[np.uint8]:
        """The buffer, bytes; of no size before one was announced."""
        return np.empty(0, np.uint8) if self._buffer is None else self._buffer

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
        """Take a whole array; without a copy where it may become the buffer."""
        if self._buffer is None and isinstance(array, memoryview) and not array.readonly:
            self._buffer = np.frombuffer(array, np.uint8)
            return
        self.expect(len(array))
        self.append(array)
