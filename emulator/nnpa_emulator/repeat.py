# SPDX-License-Identifier: Apache-2.0
"""Calls that are made again and again: what the pipeline has checked once it need not check again.

Programs repeat themselves, and the checks of a small operation take longer than its arithmetic.
"""

from collections.abc import Mapping

from nnpa_emulator import widened
from nnpa_emulator.instruction import Arguments, Operation
from nnpa_emulator.machine import Guest
from nnpa_emulator.pipeline import (
    FUNCTIONS,
    OK,
    Call,
    Function,
    Outcome,
    accepted,
    compute,
    diagnosed,
)
from nnpa_emulator.ztensor import Ztensor


class Repeat:
    """One call of an operation that passed every check, to be made again without them.

    It holds of its tensors their descriptors only: others of the same descriptors do as well.
    """

    __slots__ = ("_cached", "_entry", "_machine", "_operands", "_operation", "_values")

    def __init__(
        self, guest: Guest, entry: Function, operation: Operation, arguments: Arguments
    ) -> None:
        sizes, converted = accepted(Call(guest), operation, arguments)
        self._entry, self._operation = entry, operation
        self._machine, self._cached = guest.machine, guest.cached
        self._operands = [(name, arguments[name].transformed_desc, size) for name, size in sizes]
        values = {name: arguments[name] for name in operation.values if name in arguments}
        self._values = {**values, **converted}

    def __call__(self, guest: Guest, tensors: Mapping[str, Ztensor]) -> Outcome | None:
        """Do what `run` does, or nothing, and return None, if it may not be the same any more."""
        if guest.machine is not self._machine or guest.cached is not self._cached:
            return None
        if not guest.only_computes:
            return None
        for name, desc, size in self._operands:
            tensor = tensors[name]
            buffer = tensor.buffer
            if tensor.transformed_desc is not desc or buffer is None or buffer.nbytes < size:
                return None
        arguments = {**tensors, **self._values} if self._values else tensors
        try:
            outcome = compute(guest, self._operation, arguments)
        finally:
            for name in self._entry.written:
                widened.written(tensors[name].buffer)
        return outcome if outcome is OK else diagnosed(guest, self._entry, arguments, outcome)


def repeatable(guest: Guest, name: str, arguments: Arguments) -> Repeat | None:
    """Return a call that `run` has just answered with `OK`, aligned, to be made again.

    None if there is nothing to be gained: the function is no operation, or one of several by its
    arguments, or the guest has more to do than to compute.
    """
    entry = FUNCTIONS[name]
    if entry.operation is None or entry.chooses or not guest.only_computes:
        return None
    return Repeat(guest, entry, entry.operation, arguments)
