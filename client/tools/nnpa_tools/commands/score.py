# SPDX-License-Identifier: Apache-2.0
"""`nnpa conformance score`: the counts of every suite of the project, on one page."""

import datetime
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import click
from nnpa_client._values.display import counted
from nnpa_client.connection import ConnectOptions, connected

from nnpa_tools.commands.exit_codes import NOT_AS_PROMISED, reported
from nnpa_tools.commands.hosting import table_console
from nnpa_tools.commands.outputs import new_folder_option
from nnpa_tools.commands.progress import shown_progress
from nnpa_tools.commands.reaching import FILE
from nnpa_tools.commands.terminal import echo, json_option
from nnpa_tools.conformance.answers import read_answers
from nnpa_tools.conformance.counts import OUTCOMES, Suite
from nnpa_tools.conformance.page import FILES, rows
from nnpa_tools.conformance.real_machines import Measured, Recorded, measured, recorded
from nnpa_tools.conformance.score import Score, changes, read_suites
from nnpa_tools.conformance.suites import SUITES, VECTORS, SuiteKind, Tree, run_suite, tree
from nnpa_tools.tables import simple_table

_SHOWN_FAILURES = 20
_QUICK = "--quick leaves it out"
_NOT_CHOSEN = "--suite leaves it out"
_ENDS = (
    "Exit codes: 0 all passed that ran, 1 a case failed, RESULTS differ from the emulator, or "
    "--against has other counts, "
    "2 usage or a file that is no result, 3 no private server could be started."
)


@click.command("score", epilog=_ENDS)
@click.argument("results", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--quick", is_flag=True, help="Run only the suites that need no clone: vectors and "
              "reference cases, within a minute.")  # fmt: skip
@click.option("--suite", "names", multiple=True, type=click.Choice([s.name for s in SUITES]),
              help="Suite to run; repeatable. Default: all.")  # fmt: skip
@click.option("--vectors", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Folder of vectors, instead of nnpa's own.")  # fmt: skip
@new_folder_option("--out", help="Folder for score.html, score.json, score.svg (badge), score.md.")
@click.option("--against", type=FILE,
              help="Earlier score.json; exit code 1 if a count differs.")  # fmt: skip
@click.option("--onto", type=FILE,
              help="Earlier score.json, for the rows of suites that do not run.")  # fmt: skip
@json_option("Print the score as JSON.")
def score(
    results: tuple[Path, ...],
    quick: bool,
    names: tuple[str, ...],
    vectors: Path | None,
    out: Path | None,
    against: Path | None,
    onto: Path | None,
    as_json: bool,
) -> None:
    """Run every suite and count the cases that passed, failed, were refused, and did not run.

    RESULTS are files of real machines, or folders of such files: output of `zdnn-testee --results`,
    or a trace NAME.nnpa with its heading NAME.nnpa.json. Each becomes a row that compares the
    machine with the emulator. A suite that cannot run here, for want of Go or of a clone of the
    repository, is a row with the reason.
    """
    files = tree()
    with reported():
        kept = None if against is None else read_suites(against)
        earlier = {} if onto is None else read_suites(onto)
        arguments = {file.file for file in recorded(results)}
        own_results = [files.results] if files.results.is_dir() else []
        sent = recorded([*own_results, *results])
    chosen = {kind.name for kind in SUITES if not quick or kind.is_quick} & (
        set(names) or {kind.name for kind in SUITES}
    )
    if not chosen or (sent and VECTORS not in chosen):
        why = "RESULTS need our answers to vectors" if sent else "no suite is left"
        raise click.UsageError(f"--suite, --quick: {why}; add --suite {VECTORS}")
    left_out = {kind.name: _left_out(kind, quick) for kind in SUITES if kind.name not in chosen}
    left_out |= {name: earlier[name] for name in left_out if name in earlier}
    with reported():
        if out is not None:
            import_module("jinja2")  # before the work, not after it
        scored = _score(files, vectors or files.vectors, left_out, sent, quick)
    if out is not None:
        _write(scored, out)
    if as_json:
        click.echo(json.dumps(scored.as_data(), indent=1))
    else:
        _print(scored)
    changed = [] if kept is None else list(changes(scored, kept))
    for text in changed:
        echo(f"{against}: {text}", err=True)
    unlike = [row for row in scored.real_machines if row.file in arguments and not row.is_equal]
    sys.exit(0 if scored.is_right and not changed and not unlike else NOT_AS_PROMISED)


def _score(
    files: Tree,
    vectors: Path,
    left_out: Mapping[str, Suite],
    sent: Sequence[Recorded],
    quick: bool,
) -> Score:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    with tempfile.TemporaryDirectory(prefix="nnpa-") as folder:
        answers = Path(folder) / "answers.jsonl"
        suites = tuple(
            left_out.get(kind.name)
            or replace(_run(kind, files, vectors, answers if sent else None), date=today)
            for kind in SUITES
        )
        machines = _rows(sent, answers)
    return Score(version("nnpa"), today, quick, suites, machines, files.not_public())


def _left_out(kind: SuiteKind, quick: bool) -> Suite:
    why = _QUICK if quick and not kind.is_quick else _NOT_CHOSEN
    return Suite(kind.name, kind.title, why=why)


def _run(kind: SuiteKind, files: Tree, vectors: Path, answers: Path | None) -> Suite:
    kept = answers if kind.name == VECTORS else None
    with shown_progress(f"cases of {kind.title}") as progress:
        return run_suite(kind, files, vectors, kept, progress)


def _rows(sent: Sequence[Recorded], answers: Path) -> tuple[Measured, ...]:
    ours = read_answers(answers) if sent and answers.exists() else {}
    if all(file.trace is None for file in sent):
        return measured(sent, ours, None)
    with connected(ConnectOptions()) as transport:
        return measured(sent, ours, transport)


def _write(scored: Score, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (out / name).write_text(text(scored), encoding="utf-8")


def _print(scored: Score) -> None:
    console = table_console()
    table = simple_table(("suite", *OUTCOMES), right=OUTCOMES)
    for cells in rows(scored.as_data()):
        table.add_row(*cells)
    table.rows[-1].style = "bold"
    console.print(table)
    for text in (*_failures(scored), *_machines(scored), scored.verdict + "."):
        echo(text)


def _failures(scored: Score) -> Iterator[str]:
    cases = [(suite.title, case) for suite in scored.suites for case in suite.failures]
    for title, case in cases[:_SHOWN_FAILURES]:
        place = " ".join(filter(None, (case.group, case.machine, case.name)))
        yield f"failed: {title}, {place}: {case.reason}"
    if len(cases) > _SHOWN_FAILURES:
        yield f"failed: {len(cases) - _SHOWN_FAILURES} more, see score.html of --out"


def _machines(scored: Score) -> Iterator[str]:
    for row in scored.real_machines:
        if not row.file:
            yield f"{row.title}: nobody has sent a result"
            continue
        cases = sum(line.cases for line in row.functions)
        unlike = [line.function for line in row.functions if not line.is_equal]
        verdict = f"not equal in {', '.join(unlike)}" if unlike else "equal"
        yield (
            f"{row.title}, library {row.library}, {row.date}, {row.file}: "
            f"{counted(cases, 'case')} of {counted(len(row.functions), 'function')}, {verdict}"
        )
