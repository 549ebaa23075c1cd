# SPDX-License-Identifier: Apache-2.0
"""Rows of a dataset, and the answers that outputs are for each of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt
from nnpa_emulator.kernels import comparison
from nnpa_emulator.reference import comparison as reference_comparison

from nnpa_network.program import Array, ModelRefused, Port
from nnpa_network.reporting.metrics import BLOCK, Classes, Decided, are_singles


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows from `first` on, which run together, or each by itself."""

    first: int
    rows: int
    arrays: Mapping[str, Array]
    together: bool

    def row(self, index: int) -> dict[str, Array]:
        """Return the inputs of one row by itself."""
        part = slice(index, index + 1) if self.together else index
        return {
            name: np.asarray(array[part], order="C").reshape(array[part].shape)
            for name, array in self.arrays.items()
        }

    def runs(self) -> Iterator[Mapping[str, Array]]:
        """Yield the inputs of each run."""
        if self.together:
            yield self.arrays
        else:
            yield from map(self.row, range(self.rows))

    def outputs(self, results: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Return the numeric outputs of all runs, rows along the first axis."""
        outputs: dict[str, Array] = {}
        for name, first in results[0].items():
            if not is_numeric(first):
                continue
            arrays = [as_numbers(result[name]) for result in results]
            if self.together:
                outputs[name] = arrays[0]
                if first.shape[:1] != (self.rows,):
                    text = f"output {name} is {list(first.shape)} for {self.rows} rows"
                    raise ModelRefused(
                        f"{text}: its first axis is not the batch; "
                        "give data one axis more, so that each row is a run of its own"
                    )
            elif len(shapes := {array.shape for array in arrays}) > 1:
                both = " and ".join(map(str, map(list, sorted(shapes)[:2])))
                raise ModelRefused(f"output {name} is {both} for different rows")
            else:
                outputs[name] = np.stack(arrays)
        return outputs


def make_batch(
    first: int,
    arrays: Mapping[str, Array],
    ports: Sequence[Port],
    batch_rows: int,
    *,
    part: bool = False,
) -> Batch:
    """Return the batch that inputs are, or the part of one; raise `ModelRefused`."""
    for port in ports:
        if port.name not in arrays:
            raise ModelRefused(f"input {port.name} is missing")
    ranks = {arrays[port.name].ndim - len(port.shape) for port in ports}
    if ranks not in ({0}, {1}):
        port = next(p for p in ports if arrays[p.name].ndim - len(p.shape) != 0)
        shape = list(arrays[port.name].shape)
        raise ModelRefused(f"input {port.name}: got {shape}, expected {list(port.shape)}")
    counts = sorted({arrays[port.name].shape[0] if arrays[port.name].ndim else 0 for port in ports})
    if len(counts) != 1:
        raise ModelRefused(f"inputs have {counts[0]} and {counts[-1]} rows, expected as many each")
    rows = counts[0]
    room = batch_rows - first % batch_rows if part else batch_rows
    if not 0 < rows <= room or (first % batch_rows and not part):
        text = f"{rows} rows from {first} on are no batch: batches have at most {batch_rows} rows"
        raise ModelRefused(f"{text} and begin at multiples of it")
    return Batch(first, rows, arrays, ranks == {0})


def is_numeric(array: Array) -> bool:
    """Tell whether the elements of an output can be compared as numbers."""
    return array.dtype.kind in "fiub" or array.dtype == ml_dtypes.bfloat16


def as_numbers(array: Array) -> Array:
    """Return an array of a type that NumPy has."""
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array


def find_answers(
    expected: Mapping[str, Decided], labels: Array | None, batch: Batch
) -> tuple[str, Classes | None]:
    """Return the output that is the answer, "" without any, and the labels as classes of it.

    The answer is the first output whose answers per row are as numerous as the labels per row.
    """
    if labels is None:
        return next(iter(expected), ""), None
    if labels.dtype.kind not in "biu":
        raise ModelRefused(f"labels are {labels.dtype}, must be integers")
    if labels.shape[:1] != (batch.rows,):
        count = labels.shape[0] if labels.ndim else 0
        raise ModelRefused(f"labels are {count}, must be {batch.rows}, one for each row")
    per_row = labels.size // batch.rows
    for name, output in expected.items():
        if output.classes.size == per_row * batch.rows:
            return name, labels.astype(np.int64).reshape(batch.rows, -1)
    sizes = ", ".join(f"{name} {o.classes.size // batch.rows}" for name, o in expected.items())
    raise ModelRefused(f"labels: {per_row} for each row; answers for each row: {sizes}")


def row_errors(got: Array, expected: Array) -> npt.NDArray[np.float64]:
    """Return the relative error of each row; one that is no number is the largest there is."""
    errors, size = np.empty(got.shape[0]), max(1, BLOCK * got.shape[0] // max(got.size, 1))
    form = comparison if are_singles(got, expected) else reference_comparison
    for start in range(0, errors.size, size):
        part = slice(start, start + size)
        form.row_errors(got[part].reshape(-1), expected[part].reshape(-1), errors[part])
    return errors
