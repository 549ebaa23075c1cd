# SPDX-License-Identifier: Apache-2.0
"""Rows for the inputs of a model, with or without a batch axis, in batches."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from nnpa_client._values.user_arrays import Array
from nnpa_client.network.hosted import Port

Classes = npt.NDArray[Any]
_TEXT = np.dtype(object)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Rows by the inputs' names, read batch by batch.

    `read(first, last)` returns the inputs of these rows: with the inputs' own axes if rows can run
    together, else with one more axis. `labels` are integers, rows along the first axis. `about`
    has lines that describe the data.
    """

    rows: int
    read: Callable[[int, int], Mapping[str, Array]]
    about: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Classes | None = None

    def first(self, rows: int | None) -> "Dataset":
        """Return at most `rows` rows."""
        if rows is None or rows >= self.rows:
            return self
        labels = None if self.labels is None else self.labels[:rows]
        about = {**self.about, "rows": f"the first {rows:,} of {self.rows:,}"}
        return replace(self, rows=rows, labels=labels, about=about)


def run_together(inputs: Sequence[Port], outputs: Sequence[Port]) -> bool:
    """Return True if the first axis of all inputs and outputs is free, a batch axis."""
    return all(port.shape[:1] == (-1,) for port in (*inputs, *outputs))


def array_rows(
    arrays: Mapping[str, Array], source: str, inputs: Sequence[Port], outputs: Sequence[Port]
) -> Dataset:
    """Return the rows of arrays with or without the batch axis of the inputs.

    Raises ValueError if names, types or shapes do not match the inputs.
    """
    require_names(arrays, source, inputs)
    together = run_together(inputs, outputs)
    if together and any(_has_runs(arrays[port.name], port) for port in inputs):
        together = False
    rows = {port.name: _rows(arrays[port.name], port, source, together=together) for port in inputs}
    counts = {name: len(array) for name, array in rows.items()}
    if len(set(counts.values())) != 1:
        text = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ValueError(f"{source}: {text} samples, expected as many of each input")
    count = next(iter(counts.values()))
    if not count:
        raise ValueError(f"{source}: there is no row in it")
    return Dataset(count, lambda first, last: {n: a[first:last] for n, a in rows.items()})


def require_names(names: Collection[str], source: str, inputs: Sequence[Port]) -> None:
    """Raise ValueError for the first name that is no input, or input that is missing."""
    input_names = [port.name for port in inputs]
    described = ", ".join(describe(port) for port in inputs)
    if wrong := [name for name in names if name not in input_names]:
        text = f"{source}: {wrong[0]!r} is no input of the model: {described}"
        raise ValueError(f"{text}; give labels={wrong[0]!r} where it has the labels")
    if missing := [name for name in input_names if name not in names]:
        raise ValueError(f"{source}: input {missing[0]!r} is missing: {described}")


def describe(port: Port) -> str:
    """Return an input for messages: "x float32[-1, 4]"."""
    return f"{port.name} {port.dtype}{list(port.shape)}"


def require_type(array: Array, port: Port, source: str) -> Array:
    """Return an array of an input's type; raise ValueError for another type."""
    if port.dtype == _TEXT.name and array.dtype.kind in "UTO":
        return array.astype(_TEXT)
    if array.dtype.name != port.dtype:
        remedy = f".astype({port.dtype!r}) makes it so" if array.dtype.kind in "biuf" else "no text"
        text = f"input {port.name}: {array.dtype.name} array, expected {port.dtype}"
        raise ValueError(f"{source}: {text}; {remedy}")
    return array


def _has_runs(array: Array, port: Port) -> bool:
    """Return True if samples have their own batch axis with more than one row."""
    return array.ndim == len(port.shape) + 1 and array.shape[1] != 1


def _rows(array: Array, port: Port, source: str, *, together: bool) -> Array:
    array = require_type(array, port, source)
    more = array.ndim - len(port.shape)
    samples: Array | None = None
    if together:
        if more == 1:
            samples = array[:, 0]
        elif more in (0, -1):
            samples = array if more == 0 else array[None]
    elif more == 1:
        samples = array
    elif more == 0:
        samples = _split(array, port, source)
    if samples is None or not _fits(samples.shape[1:], port.shape[1:] if together else port.shape):
        inner = list(port.shape[1:]) if port.shape else []
        shapes = f"rows of {inner}, with or without the batch axis: {describe(port)}"
        raise ValueError(f"{source}: input {port.name} is {list(array.shape)}, expected {shapes}")
    return samples


def _split(array: Array, port: Port, source: str) -> Array:
    """Return rows in groups of the fixed batch size of an input."""
    size = port.shape[0] if port.shape else -1
    if size < 1 or array.shape[0] == size:
        return array[None]
    if array.shape[0] % size:
        text = f"{array.shape[0]} rows, the model takes {size} at a time"
        raise ValueError(f"{source}: input {port.name} has {text}: give a multiple of it")
    return array.reshape(-1, size, *array.shape[1:])


def _fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    return len(shape) == len(declared) and all(
        dim in (-1, size) for size, dim in zip(shape, declared, strict=True)
    )


def random_rows(
    rows: int,
    seed: int,
    shapes: Mapping[str, Sequence[int]],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
) -> Dataset:
    """Return random rows: normal numbers, 0 and 1 for integers and truths, empty texts.

    Raises ValueError if `shapes` lacks an input with free dims other than the batch.
    """
    together = run_together(inputs, outputs)
    dims: dict[str, tuple[int, ...]] = {}
    for port in inputs:
        shape = tuple(shapes.get(port.name, port.shape))
        inner = shape[1:] if together else shape
        if -1 in inner:
            text = f"input {describe(port)} has free dims that nothing settles"
            example = ",".join(str(dim) if dim > 0 else "8" for dim in (1, *inner)[not together :])
            raise ValueError(f"{text}: give --data, or --shape {port.name}={example}")
        dims[port.name] = inner

    def read(first: int, last: int) -> dict[str, Array]:
        generators = [np.random.default_rng((seed, row)) for row in range(first, last)]
        return {
            port.name: np.stack([_random(port.dtype, dims[port.name], rng) for rng in generators])
            for port in inputs
        }

    return Dataset(rows, read, {"data": f"made up from seed {seed}: it says nothing of real data"})


def _random(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if dtype == _TEXT.name:
        return np.full(shape, "", _TEXT)
    if dtype == "bfloat16":
        import ml_dtypes

        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    kind = np.dtype(dtype)
    if kind.kind in "biu":
        return np.asarray(rng.integers(0, 2, shape)).astype(kind)
    return np.asarray(rng.standard_normal(shape)).astype(kind)
