# SPDX-License-Identifier: Apache-2.0
"""Measure the benchmark's rows: `python -m tests.bench [--rows 1 2 5] [--peers] [--awake]`.

`--show` prints the table of the last run; nothing is measured. `--against REV` measures an
older commit beside this tree; `--rows shortcuts [NAME ...]` tags shortcuts with their prices.
`--cpu v3` lets both sides use AVX2 and no AVX-512, but for ONNX Runtime.
"""

import argparse
import importlib
import pkgutil
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

import tests.bench
from tests.bench import against, processor, shortcuts
from tests.bench import options as options_of_rows
from tests.bench.awake import awake
from tests.bench.report import ROWS, Report, look_at_machine, measure

LAST = Path(__file__).parent / "last.json"
WITHOUT_ROWS = frozenset(
    (
        "__main__",
        "against",
        "awake",
        "full_size",
        "options",
        "peers",
        "processor",
        "report",
        "scenarios",
        "shortcuts",
    )
)
SHORTCUTS = "shortcuts"


def main() -> None:
    """Measure the rows of the command line; print and keep the report."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.cpu:
        processor.restrict(arguments.cpu)
    console = Console(width=160)
    if arguments.rows and arguments.rows[0] == SHORTCUTS:
        _tag_prices(console, arguments)
        return
    if arguments.show:
        Report.from_json(LAST.read_text(encoding="utf-8")).show(console)
        return
    options_of_rows.PEERS = arguments.peers
    header = look_at_machine(arguments.awake)
    numbers = _rows(parser, arguments.rows)
    with awake() if arguments.awake else nullcontext():
        if arguments.against:
            _compare(console, numbers, arguments)
            return
        report = Report(header, measure(numbers))
    report.show(console)
    for kept in (LAST if arguments.write else None, arguments.json):
        if kept is not None:
            kept.write_text(report.to_json(), encoding="utf-8")


def _tag_prices(console: Console, arguments: argparse.Namespace) -> None:
    """Measure the shortcuts whose names follow, or all; print and keep their price tags."""
    if arguments.show:
        shortcuts.show(console, shortcuts.from_json(shortcuts.KEPT.read_text(encoding="utf-8")))
        return
    with awake() if arguments.awake else nullcontext():
        prices = shortcuts.measure(arguments.rows[1:])
    shortcuts.show(console, prices)
    for kept in (shortcuts.KEPT if arguments.write else None, arguments.json):
        if kept is not None:
            kept.write_text(shortcuts.to_json(prices), encoding="utf-8")


def _compare(console: Console, numbers: list[str], arguments: argparse.Namespace) -> None:
    """Measure an older commit beside this tree; print and keep the comparison."""
    flags = ["--peers"] if arguments.peers else []
    rows = [ROWS[number] for number in numbers]
    cases = against.comparison(rows, arguments.against, arguments.rounds, flags)
    against.show(console, cases)
    if arguments.json is not None:
        arguments.json.write_text(against.to_json(arguments.against, cases), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    add = parser.add_argument
    add("--rows", nargs="+", metavar="ROW", help="row numbers, default all")
    add("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    add("--peers", action="store_true", help="make the environments of peers, and measure them")
    add("--cpu", choices=processor.PROCESSORS, help="use the instructions of an older processor")
    add("--awake", action="store_true", help="keep cores from halting, which slows wake-ups of VMs")
    add("--write", action="store_true", help=f"keep the figures as {LAST.name}")
    add("--show", action="store_true", help=f"print the table of {LAST.name}")
    add("--against", metavar="REV", help="compare with a commit, sides in turns")
    add("--rounds", type=int, default=5, help="rounds of --against on each side, default 5")
    return parser


def _rows(parser: argparse.ArgumentParser, chosen: list[str] | None) -> list[str]:
    """Return the rows to measure, in the table's order; an unknown number ends the program."""
    for module in pkgutil.iter_modules(tests.bench.__path__):
        if module.name not in WITHOUT_ROWS:
            importlib.import_module(f"tests.bench.{module.name}")
    numbers = sorted(ROWS, key=lambda number: (len(number.rstrip("b")), number))
    if unknown := set(chosen or ()) - set(numbers):
        parser.error(f"--rows: {', '.join(sorted(unknown))} not among {', '.join(numbers)}")
    return chosen or numbers


if __name__ == "__main__":
    main()
