# SPDX-License-Identifier: Apache-2.0
"""Labels of rows: integers from a file, a column or array of the data, or images' folders."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from nnpa_client._values.user_arrays import Array

from nnpa_tools.evaluation.datasets.tables import TABLES, read_arrays, read_table

FOLDERS = "folders"
"""Labels from folders: each image lies in the folder of its class; names order the classes."""


def read_labels(path: Path) -> Array:
    """Return the labels in a file of one column or array; raise ValueError."""
    if path.suffix in TABLES:
        columns = read_table(path)
    elif path.suffix == ".txt":
        columns = {"": _lines(path)}
    else:
        columns = read_arrays(path)
    if len(columns) != 1:
        names = ", ".join(map(repr, columns))
        raise ValueError(f"{path.name}: labels are one column or array, this has {names}")
    return next(iter(columns.values()))


def _lines(path: Path) -> Array:
    try:
        return np.array([int(line) for line in path.read_text(encoding="utf-8").split()], np.int64)
    except ValueError as error:
        raise ValueError(f"{path.name}: expected a whole number in each line") from error


def folder_labels(files: Sequence[Path], folder: Path) -> tuple[Array, Mapping[str, str]]:
    """Return the classes of images by their folders, and a line that lists the classes."""
    parts = [path.relative_to(folder).parts for path in files]
    if any(len(part) == 1 for part in parts):
        raise ValueError(f"{folder.name}: not every image lies in a folder of its class")
    classes = sorted({part[0] for part in parts})
    text = ", ".join(f"{number} {name}" for number, name in enumerate(classes[:16]))
    return np.array([classes.index(part[0]) for part in parts]), {"classes": text}


def whole_labels(labels: Array, rows: int, source: str) -> Array:
    """Return labels as integers, one row each; raise ValueError."""
    array = np.asarray(labels)
    if array.dtype.kind == "f" and np.array_equal(array, np.rint(array)):
        array = array.astype(np.int64)
    if array.dtype.kind not in "biu":
        raise ValueError(f"{source}: labels are {array.dtype.name}, expected whole numbers")
    if array.ndim > 1 and array.shape[1:] == (1,):
        array = array[:, 0]
    if array.shape[:1] != (rows,):
        count = array.shape[0] if array.ndim else 0
        raise ValueError(f"{source}: {count} labels for {rows} rows")
    return array
