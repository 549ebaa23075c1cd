# SPDX-License-Identifier: Apache-2.0
"""`nnpa trace`: record programs, show, replay, compare and lint their traces."""

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack

import click
from nnpa_client._server.transport import Transport
from nnpa_client._values.display import counted
from nnpa_client.config import default_target
from nnpa_client.connection import ConnectOptions, connected
from nnpa_client.trace.history import Trace, read
from nnpa_client.trace.record import Recording, run_program
from rich.console import Group, RenderableType
from rich.text import Text

from nnpa_tools.commands.cores import cluster_at, cores, jobs_option, ray_option, tell_lost
from nnpa_tools.commands.exit_codes import EXIT_CODES, NOT_AS_PROMISED, reported, starting
from nnpa_tools.commands.outputs import new_file_option
from nnpa_tools.commands.reaching import FILE, Reaching, credentials, reaching_options
from nnpa_tools.commands.terminal import Terminal, echo, json_option, print_json
from nnpa_tools.doctor.lint import RULES, Budget, Report, lint
from nnpa_tools.faults.workers import spread
from nnpa_tools.jobs import Cluster
from nnpa_tools.traces.diff import Comparison
from nnpa_tools.traces.diff import diff as compare
from nnpa_tools.traces.replay import replay as play
from nnpa_tools.traces.replays import Replayer
from nnpa_tools.traces.show import as_data, headings, render_comparison, timeline

_WIDTH = 1000  # maximum line length in a file, characters
_target = click.option(
    "--target", help="Server, host:port or unix:/path; else ZDNN_SERVER, else a private one."
)
_json = json_option("Print JSON.")
_ulp = click.option(
    "--ulp", type=click.IntRange(0), default=0, show_default=True,
    help="Largest distance of equal values, in units in the last place of DLFLOAT16.",
)  # fmt: skip


@click.group()
def trace() -> None:
    """Record a program's calls of the accelerator; show, replay, compare and lint traces."""


def _reach(target: str | None, shown: Reaching) -> ConnectOptions:
    return ConnectOptions(target=target or default_target(), **credentials(shown))


def _console() -> Terminal:
    """Return the console for tables: as wide as the terminal, wider for a file."""
    console = Terminal()
    return console if console.is_terminal else Terminal(width=_WIDTH)


def _read(path: Path) -> Trace:
    with reported():
        return read(path)


@trace.command(epilog="The exit code is the program's, 128 and the number for a signal; 3 server "
               "unreachable, 1 no session was recorded.")  # fmt: skip
@_target
@reaching_options
@new_file_option("--output", "-o", default="trace.nnpa", show_default=True,
                 help="File of the trace.")  # fmt: skip
@click.option("--contents", is_flag=True, help="Record the contents of tensors, too.")
@click.option("--max-bytes", type=click.IntRange(0), default=0,
              help="Cut the trace at this number of bytes of records; 0: at 4 GiB.")  # fmt: skip
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def record(
    target: str | None,
    output: Path,
    contents: bool,
    max_bytes: int,
    program: Sequence[str],
    **reaching: Unpack[Reaching],
) -> None:
    """Run a program, C or Python, and record its sessions: nnpa trace record -- ./program.

    The command sets ZDNN_SERVER for the program, and records the sessions that it opens there:
    through libzdnn, or through Python's connect() without a target.
    """
    with ExitStack() as stack:
        with reported():
            transport = stack.enter_context(connected(_reach(target, reaching)))
            recording = Recording(transport, output, contents, max_bytes)
        stack.callback(recording.stop)
        with starting(program[0]):
            code = run_program(recording, transport.target, program, credentials(reaching))
    recorded = recording.read()
    echo(f"{output}: {_extent(recorded)}", err=True)
    sys.exit(code if recorded.sessions else code or NOT_AS_PROMISED)


def _extent(recorded: Trace) -> str:
    if not recorded.sessions:
        return "no session was recorded: does the program use ZDNN_SERVER, or connect()?"
    operations = sum(not operation.is_housekeeping for operation in recorded.operations)
    counts = {"session": len(recorded.sessions), "call": len(recorded.calls)}
    counts["operation"] = operations
    text = ", ".join(counted(count, name) for name, count in counts.items())
    return f"{text}, {recorded.ending}" if recorded.ending else text


@trace.command(epilog=EXIT_CODES)
@click.argument("file", type=FILE)
@click.option(
    "--all", "everything", is_flag=True, help="Show also the calls that clients make on their own."
)
@_json
def show(file: Path, everything: bool, as_json: bool) -> None:
    """Show a trace, one line for each operation."""
    recorded = _read(file)
    if as_json:
        print_json(as_data(recorded))
    else:
        _console().print(timeline(recorded, everything))


@trace.command(epilog=EXIT_CODES)
@click.argument("files", nargs=-1, required=True, type=FILE)
@_target
@reaching_options
@click.option(
    "--machine",
    help="Machine instead of the trace's: a name such as telum1, JSON of a custom machine, or its "
    "file.",
)
@click.option("--library", help="Version of zDNN instead of the trace's.")
@new_file_option("--output", "-o", help="File for the trace of the replay.")
@jobs_option("Number of parallel replays, each on its own server. Default: one for each core.")
@ray_option("Run them on a Ray cluster")
@_ulp
@_json
def replay(
    files: tuple[Path, ...],
    target: str | None,
    machine: str | None,
    library: str | None,
    output: Path | None,
    jobs: int | None,
    ray: str | None,
    ulp: int,
    as_json: bool,
    **reaching: Unpack[Reaching],
) -> None:
    """Run traces again and compare; exit code 1 if anything differs.

    With --target all traces run on that server. The report does not depend on --jobs or --ray: it
    has a comparison for each of FILES, in their order.
    """
    if output is not None and len(files) > 1:
        raise click.UsageError(f"--output: one file for {len(files)} traces")

    replays, lost = Replays(machine, library, output, ulp), list[str]()
    if ray is not None:
        cluster = cluster_at(ray, jobs, target)
        with reported():
            compared = list(replays.on_cluster(cluster, files, lost))
    else:
        at_once, start = min(cores(jobs), len(files)), partial(connected, _reach(target, reaching))
        with reported():
            compared = list(spread(at_once, start, replays.here, files))
    tell_lost(lost)
    if not _print_compared(compared, as_json, several=len(files) > 1) or lost:
        sys.exit(NOT_AS_PROMISED)


@dataclasses.dataclass(frozen=True, slots=True)
class Replays:
    """The options of replays: machine, library, file of the new trace, distance of equal values."""

    machine: str | None
    library: str | None
    output: Path | None
    ulp: int

    def here(self, transport: Transport, file: Path) -> "Compared":
        """Run a trace at a server, and compare."""
        recorded = read(file)
        chosen = (self.output, self.machine, self.library, self.ulp)
        comparison, replayed = play(recorded, transport, *chosen)
        return Compared(file, _headings(recorded, replayed), comparison)

    def on_cluster(
        self, cluster: Cluster, files: Sequence[Path], lost: list[str]
    ) -> "Iterator[Compared]":
        """Run traces on a cluster, and compare here; add traces without an answer to `lost`."""
        for file in files:
            read(file)  # refuses a file that is no trace by its name
        begin = partial(Replayer, self.machine, self.library)
        for file, answer in cluster.answers(files, Path.read_bytes, begin, lost):
            if self.output is not None:
                self.output.write_bytes(answer)
            recorded, replayed = read(file), _trace_of(answer)
            comparison = compare(recorded, replayed, self.ulp, recorded.start.contents)
            yield Compared(file, _headings(recorded, replayed), comparison)


def _trace_of(contents: bytes) -> Trace:
    """Return the trace in the contents of a file."""
    with TemporaryDirectory(prefix="nnpa-") as folder:
        file = Path(folder) / "replayed"
        file.write_bytes(contents)
        return read(file)


@trace.command(epilog=EXIT_CODES)
@click.argument("left", type=FILE)
@click.argument("right", type=FILE)
@_ulp
@_json
def diff(left: Path, right: Path, ulp: int, as_json: bool) -> None:
    """Compare two traces; exit code 1 if they differ."""
    ours, theirs = _read(left), _read(right)
    compared = Compared(left, _headings(ours, theirs), compare(ours, theirs, ulp))
    if not _print_compared([compared], as_json):
        sys.exit(NOT_AS_PROMISED)


@trace.command("lint", epilog=EXIT_CODES)
@click.argument("file", type=FILE)
@click.option("--ignore", multiple=True, type=click.Choice(RULES), metavar="RULE",
              help=f"Rule to leave out: {', '.join(RULES)}. Repeatable.")  # fmt: skip
@click.option("--max-calls", type=click.IntRange(0), help="Budget of calls to the server.")
@click.option("--max-operations", type=click.IntRange(0), help="Budget of operations.")
@click.option("--max-stickified-bytes", type=click.IntRange(0), metavar="BYTES",
              help="Budget of bytes of sticks that transforms write.")  # fmt: skip
@_json
def lint_command(
    file: Path,
    ignore: Sequence[str],
    max_calls: int | None,
    max_operations: int | None,
    max_stickified_bytes: int | None,
    as_json: bool,
) -> None:
    """Find waste in a trace; exit code 1 for a finding, or an exceeded budget.

    The rules count and measure no time, so the answer is the same on every machine.
    """
    budget = Budget(max_calls, max_operations, max_stickified_bytes)
    report = lint(_read(file), budget, ignore)
    if as_json:
        print_json(dataclasses.asdict(report) | {"clean": report.is_clean})
    else:
        _console().print(_findings(report))
    if not report.is_clean:
        sys.exit(NOT_AS_PROMISED)


def _findings(report: Report) -> RenderableType:
    """Return the findings, exceeded budgets and totals of a lint as text."""
    lines = [Text(f"{finding.rule}: {finding.text}", style="yellow") for finding in report.findings]
    lines += [Text(f"budget exceeded: {budget}", style="red") for budget in report.exceeded]
    lines += [Text(f"advice: {text}") for text in report.advice]
    totals = report.totals
    lines += [
        Text(f"calls: {totals.calls}"),
        Text(f"operations: {totals.operations}"),
        Text(f"stickified bytes: {totals.stickified_bytes}, {totals.padding:.0%} padding"),
        Text(f"bytes of arrays: {totals.array_bytes_in} in, {totals.array_bytes_out} back"),
    ]
    return Group(*lines)


@dataclasses.dataclass(frozen=True, slots=True)
class Compared:
    """A comparison of a file's trace with another trace; `sides` describe both."""

    file: Path
    sides: Sequence[tuple[str, Text]]
    comparison: Comparison


def _headings(left: Trace, right: Trace) -> list[tuple[str, Text]]:
    """Return lines that describe both traces, by side."""
    sides = (("left", left), ("right", right))
    return [(f"{side}:", line) for side, recorded in sides for line in headings(recorded)]


def _print_compared(comparisons: Sequence[Compared], as_json: bool, several: bool = False) -> bool:
    """Print comparisons, several with the names of their files; return whether all are equal."""
    if as_json:
        documents = [
            ({"file": str(compared.file)} if several else {})
            | dataclasses.asdict(compared.comparison)
            | {"equal": compared.comparison.is_equal}
            for compared in comparisons
        ]
        for document in [documents] if several else documents:
            print_json(document)
    else:
        console = _console()
        for compared in comparisons:
            if several:
                echo(f"{compared.file}:")
            for side, heading in compared.sides:
                console.print(side, heading)
            console.print(render_comparison(compared.comparison))
    return all(compared.comparison.is_equal for compared in comparisons)
