# SPDX-License-Identifier: Apache-2.0
"""`nnpa trace`: record programs, look at what they did, run it again, compare it."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from nnpa_client.commands.exit_codes import EXIT_CODES, NOT_AS_PROMISED, reported
from nnpa_client.config import default_target
from nnpa_client.connection import Reach, give_up, open_transport
from nnpa_client.trace.diff import Comparison
from nnpa_client.trace.diff import diff as compare
from nnpa_client.trace.history import Trace, read
from nnpa_client.trace.lint import RULES, Budget, lint
from nnpa_client.trace.record import Recording, run_program
from nnpa_client.trace.replay import replay as play
from nnpa_client.trace.show import as_data, headings, render_comparison, render_report, timeline

_TRACE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OUTPUT = click.Path(dir_okay=False, path_type=Path)
_CONNECT_SECONDS = 10.0
_WIDTH = 1000  # characters of a line that goes into a file, at most
_target = click.option(
    "--target", help="Server, host:port or unix:/path; else ZDNN_SERVER, else a private one."
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_ulp = click.option(
    "--ulp", type=click.IntRange(0), default=0, show_default=True,
    help="Values so many units in the last place of DLFLOAT16 apart are equal.",
)  # fmt: skip


@click.group()
def trace() -> None:
    """Record what a program does on the accelerator, and work with the record."""


def _reach(target: str | None) -> Reach:
    return Reach(target or default_target(), None, None, None, None, None, _CONNECT_SECONDS)


def _console() -> Console:
    """Return where tables go: as wide as the terminal, or wide enough for a file."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def _read(path: Path) -> Trace:
    found: Trace = reported(lambda: read(path))
    return found


@trace.command(epilog="The exit code is the program's, 128 and the number for a signal; 3 server "
               "unreachable, 1 no session was recorded.")  # fmt: skip
@_target
@click.option("--output", "-o", type=_OUTPUT, default="trace.nnpa", show_default=True,
              help="File of the trace.")  # fmt: skip
@click.option("--contents", is_flag=True, help="Record the contents of tensors, too.")
@click.option("--max-bytes", type=click.IntRange(0), default=0,
              help="Cut the trace at so many bytes of records; 0: at 4 GiB.")  # fmt: skip
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def record(
    target: str | None, output: Path, contents: bool, max_bytes: int, program: Sequence[str]
) -> None:
    """Run a program, C or Python, and record its sessions: nnpa trace record -- ./program.

    Sessions join that the program opens at ZDNN_SERVER, which is set for it: libzdnn's do, and
    those of Python's connect() without a target.
    """
    transport, server = reported(lambda: open_transport(_reach(target)))
    try:
        recording = reported(lambda: Recording(transport, output, contents, max_bytes))
        try:
            code = run_program(recording, transport.target, program)
        except OSError as error:
            raise click.UsageError(f"{program[0]}: {error.strerror}") from error
        finally:
            recording.stop()
    finally:
        give_up(transport, server)
    found = recording.read()
    click.echo(f"{output}: {_extent(found)}", err=True)
    sys.exit(code if found.sessions else code or NOT_AS_PROMISED)


def _extent(found: Trace) -> str:
    if not found.sessions:
        return "no session was recorded: does the program use ZDNN_SERVER, or connect()?"
    made = sum(not operation.is_housekeeping for operation in found.operations)
    text = f"{len(found.sessions)} sessions, {len(found.calls)} calls, {made} operations"
    return f"{text}, {found.ending}" if found.ending else text


@trace.command(epilog=EXIT_CODES)
@click.argument("file", type=_TRACE)
@click.option("--all", "everything", is_flag=True, help="What clients did for themselves, too.")
@_json
def show(file: Path, everything: bool, as_json: bool) -> None:
    """Show what a trace has: a line per operation."""
    found = _read(file)
    if as_json:
        click.echo(json.dumps(as_data(found), indent=2))
    else:
        _console().print(timeline(found, everything))


@trace.command(epilog=EXIT_CODES)
@click.argument("file", type=_TRACE)
@_target
@click.option("--machine", help="Machine in the place of the trace's, such as telum1.")
@click.option("--library", help="Version of zDNN in the place of the trace's.")
@click.option("--output", "-o", type=_OUTPUT, help="Keep the trace of the replay in this file.")
@_ulp
@_json
def replay(
    file: Path,
    target: str | None,
    machine: str | None,
    library: str | None,
    output: Path | None,
    ulp: int,
    as_json: bool,
) -> None:
    """Run a trace again and compare; exit code 1 if anything differs."""
    recorded = _read(file)
    transport, server = reported(lambda: open_transport(_reach(target)))
    try:
        found, again = reported(lambda: play(recorded, transport, output, machine, library, ulp))
    finally:
        give_up(transport, server)
    _tell(recorded, again, found, as_json)


@trace.command(epilog=EXIT_CODES)
@click.argument("left", type=_TRACE)
@click.argument("right", type=_TRACE)
@_ulp
@_json
def diff(left: Path, right: Path, ulp: int, as_json: bool) -> None:
    """Compare two traces; exit code 1 if they differ."""
    ours, theirs = _read(left), _read(right)
    _tell(ours, theirs, compare(ours, theirs, ulp), as_json)


@trace.command("lint", epilog=EXIT_CODES)
@click.argument("file", type=_TRACE)
@click.option("--ignore", multiple=True, type=click.Choice(RULES), metavar="RULE",
              help=f"Do not look for this: {', '.join(RULES)}. Repeatable.")  # fmt: skip
@click.option("--max-calls", type=click.IntRange(0), help="Budget of calls to the server.")
@click.option("--max-operations", type=click.IntRange(0), help="Budget of operations.")
@click.option("--max-stickified-bytes", type=click.IntRange(0), metavar="BYTES",
              help="Budget of the sticks that transforms make.")  # fmt: skip
@_json
def lint_command(
    file: Path,
    ignore: Sequence[str],
    max_calls: int | None,
    max_operations: int | None,
    max_stickified_bytes: int | None,
    as_json: bool,
) -> None:
    """Look for waste in a trace; exit code 1 if any is found, or a budget exceeded.

    It counts, and measures no time: the answer is the same on every machine.
    """
    budget = Budget(max_calls, max_operations, max_stickified_bytes)
    report = lint(_read(file), budget, ignore)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(report) | {"clean": report.is_clean}, indent=2))
    else:
        _console().print(render_report(report))
    if not report.is_clean:
        sys.exit(NOT_AS_PROMISED)


def _tell(left: Trace, right: Trace, found: Comparison, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found) | {"equal": found.is_equal}, indent=2))
    else:
        console = _console()
        for title, one in (("left", left), ("right", right)):
            for line in headings(one):
                console.print(f"{title}:", line)
        console.print(render_comparison(found))
    if not found.is_equal:
        sys.exit(NOT_AS_PROMISED)
