# SPDX-License-Identifier: Apache-2.0
"""The report of a model's accuracy in DLFLOAT16: the verdict, and the figures as JSON."""

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction

import numpy as np
from nnpa_emulator.machine import MACHINES, TELUMS, Memory, page_memory

from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.program import Array, ModelRefused
from nnpa_network.reporting.measurements import Measurements, NodeFacts, Output, Run, Value
from nnpa_network.reporting.measuring import Measurer, Settings
from nnpa_network.reporting.metrics import (
    LOWEST,
    ULP_LABELS,
    Agreement,
    Exponents,
    Tally,
    relative_error,
)

TITLES = {name: MACHINES[name].title.rpartition(", ")[2] for name in TELUMS}
_NODE_ROWS = 64


@dataclass(frozen=True, slots=True, order=True)
class WorkerKind:
    """A kind of worker: its processor, and its versions of libraries.

    `names` are the names of its machines if a report has several kinds, else empty.
    """

    processor: str
    versions: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Unmeasured:
    """Rows `first` to `last`, both included, that ended every worker, and how workers ended."""

    first: int
    last: int
    why: str

    def __str__(self) -> str:
        """Return a clause that says so."""
        rows = f"row {self.first:,}"
        if self.last != self.first:
            rows = f"rows {self.first:,} to {self.last:,} together"
        return f"{rows} ended every worker ({self.why})"


@dataclass(frozen=True, slots=True)
class Report:
    """Measurements, with lines of name and text in which the caller describes them.

    `max_drop` is the largest accepted loss of accuracy, as a share, None without one. `workers` are
    the kinds of processes that measured if batches were spread; `unmeasured` are rows left out.
    """

    measured: Measurements
    about: Mapping[str, str] = field(default_factory=dict[str, str])
    max_drop: float | None = None
    workers: Sequence[WorkerKind] = ()
    unmeasured: Sequence[Unmeasured] = ()

    @property
    def measured_by(self) -> list[str]:
        """The runtimes and kinds of workers that computed, by name where they differ."""
        kinds = [f"{kind.processor}, {kind.versions}" for kind in self.workers]
        if len(kinds) > 1:
            kinds = [
                f"workers differ: {text} ({', '.join(kind.names)})"
                for text, kind in zip(kinds, self.workers, strict=True)
            ]
        return [*self.measured.runtimes, *kinds]

    @property
    def whole(self) -> list[Run]:
        """The runs over all rows: each machine, then INT8."""
        runs = self.measured.runs
        policy = runs[0].saturate
        return [run for run in runs if run.saturate == policy or run.numbers == "int8"]

    @property
    def machines(self) -> list[Run]:
        """The runs over all rows in DLFLOAT16."""
        return [run for run in self.whole if run.numbers == "dlfloat16"]

    @property
    def has_labels(self) -> bool:
        """Whether rows had labels."""
        return self.measured.labels.count > 0


def measure(
    model: bytes,
    data: Sequence[Mapping[str, Array]],
    machines: Sequence[str] = TELUMS,
    options: ImportOptions | None = None,
    allocate: Callable[[int], Memory | None] = page_memory,
) -> Report:
    """Run a model over data on every machine, beside FP32, each entry of `data` a run of its own.

    Raise `ModelRefused` where the model or the data cannot be used.
    """
    if not data:
        raise ModelRefused("there is no data to measure with")
    settings = Settings(node_rows=_NODE_ROWS)
    measurer = Measurer(model, machines, options, settings, allocate)
    rows = settings.batch_rows
    batches = (
        measurer.measure(first, _stacked(data[first : first + rows]))
        for first in range(0, len(data), rows)
    )
    total = next(batches)
    for measured in batches:
        total.merge(measured)
    return Report(total)


def _stacked(samples: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for name in samples[0]:
        rows = [np.asarray(sample[name]) for sample in samples]
        if len({(row.shape, row.dtype) for row in rows}) != 1:
            raise ModelRefused(f"input {name}: samples are not all of one shape and type")
        arrays[name] = np.stack(rows)
    return arrays


def title_of(run: Run) -> str:
    """Return the name of a run in a report."""
    name = TITLES.get(run.machine, run.machine)
    return f"INT8 on {name}" if run.numbers == "int8" else name


def drop_of(report: Report, run: Run) -> Fraction:
    """Return the loss of a run: in accuracy by labels, else the share of rows that turned."""
    fp32 = report.measured.labels
    if fp32.count:
        return Fraction(fp32.same - run.labels.same, fp32.count)
    return Fraction(run.changed, run.rows) if run.rows else Fraction()


def verdict(report: Report) -> str:
    """Return the sentence that answers: does the model keep its accuracy?"""
    machines, rows = report.machines, report.measured.rows
    drops = [drop_of(report, run) for run in machines]
    worst, over = max(drops), f"over {counted(rows, 'row')}"
    points = f"{float(100 * abs(worst)):.2f} points"
    idle = [run for run in machines if is_idle(run)]
    if len(idle) == len(machines):
        text = "Nothing of this model runs on the accelerator"
    elif report.has_labels:
        fp32 = report.measured.labels
        each = _joined((title_of(run), f"{run.labels.accuracy:.2%}") for run in machines)
        figures = f"{fp32.accuracy:.2%} in FP32, {each}, {over}"
        if worst > 0:
            text = f"Loses {points} of accuracy: {figures}"
        else:
            text = f"Keeps its accuracy: {figures}"
    else:
        each = _joined((title_of(run), f"{run.changed:,} ({run.changed / rows:.2%})")
                       for run in machines)  # fmt: skip
        if worst > 0:
            text = f"Answers turn beside FP32, {over}: {each}"
        else:
            text = f"Every answer is that of FP32, {over}, on {_joined_names(machines)}"
        text += f"; relative error {_worst_error(machines):.2g}"
    if 0 < len(idle) < len(machines):
        text += f"; nothing of it runs on the accelerator of {_joined_names(idle)}"
    if nans := max(sum(output.nans for output in run.outputs.values()) for run in machines):
        text += f"; {counted(nans, 'element')} of outputs NaN"
    for rows_left_out in report.unmeasured:
        text += f"; incomplete: {rows_left_out}"
    if report.max_drop is not None:
        held = "within" if worst <= Fraction(report.max_drop) else "above"
        text += f"; {held} the limit of {report.max_drop:.4g} ({report.max_drop:.2%})"
    return f"{text}."


def is_idle(run: Run) -> bool:
    """Return whether the accelerator has no node of a network that ran."""
    return bool(run.nodes) and all(node.device != "accelerator" for node in run.nodes)


def reasons_of_idle(report: Report) -> list[str]:
    """Return why nothing runs on the accelerator of a machine, a line for each operator."""
    idle = [run for run in report.machines if is_idle(run)]
    lines: dict[str, list[str]] = {}
    for run in idle:
        why = Counter((node.op_type, node.reason or "folded at import") for node in run.nodes)
        for (operator, reason), count in sorted(why.items()):
            lines.setdefault(f"{operator} ({count:,}): {reason}", []).append(title_of(run))
    return [
        line if len(names) == len(report.machines) else f"{line}, on {' and '.join(names)}"
        for line, names in lines.items()
    ]


def _joined(pairs: Iterator[tuple[str, str]]) -> str:
    """Return figures by machine, equal ones together."""
    names: dict[str, list[str]] = {}
    for name, figure in pairs:
        names.setdefault(figure, []).append(name)
    return ", ".join(f"{figure} on {' and '.join(each)}" for figure, each in names.items())


def _joined_names(runs: Sequence[Run]) -> str:
    return " and ".join(title_of(run) for run in runs)


def _worst_error(runs: Sequence[Run]) -> float:
    errors = (output.tally.l2r for run in runs for output in run.outputs.values())
    return max((error for error in errors if not math.isnan(error)), default=0.0)


def counted(count: int, noun: str) -> str:
    """Return a count and its noun, in the plural unless it is 1."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A value of a node in a report, with the relative error before the node and its own (L2R)."""

    node: NodeFacts
    name: str
    value: Value
    entering: float
    exponents: Exponents


def node_rows(report: Report, run: Run) -> list[NodeRow]:
    """Return the measured values of nodes, in the order in which they run."""
    makers = {name: node for node in run.nodes for name in node.outputs}
    nodes = {node.index: node for node in run.nodes}
    rows: list[NodeRow] = []
    for name, value in sorted(run.values.items(), key=lambda item: (item[1].node, item[0])):
        node = nodes.get(value.node)
        if node is None or not value.tally.count:
            continue
        inputs = _measured(node.inputs, run.values, makers, set())
        entering = relative_error([run.values[name].tally for name in inputs])
        exponents = report.measured.exponents.get(name, Exponents())
        rows.append(NodeRow(node, name, value, entering, exponents))
    return rows


def _measured(
    names: Collection[str],
    values: Mapping[str, Value],
    makers: Mapping[str, NodeFacts],
    seen: set[str],
) -> set[str]:
    """Return the values that were measured among inputs, or before them where nodes are fused."""
    measured: set[str] = set()
    for name in names:
        if name in values:
            measured.add(name)
        elif name in makers and name not in seen:
            seen.add(name)
            measured |= _measured(makers[name].inputs, values, makers, seen)
    return measured


def as_json(report: Report) -> str:
    """Return the whole report as JSON; figures that are no numbers become null."""
    measured = report.measured
    content = {
        "verdict": verdict(report),
        "network": measured.network,
        "placement": measured.placement,
        "about": dict(report.about),
        "runtimes": measured.runtimes,
        "workers": [asdict(kind) for kind in report.workers],
        "unmeasured": [asdict(rows) for rows in report.unmeasured],
        "samples": measured.rows,
        "batch_rows": measured.batch_rows,
        "node_rows": measured.node_rows,
        "max_drop": report.max_drop,
        "fp32": _labels_json(measured.labels),
        "exponents": {
            name: {
                "elements": part.count, "zeros": part.zeros, "beyond": part.beyond,
                "lost": part.lost, "first": LOWEST, "histogram": part.histogram,
            }
            for name, part in sorted(measured.exponents.items())
        },
        "runs": [_run_json(report, run) for run in measured.runs],
    }  # fmt: skip
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _run_json(report: Report, run: Run) -> dict[str, object]:
    names = {node.index: node.name for node in run.nodes}
    return {
        "machine": run.machine,
        "saturate": run.saturate,
        "numbers": run.numbers,
        "products": report.measured.products if run.numbers == "int8" else None,
        "rows": run.rows,
        "changed": run.changed,
        "drop": float(drop_of(report, run)) if run in report.whole else None,
        "labels": _labels_json(run.labels),
        "violations": run.violations,
        "first_violation": None if run.first is None else asdict(run.first),
        "outputs": [_output_json(name, output) for name, output in run.outputs.items()],
        "nodes": [
            {
                "node": row.node.name,
                "op_type": row.node.op_type,
                "device": row.node.device,
                "value": row.name,
                "entering": number(row.entering),
                "alone": number(row.value.alone.l2r),
                "beyond": number(row.exponents.outside),
                **figures(row.value.tally),
            }
            for row in node_rows(report, run)
        ],
        "turned": [{"row": turn.row, "node": names.get(turn.node, "")} for turn in run.turns],
        "worst": [asdict(row) for row in run.worst],
    }


def _labels_json(labels: Agreement) -> dict[str, object] | None:
    if not labels.count:
        return None
    return {
        "accuracy": number(labels.accuracy),
        "top5": number(labels.top_accuracy),
        "confusion": labels.confusion or None,
    }


def _output_json(name: str, output: Output) -> dict[str, object]:
    return {
        "name": name,
        "nans": output.nans,
        "acc": number(output.agreement.accuracy),
        "cm": output.agreement.confusion or None,
        **figures(output.tally),
    }


def figures(tally: Tally) -> dict[str, object]:
    """Return the figures of a tally by the names that X-CUBE-AI gives them."""
    named = {
        "max": tally.largest, "mae": tally.mae, "rmse": tally.rmse, "l2r": tally.l2r,
        "mean": tally.mean, "std": tally.std, "nse": tally.nse, "cos": tally.cosine,
    }  # fmt: skip
    return {
        "elements": tally.count,
        "not_numeric": tally.bad,
        **{name: number(value) for name, value in named.items()},
        "ulps": dict(zip(ULP_LABELS, tally.histogram, strict=True)),
    }


def number(value: float) -> float | None:
    """Return a figure as JSON has it: null where it is none."""
    return float(value) if math.isfinite(value) else None
