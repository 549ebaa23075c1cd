# SPDX-License-Identifier: Apache-2.0
"""Concrete shapes of a model's inputs: free dims of one name agree, the rest are 1."""

from collections.abc import Mapping, Sequence

from nnpa_network.program import ModelRefused, Port, fits

GUESSES = (1, 32, 256)
"""Sizes of free dims that nobody says.

The second is for models that halve a size again and again, the third for wide windows.
"""


def concrete_shapes(
    inputs: Sequence[Port], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[int, ...], ...]:
    """Return one shape per input; raise `ModelRefused` for a shape that does not fit."""
    sizes: dict[str, int] = {}
    concrete: list[tuple[int, ...]] = []
    for port in inputs:
        shape = shapes.get(port.name)
        if shape is not None and not fits(shape, port.shape):
            expected = f"expected {list(port.shape)}"
            raise ModelRefused(f"input {port.name}: got shape {list(shape)}, {expected}")
        concrete.append(_filled(port, shape, sizes))
    return tuple(concrete)


def _filled(
    port: Port, requested: tuple[int, ...] | None, sizes: dict[str, int]
) -> tuple[int, ...]:
    """Return a concrete shape, and record the sizes of named dims."""
    shape: list[int] = []
    for axis, (dim, symbol) in enumerate(zip(port.shape, port.symbols, strict=True)):
        size = requested[axis] if requested is not None else dim
        if size == -1:
            size = sizes.get(symbol, 1)
        if symbol and not symbol.startswith("?") and sizes.setdefault(symbol, size) != size:
            text = f"dim {symbol} is {size} here and {sizes[symbol]} before"
            raise ModelRefused(f"input {port.name}: {text}")
        shape.append(size)
    return tuple(shape)
