# SPDX-License-Identifier: Apache-2.0
"""Frames: the tensors of finished runs, kept for the next run of the same program.

The system zeroes the pages of fresh sticks one by one, which for thin tensors takes longer than the
arithmetic. A program writes the same cells of a tensor in every run, so a tensor of an earlier run
is as good as a fresh one. One memory for the process, at most `LARGEST` bytes; the program that ran
longest ago loses its frames first.
"""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nnpa_emulator import Ztensor


@dataclass(slots=True, eq=False)
class Frame:
    """The tensors that one run made, by their ids.

    `takes` has for each step what takes it over these tensors, None for those that go the long way;
    it holds while the guest's era is `era`.
    """

    tensors: dict[int, Ztensor] = field(default_factory=dict[int, Ztensor])
    takes: list[Callable[[dict[int, Any]], bool] | None] = field(
        default_factory=list[Callable[[dict[int, Any]], bool] | None]
    )
    era: int = 0


LARGEST = 1 << 28
"""Bytes of all frames that are kept."""
WIDEST = 1 << 26
"""Bytes of a frame that is worth keeping: a larger run frees each tensor when it is dead."""


class _Kept:
    """All frames by program."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # programs are freed at any moment
        self._programs: OrderedDict[int, tuple[int, list[Frame]]] = OrderedDict()
        self.size = 0

    def take(self, program: int) -> Frame:
        with self._lock:
            size, frames = self._programs.get(program, (0, ()))
            if not frames:
                return Frame()
            self.size -= size
            return frames.pop()

    def give(self, program: int, size: int, frame: Frame) -> None:
        with self._lock:
            self._programs.setdefault(program, (size, []))[1].append(frame)
            self._programs.move_to_end(program)
            self.size += size
            while self.size > LARGEST:
                self.forget(next(iter(self._programs)))

    def forget(self, program: int) -> None:
        with self._lock:
            size, frames = self._programs.pop(program, (0, []))
            self.size -= size * len(frames)


_kept = _Kept()


class Frames:
    """The frames of one program, each of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
        weakref.finalize(self, _kept.forget, id(self)).atexit = False

    def take(self) -> Frame:
        """Return the frame of an earlier run, or an empty one."""
        return _kept.take(id(self))

    def give(self, frame: Frame) -> None:
        """Keep the frame of a run that has ended well."""
        _kept.give(id(self), self._size, frame)


def kept_bytes() -> int:
    """Return the bytes of all frames that are kept."""
    return _kept.size
