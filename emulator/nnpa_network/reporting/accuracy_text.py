# SPDX-License-Identifier: Apache-2.0
"""An accuracy report as text: the verdict, tables side by side, the worst rows, the nodes."""

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from nnpa_emulator.reference.comparison import NOT_NUMERIC

from nnpa_network.reporting.accuracy import (
    Report,
    counted,
    drop_of,
    node_rows,
    reasons_of_idle,
    title_of,
    verdict,
)
from nnpa_network.reporting.measurements import Output, Run, WorstRow
from nnpa_network.reporting.metrics import ULP_LABELS

_MAX_ROWS = 10
_MAX_CONFUSION = 16


def as_text(report: Report) -> str:
    """Return the report for people."""
    measured = report.measured
    runs = counted(measured.rows, "run")
    lines = [
        verdict(report),
        *(f"  {line}" for line in reasons_of_idle(report)),
        "",
        f"{measured.network}, placement {measured.placement}: {runs} beside FP32",
        f"batches of {counted(measured.batch_rows, 'row')}",
        *(f"measured by: {runtime}" for runtime in report.measured_by),
        *(f"{name}: {text}" for name, text in report.about.items()),
        "",
        *columns(side_by_side(report)),
    ]
    if report.has_labels and 0 < len(measured.labels.confusion) <= _MAX_CONFUSION:
        for run in report.machines:
            lines += ["", f"{title_of(run)}: labels down, answers across"]
            lines.extend(columns([list(map(str, row)) for row in run.labels.confusion]))
    lines += ["", *columns(_output_rows(report))]
    for run in measured.runs:
        lines.extend(_violation(run))
    for run in report.machines:
        lines.extend(_worst(run))
    for run in report.machines:
        lines.extend(_turns(run))
    for run in report.machines:
        lines += ["", f"{run.machine}, node by node, over {counted(measured.node_rows, 'row')}"]
        lines.extend(columns(_node_table(report, run)))
    return "\n".join(lines) + "\n"


def side_by_side(report: Report) -> list[list[str]]:
    """Return FP32, machines and INT8 as columns, their figures as rows."""
    runs, fp32 = report.whole, report.measured.labels
    head = ["", "FP32", *map(title_of, runs)]
    rows = [head]
    if report.has_labels:
        rows.append(
            ["accuracy", f"{fp32.accuracy:.2%}", *(f"{run.labels.accuracy:.2%}" for run in runs)]
        )
        if fp32.top >= 0:
            tops = [f"{run.labels.top_accuracy:.2%}" for run in runs]
            rows.append(["top-5", f"{fp32.top_accuracy:.2%}", *tops])
        drops = [f"{_signed(-100 * drop_of(report, run))} points" for run in runs]
        rows.append(["difference", "", *drops])
    rows.append(["answers turned", "", *(_share(run.changed, run.rows) for run in runs)])
    rows.append(["relative error", "", *(_error(run) for run in runs)])
    return rows


def _signed(points: Fraction) -> str:
    return f"{float(points):+.2f}" if points else "0.00"


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.2%})" if whole else "-"


def _error(run: Run) -> str:
    errors = [output.tally.l2r for output in run.outputs.values()]
    numbers = [error for error in errors if not math.isnan(error)]
    return f"{max(numbers):.3g}" if numbers else "-"


def _output_rows(report: Report) -> list[tuple[str, ...]]:
    head = ("machine", "saturate", "rows", "output", "ACC", "RMSE", "MAE", "L2R", "MEAN", "STD",
            "NSE", "COS", "NaN", "violations")  # fmt: skip
    runs = report.measured.runs
    rows = (_output_row(run, name, out) for run in runs for name, out in run.outputs.items())
    return [head, *rows]


def _output_row(run: Run, name: str, output: Output) -> tuple[str, ...]:
    tally, saturates = output.tally, "yes" if run.saturate else "no"
    machine = run.machine if run.numbers == "dlfloat16" else f"{run.machine} {run.numbers}"
    errors = (tally.rmse, tally.mae, tally.l2r, tally.mean, tally.std)
    return (
        *(machine, saturates, f"{run.rows:,}", name, f"{output.agreement.accuracy:.2%}"),
        *(f"{error:.3g}" for error in errors),
        *(f"{tally.nse:.5f}", f"{tally.cosine:.6f}", str(output.nans), str(run.violations)),
    )


def _violation(run: Run) -> Iterator[str]:
    if run.first is None:
        return
    policy = "saturating" if run.saturate else "not saturating"
    place = f"{run.first.node} ({run.first.op_type}, {run.first.function})"
    yield ""
    yield f"{run.machine}, {policy}: first range violation at {place}, row {run.first.row}"
    yield from (f"  {element}" for element in run.first.elements)


def _worst(run: Run) -> Iterator[str]:
    if not run.worst:
        return
    yield ""
    yield f"{title_of(run)}: worst rows"
    head = ["row", "answer", "FP32", *(["label"] if run.worst[0].label else []), "error"]
    yield from columns([head, *(_worst_row(row) for row in run.worst[:_MAX_ROWS])])


def _worst_row(row: WorstRow) -> list[str]:
    answers = [row.answer, row.fp32, *([row.label] if row.label else [])]
    error = "NaN" if row.error == NOT_NUMERIC else f"{row.error:.3g}"
    return [str(row.row), *(" ".join(map(str, part)) for part in answers), error]


def _turns(run: Run) -> Iterator[str]:
    if not run.turns:
        return
    names = {node.index: f"{node.name} ({node.op_type})" for node in run.nodes}
    yield ""
    yield f"{title_of(run)}: where answers turned"
    yield from (f"  row {turn.row}: at {names.get(turn.node, '?')}" for turn in run.turns)


def _node_table(report: Report, run: Run) -> list[tuple[str, ...]]:
    head = ("node", "op", "device", "error before", "own error", "max", "mean", "cos",
            *(f"{x} ulp" for x in ULP_LABELS[:-1]), "NaN", "outside")  # fmt: skip
    rows = [
        (row.node.name, row.node.op_type, row.node.device, f"{row.entering:.2g}",
         f"{row.value.alone.l2r:.2g}", f"{row.value.tally.largest:.3g}",
         f"{row.value.tally.mae:.3g}", f"{row.value.tally.cosine:.6f}",
         *map(str, row.value.tally.histogram), f"{row.exponents.outside:.2%}")
        for row in node_rows(report, run)
    ]  # fmt: skip
    return [head, *rows]


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with columns of equal width."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
