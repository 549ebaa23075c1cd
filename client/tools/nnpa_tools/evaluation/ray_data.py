# SPDX-License-Identifier: Apache-2.0
"""Evaluation in pipelines of Ray Data: a callable class for `Dataset.map_batches`, and the report.

A column numbers the rows from 0. A batch is rows [k * size, (k + 1) * size). If each call has whole
batches, the report equals the report of `nnpa network validate` byte for byte. If calls cut
batches, counts of rows and answers are the same, and sums may differ in their last bits.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from nnpa_files import external_data
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.program import Array
from nnpa_network.reporting.accuracy import Report
from nnpa_network.reporting.measuring import Settings

from nnpa_tools.evaluation.datasets import Dataset, Preprocessing
from nnpa_tools.evaluation.datasets.images import image_rows
from nnpa_tools.evaluation.datasets.labels import whole_labels
from nnpa_tools.evaluation.datasets.opening import open_columns
from nnpa_tools.evaluation.measuring import Gathering, MeasuredModel
from nnpa_tools.evaluation.rows import Rows
from nnpa_tools.evaluation.tuning import tune

_COLUMN = "measured"


class MeasureBatch:
    """Measures the rows of a batch of columns; Ray makes one for each actor.

    `model` is the contents of a file, or its path on every node; it cannot be an object reference,
    which an actor that is started again would not find. `row` names the column of row numbers,
    `labels` the column of labels. Other columns are inputs, by name as in a file of Parquet; with
    `images`, a column of paths, the images at the paths are the input, by `preprocessing`. Raises
    ValueError, `ModelRefused`.
    """

    def __init__(
        self,
        model: bytes | str,
        labels: str | None = None,
        images: str | None = None,
        preprocessing: Preprocessing | None = None,
        settings: Settings | None = None,
        options: ImportOptions | None = None,
        row: str = "row",
    ) -> None:
        tune()
        contents = model if isinstance(model, bytes) else external_data.read_model(Path(model))
        self._settings = settings or Settings()
        self._model = MeasuredModel(contents, options or ImportOptions(), self._settings)
        self._row, self._labels, self._images = row, labels, images
        self._preprocessing = preprocessing or Preprocessing()

    def __call__(self, batch: Mapping[str, Array]) -> dict[str, list[bytes]]:
        """Return the measurements: an entry for each run of consecutive rows."""
        if self._row not in batch:
            text = f"column {self._row!r} is missing, which numbers the rows from 0"
            raise ValueError(f"{text}: there are {', '.join(sorted(batch))}")
        numbers = np.asarray(batch[self._row]).astype(np.int64)
        order = np.argsort(numbers, kind="stable")
        columns = {name: _plain(array)[order] for name, array in batch.items() if name != self._row}
        data = self._open(columns)
        measured = [
            self._model.measure(data, rows, rows.first - place)
            for place, rows in _runs(numbers[order])
        ]
        return {_COLUMN: [pickle.dumps(part) for part in measured]}

    def _open(self, columns: dict[str, Array]) -> Dataset:
        inputs, outputs = self._model.inputs, self._model.outputs
        if self._images is None:
            return open_columns(columns, "the batch", inputs, outputs, self._labels)
        files = [Path(path) for path in columns[self._images]]
        data = image_rows(files, files[0].parent, self._preprocessing, inputs, outputs)
        if self._labels is None:
            return data
        labels = whole_labels(columns[self._labels], data.rows, "the batch")
        return replace(data, labels=labels)


def report(
    measured: Iterable[Mapping[str, Any]],
    about: Mapping[str, str] | None = None,
    max_drop: float | None = None,
) -> Report:
    """Return the report on results of `MeasureBatch`, in any order; `about` has lines for it.

    Raises ValueError without results, `ModelRefused` for rows of another model or other options.
    """
    gathering = Gathering()
    for entry in measured:
        gathering.add(pickle.loads(entry[_COLUMN]))
    return gathering.report(about or {}, max_drop)


def _plain(array: Array) -> Array:
    """Return a column of numbers or texts; lists of one length become rows of an array."""
    return np.array(array.tolist()) if array.dtype == np.dtype(object) else np.asarray(array)


def _runs(numbers: Array) -> Iterator[tuple[int, Rows]]:
    """Yield runs of consecutive rows with their places among sorted numbers."""
    edges = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
    for begin, end in pairwise(edges):
        first = int(numbers[begin])
        yield begin, Rows(first, first + end - begin)
