# SPDX-License-Identifier: Apache-2.0
"""Concrete shapes of a model's inputs: free dims of one name agree, the rest are 1."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from nnpa_network.program import ModelRefused, Port, fits

Concrete: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""The inputs that a program has, by name, each with its shape."""

GUESSES = (1, 32, 256)
"""Sizes to try for free dims without a size.

The second is for models that halve a size repeatedly, the third for wide windows.
"""


_SHOWN_NAMES = 8
_OF_SHAPES = "[ShapeInferenceError]"  # how ONNX begins its refusals of shapes


def are_of_shapes(refusals: Sequence[ModelRefused]) -> bool:
    """Return True if other sizes may fit: the refusals name shapes, or differ between sizes."""
    texts = {str(error) for error in refusals}
    return len(texts) > 1 or any(_OF_SHAPES in text for text in texts)


def concrete_shapes(
    inputs: Sequence[Port], optional: Sequence[Port], shapes: Mapping[str, tuple[int, ...]]
) -> Concrete:
    """Return the shapes of the inputs, and of the optional ones that `shapes` has.

    Raise `ModelRefused` for a shape that does not fit, and for a name that no input has.
    """
    ports = [*inputs, *(port for port in optional if port.name in shapes)]
    names = {port.name for port in ports}
    if not shapes.keys() <= names:
        unknown = next(name for name in shapes if name not in names)
        text = f"the model's inputs are {names_of(inputs, optional)}"
        raise ModelRefused(f"input {unknown[:64]}: {text}")
    sizes: dict[str, int] = {}
    concrete: list[tuple[str, tuple[int, ...]]] = []
    for port in ports:
        shape = shapes.get(port.name)
        if shape is not None and not fits(shape, port.shape):
            expected = f"expected {list(port.shape)}"
            raise ModelRefused(f"input {port.name}: got shape {list(shape)}, {expected}")
        concrete.append((port.name, _filled(port, shape, sizes)))
    return tuple(concrete)


def names_of(inputs: Sequence[Port], optional: Sequence[Port]) -> str:
    """Return the names of the inputs, and the first of the optional ones, which may be many."""
    names = ", ".join(port.name for port in inputs) or "none"
    return f"{names}; optional: {first_names(optional)}" if optional else names


def first_names(ports: Sequence[Port]) -> str:
    """Return the first names of inputs, and how many there are beside them."""
    names = [port.name for port in ports[:_SHOWN_NAMES]]
    more = len(ports) - len(names)
    return ", ".join([*names, f"{more} more"] if more else names)


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
