# SPDX-License-Identifier: Apache-2.0
"""A network beside FP32 (ONNX Runtime): node by node, both machines, saturating or not.

What DLFLOAT16 does to a model: error per node and output, the first node that leaves the range and
the elements that caused it, and the validation figures of X-CUBE-AI.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from nnpa_emulator import FUNCTIONS, Guest, find_machine
from nnpa_emulator.machine import Memory, page_memory

from nnpa_network.importing.onnx_import import ImportOptions, OnnxModel, import_onnx
from nnpa_network.lowering.placement import title
from nnpa_network.program import Array, ModelRefused, Program
from nnpa_network.reporting.metrics import ULP_LABELS, Agreement, Tally
from nnpa_network.running import host
from nnpa_network.running.observed import NodeEvent
from nnpa_network.running.results import Result, StepFailed, Violation

MACHINES = ("telum1", "telum2")
_MAX_ELEMENTS = 8


@dataclass(frozen=True, slots=True)
class NodeAccuracy:
    """One value of a node beside FP32: the node, where it ran, and the distance."""

    index: int
    node: str
    op_type: str
    device: str
    value: str
    tally: Tally


@dataclass(frozen=True, slots=True)
class OutputAccuracy:
    """One output of the network beside FP32."""

    name: str
    tally: Tally
    agreement: Agreement
    nans: int


@dataclass(frozen=True, slots=True)
class FirstViolation:
    """The first node with a range violation, and the elements that caused it, as sentences."""

    node: str
    op_type: str
    verb: str
    elements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MachineAccuracy:
    """A network on one machine under one policy; `violations` counts calls that had one."""

    machine: str
    saturate: bool
    nodes: tuple[NodeAccuracy, ...]
    outputs: tuple[OutputAccuracy, ...]
    violations: int
    first: FirstViolation | None


@dataclass(frozen=True, slots=True)
class AccuracyReport:
    """All runs of one network over the same data, by which of PLACEMENTS."""

    network: str
    placement: str
    samples: int
    runs: tuple[MachineAccuracy, ...]


@dataclass(slots=True)
class _Comparison:
    """The tallies of one run under construction."""

    program: Program
    nodes: dict[tuple[int, str], Tally] = field(default_factory=dict[tuple[int, str], Tally])

    def observe(self, references: Mapping[str, Array]) -> Callable[[NodeEvent], None]:
        """Return an observer that compares every value as soon as it is there."""

        def compare(event: NodeEvent) -> None:
            if event.phase == "before":
                return
            for name in self.program.nodes[event.node].outputs:
                expected = references.get(name)
                if expected is None or expected.dtype.kind != "f":
                    continue
                got = event.read(name)
                if got is not None and got.shape == expected.shape:
                    self.nodes.setdefault((event.node, name), Tally()).add(got, expected)

        return compare


def measure(
    model: bytes,
    data: Sequence[Mapping[str, Array]],
    machines: Sequence[str] = MACHINES,
    options: ImportOptions | None = None,
    allocate: Callable[[int], Memory | None] = page_memory,
) -> AccuracyReport:
    """Run a model over data on every machine, with and without saturation, beside FP32.

    `data` are inputs by name, one mapping per run, all of one shape; `allocate` provides storage
    for sticks, as for `Guest`. Raise `ModelRefused` where the model or the data cannot be used.
    """
    if not data:
        raise ModelRefused("there is no data to measure with")
    try:
        run = host.reference(model)
        references = [run(feeds) for feeds in data]
    except host.HostError as error:
        raise ModelRefused(f"no reference: {error}") from error
    runs: list[MachineAccuracy] = []
    options, name = options or ImportOptions(), ""
    for machine in machines:
        for saturate in (True, False):
            guest = Guest(find_machine(machine), allocate=allocate)
            hosted = import_onnx(model, guest, replace(options, saturate=saturate))
            runs.append(_measure(hosted, data, references, saturate))
            name = hosted.name
    return AccuracyReport(name, options.placement, len(data), tuple(runs))


def _measure(
    hosted: OnnxModel,
    data: Sequence[Mapping[str, Array]],
    references: Sequence[Mapping[str, Array]],
    saturate: bool,
) -> MachineAccuracy:
    """Run all data on one machine under one policy."""
    executor = hosted.executor({name: np.shape(array) for name, array in data[0].items()})
    comparison = _Comparison(executor.program)
    outputs = {port.name: (Tally(), Agreement()) for port in executor.program.outputs}
    nans: dict[str, int] = {}
    violations: list[Violation] = []
    for feeds, expected in zip(data, references, strict=True):
        try:
            result = executor.run(feeds, comparison.observe(expected))
        except StepFailed as failed:
            raise ModelRefused(failed.reason, failed.node) from failed
        violations.extend(result.violations)
        _add_outputs(result, expected, outputs, nans)
    return MachineAccuracy(
        hosted.guest.machine.name,
        saturate,
        _nodes(comparison),
        tuple(
            OutputAccuracy(name, tally, agreement, nans.get(name, 0))
            for name, (tally, agreement) in outputs.items()
        ),
        len(violations),
        _first(executor.program, violations),
    )


def _add_outputs(
    result: Result,
    expected: Mapping[str, Array],
    outputs: Mapping[str, tuple[Tally, Agreement]],
    nans: dict[str, int],
) -> None:
    for name, (tally, agreement) in outputs.items():
        got = result.outputs[name]
        nans[name] = nans.get(name, 0) + result.nans[name]
        if name in expected and got.dtype.kind in "fiu" and got.shape == expected[name].shape:
            tally.add(got, expected[name])
            if got.size:
                agreement.add(got, expected[name])


def _nodes(comparison: _Comparison) -> tuple[NodeAccuracy, ...]:
    nodes = comparison.program.nodes
    return tuple(
        NodeAccuracy(at, title(nodes[at]), nodes[at].op_type, nodes[at].device, value, tally)
        for (at, value), tally in sorted(comparison.nodes.items())
    )


def _first(program: Program, violations: Sequence[Violation]) -> FirstViolation | None:
    """Say of the first violation which elements it had."""
    if not violations:
        return None
    violation = violations[0]
    node = program.nodes[violation.node] if violation.node >= 0 else None
    elements = tuple(
        f"{operand.operand}{list(element.index)} is not numeric"
        + _operand_values(violation.verb, operand.operand, element.operand_values)
        for operand in (violation.violation.operands if violation.violation is not None else ())
        for element in operand.elements
    )[:_MAX_ELEMENTS]
    return FirstViolation(
        "(an output)" if node is None else title(node),
        "" if node is None else node.op_type,
        violation.verb,
        elements,
    )


def _operand_values(verb: str, operand: str, values: Sequence[float]) -> str:
    """Describe the operand values behind a non-numeric result."""
    if not values or operand not in FUNCTIONS[verb].written:
        return ""
    return f", from {', '.join(f'{number:g}' for number in values)}"


def as_json(report: AccuracyReport) -> str:
    """Return the whole report as JSON; figures that are no numbers become null."""
    runs = [
        {
            "machine": run.machine,
            "saturate": run.saturate,
            "violations": run.violations,
            "first_violation": None
            if run.first is None
            else {
                "node": run.first.node,
                "op_type": run.first.op_type,
                "function": run.first.verb,
                "elements": list(run.first.elements),
            },
            "outputs": [_output_json(output) for output in run.outputs],
            "nodes": [
                {"node": node.node, "op_type": node.op_type, "device": node.device,
                 "value": node.value, **figures(node.tally)}
                for node in run.nodes
            ],
        }
        for run in report.runs
    ]  # fmt: skip
    content = {
        "network": report.network,
        "placement": report.placement,
        "samples": report.samples,
        "runs": runs,
    }
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _output_json(output: OutputAccuracy) -> dict[str, object]:
    confusion = output.agreement.confusion
    return {
        "name": output.name,
        "nans": output.nans,
        "acc": _number(output.agreement.accuracy),
        "cm": None if confusion is None else confusion.tolist(),
        **figures(output.tally),
    }


def figures(tally: Tally) -> dict[str, object]:
    """Return the figures of a tally by the names that X-CUBE-AI gives them."""
    named = {
        "max": tally.largest, "mae": tally.mae, "rmse": tally.rmse, "l2r": tally.l2r,
        "mean": tally.mean, "std": tally.std, "nse": tally.nse, "cos": tally.cosine,
    }  # fmt: skip
    numbers = {name: _number(value) for name, value in named.items()}
    return {
        "elements": tally.count,
        "not_numeric": tally.bad,
        **numbers,
        "ulps": dict(zip(ULP_LABELS, tally.histogram, strict=True)),
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _output_row(run: MachineAccuracy, output: OutputAccuracy) -> tuple[str, ...]:
    tally, saturates = output.tally, "yes" if run.saturate else "no"
    errors = (tally.rmse, tally.mae, tally.l2r, tally.mean, tally.std)
    return (
        *(run.machine, saturates, output.name, f"{output.agreement.accuracy:.2%}"),
        *(f"{error:.3g}" for error in errors),
        *(f"{tally.nse:.5f}", f"{tally.cosine:.6f}", str(output.nans), str(run.violations)),
    )


def as_text(report: AccuracyReport) -> str:
    """Return the report as tables: outputs of all runs, then the nodes of each machine."""
    head_line = f"{report.network}, placement {report.placement}: {report.samples} runs"
    lines = [f"{head_line} beside ONNX Runtime in FP32", ""]
    head = ("machine", "saturate", "output", "ACC", "RMSE", "MAE", "L2R", "MEAN", "STD", "NSE",
            "COS", "NaN", "violations")  # fmt: skip
    rows = [_output_row(run, output) for run in report.runs for output in run.outputs]
    lines.extend(_columns((head, *rows)))
    for run in report.runs:
        if run.first is not None:
            policy = "saturating" if run.saturate else "not saturating"
            first = f"{run.first.node} ({run.first.op_type}, {run.first.verb})"
            lines += ["", f"{run.machine}, {policy}: first range violation at {first}"]
            lines.extend(f"  {element}" for element in run.first.elements)
    for run in report.runs:
        if run.saturate:
            lines += ["", f"{run.machine}, node by node"]
            lines.extend(_columns(_node_rows(run)))
    return "\n".join(lines) + "\n"


def _node_rows(run: MachineAccuracy) -> list[tuple[str, ...]]:
    head = ("node", "op", "device", "max", "mean", "cos", *(f"{x} ulp" for x in ULP_LABELS[:-1]),
            "NaN")  # fmt: skip
    rows = [
        (node.node, node.op_type, node.device, f"{node.tally.largest:.3g}", f"{node.tally.mae:.3g}",
         f"{node.tally.cosine:.6f}", *(str(number) for number in node.tally.histogram))
        for node in run.nodes
    ]  # fmt: skip
    return [head, *rows]


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with columns of equal width."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
