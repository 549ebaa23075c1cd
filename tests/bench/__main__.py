# SPDX-License-Identifier: Apache-2.0
"""Measure the benchmark's rows: `python -m tests.bench [--rows 1 2 5] [--peers] [--awake]`."""

import argparse
import importlib
import json
import pkgutil
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

import tests.bench
from tests.bench import options as chosen
from tests.bench import report
from tests.bench.awake import awake

LAST = Path(__file__).parent / "last.txt"


def main() -> None:
    """Measure, print, and keep what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="row numbers, default all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument(
        "--peers", action="store_true", help="make the environments of peers, and measure them"
    )
    parser.add_argument(
        "--awake", action="store_true", help="keep cores from halting, which slows wake-ups of VMs"
    )
    parser.add_argument("--write", action="store_true", help=f"keep the output as {LAST.name}")
    options = parser.parse_args()
    chosen.PEERS = options.peers
    top = report.header(options.awake)
    for module in pkgutil.iter_modules(tests.bench.__path__):
        if module.name not in ("__main__", "awake", "options", "peers", "report"):
            importlib.import_module(f"tests.bench.{module.name}")
    known = sorted(report.ROWS, key=lambda number: (len(number.rstrip("b")), number))
    unknown = set(options.rows or ()) - set(known)
    if unknown:
        parser.error(f"--rows: {', '.join(sorted(unknown))} not among {', '.join(known)}")
    with awake() if options.awake else nullcontext():
        results = report.measure(options.rows or known)
    console = Console(record=True, width=160)
    report.show(console, top, results)
    if options.write:
        text = "\n".join(line.rstrip() for line in console.export_text().splitlines())
        LAST.write_text(text + "\n", encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(report.as_json(top, results), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
