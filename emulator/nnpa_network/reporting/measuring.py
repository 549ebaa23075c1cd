# SPDX-License-Identifier: Apache-2.0
"""Measure a model over batches of rows: machines, FP32, INT8, and nodes over the first rows.

A batch gives the same measurements wherever it is measured, so that batches may be spread. Rows are
counted from 0; batch k begins at row k * batch_rows. A row is one along the first axis of every
input, or, where inputs have one axis more than the model's, a run of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256

import numpy as np
from nnpa_emulator import Guest, find_machine
from nnpa_emulator.machine import DEFAULT_MACHINE, TELUMS, Memory, page_memory

from nnpa_network.importing.onnx_import import ImportOptions, import_onnx
from nnpa_network.program import Array, ModelRefused
from nnpa_network.reporting.batches import Batch, find_answers, make_batch
from nnpa_network.reporting.fp32_values import all_values, outputs_of
from nnpa_network.reporting.int8 import with_int8_products
from nnpa_network.reporting.interpreter import Interpreter
from nnpa_network.reporting.machine_runs import MachineRuns, judge_rows
from nnpa_network.reporting.measurements import Measurements
from nnpa_network.reporting.metrics import Agreement, Decided, Exponents
from nnpa_network.running import host
from nnpa_network.running.arrays import check_feed

MAX_BATCH_ROWS = 4096
_BATCHES_WITH_TURNS = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure: rows of a batch, rows that are measured node by node, INT8 beside."""

    batch_rows: int = 256
    node_rows: int = 16
    int8: bool = False


class Measurer:
    """A model that is imported once, for batch after batch."""

    def __init__(
        self,
        model: bytes,
        machines: Sequence[str] = TELUMS,
        options: ImportOptions | None = None,
        settings: Settings | None = None,
        allocate: Callable[[int], Memory | None] = page_memory,
    ) -> None:
        options, self._settings = options or ImportOptions(), settings or Settings()
        guests = [Guest(find_machine(machine), allocate=allocate) for machine in machines]
        self._model = import_onnx(model, guests[0], options)
        self.inputs, self.outputs = self._model.inputs, self._model.outputs
        self._hosted = [
            MachineRuns(
                self._model.placed(guest, replace(options, saturate=policy)),
                "dlfloat16",
                policy == options.saturate,
            )
            for guest in guests
            for policy in (options.saturate, not options.saturate)
        ]
        self._products = 0
        if self._settings.int8:
            changed, self._products = with_int8_products(model)
            if self._products:
                guest = Guest(find_machine(DEFAULT_MACHINE), allocate=allocate)
                chosen = replace(options, offload_integer=True)
                self._hosted.append(MachineRuns(import_onnx(changed, guest, chosen), "int8", True))
        try:
            self._outputs, self._all_values = outputs_of(model), all_values(model)
        except host.HostError as error:
            raise ModelRefused("ONNX Runtime does not take the model in FP32") from error
        compiled = [
            options.strict, options.saturate, options.offload_integer, options.placement,
            options.device_placement,
        ]  # fmt: skip
        facts = [list(machines), compiled, asdict(self._settings)]
        self._key = sha256(sha256(model).digest() + repr(facts).encode()).hexdigest()[:32]

    def measure(
        self,
        first: int,
        arrays: Mapping[str, Array],
        labels: Array | None = None,
        *,
        part: bool = False,
    ) -> Measurements:
        """Measure one batch, rows from `first` on; raise `ModelRefused`.

        With `part` rows may be some of a batch, where others of it cannot be measured; a part that
        does not begin the batch counts no batch.
        """
        size = self._settings.batch_rows
        batch = make_batch(first, arrays, self._model.inputs, size, part=part)
        self._require_fit(batch)
        measured = self._nothing(batch)
        arrays = batch.outputs(self._fp32(batch))
        expected = {name: Decided(array) for name, array in arrays.items()}
        primary, classes = find_answers(expected, labels, batch)
        if classes is not None:
            measured.labels.add_decisions(expected[primary].array, classes.reshape(-1))
        for run, machine in zip(measured.runs, self._hosted, strict=True):
            if machine.whole:
                outputs = machine.run_rows(run, batch, expected)
                if primary in outputs:
                    turned = judge_rows(run, first, outputs, expected, primary, classes)
                    if machine.numbers != "int8" and first // size < _BATCHES_WITH_TURNS:
                        values = {row: self._values(batch.row(row - first)) for row in turned}
                        machine.find_turns(run, batch, primary, values)
        for index in range(measured.node_rows):
            self._measure_nodes(measured, batch.row(index), first + index)
        return measured

    def _measure_nodes(self, measured: Measurements, feeds: Mapping[str, Array], row: int) -> None:
        """Measure a row node by node on every machine."""
        references = self._values(feeds)
        for name, array in references.items():
            if array.dtype.kind == "f":
                measured.exponents.setdefault(name, Exponents()).add(array)
        for run, machine in zip(measured.runs, self._hosted, strict=True):
            if machine.numbers != "int8":
                machine.run_nodes(run, feeds, references, row)

    def _nothing(self, batch: Batch) -> Measurements:
        """Return measurements of a batch before anything runs."""
        size = self._settings.batch_rows
        return Measurements(
            self._key,
            self._model.name,
            self._model.options.placement,
            size,
            [] if batch.first % size else [batch.first // size],
            batch.rows,
            max(0, min(batch.rows, self._settings.node_rows - batch.first)),
            Agreement(),
            self._products,
            {},
            [_RUNTIME],
            [machine.start() for machine in self._hosted],
        )

    def _require_fit(self, batch: Batch) -> None:
        """Refuse inputs whose shapes or types the model does not take."""
        feeds = next(iter(batch.runs()))
        for port in self._hosted[0].executor(feeds).program.inputs:
            check_feed(port.name, port.dtype, port.shape, feeds)

    def _fp32(self, batch: Batch) -> list[dict[str, Array]]:
        try:
            return list(map(self._outputs, batch.runs()))
        except host.HostError as error:
            rows = f"rows {batch.first} to {batch.first + batch.rows - 1}"
            raise self._refusal(rows, batch.runs()) from error

    def _values(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            return self._all_values(feeds)
        except host.HostError as error:
            raise self._refusal("a row by itself", [feeds]) from error

    def _refusal(self, rows: str, runs: Iterable[Mapping[str, Array]]) -> ModelRefused:
        """Return the refusal of rows over which the model does not run in FP32 either."""
        node = next(filter(None, map(Interpreter(self._model).failing, runs)), "")
        where = f"node {node}" if node else "the model"
        return ModelRefused(f"{where} cannot run over {rows}, not in FP32 either: {_WHY}")


_RUNTIME = f"ONNX Runtime {vars(host)['onnxruntime'].__version__}, NumPy {np.__version__}"
_WHY = "values are not what it takes, such as an index beyond a table"
