# SPDX-License-Identifier: Apache-2.0
"""`nnpa faults`: check rules, run programs under them, sweep a program's calls."""

import dataclasses
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from nnpa_client._values.display import counted
from nnpa_client.config import environment_with
from nnpa_client.connection import connect
from nnpa_client.faults.rules import read_rules, schema
from nnpa_client.status import Status, status_name
from rich.table import Table
from rich.text import Text

from nnpa_tools.commands.cores import cores, jobs_option, ray_option, tell_lost
from nnpa_tools.commands.exit_codes import EXIT_CODES, NOT_AS_PROMISED, reported, starting
from nnpa_tools.commands.progress import shown_progress
from nnpa_tools.commands.reaching import FILE
from nnpa_tools.commands.terminal import Terminal, echo, json_option, print_json
from nnpa_tools.faults.program import FaultServer, Marked
from nnpa_tools.faults.sweep import (
    STATUSES,
    VERDICTS,
    Program,
    Site,
    Sweep,
    Trial,
    Unusable,
    sweep,
    sweep_on_cluster,
)
from nnpa_tools.jobs import Cluster
from nnpa_tools.tables import simple_table

_CLASSES = {0x0002: "warning", 0x0004: "parameter", 0x0010: "data", 0x000C: "hardware"}
_COLOURS = {"crashed": "red", "hung": "red", "ignored": "yellow", "missed": "magenta"}


@click.group()
def faults() -> None:
    """Make calls of the accelerator fail, and see how a program behaves."""


@faults.command("schema")
def print_schema() -> None:
    """Print the JSON schema of files of rules."""
    print_json(schema())


@faults.command(epilog=EXIT_CODES)
@click.argument("rules", type=FILE)
def check(rules: Path) -> None:
    """Check RULES on a private server; exit code 2 if it refuses them."""
    with reported():
        parsed = read_rules(rules)
        with connect(allow_faults=True) as session, session.faults(rules=parsed):
            echo(f"{rules}: {counted(len(parsed), 'rule')}")


@faults.command("run", epilog="The exit code is the program's, 128 and the number for a signal.")
@click.argument("rules", type=FILE)
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run_program(rules: Path, program: Sequence[str]) -> None:
    """Run a program that uses libzdnn under RULES: nnpa faults run rules.yaml -- ./program.

    The command starts a private server, and lists the injected faults on standard error.
    """
    with reported():
        read_rules(rules)
    server = FaultServer()
    chosen = {"ZDNN_SERVER": server.target, "ZDNN_FAULTS": str(rules)}
    try:
        with starting(program[0]):
            code = subprocess.run(program, env=environment_with(chosen), check=False).returncode
        _print_marked(server.marked())
    finally:
        server.stop()
    sys.exit(128 - code if code < 0 else code)


def _print_marked(marked: Sequence[Marked]) -> None:
    title = f"{counted(len(marked), 'fault')} injected"
    table = simple_table(("session", "call", "operation", "rule", "effect", "detail"), title=title)
    for mark in marked:
        table.add_row(*map(str, dataclasses.astuple(mark)))
    Terminal(stderr=True).print(table)


def _status(_context: click.Context, _option: click.Parameter, names: Sequence[str]) -> list[int]:
    choices = {status.name for status in STATUSES}
    for name in names:
        if name not in choices:
            raise click.BadParameter(f"{name!r}, must be one of {', '.join(sorted(choices))}")
    return [Status[name] for name in names] or list(STATUSES)


@faults.command("sweep", epilog=f"{EXIT_CODES} 1 here: a run crashed or hung, or an error was "
                "ignored.")  # fmt: skip
@click.option("--status", "statuses", multiple=True, metavar="NAME", callback=_status,
              help="Status to inject, repeatable. Default: every status of zDNN.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=10.0,
              show_default=True, help="Seconds after which a run counts as hung.")  # fmt: skip
@click.option("--machine", default="",
              help="Machine that the program runs on: a name such as telum1, JSON of a custom "
              "machine, or its file.")  # fmt: skip
@jobs_option("Number of parallel runs, each with its own server; auto: one for each core. Default: "
             "1, as runs of the program may share a file.")  # fmt: skip
@ray_option("Run on a Ray cluster, two runs for each CPU; its nodes need the program under the "
            "same path")  # fmt: skip
@json_option("Print every run as JSON.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run_sweep(
    statuses: list[int],
    timeout: float,
    machine: str,
    jobs: int | None,
    ray: str | None,
    as_json: bool,
    program: Sequence[str],
) -> None:
    """Run a program once for each of its calls and each status: nnpa faults sweep -- ./program.

    In each run one call does its work and returns the status nevertheless. "handled": the program
    ends, prints or continues in another way than without faults; "ignored": in the same way, which
    is right for warnings; "crashed": a signal ended it; "hung": it did not end in time. The program
    gets no input, and a private server in ZDNN_SERVER. --jobs and --ray do not change verdicts
    unless runs disturb one another, by a file that each writes or by a busy machine.
    """
    runs = Program(list(program), timeout, machine)
    with shown_progress("runs") as progress, starting(program[0]), reported():
        try:
            if ray is None:
                swept = sweep(runs, statuses, progress, 1 if jobs is None else cores(jobs))
            else:
                swept = sweep_on_cluster(runs, statuses, Cluster(ray, jobs), progress)
        except Unusable as error:
            raise click.UsageError(str(error)) from error
    tell_lost(swept.lost)
    if as_json:
        print_json(as_data(program, swept))
    else:
        Terminal().print(matrix(swept))
    if swept.lost or not all(trial.is_fine for trial in swept.trials):
        sys.exit(NOT_AS_PROMISED)


def as_data(program: Sequence[str], swept: Sweep) -> dict[str, object]:
    """Return the JSON document of a sweep."""
    runs = [
        {
            "call": trial.site.call,
            "operation": trial.site.operation,
            "status": status_name(trial.status),
            "verdict": trial.verdict,
            "exit_code": trial.code if trial.code is not None and trial.code >= 0 else None,
            "signal": _signal(trial.code),
            "seconds": round(trial.seconds, 3),
        }
        for trial in swept.trials
    ]
    calls = [{"call": site.call, "operation": site.operation} for site in swept.sites]
    return {
        "program": list(program),
        "steady_output": swept.steady,
        "calls": calls,
        "runs": runs,
        "counts": swept.counts(),
    }


def _signal(code: int | None) -> str | None:
    return signal.Signals(-code).name if code is not None and code < 0 else None


def matrix(swept: Sweep) -> Table:
    """Return a sweep as a table: a row for each call, a column for each class of statuses."""
    summary = ", ".join(f"{count} {name}" for name, count in swept.counts().items() if count)
    title = f"{counted(len(swept.trials), 'run')}: {summary}"
    severities = {trial.status >> 16 for trial in swept.trials}
    classes = [number for number in _CLASSES if number in severities]
    headings = ("call", "function", *(_CLASSES[number] for number in classes))
    table = simple_table(headings, right=("call",), title=title)
    for site in swept.sites:
        cells = [_cell(swept.trials, site, number) for number in classes]
        table.add_row(str(site.call), f"zdnn_{site.operation}", *cells)
    return table


def _cell(trials: Sequence[Trial], site: Site, kind: int) -> Text:
    """Return the verdicts of a class of statuses at a call: "handled", "9 handled, 1 hung"."""
    injected = [trial for trial in trials if trial.site == site and trial.status >> 16 == kind]
    counts = Counter(trial.verdict for trial in injected)
    fine = all(trial.is_fine for trial in injected)
    parts = [
        (verdict, verdict if len(counts) == 1 else f"{counts[verdict]} {verdict}")
        for verdict in VERDICTS
        if counts[verdict]
    ]
    return Text(", ").join(
        Text(text, style="" if fine else _COLOURS.get(verdict, "")) for verdict, text in parts
    )
