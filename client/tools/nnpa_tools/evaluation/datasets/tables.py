# SPDX-License-Identifier: Apache-2.0
"""Arrays and columns from files: .npy, .npz, .csv, .parquet."""

import csv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nnpa_client._values.user_arrays import Array
from nnpa_wire.installation import pip_install

Columns = Mapping[str, Array]
NEEDS_DATA = pip_install("data")
TABLES, ARRAYS = (".csv", ".parquet"), (".npz", ".npy")


def read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of a .npz by name, the array of a .npy by ""; raise ValueError."""
    try:
        stored: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(stored, np.ndarray):
            return {"": stored}
        with stored:
            return dict(stored)
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        why = getattr(error, "strerror", None) or "no arrays of NumPy, or objects of Python"
        raise ValueError(f"{path.name}: {why}; expected a .npy or .npz of arrays") from error


def read_table(path: Path) -> dict[str, Array]:
    """Return the columns of a .csv or .parquet by name; raise ValueError."""
    return _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)


def _read_csv(path: Path) -> dict[str, Array]:
    """Read numbers; a first line of texts names the columns, else their names are 0, 1, .."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [(number, line) for number, line in enumerate(csv.reader(file), 1) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path.name} is no CSV in UTF-8") from error
    if not lines:
        raise ValueError(f"{path.name}: there is no row in it")
    names = [str(index) for index in range(len(lines[0][1]))]
    if not all(_is_number(cell) for cell in lines[0][1]):
        names = [cell.strip() for cell in lines.pop(0)[1]]
    if not lines:
        raise ValueError(f"{path.name}: there is no row in it")
    rows: list[list[float]] = []
    for number, line in lines:
        if len(line) != len(names):
            raise ValueError(
                f"{path.name} line {number}: {len(line)} values, expected {len(names)}"
            )
        rows.append([_number(cell, path.name, number, names[at]) for at, cell in enumerate(line)])
    table = np.array(rows, np.float64)
    return {name: table[:, at] for at, name in enumerate(names)}


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(cell: str, file: str, line: int, column: str) -> float:
    try:
        return float(cell)
    except ValueError as error:
        text = f"{file} line {line}, column {column}: {cell[:32]!r} is no number"
        raise ValueError(text) from error


def _read_parquet(path: Path) -> dict[str, Array]:
    """Read columns of numbers, truths and texts, and of lists of numbers of one length."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ValueError(f"{path.name}: Parquet needs pyarrow: {NEEDS_DATA}") from error
    try:
        table: Any = pq.read_table(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{path.name} is no Parquet that can be read") from error
    if not table.num_rows:
        raise ValueError(f"{path.name}: there is no row in it")
    return {name: _column(table.column(name), path.name, name) for name in table.column_names}


def _column(column: Any, file: str, name: str) -> Array:
    cells: list[Any] = column.to_pylist()
    if None in cells:
        raise ValueError(f"{file}: row {cells.index(None)} of column {name} is empty")
    try:
        array = np.array(cells)
    except ValueError as error:  # lists of several lengths
        raise ValueError(f"{file}: column {name} has lists of several lengths") from error
    if array.dtype.kind not in "biufU":
        raise ValueError(f"{file}: column {name} is {column.type}, expected numbers or texts")
    return array


def gather(columns: Columns, names: Sequence[str]) -> Array:
    """Return columns side by side, rows first."""
    parts = [columns[name].reshape(len(columns[name]), -1) for name in names]
    return np.concatenate(parts, axis=1)
