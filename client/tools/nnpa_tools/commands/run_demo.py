# SPDX-License-Identifier: Apache-2.0
"""`nnpa demo` on the command line: its table, its JSON, its exit code."""

import dataclasses
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Unpack

import click
from nnpa_client.networks import held_out
from nnpa_client.networks.digits import MODEL_FILE
from rich import box
from rich.table import Table
from rich.text import Text

from nnpa_tools.commands import demo
from nnpa_tools.commands.exit_codes import EXIT_CODES_WITH_TARGET, NOT_AS_PROMISED, reported
from nnpa_tools.commands.reaching import Reaching, credentials, reaching_options
from nnpa_tools.commands.terminal import Terminal, echo, json_option, print_json


@click.command("demo", epilog=EXIT_CODES_WITH_TARGET)
@click.argument("target", required=False)
@json_option("Print the report as JSON.")
@reaching_options
def run_demo(target: str | None, as_json: bool, **reaching: Unpack[Reaching]) -> None:
    """Read handwritten digits with two trained networks on all Telums.

    Each inference is one list of zDNN calls. Then the server hosts one of the networks as an ONNX
    file, and answers through the Open Inference Protocol. The command compares the accuracy with
    the same networks in NumPy FP32, and ends with 1 if it is lower than promised.
    """
    if as_json:
        with reported():
            reports = demo.run(target, credentials(reaching))
        print_json([dataclasses.asdict(report) for report in reports])
    else:
        terminal = Terminal()
        count = len(held_out().labels)
        terminal.print(f"  {count} handwritten digits that the networks have not seen")
        with reported():
            reports = demo.run(target, credentials(reaching), partial(_show, terminal))
        terminal.print(_promises(reports))
        echo(f"{_effect(reports)}\nNext: {_next_command()}")
    if not all(report.as_promised for report in reports):
        echo("The result is not as promised.", err=True)
        sys.exit(NOT_AS_PROMISED)


def _show(terminal: Terminal, names: Sequence[str], parts: Sequence[demo.Results]) -> None:
    """Print one part of the demo, with a column for each machine."""
    table = _table(*names)
    table.add_row(Text(parts[0].title, style="bold"))
    networks = [part for part in parts if isinstance(part, demo.NetworkReport)]
    models = [part for part in parts if isinstance(part, demo.ModelReport)]
    for heading, cell in _NETWORK_ROWS if networks else ():
        table.add_row(f"  {heading}", *map(cell, networks))
    for heading, model_cell in _MODEL_ROWS if models else ():
        table.add_row(f"  {heading}", *map(model_cell, models))
    for heading, part_cell in _ROWS:
        table.add_row(f"  {heading}", *map(part_cell, parts))
    heading = "calls in one list" if networks else "one ModelInfer"
    table.add_row(f"  {heading}", *map(_round_trip, parts))
    for rank in range(len(networks[0].slowest) if networks else 0):
        heading = "  slowest, ms" if rank == 0 else ""
        table.add_row(heading, *(_slow(network.slowest[rank]) for network in networks))
    terminal.print(table)


def _promises(reports: Sequence[demo.Report]) -> Table:
    table = _table(*(report.display_name for report in reports))
    table.show_header = False
    table.add_row("as promised", *("yes" if report.as_promised else "NO" for report in reports))
    return table


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE)
    table.add_column("", no_wrap=True, min_width=21)
    is_narrow = len(names) > 2  # more machines share a line of 80 characters by wrapping
    for name in names:
        table.add_column(name, no_wrap=not is_narrow, min_width=None if is_narrow else 25)
    return table


def _effect(reports: Sequence[demo.Report]) -> str:
    """Return a sentence on the answers that DLFLOAT16 changed."""
    digits = reports[0].model.digits
    counts = list[str]()
    for report in reports:
        parts: list[demo.Results] = [*report.networks, report.model]
        read = sum(part.digits for part in parts)
        changed = read - sum(part.same_answers for part in parts)
        if changed:
            counts.append(f"{changed} of {read} answers on {report.display_name}")
    what = "; ".join(counts) or "no answer on any machine"
    return f"On {digits} digits DLFLOAT16 changed {what}."


def _next_command() -> str:
    """Return a command to try next, ready to be pasted into this shell."""
    program = Path(sys.argv[0])
    on_path = shutil.which("nnpa")
    name = "nnpa" if on_path and Path(on_path) == program else _from_here(program)
    return f"{name} network analyze {_from_here(MODEL_FILE)}"


def _from_here(path: Path) -> str:
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def _round_trip(part: demo.Results) -> str:
    time = f"{part.round_trip_ms:.1f} ms"
    return f"{part.calls} in {time}" if isinstance(part, demo.NetworkReport) else time


def _slow(operation: demo.OperationTime) -> str:
    return f"{operation.milliseconds:.1f} {operation.function} {operation.purpose}"


_NETWORK_ROWS: tuple[tuple[str, Callable[[demo.NetworkReport], str]], ...] = (
    ("your data, FP32", lambda result: f"{_times(result.shape)}: {result.dense_bytes} B"),
    ("sticks, DLFLOAT16", lambda result: f"{_times(result.stick_shape)}: {result.stick_bytes} B"),
)
_MODEL_ROWS: tuple[tuple[str, Callable[[demo.ModelReport], str]], ...] = (
    ("your data, FP32", lambda result: _times(result.shape)),
    ("nodes", lambda result: f"{result.on_accelerator} NNPA, {result.on_host} host"),
)
_ROWS: tuple[tuple[str, Callable[[demo.Part], str]], ...] = (
    ("accuracy", lambda result: f"{result.accuracy:.2%}"),
    ("accuracy in FP32", lambda result: f"{result.reference_accuracy:.2%}"),
    ("answers as in FP32", lambda result: f"{result.same_answers} of {result.digits}"),
    ("likelihoods off by", lambda result: f"{result.worst_difference:.2g}"),
    ("range violations", lambda result: str(result.violations)),
)


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
