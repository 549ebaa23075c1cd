# SPDX-License-Identifier: Apache-2.0
"""Sums of windows channel by channel, all channels of a window side by side in registers.

An element of a window is named by two steps: from the window's start to it in the image, and from
the start of the weights to its own. Every sum begins at zero and goes in the order of the steps;
product and sum round once each, as without vectors.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from nnpa_emulator.kernels.jit import kernel
from nnpa_emulator.kernels.registers import (
    LANES,
    Builder,
    Context,
    Signature,
    Totals,
    Typed,
    Value,
    loop,
)  # fmt: skip
from nnpa_emulator.reference.layout import Singles

Steps = npt.NDArray[np.int64]

_FLOAT, _INDEX = ir.FloatType(), ir.IntType(64)
_ARRAYS = 0, 2, 4, 6, 7
"""Which arguments are arrays."""
WIDE = 4 * LANES
"""Channels in four registers."""
HALF = 8
"""Channels of half a register, where one has sixteen."""


def make_sum(vectors: int, lanes: int) -> Callable[..., None]:
    """Return the code of sums over `vectors` times `lanes` channels, for kernels."""

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore] # numba ships no types
    def code(
        _typing: object, source: types.Type, start: object, weights: types.Type, first: object,
        steps: types.Type, count: object, bias: types.Type, out: types.Type, at: object,
    ) -> Signature:  # fmt: skip
        index = types.intp
        del start, first, count, at
        operands = source, index, weights, index, steps, index, bias, out, index

        def generate(
            context: Context, builder: Builder, signature: Typed, arguments: Sequence[Value]
        ) -> Value:
            values = list(arguments)
            for number in _ARRAYS:
                array = context.make_array(signature.args[number])
                values[number] = array(context, builder, values[number]).data
            _generate(builder, vectors, ir.VectorType(_FLOAT, lanes), values)
            return context.get_dummy_value()

        return types.void(*operands), generate

    intrinsic_sum: Callable[..., None] = code
    return intrinsic_sum


def _generate(builder: Builder, vectors: int, vector: ir.VectorType, values: list[Value]) -> None:
    """Generate a loop over steps, with one register for each vector of sums."""
    source, start, weights, first, steps, count, bias, out, at = values
    columns = [ir.Constant(_INDEX, vector.count * number) for number in range(vectors)]

    def places(data: Value, index: Value) -> list[Value]:
        addresses = [builder.gep(data, [builder.add(index, column)]) for column in columns]
        return [builder.bitcast(address, vector.as_pointer()) for address in addresses]

    def loads(data: Value, index: Value) -> list[Value]:
        return [builder.load(place, align=4) for place in places(data, index)]

    def turn(k: Value, *totals: Value) -> Totals:
        element, weight = (
            builder.load(builder.gep(steps, [builder.add(builder.mul(k, _INDEX(2)), _INDEX(part))]))
            for part in (0, 1)
        )
        left = loads(source, builder.add(start, element))
        right = loads(weights, builder.add(first, weight))
        return [
            builder.fadd(total, builder.fmul(a, b))
            for total, a, b in zip(totals, left, right, strict=True)
        ]

    zeros = [ir.Constant(vector, None)] * vectors
    _, *sums = loop(builder, _INDEX(0), count, 1, zeros, turn)
    for total, added, place in zip(sums, loads(bias, first), places(out, at), strict=True):
        builder.store(builder.fadd(total, added), place, align=4)


_sum_wide, _sum_full = make_sum(4, LANES), make_sum(1, LANES)
_sum_half, _sum_one = make_sum(1, min(HALF, LANES)), make_sum(1, 1)


@kernel
def sum_window(
    source: Singles, start: int, weights: Singles, steps: Steps, count: int, bias: Singles,
    out: Singles, at: int,
) -> None:  # fmt: skip
    """Sum the products of `count` elements of a window for every channel, and add the bias."""
    channels, first = bias.size, 0
    while first + WIDE <= channels:
        _sum_wide(source, start + first, weights, first, steps, count, bias, out, at + first)
        first += WIDE
    while first + LANES <= channels:
        _sum_full(source, start + first, weights, first, steps, count, bias, out, at + first)
        first += LANES
    while first + HALF <= channels:
        _sum_half(source, start + first, weights, first, steps, count, bias, out, at + first)
        first += HALF
    for channel in range(first, channels):
        _sum_one(source, start + channel, weights, channel, steps, count, bias, out, at + channel)
