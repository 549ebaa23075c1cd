# SPDX-License-Identifier: Apache-2.0
"""Measure batches of a dataset, add them up, and write the report; here or in a worker."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

import numpy as np
from nnpa_emulator.machine import Memory, page_memory
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.program import Array, ModelRefused
from nnpa_network.reporting.accuracy import Report, as_json
from nnpa_network.reporting.accuracy_page import as_html
from nnpa_network.reporting.accuracy_text import as_text
from nnpa_network.reporting.measurements import Measurements, from_bytes, not_measurements
from nnpa_network.reporting.measuring import Measurer, Settings


class BatchFacts(TypedDict):
    """What is asked of a batch, beside its arrays; `key` is the model's, by its contents."""

    key: str
    machines: list[str]
    first: int
    batch_rows: int
    node_rows: int
    int8: bool
    report: bool
    html: bool
    about: dict[str, str]
    max_drop: float | None


class Reports:
    """Measures batches; the model of the last one is kept for the next."""

    def __init__(self) -> None:
        self._key = ""
        self._measurer: Measurer | None = None

    def answer(
        self,
        facts: BatchFacts,
        model: bytes,
        options: ImportOptions,
        rows: Mapping[str, Array],
        labels: Array | None,
        earlier: bytes,
        allocate: Callable[[int], Memory | None] = page_memory,
    ) -> list[str]:
        """Return measurements, and the report as JSON, text and page; raise `ModelRefused`."""
        parts: list[Measurements] = [from_bytes(earlier)] if earlier else []
        if rows:
            measurer = self._prepared(facts, model, options, allocate)
            parts.append(measurer.measure(facts["first"], rows, labels))
        try:
            total = parts[0]
            for part in parts[1:]:
                total.merge(part)
            measurements = total.to_bytes().decode()
            if not facts["report"]:
                return [measurements, "", "", ""]
            self.forget()
            report = Report(total, facts["about"], facts["max_drop"])
            html = as_html(report) if facts["html"] else ""
            return [measurements, as_json(report), as_text(report), html]
        except _CONTRADICTIONS as error:
            if isinstance(error, ModelRefused) or not earlier:
                raise
            raise not_measurements() from error

    def forget(self) -> None:
        """Let go of the model."""
        self._measurer = None

    def _prepared(
        self,
        facts: BatchFacts,
        model: bytes,
        options: ImportOptions,
        allocate: Callable[[int], Memory | None],
    ) -> Measurer:
        settings = Settings(facts["batch_rows"], facts["node_rows"], facts["int8"])
        key = repr((facts["key"], facts["machines"], options, settings))
        if self._measurer is None or key != self._key:
            self.forget()
            self._measurer = Measurer(model, facts["machines"], options, settings, allocate)
            self._key = key
        return self._measurer


_CONTRADICTIONS = (ValueError, TypeError, LookupError, ArithmeticError)


def as_bytes(array: Array) -> bytes:
    """Return an array of bytes as they are."""
    return np.ascontiguousarray(array).tobytes()


def split_arrays(
    arrays: Sequence[Array], names: Sequence[str], *, with_labels: bool
) -> tuple[dict[str, Array], Array | None, bytes]:
    """Return inputs by name, labels, and earlier measurements, as a job has them in turn."""
    rows = dict(zip(names, arrays, strict=False))
    labels = arrays[len(names)] if with_labels else None
    return rows, labels, as_bytes(arrays[-1])
