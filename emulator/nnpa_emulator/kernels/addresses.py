# SPDX-License-Identifier: Apache-2.0
"""Arrays by their address and size, for kernels; who calls them keeps the memory alive."""

from collections.abc import Callable, Sequence
from typing import Any

from numba import carray, types  # type: ignore[attr-defined, unused-ignore] # numba ships no types
from numba.extending import intrinsic

from nnpa_emulator.kernels.jit import kernel
from nnpa_emulator.kernels.registers import Builder, Signature, Typed, Value
from nnpa_emulator.reference.table import Cells


@intrinsic  # type: ignore[untyped-decorator, unused-ignore] # numba ships no types
def _pointer(_typing: object, address: types.Type, kind: Any) -> Signature:
    """Take a number for the address of elements of a type."""
    pointer = types.CPointer(kind.dtype)  # type: ignore[no-untyped-call, unused-ignore] # as above

    def generate(
        context: Any, builder: Builder, _signature: Typed, arguments: Sequence[Value]
    ) -> Value:
        return builder.inttoptr(arguments[0], context.get_value_type(pointer))

    return pointer(address, kind), generate


_to_elements: Callable[..., Any] = _pointer


@kernel
def array_at(cells: Cells, at: int, kind: type) -> Any:
    """Return the array of a type of elements whose address and size are in two cells."""
    return carray(_to_elements(cells[at], kind), cells[at + 1])
