# SPDX-License-Identifier: Apache-2.0
"""Measure batches of a dataset, merge the measurements, and write the report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from nnpa_emulator.machine import Memory
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.program import Array, ModelRefused
from nnpa_network.reporting.accuracy import Report, as_json
from nnpa_network.reporting.accuracy_page import as_html
from nnpa_network.reporting.accuracy_text import as_text
from nnpa_network.reporting.measurements import Measurements, from_bytes, not_measurements
from nnpa_network.reporting.measuring import Measurer, Settings


@dataclass(frozen=True, slots=True)
class Batch:
    """The facts of a job that measures rows of a dataset, or reports earlier measurements.

    Its arrays are the inputs in the order of `inputs`, the labels if it `has_labels`, and earlier
    measurements. `model` is the model's digest, `first` the number of the first row. `report` asks
    for a report of all measurements, which shows `about` and judges by `max_drop`.
    """

    model: str
    machines: tuple[str, ...]
    inputs: tuple[str, ...]
    has_labels: bool
    first: int
    settings: Settings
    report: bool
    html: bool
    about: Mapping[str, str]
    max_drop: float | None


def read_batch(facts: dict[str, Any]) -> Batch:
    """Return the batch of a job's JSON."""
    facts["machines"], facts["inputs"] = tuple(facts["machines"]), tuple(facts["inputs"])
    facts["settings"] = Settings(**facts["settings"])
    return Batch(**facts)


class Reports:
    """Measures batches; keeps the model of the last batch for the next one."""

    def __init__(self) -> None:
        self._key: object = None
        self._measurer: Measurer | None = None

    def answer(
        self,
        batch: Batch,
        model: bytes,
        options: ImportOptions,
        arrays: Sequence[Array],
        allocate: Callable[[int], Memory | None],
    ) -> list[str]:
        """Return measurements, and the report as JSON, text and page; raise `ModelRefused`."""
        earlier = np.ascontiguousarray(arrays[-1]).tobytes()
        parts: list[Measurements] = [from_bytes(earlier)] if earlier else []
        if batch.inputs:
            rows = dict(zip(batch.inputs, arrays, strict=False))
            labels = arrays[len(batch.inputs)] if batch.has_labels else None
            measurer = self._prepared(batch, model, options, allocate)
            parts.append(measurer.measure(batch.first, rows, labels))
        try:
            total = parts[0]
            for part in parts[1:]:
                total.merge(part)
            measurements = total.to_bytes().decode()
            if not batch.report:
                return [measurements, "", "", ""]
            self._measurer = None
            report = Report(total, batch.about, batch.max_drop)
            html = as_html(report) if batch.html else ""
            return [measurements, as_json(report), as_text(report), html]
        except _CONTRADICTIONS as error:
            if isinstance(error, ModelRefused) or not earlier:
                raise
            raise not_measurements() from error

    def _prepared(
        self,
        batch: Batch,
        model: bytes,
        options: ImportOptions,
        allocate: Callable[[int], Memory | None],
    ) -> Measurer:
        key = batch.model, batch.machines, options, batch.settings
        if self._measurer is None or key != self._key:
            self._measurer = None  # two models may be too many
            self._measurer = Measurer(model, batch.machines, options, batch.settings, allocate)
            self._key = key
        return self._measurer


_CONTRADICTIONS = (ValueError, TypeError, LookupError, ArithmeticError)
