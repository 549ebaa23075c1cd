# SPDX-License-Identifier: Apache-2.0
"""Prepared calls: a shortcut around `run` for calls that are repeated.

Checks depend on descriptors and parameters, which repeated calls share, and take longer than the
arithmetic of small tensors. Conversions and arithmetic on fixed buffers are prepared the same way:
what `stick` looks up by a descriptor at each call is looked up once. The bits are the same.
"""

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat, pipeline
from nnpa_emulator.instruction import Arguments
from nnpa_emulator.kernels import convert, elementwise, planar, sticks
from nnpa_emulator.machine import Guest
from nnpa_emulator.pipeline import FUNCTIONS, Call, Function, Outcome
from nnpa_emulator.reference.elementwise import region_of
from nnpa_emulator.scratch import scratch
from nnpa_emulator.stick import INFINITY, OVERFLOW, Buffer, flat, geometry
from nnpa_emulator.ztensor import Array, TensorDesc, Ztensor, stick_bytes

Floats: TypeAlias = npt.NDArray[np.float32]
_CELLS: np.dtype[Any] = np.dtype(np.uint16)
_WORDS = np.dtype(np.uint32)
_FLOATS = np.dtype(np.float32)


class PreparedCall:
    """A call that has passed its checks, to be repeated without them.

    It holds the descriptors of its tensors and its parameters: other tensors of the same
    descriptors serve as well.
    """

    __slots__ = ("_cached", "_call", "_entry", "_machine", "_operands", "_values")

    def __init__(self, guest: Guest, entry: Function, arguments: Arguments) -> None:
        descs = {name: arguments[name].transformed_desc for name in entry.tensors}
        self._call, self._entry = Call(guest, checked=True), entry
        self._machine, self._cached = guest.machine, guest.cached
        self._operands = [(name, desc, stick_bytes(desc)) for name, desc in descs.items()]
        self._values = [(name, value) for name, value in arguments.items() if name not in descs]

    def __call__(self, guest: Guest, arguments: Arguments) -> Outcome | None:
        """Call as `run` does; do nothing and return None if the checks might end differently."""
        call = self._call
        if guest is not call.guest or not guest.only_computes:
            return None
        if guest.machine is not self._machine or guest.cached is not self._cached:
            return None
        for name, desc, size in self._operands:
            tensor = arguments[name]
            buffer = tensor.buffer
            if tensor.transformed_desc is not desc or buffer is None or buffer.nbytes < size:
                return None
        for name, value in self._values:
            if arguments.get(name) != value:
                return None
        return pipeline.answer(call, self._entry, arguments)


def prepare(guest: Guest, name: str, arguments: Arguments) -> PreparedCall | None:
    """Return a call that `run` has just answered with `OK`, aligned, to be repeated.

    None for functions that compute nothing, and where a call does more than to compute.
    """
    entry = FUNCTIONS[name]
    if not entry.outputs or not guest.only_computes:
        return None
    return PreparedCall(guest, entry, arguments)


def prepare_stickify(
    desc: TensorDesc, buffer: Buffer, *, saturate: bool, nchw: bool
) -> Callable[[Array], bool]:
    """Return a function that writes FP32 data into a DLFLOAT16 tensor; True if all is numeric.

    Padding is left as it is. See `stick.stickify`.
    """
    shape, cells = geometry(desc), buffer.view(np.uint16)
    dims, pages = shape.dims, shape.pages
    limit, end = (convert.MAX32, INFINITY) if saturate else (convert.LINE_HIGH32, OVERFLOW)

    def write(array: Array) -> bool:
        fill = planar.stickify_nchw if nchw else sticks.stickify_fp32
        words = flat(array, dims).view(_WORDS)
        words.setflags(write=False)  # one kind of kernel for arrays of messages and all others
        largest, _ = fill(words, cells, dims, pages, limit, True)
        return bool(largest < end)

    return write


def prepare_unstickify(
    desc: TensorDesc, buffer: Buffer, *, nchw: bool
) -> Callable[[], Floats | None]:
    """Return a function that reads a DLFLOAT16 tensor as a new line of FP32; None with a NINF.

    See `stick.unstickify`.
    """
    shape, cells = geometry(desc), buffer.view(np.uint16)
    dims, pages = shape.dims, shape.pages
    count = dims[0] * dims[1] * dims[2] * dims[3]

    def line() -> Floats | None:
        words = np.empty(count, _WORDS)
        read = planar.unstickify_nchw if nchw else sticks.unstickify_fp32
        largest = read(cells, words, dims, pages)
        return None if largest == dlfloat.NINF else words.view(_FLOATS)

    return line


def prepare_reshape(src: Ztensor, dest: Ztensor, *, nchw: tuple[bool, bool]) -> Callable[[], bool]:
    """Return a function that does `reshape_ztensor` over tensors that share no memory.

    It tells whether it did: not where dim1 changes and a NINF is met. Padding is left as it is.
    `nchw` says of src and dest that their rows of FP32 have that order.
    """
    before, after = src.transformed_desc, dest.transformed_desc
    if before.dim1 != after.dim1:
        read = prepare_unstickify(before, src.sticks, nchw=nchw[0])
        write = prepare_stickify(after, dest.sticks, saturate=False, nchw=nchw[1])
        return lambda: (line := read()) is not None and write(line)
    source, target = src.sticks.view(_CELLS), dest.sticks.view(_CELLS)
    old, new, count = geometry(before), geometry(after), prod(before.dims)

    def move_rows() -> bool:
        line = scratch("rows", (count,), _CELLS)
        sticks.unstickify_copy(source, line, old.dims, old.pages)
        sticks.stickify_copy(line, target, new.dims, new.pages, True)
        return True

    return move_rows


def prepare_binary(
    operation: int, a: Buffer, b: Buffer, out: Buffer, desc: TensorDesc
) -> Callable[[], bool]:
    """Return a function that combines two DLFLOAT16 tensors; True if the result has a NINF.

    Padding behind the rows of the result is left as it is. See `ops.elementwise`.
    """
    left, right, target = a.view(np.uint16), b.view(np.uint16), out.view(np.uint16)
    cells = region_of(desc)

    def combine() -> bool:
        return bool(elementwise.binary(operation, left, right, target, cells, True) == dlfloat.NINF)

    return combine
