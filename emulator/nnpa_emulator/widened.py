# SPDX-License-Identifier: Apache-2.0
"""A cache of widened operands: a shortcut around the seams `engines.operands.dense` and `repeated`.

An entry belongs to the memory behind a buffer, whichever view of it a call reads: `written` forgets
all entries of that memory. Memory that no array owns belongs to the buffer: a writer through
another buffer has dropped this one before. The cache wraps `pipeline.answer` to forget every tensor
that a call may have written. Code that writes sticks past the pipeline calls `written` before the
next call. An operand is kept from its second use on, so that operands used once cost nothing. The
process has one cache of at most `MAX_BYTES` bytes, which drops the least recently used entry first
and the entries of freed buffers.
"""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from nnpa_emulator import pipeline
from nnpa_emulator.engines import operands
from nnpa_emulator.engines.operands import Buffer, Values, Widen
from nnpa_emulator.instruction import Arguments
from nnpa_emulator.pipeline import Call, Function, Outcome
from nnpa_emulator.ztensor import Array

MAX_BYTES = 1 << 28
"""Bytes of all values that are kept."""
MAX_BUFFERS = 4096
"""Buffers that are remembered."""


@dataclass(slots=True, eq=False)
class _Memory:
    """Values of the memory behind one or more buffers; None was seen once."""

    owner: "weakref.ref[Array]"
    blocks: dict[Hashable, Values | None] = field(default_factory=dict)
    size: int = 0


class Kept:
    """All memories by the identity of the array that owns them, least recently used first.

    The lock may be taken again by the thread that has it: arrays are freed at any moment.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._memories: OrderedDict[int, _Memory] = OrderedDict()
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._memories)

    def latest(self, number: int) -> _Memory | None:
        """Return the values of a memory, which becomes the most recently used."""
        with self._lock:
            memory = self._memories.get(number)
            if memory is not None:
                self._memories.move_to_end(number)
            return memory

    def start(self, owner: Array) -> _Memory:
        """Begin to remember a memory."""
        number = id(owner)
        reference = weakref.ref(owner, lambda _: self.forget(number))
        with self._lock:
            memory = self._memories[number] = _Memory(reference)
            while len(self._memories) > MAX_BUFFERS:
                self.forget(next(iter(self._memories)))
            return memory

    def keep(self, memory: _Memory, key: Hashable, values: Values) -> None:
        """Keep values of a memory that has not been written in the meantime."""
        with self._lock:
            owner = memory.owner()
            if owner is None or self._memories.get(id(owner)) is not memory:
                return
            memory.blocks[key] = values
            memory.size += values[0].nbytes
            self.size += values[0].nbytes
            while self.size > MAX_BYTES:
                self.forget(next(iter(self._memories)))

    def clear(self) -> None:
        """Drop all memories."""
        with self._lock:
            self._memories.clear()
            self.size = 0

    def forget(self, number: int) -> None:
        """Drop a memory, if it is known."""
        if number not in self._memories:
            return
        with self._lock:
            memory = self._memories.pop(number, None)
            if memory is not None:
                self.size -= memory.size


_kept = Kept()


def enable() -> None:
    """Keep operands from their second use on, in the whole process."""
    operands.dense, operands.repeated = recall, recall_often
    pipeline.answer = _answer


def disable() -> None:
    """Keep nothing from now on, in the whole process: operands are widened in every call."""
    operands.dense, operands.repeated = operands.widen_now, operands.repeat
    pipeline.answer = pipeline.answer_plainly
    _kept.clear()


def _answer(call: Call, entry: Function, arguments: Arguments) -> Outcome:
    """Answer a call, and forget the entries of the tensors that it may have written."""
    try:
        return pipeline.answer_plainly(call, entry, arguments)
    finally:
        for name in entry.written:
            if name in arguments:
                written(arguments[name].buffer)


def recall(buffer: Buffer, key: Hashable, widen: Widen) -> Values:
    """Return the values of `operands.widen_now`, from the cache if it has them."""
    return recall_often(buffer, key, widen)()


def recall_often(buffer: Buffer, key: Hashable, widen: Widen) -> Callable[[], Values]:
    """Return a function that does `recall` repeatedly; it looks up the owner once."""
    owner = _owner(buffer)
    number, whole = id(owner), (buffer.__array_interface__["data"][0], key)

    def values() -> Values:
        memory = _kept.latest(number) or _kept.start(owner)
        kept = memory.blocks.get(whole)
        if kept is not None:
            return kept
        seen = whole in memory.blocks
        memory.blocks.setdefault(whole, None)
        widened = widen(seen)
        if seen:
            _kept.keep(memory, whole, widened)
        return widened

    return values


def written(buffer: Buffer | None) -> None:
    """Forget the entries of the memory behind a buffer, which has been written."""
    if buffer is not None and _kept:
        _kept.forget(id(_owner(buffer)))


def writing(*buffers: Buffer) -> Callable[[], None]:
    """Return a function that does `written` for all buffers repeatedly."""
    owners = {id(owner): owner for owner in map(_owner, buffers)}

    def forget() -> None:
        for number in owners:
            _kept.forget(number)

    return forget


def _owner(buffer: Buffer) -> Array:
    """Return the array that has the memory behind a buffer: itself, if no array has."""
    base = buffer.base
    return base if isinstance(base, np.ndarray) and base.flags.owndata else buffer
