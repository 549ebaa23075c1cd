# SPDX-License-Identifier: Apache-2.0
"""`nnpa estimate`: how long a model or a recorded program would take on a z16 or z17."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import click
from nnpa.network.v1.program_pb2 import Program
from nnpa_client._values.availability import TELUMS, Host
from nnpa_client.trace.format import is_trace
from nnpa_client.trace.history import read
from rich import box
from rich.table import Table

from nnpa_tools.commands.exit_codes import EXIT_CODES, NOT_AS_PROMISED, reported
from nnpa_tools.commands.hosting import (
    Asking,
    asking_options,
    hosting_on,
    loaded,
    table_console,
)
from nnpa_tools.commands.reaching import FILE
from nnpa_tools.commands.terminal import echo, json_option, print_json
from nnpa_tools.estimates.coefficients import estimated_machine, shipped
from nnpa_tools.estimates.dominance import dominant
from nnpa_tools.estimates.estimator import Estimate, estimate
from nnpa_tools.estimates.intervals import Interval
from nnpa_tools.estimates.programs import calls_of
from nnpa_tools.estimates.published import Entry, is_kept, ledger, median_widths, unnoticed_rows
from nnpa_tools.tables import simple_table
from nnpa_tools.traces.machine_times import calls_of as calls_of_trace

_WHERE_FROM = (
    "From public measurements of single calls, one thread, warm caches: nothing covers contention, "
    "the host's part or waiting. No time of this emulator is in it."
)

_NO_TIME: dict[str, object] = {"estimated_machine_ns": None, "grade": None}


@dataclass(frozen=True, slots=True)
class Estimated:
    """An estimate of a file, and the parts of the file that it leaves out.

    `host_nodes` counts nodes of a model on the host; `missing_end` says why a trace is cut.
    """

    estimate: Estimate
    host_nodes: int = 0
    missing_end: str = ""


@click.command("estimate", epilog=f"{EXIT_CODES} A model that cannot be hosted is refused.")
@click.argument("file", required=False, type=FILE)
@click.option("--machine", "names", multiple=True, metavar="MACHINE",
              help="Machine or alias, such as z16, or JSON of a custom machine, or its file (a "
              "custom machine has its base's times); repeatable. Default: all Telums.")  # fmt: skip
@asking_options
@click.option("--ledger", "shows_ledger", is_flag=True,
              help="Without FILE: published times of the machines beside estimates, and their "
              "ratio; exit code 1 where one lies outside.")  # fmt: skip
@json_option("Print JSON.")
def estimate_command(
    file: Path | None,
    names: tuple[str, ...],
    shows_ledger: bool,
    as_json: bool,
    **asking: Unpack[Asking],
) -> None:
    """Estimate the time of an ONNX model, or of a recorded trace, on the zAIU of a z16 and z17.

    Each time is an interval with a grade, from A (measured, fits well) to D (derived); --ledger
    compares the estimates with published times. All figures are public; nothing is measured here.
    A sentence names what takes most of the time, and what would change it.
    """
    if shows_ledger == (file is not None):
        raise click.UsageError("FILE or --ledger: expected one of them")
    if file is None:
        _show_ledger(as_json)
        return
    with reported():
        estimates = list(_estimates(file, _machines(names or TELUMS), asking))
    if as_json:
        print_json(_document(file, estimates))
    else:
        _print(file, estimates)


def _machines(texts: Iterable[str]) -> Mapping[str, Host]:
    """Return machines by the text that a session takes, each machine once."""
    hosts = ((text, estimated_machine(text)) for text in texts)
    return {text if host.base else host.name: host for text, host in hosts}


def _estimates(file: Path, chosen: Mapping[str, Host], asking: Asking) -> Iterator[Estimated]:
    """Yield an estimate for each machine, of a trace or of a compiled model."""
    if not is_trace(file):
        yield from (_of_model(file, text, host, asking) for text, host in chosen.items())
        return
    if asking["shapes"] or asking["target"]:
        raise ValueError(f"{file}: a trace has its shapes, and takes no server")
    recorded = read(file)
    calls = calls_of_trace(recorded)
    for host in chosen.values():
        yield Estimated(estimate(calls, host), missing_end=recorded.ending)


def _of_model(file: Path, machine: str, host: Host, asking: Asking) -> Estimated:
    with loaded(file, hosting_on(machine, asking)) as net:
        program = calls_of(Program.FromString(net.export_program(contents=False)))
    return Estimated(estimate(program.calls, host), program.host_nodes)


def _print(file: Path, estimates: Sequence[Estimated]) -> None:
    console = table_console()
    for estimated in estimates:
        of = estimated.estimate
        if not of.lines:
            echo(f"{file.name} on {of.machine}: {_nothing(estimated)}")
        else:
            echo(f"{file.name} on {of.machine}: {of.total.graded}")
            console.print(_table(of))
            echo(dominant(of))
        for sentence in _left_out(estimated):
            echo(sentence)
        echo()
    _print_grades({line.interval.grade for each in estimates for line in each.estimate.lines})
    echo(_WHERE_FROM)


def _nothing(estimated: Estimated) -> str:
    if estimated.estimate.missing or not estimated.host_nodes:
        return "nothing to estimate"
    return (
        "nothing to estimate: nothing of this model runs on the accelerator, and `nnpa network "
        "analyze` says why"
    )


def _table(of: Estimate) -> Table:
    table = Table(box=box.SIMPLE, show_footer=True)
    count = sum(line.count for line in of.lines)
    table.add_column("operation", footer="in all")
    table.add_column("calls", footer=str(count), justify="right")
    table.add_column("time on the machine", footer=str(of.total))
    table.add_column("grade", footer=of.total.grade)
    for line in of.lines:
        table.add_row(line.function, str(line.count), str(line.interval), line.interval.grade)
    return table


def _left_out(estimated: Estimated) -> Iterator[str]:
    if estimated.host_nodes:
        yield f"Not in it: what runs on the host, {estimated.host_nodes} of the model's nodes."
    if estimated.missing_end:
        yield f"This trace is not complete: {estimated.missing_end}."
    for why, count in estimated.estimate.missing.items():
        yield f"Not in it: {count} of {why}."


def _print_grades(letters: set[str]) -> None:
    for letter in sorted(letters):
        grade = shipped().grades[letter]
        echo(f"{letter}: {grade.means}; from t / {grade.k:g} to t * {grade.k:g}")


def _document(file: Path, estimates: Sequence[Estimated]) -> dict[str, object]:
    return {
        "file": str(file),
        "estimates": [
            {
                "machine": estimated.estimate.machine,
                **(estimated.estimate.total.as_data() if estimated.estimate.lines else _NO_TIME),
                "operations": [
                    {"operation": line.function, "calls": line.count, **line.interval.as_data()}
                    for line in estimated.estimate.lines
                ],
                "dominant": dominant(estimated.estimate),
                "not_estimated": dict(estimated.estimate.missing),
                "host_nodes": estimated.host_nodes,
                "missing_end": estimated.missing_end,
            }
            for estimated in estimates
        ],
        "grades": {
            letter: {"k": grade.k, "means": grade.means}
            for letter, grade in shipped().grades.items()
        },
        "basis": _WHERE_FROM,
    }


def _show_ledger(as_json: bool) -> None:
    entries = ledger()
    widths, unnoticed = median_widths(entries), unnoticed_rows(shipped())
    if as_json:
        document = {
            "points": list(map(_entry_data, entries)),
            "median_width_by_grade": dict(widths),
            "not_held_by_a_point": list(unnoticed),
        }
        print_json(document)
    else:
        table_console().print(_ledger_table(entries))
        for entry in entries:
            if entry.point.untested:
                echo(f"Not tested: {entry.point.what}: {entry.point.untested}.")
        medians = ", ".join(f"{grade} {width:.2g}" for grade, width in widths.items())
        echo(f"Median width by grade, most over least: {medians}")
        echo(f"Held by no tested point: {', '.join(unnoticed)}.")
        for source in dict.fromkeys(entry.point.source for entry in entries):
            echo(f"Source: {source}.")
    if not is_kept(entries):
        sys.exit(NOT_AS_PROMISED)


def _ledger_table(entries: Sequence[Entry]) -> Table:
    columns = ("what", "machine", "batch", "length", "published", "predicted", "ratio", "grade")
    table = simple_table((*columns, "verdict"), right=("batch", "length"))
    for entry in entries:
        point, predicted = entry.point, entry.predicted
        table.add_row(
            point.what,
            point.machine,
            "-" if point.batch is None else str(point.batch),
            "-" if point.length is None else str(point.length),
            Interval(point.low_ns, point.high_ns).as_published,
            "-" if predicted is None else str(predicted),
            "-" if entry.ratio is None else f"{entry.ratio:.2f}",
            "-" if predicted is None else predicted.grade,
            entry.verdict,
            style="red" if entry.verdict == "outside" else None,
        )
    return table


def _entry_data(entry: Entry) -> dict[str, object]:
    point = entry.point
    return {
        "what": point.what,
        "machine": point.machine,
        "batch": point.batch,
        "length": point.length,
        "published_ns": {"low": round(point.low_ns), "high": round(point.high_ns)},
        "predicted": None if entry.predicted is None else entry.predicted.as_data(),
        "published_over_predicted": None if entry.ratio is None else round(entry.ratio, 3),
        "verdict": entry.verdict,
        "untested": point.untested,
        "source": point.source,
    }
