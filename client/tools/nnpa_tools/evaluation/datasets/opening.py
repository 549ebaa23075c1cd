# SPDX-License-Identifier: Apache-2.0
"""Open data: arrays, a file or a folder, with labels inside or apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path

import numpy as np
import numpy.typing as npt
from nnpa_client._values.user_arrays import Array
from nnpa_client.network.hosted import Port

from nnpa_tools.evaluation.datasets.images import Preprocessing, find_images, image_rows
from nnpa_tools.evaluation.datasets.labels import FOLDERS, folder_labels, read_labels, whole_labels
from nnpa_tools.evaluation.datasets.rows import (
    Dataset,
    array_rows,
    describe,
    random_rows,
    require_names,
    run_together,
)
from nnpa_tools.evaluation.datasets.tables import (
    ARRAYS,
    TABLES,
    Columns,
    gather,
    read_arrays,
    read_table,
)

Data = npt.ArrayLike | Mapping[str, npt.ArrayLike] | str | PathLike[str]
Labels = npt.ArrayLike | str | PathLike[str] | None
_MADE_UP = 16


@dataclass(frozen=True, slots=True)
class Source:
    """The source of rows: a file or folder, or random rows from `seed`.

    `labels` are as in `open_data`; `samples` bounds the rows; `shapes` are the shapes of inputs
    with free dims.
    """

    data: Path | None = None
    labels: str | None = None
    samples: int | None = None
    seed: int = 0
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])

    def open(self, inputs: Sequence[Port], outputs: Sequence[Port]) -> Dataset:
        """Return the rows for a model's inputs; raise ValueError."""
        if self.data is None:
            if self.labels is not None:
                raise ValueError("--labels: labels belong to rows; give --data, too")
            rows = self.samples or _MADE_UP
            return random_rows(rows, self.seed, self.shapes, inputs, outputs)
        dataset = open_data(
            self.data, inputs, outputs, self.labels, self.preprocessing, self.shapes
        )
        return dataset.first(self.samples)


def open_data(
    data: Data,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    labels: Labels = None,
    preprocessing: Preprocessing | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Dataset:
    """Return the rows of data for a model's inputs; raise ValueError.

    `labels` are integers, a file of them, the name of an array or column of the data, or "folders"
    for images that lie in a folder per class.
    """
    if not isinstance(data, str | PathLike):
        columns = data if isinstance(data, Mapping) else _named({"": np.asarray(data)}, inputs)
        arrays = {name: np.asarray(array) for name, array in columns.items()}
        dataset = array_rows(arrays, "data", inputs, outputs)
        return _labelled(dataset, labels, {}, "data")
    path = Path(fspath(data))
    if path.is_dir():
        return _open_folder(path, inputs, outputs, labels, preprocessing or Preprocessing())
    if not path.is_file():
        raise ValueError(f"{path.name}: there is no such file or folder")
    if path.suffix not in (*ARRAYS, *TABLES):
        kinds = ", ".join((*ARRAYS, *TABLES))
        raise ValueError(f"{path.name}: expected {kinds} or a folder of images")
    columns = read_table(path) if path.suffix in TABLES else read_arrays(path)
    if path.suffix in TABLES:
        return open_columns(columns, path.name, inputs, outputs, labels, shapes)
    own, rest = _without_labels(columns, labels, path.name)
    arrays = _named(rest, inputs)
    dataset = replace(array_rows(arrays, path.name, inputs, outputs), about={"data": path.name})
    return _labelled(dataset, labels, own, path.name)


def open_columns(
    columns: Columns,
    source: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    labels: Labels = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Dataset:
    """Return the rows of a table as `open_data` does; errors call the table `source`."""
    own, rest = _without_labels(columns, labels, source)
    arrays = _from_columns(rest, source, inputs, outputs, shapes or {})
    dataset = replace(array_rows(arrays, source, inputs, outputs), about={"data": source})
    return _labelled(dataset, labels, own, source)


def _without_labels(columns: Columns, labels: Labels, source: str) -> tuple[Columns, Columns]:
    """Return the column of labels, if `labels` names one, and the other columns."""
    if not isinstance(labels, str):
        return {}, columns
    if labels in columns:
        rest = {name: column for name, column in columns.items() if name != labels}
        return {labels: columns[labels]}, rest
    if not Path(labels).is_file():
        raise ValueError(f"{_no_labels(labels, source)}, which has {', '.join(columns)}")
    return {}, columns


def _no_labels(labels: str | PathLike[str], source: str) -> str:
    return f"labels={str(labels)!r}: no such file, and no array or column of {source}"


def _named(arrays: Mapping[str, Array], inputs: Sequence[Port]) -> dict[str, Array]:
    """Name an array without a name after the only input."""
    if len(inputs) == 1 and len(arrays) == 1 and next(iter(arrays)) in ("", "arr_0"):
        return {inputs[0].name: next(iter(arrays.values()))}
    if "" in arrays:
        raise ValueError(f"one array for {', '.join(map(describe, inputs))}: give a .npz of all")
    return dict(arrays)


def _from_columns(
    columns: Columns,
    source: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    shapes: Mapping[str, Sequence[int]],
) -> dict[str, Array]:
    """Return inputs from columns: by name, by "name.0", "name.1" .., or all for the only input."""
    if len(inputs) == 1 and not any(_is_of(name, inputs[0]) for name in columns):
        columns_of = {inputs[0].name: list(columns)}
    else:
        columns_of = {
            port.name: [name for name in columns if _is_of(name, port)] for port in inputs
        }
        used = {name for names in columns_of.values() for name in names}
        matched = [name for name, names in columns_of.items() if names]
        require_names([*matched, *(n for n in columns if n not in used)], source, inputs)
    return {
        port.name: _shaped(gather(columns, columns_of[port.name]), port, source, outputs, shapes)
        for port in inputs
    }


def _is_of(column: str, port: Port) -> bool:
    name, dot, number = column.rpartition(".")
    return column == port.name or (bool(dot) and name == port.name and number.isdecimal())


def _shaped(
    table: Array,
    port: Port,
    source: str,
    outputs: Sequence[Port],
    shapes: Mapping[str, Sequence[int]],
) -> Array:
    """Return columns in the shape of an input, and in its type if all numbers fit."""
    shape = tuple(shapes.get(port.name, port.shape))
    inner = shape if shape and shape[0] != -1 and shape != port.shape else shape[1:]
    inner = tuple(shape[1:]) if run_together([port], outputs) else inner
    width = table.shape[1]
    if inner.count(-1) and len(inner) > 1:
        text = f"input {describe(port)}: a row of {width} columns does not settle its free dims"
        raise ValueError(f"{source}: {text}: give --shape {port.name}=1,..")
    size = int(np.prod([dim for dim in inner if dim != -1], dtype=np.int64))
    if -1 not in inner and size != width:
        names = f"input {describe(port)} takes {size} numbers in each row"
        raise ValueError(f"{source}: {names}, it has {width} columns")
    return _typed(table, port, source).reshape(len(table), *inner)


def _typed(table: Array, port: Port, source: str) -> Array:
    if port.dtype == "object" or table.dtype.kind not in "biuf":
        return table
    dtype = np.dtype(port.dtype if port.dtype != "bfloat16" else "float32")
    typed = table.astype(dtype)
    if dtype.kind in "biu" and not np.array_equal(typed, table):
        raise ValueError(f"{source}: input {port.name} takes {port.dtype}, not all numbers are so")
    return typed


def _open_folder(
    path: Path,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    labels: Labels,
    preprocessing: Preprocessing,
) -> Dataset:
    files = find_images(path)
    dataset = image_rows(files, path, preprocessing, inputs, outputs)
    if isinstance(labels, str) and labels == FOLDERS:
        classes, line = folder_labels(files, path)
        return replace(dataset, labels=classes, about={**dataset.about, **line})
    return _labelled(dataset, labels, {}, path.name)


def _labelled(dataset: Dataset, labels: Labels, inside: Columns, source: str) -> Dataset:
    """Return the data with its labels."""
    if labels is None:
        return dataset
    if inside:
        (array,) = inside.values()
    elif isinstance(labels, str | PathLike):
        path = Path(fspath(labels))
        if not path.is_file():
            raise ValueError(_no_labels(labels, source))
        array, source = read_labels(path), path.name
    else:
        array, source = np.asarray(labels), "labels"
    return replace(dataset, labels=whole_labels(array, dataset.rows, source))
