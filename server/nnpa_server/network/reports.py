# SPDX-License-Identifier: Apache-2.0
"""The reports of workers: measure a model or probe it, merge measurements, write the report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from nnpa_emulator.machine import Memory
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.program import Array, ModelRefused
from nnpa_network.reporting.accuracy import Report, as_json, measure
from nnpa_network.reporting.accuracy_page import as_html
from nnpa_network.reporting.accuracy_text import as_text
from nnpa_network.reporting.measurements import Measurements, from_bytes, not_measurements
from nnpa_network.reporting.measuring import Measurer, Settings
from nnpa_network.reporting.probe import probe


@dataclass(frozen=True, slots=True)
class Batch:
    """The facts of a job that measures rows of a dataset, or reports earlier measurements.

    Its arrays are the inputs in the order of `inputs`, the labels, and earlier measurements.
    """

    model: str  # its digest
    machines: tuple[str, ...]
    inputs: tuple[str, ...]
    has_labels: bool
    first: int  # row
    settings: Settings
    report: bool  # of all measurements, which shows `about` and judges by `max_drop`
    html: bool
    about: Mapping[str, str]
    max_drop: float | None


def read_batch(facts: dict[str, Any]) -> Batch:
    """Return the batch of a job's JSON."""
    facts["machines"], facts["inputs"] = tuple(facts["machines"]), tuple(facts["inputs"])
    facts["settings"] = Settings(**facts["settings"])
    return Batch(**facts)


class Reports:
    """Writes the parts of reports on models; keeps the model of the last batch for the next one.

    Each method takes the model's file, its options, the arrays of the job, and the job's facts; it
    raises `ModelRefused`. `allocate` provides storage for sticks.
    """

    def __init__(self, allocate: Callable[[int], Memory | None]) -> None:
        self._allocate = allocate
        self._key: object = None
        self._measurer: Measurer | None = None

    def measure(
        self,
        model: bytes,
        options: ImportOptions,
        arrays: Sequence[Array],
        machines: Sequence[str],
        inputs: Sequence[str],
        samples: int,
        html: bool,
    ) -> list[str]:
        """Return the report on samples as JSON, text and page."""
        rows: list[Mapping[str, Array]] = [
            dict(zip(inputs, arrays[number * len(inputs) :], strict=False))
            for number in range(samples)
        ]
        report = measure(model, rows, machines, options, self._allocate)
        return [as_json(report), as_text(report), as_html(report) if html else ""]

    def probe(
        self,
        model: bytes,
        options: ImportOptions,
        _arrays: Sequence[Array],
        machines: Sequence[str],
        sizes: Sequence[int],
    ) -> list[dict[str, Any]]:
        """Return the rows of a probe at edge sizes."""
        return [asdict(row) for row in probe(model, machines, sizes, options, self._allocate)]

    def batch(
        self, model: bytes, options: ImportOptions, arrays: Sequence[Array], batch: dict[str, Any]
    ) -> list[str]:
        """Return measurements, and the report as JSON, text and page."""
        facts = read_batch(batch)
        earlier = np.ascontiguousarray(arrays[-1]).tobytes()
        parts: list[Measurements] = [from_bytes(earlier)] if earlier else []
        if facts.inputs:
            key = facts.model, facts.machines, options, facts.settings
            if self._measurer is None or key != self._key:
                self._measurer = None  # two models may be too many
                self._measurer = Measurer(
                    model, facts.machines, options, facts.settings, self._allocate
                )
                self._key = key
            rows = dict(zip(facts.inputs, arrays, strict=False))
            labels = arrays[len(facts.inputs)] if facts.has_labels else None
            parts.append(self._measurer.measure(facts.first, rows, labels))
        try:
            total = parts[0]
            for part in parts[1:]:
                total.merge(part)
            measurements = total.to_bytes().decode()
            if not facts.report:
                return [measurements, "", "", ""]
            self._measurer = None
            report = Report(total, facts.about, facts.max_drop)
            html = as_html(report) if facts.html else ""
            return [measurements, as_json(report), as_text(report), html]
        except _CONTRADICTIONS as error:
            if isinstance(error, ModelRefused) or not earlier:
                raise
            raise not_measurements() from error


_CONTRADICTIONS = (ValueError, TypeError, LookupError, ArithmeticError)
