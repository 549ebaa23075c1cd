# SPDX-License-Identifier: Apache-2.0
"""`nnpa conformance`: run vectors, compare two machines' answers to them, and keep the score."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Unpack

import click
from nnpa_client._server.private_server import server_at
from nnpa_client.config import Credentials, credentials_environment, environment_with

from nnpa_tools.commands.cores import cluster_at, cores, jobs_option, ray_option, tell_lost
from nnpa_tools.commands.exit_codes import NOT_AS_PROMISED, reported
from nnpa_tools.commands.outputs import new_file_option
from nnpa_tools.commands.reaching import FILE, Reaching, credentials, reaching_options
from nnpa_tools.commands.score import score
from nnpa_tools.commands.terminal import Terminal, echo, json_option, print_json
from nnpa_tools.conformance.answers import BEYOND, BUCKETS, Report, compare, read_answers
from nnpa_tools.conformance.testee import (
    NodeTestee,
    TesteeError,
    installed_testee,
    run_vectors,
    vectors_of,
)
from nnpa_tools.faults.workers import spread
from nnpa_tools.tables import simple_table

DIFFERENT = 1
_COLUMNS = 148  # what the table takes


@click.group()
def conformance() -> None:
    """Compare machines: the same vectors here and on a real z16 or z17."""


conformance.add_command(score)


@conformance.command()
@click.argument("ours", type=FILE)
@click.argument("theirs", type=FILE)
@json_option("Print the reports as JSON.")
def diff(ours: Path, theirs: Path, as_json: bool) -> None:
    """Print status and ulp differences per function.

    OURS and THEIRS are answers of zdnn-testee. Exit code 0: equal in every status and bit, 1: not
    equal, 2: usage, or nothing to compare.
    """
    try:
        reports = compare(read_answers(ours), read_answers(theirs))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not any(report.cases for report in reports):
        raise click.UsageError(f"{ours.name} and {theirs.name} have no answered vector in common")
    if as_json:
        documents = [{**asdict(report), "equal": report.equal} for report in reports]
        print_json(documents)
    else:
        _print(reports)
    sys.exit(0 if all(report.equal for report in reports) else DIFFERENT)


def _print(reports: Sequence[Report]) -> None:
    console = Terminal(width=max(Terminal().width, _COLUMNS))
    counts = ("cases", "not compared", "status", "other", "elements")
    numbers = (*counts, *(name for _, name in BUCKETS), BEYOND, "NaN", "max ulp")
    table = simple_table(("function", *numbers), right=numbers)
    table.columns[0].no_wrap = True
    for report in reports:
        differing = (len(report.statuses), len(report.others))
        ulps = (*report.ulps.values(), report.worst)
        cells = (report.cases, report.not_compared, *differing, report.elements, *ulps)
        style = None if report.equal else "bold"
        table.add_row(report.function, *map(str, cells), style=style)
    console.print(table)
    for report in reports:
        first = (report.first,) if report.first else ()
        kinds = (("status", report.statuses), ("", report.others), ("bits", first))
        for kind, differences in kinds:
            for difference in differences:
                echo(
                    f"{report.function}/{difference.vector} {difference.place} {kind}: "
                    f"ours {difference.ours}, theirs {difference.theirs}"
                )


@conformance.command("run")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--target", help="A server, host:port or unix:/path; else a private one.")
@reaching_options
@new_file_option("--out", allow_dash=True, default="-", help="Where answers go.")
@jobs_option("Files that run at a time, each on a server of its own. Default: one for each core.")
@ray_option("Run them on a Ray cluster, whose nodes have nnpa-libzdnn too")
def run_files(
    files: tuple[Path, ...],
    target: str | None,
    out: Path,
    jobs: int | None,
    ray: str | None,
    **reaching: Unpack[Reaching],
) -> None:
    """Run FILES, JSON lines of vectors, on the emulated machines, and write the answers.

    Answers are in the order of FILES, the same for any --jobs; with --target all run on that
    server. Needs the wheel nnpa-libzdnn, which carries zdnn-testee.
    """
    lost = list[str]()
    if ray is not None:
        cluster = cluster_at(ray, jobs, target)
        with reported():
            answered = cluster.answers(files, vectors_of, NodeTestee, lost)
            answers = [answer for _file, answer in answered]
    else:
        answers = _answers_here(target, files, cores(jobs), credentials(reaching))
    with click.open_file(out, "wb") as file:
        file.write(b"".join(answers))
    tell_lost(lost)
    if lost:
        sys.exit(NOT_AS_PROMISED)


def _answers_here(
    target: str | None, files: Sequence[Path], jobs: int, shown: Credentials
) -> list[bytes]:
    """Return the answers to each file, from private servers or the server at a target."""
    environment = environment_with(credentials_environment(shown))

    def answer(address: str, file: Path) -> bytes:
        return run_vectors(testee, address, *vectors_of(file), environment)

    try:
        testee = installed_testee()
        return list(spread(min(jobs, len(files)), partial(server_at, target), answer, files))
    except TesteeError as error:
        raise click.ClickException(str(error)) from error
