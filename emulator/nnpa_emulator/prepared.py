# SPDX-License-Identifier: Apache-2.0
"""Prepared calls: a shortcut around `run` for calls that are repeated.

Checks depend on descriptors and parameters, which repeated calls share, and take longer than the
arithmetic of small tensors. Conversions and arithmetic on fixed buffers become rows: see `table`.
The bits are the same.
"""

from math import prod

import numpy as np

from nnpa_emulator import dlfloat, pipeline
from nnpa_emulator.instruction import Arguments
from nnpa_emulator.kernels import convert, table
from nnpa_emulator.machine import Guest
from nnpa_emulator.pipeline import FUNCTIONS, Call, Function, Outcome
from nnpa_emulator.reference.elementwise import region_of
from nnpa_emulator.reference.layout import Codes
from nnpa_emulator.stick import INFINITY, OVERFLOW, Buffer, geometry
from nnpa_emulator.table import CLEAN, Row, Scratch, Supply
from nnpa_emulator.ztensor import TensorDesc, Ztensor, stick_bytes


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


def stickify_rows(
    desc: TensorDesc, buffer: Buffer, words: Scratch | Supply, *, saturate: bool, nchw: bool
) -> list[Row]:
    """Return the row that writes FP32 bits into a DLFLOAT16 tensor; clean if all is numeric.

    Padding is left as it is. See `stick.stickify`.
    """
    shape, number = geometry(desc), table.STICKIFY_NCHW if nchw else table.STICKIFY_FP32
    limit, end = (convert.MAX32, INFINITY) if saturate else (convert.LINE_HIGH32, OVERFLOW)
    cells = buffer.view(np.uint16)
    operands = words, cells, shape.dims, shape.pages, limit, True
    return [Row(number, operands, end, prod(desc.dims))]


def unstickify_rows(
    desc: TensorDesc, buffer: Buffer, words: Scratch | Supply, *, nchw: bool
) -> list[Row]:
    """Return the row that reads a DLFLOAT16 tensor as FP32 bits; clean without a NINF.

    See `stick.unstickify`.
    """
    shape, number = geometry(desc), table.UNSTICKIFY_NCHW if nchw else table.UNSTICKIFY_FP32
    operands = buffer.view(np.uint16), words, shape.dims, shape.pages
    return [Row(number, operands, dlfloat.NINF, prod(desc.dims))]


def reshape_rows(src: Ztensor, dest: Ztensor, *, nchw: tuple[bool, bool]) -> list[Row]:
    """Return the rows that do `reshape_ztensor` over tensors that share no memory.

    They are not clean where dim1 changes and a NINF is met. Padding is left as it is.
    `nchw` says of src and dest that their rows of FP32 have that order.
    """
    before, after = src.transformed_desc, dest.transformed_desc
    count = prod(before.dims)
    if before.dim1 != after.dim1:
        words = Scratch("rows", count, np.uint32)
        read = unstickify_rows(before, src.sticks, words, nchw=nchw[0])
        return read + stickify_rows(after, dest.sticks, words, saturate=False, nchw=nchw[1])
    source, target = src.sticks.view(np.uint16), dest.sticks.view(np.uint16)
    old, new, line = geometry(before), geometry(after), Scratch("rows", count, np.uint16)
    return [
        Row(table.UNSTICKIFY_COPY, (source, line, old.dims, old.pages), CLEAN, count),
        Row(table.STICKIFY_COPY, (line, target, new.dims, new.pages, True), CLEAN, count),
    ]


def binary_rows(number: int, input_a: Ztensor, input_b: Ztensor, output: Ztensor) -> list[Row]:
    """Return the row that combines two DLFLOAT16 tensors; clean if the result has no NINF.

    Padding behind the rows of the result is left as it is. See `ops.elementwise`.
    """
    a, b, out = (each.sticks.view(np.uint16) for each in (input_a, input_b, output))
    desc = output.transformed_desc
    operands = number, a, b, out, region_of(desc), True
    return [Row(table.BINARY, operands, dlfloat.NINF, prod(desc.dims))]


def lookup_rows(results: Codes, input: Ztensor, output: Ztensor) -> list[Row]:  # noqa: A002 - zDNN's name
    """Return the row that takes the result of each of 65,536 codes; clean as `binary_row`."""
    source, target = input.sticks.view(np.uint16), output.sticks.view(np.uint16)
    desc = output.transformed_desc
    operands = results, source, target, region_of(desc)
    return [Row(table.LOOKUP, operands, dlfloat.NINF, prod(desc.dims))]
