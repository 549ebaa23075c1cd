# SPDX-License-Identifier: Apache-2.0
"""`nnpa doctor`: one verdict on a program, for a pull request."""

import dataclasses
import shutil
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from nnpa_client._guest.custom_machine import find_machine
from nnpa_client._values.availability import LIBRARIES

from nnpa_tools.commands.check import (
    ELF_MAGIC,
    NothingToCheck,
    Row,
    functions_of,
    hosts_of,
    overall,
    rows,
)
from nnpa_tools.commands.exit_codes import NOT_AS_PROMISED, reported, starting
from nnpa_tools.commands.terminal import echo, json_option, print_json, visible
from nnpa_tools.doctor.examination import Progress, examine
from nnpa_tools.doctor.laboratory import TITLES
from nnpa_tools.doctor.markdown import verdict
from nnpa_tools.doctor.report import Checked, Report
from nnpa_tools.faults.sweep import Unusable

_EXIT_CODES = (
    "Exit codes: 0 nothing found, 1 something is found, also in a program that fails or does not "
    "end, 2 usage: no such program, or one that never calls zDNN, 3 server unreachable."
)
_CHECKED = (*TITLES, "z15")


def _machines(
    _context: click.Context, _option: click.Parameter, names: Sequence[str]
) -> tuple[str, ...]:
    try:
        chosen = {name: find_machine(name) for name in names or TITLES}
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    unfit = [host.name for host in chosen.values() if host.model not in TITLES]
    if unfit:
        expected = ", ".join(f"{name} ({title})" for name, title in TITLES.items())
        raise click.BadParameter(f"{unfit[0]!r} has no NNPA, expected one of {expected}")
    return tuple(dict.fromkeys(text if host.base else host.name for text, host in chosen.items()))


@click.command(epilog=_EXIT_CODES)
@click.option("--machine", "machines", multiple=True, metavar="MACHINE", callback=_machines,
              help="Machine that the program must run on: z16, z17, JSON of a custom machine, or "
              "its file; repeatable. Default: z16 and z17. The program runs on both in any case; a "
              "failure on a machine that is not named is no finding.")  # fmt: skip
@click.option("--quick", is_flag=True, help="One server, and no run with injected statuses.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=60.0,
              show_default=True, help="Seconds after which a run counts as hung and is killed "
              "with all its processes.")  # fmt: skip
@json_option("Print the report as JSON.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def doctor(
    machines: tuple[str, ...],
    quick: bool,
    timeout: float,
    as_json: bool,
    program: tuple[str, ...],
) -> None:
    """Examine a program and print a verdict in Markdown: nnpa doctor -- ./program.

    PROGRAM is a C program that uses libzdnn, a Python program that calls connect() without a
    target, or a program for s390x as for `nnpa run`. It runs without input on z16 and z17, without
    NNPA, with zDNN 1.0 to 1.2, with the sanitizer, and once for each of its calls with a status of
    each class. The verdict lists differences between machines, ignored statuses, repeated
    transforms, possible savings, and the result of `nnpa check`. A program for s390x carries its
    own library: the verdict covers machines, instructions and times only.
    """
    path = _file_of(program[0])
    with _progress() as progress, starting(program[0]), reported():
        try:
            report = examine(program, machines, timeout, quick, progress)
        except Unusable as error:
            raise click.UsageError(f"{program[0]}: {error}") from error
    report = dataclasses.replace(report, check=tuple(_checked(path, report)))
    if as_json:
        print_json(report.as_data())
    else:
        echo(verdict(report), nl=False)
    if not report.is_clean:
        sys.exit(NOT_AS_PROMISED)


def _file_of(name: str) -> Path:
    """Return the file of a program; raise UsageError if it cannot be started."""
    path = shutil.which(name)
    if path is not None:
        return Path(path)
    if Path(name).is_file():
        raise click.UsageError(
            f"{name}: not executable: chmod +x, or name what runs it: nnpa doctor -- python {name}"
        )
    raise click.UsageError(f"{name}: no such program")


@contextmanager
def _progress() -> Generator[Progress]:
    """Show progress on standard error: one line in a terminal, else a line for each tenth."""
    is_terminal, lines = sys.stderr.isatty(), set[tuple[str, int]]()

    def show(what: str, done: int, total: int) -> None:
        line = f"nnpa doctor: {what}, {done} of {total}"
        tenth = what, 10 * done // total
        if is_terminal:
            click.echo(f"\r\033[K{visible(line)}", err=True, nl=False)
        elif tenth not in lines:
            echo(line, err=True)
            lines.add(tenth)

    try:
        yield show
    finally:
        if is_terminal:
            echo(err=True)


def _checked(path: Path, report: Report) -> Iterator[Checked]:
    """Yield the verdict of `nnpa check` on the functions that a program imports, or called."""
    try:
        content = path.read_bytes()
        imported = functions_of(str(path), content) if content.startswith(ELF_MAGIC) else ()
    except NothingToCheck:
        imported = ()
    names = list(imported or report.functions)
    hosts = hosts_of(dict.fromkeys((*_CHECKED, *report.machines)))
    judged = rows(names, hosts, LIBRARIES[-1])
    for host in hosts:
        yield Checked(host.title, overall(judged, host), tuple(_why(judged, host.name)))


def _why(judged: Sequence[Row], machine: str) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for row in judged:
        reason = row.verdicts[machine].reason
        if reason:
            reasons.setdefault(reason, []).append(f"zdnn_{row.name}")
    yield from (f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
