# SPDX-License-Identifier: Apache-2.0
"""`nnpa demo` on the command line: its table, its JSON, its exit code."""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Unpack

import click
from rich import box
from rich.console import Console
from rich.table import Table

from nnpa_client.commands import demo
from nnpa_client.commands.exit_codes import EXIT_CODES_WITH_TARGET, NOT_AS_PROMISED, reported
from nnpa_client.commands.reaching import Reaching, credentials, reaching_options


@click.command("demo", epilog=EXIT_CODES_WITH_TARGET)
@click.argument("target", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@reaching_options
def run_demo(target: str | None, as_json: bool, **reaching: Unpack[Reaching]) -> None:
    """Read handwritten digits with two trained networks on both Telums.

    Each inference is one list of zDNN calls; then the server hosts one of the networks, an ONNX
    file, and is asked through the Open Inference Protocol. Accuracy is compared with the same
    networks in NumPy FP32. Exit code 1 when it is not as promised.

    Where kernels are not compiled yet, NumPy computes the same bits; they are compiled after the
    report, and Ctrl-C leaves the rest of that to later runs.
    """
    reports: list[demo.Report] = reported(lambda: demo.run(target, credentials(reaching)))
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(report) for report in reports], indent=2))
    else:
        Console().print(_demo_table(reports))
    if any(report.by_numpy for report in reports):
        click.echo("Times are those of NumPy. Later runs are faster: Ctrl-C puts it off.", err=True)
        with contextlib.suppress(KeyboardInterrupt):
            reported(lambda: demo.compile_kernels(_compiling))
    if not all(report.as_promised for report in reports):
        click.echo("The result is not as promised.", err=True)
        sys.exit(NOT_AS_PROMISED)


def _compiling(done: int, steps: int) -> None:
    """Show on standard error how far kernels are compiled: one line, on a terminal over itself."""
    text = f"compiling kernels, once for this machine: {done} of {steps}"
    if sys.stderr.isatty():
        click.echo(f"\r{text}", err=True, nl=done == steps)
    elif done in (0, steps):
        click.echo(text, err=True)


def _demo_table(reports: list[demo.Report]) -> Table:
    title = f"{reports[0].networks[0].digits} handwritten digits that the networks have not seen"
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for report in reports:
        table.add_column(report.display_name, no_wrap=True)
    for results in zip(*(report.networks for report in reports), strict=True):
        table.add_section()
        table.add_row(f"[bold]{results[0].title}[/bold]")
        for heading, cell in _DEMO_ROWS:
            table.add_row(f"  {heading}", *(cell(result) for result in results))
        for rank in range(len(results[0].slowest)):
            heading = "  slowest, ms" if rank == 0 else ""
            table.add_row(heading, *(_slow(result.slowest[rank]) for result in results))
    table.add_section()
    table.add_row(f"[bold]{reports[0].model.title}[/bold]")
    for heading, model_cell in _MODEL_ROWS:
        table.add_row(f"  {heading}", *(model_cell(report.model) for report in reports))
    table.add_section()
    table.add_row("as promised", *("yes" if report.as_promised else "NO" for report in reports))
    return table


def _slow(operation: demo.OperationTime) -> str:
    return f"{operation.milliseconds:.1f} {operation.function} {operation.purpose}"


_DEMO_ROWS: tuple[tuple[str, Callable[[demo.NetworkReport], str]], ...] = (
    ("your data, FP32", lambda result: f"{_times(result.shape)}: {result.dense_bytes} B"),
    ("sticks, DLFLOAT16", lambda result: f"{_times(result.stick_shape)}: {result.stick_bytes} B"),
    ("accuracy", lambda result: f"{result.accuracy:.2%}"),
    ("accuracy in FP32", lambda result: f"{result.reference_accuracy:.2%}"),
    ("answers as in FP32", lambda result: f"{result.same_answers} of {result.digits}"),
    ("likelihoods off by", lambda result: f"{result.worst_difference:.2g}"),
    ("range violations", lambda result: str(result.violations)),
    ("calls in one list", lambda result: f"{result.calls} in {result.round_trip_ms:.1f} ms"),
)

_MODEL_ROWS: tuple[tuple[str, Callable[[demo.ModelReport], str]], ...] = (
    ("your data, FP32", lambda result: _times(result.shape)),
    ("nodes", lambda result: f"{result.on_accelerator} NNPA, {result.on_host} host"),
    ("accuracy", lambda result: f"{result.accuracy:.2%}"),
    ("accuracy in FP32", lambda result: f"{result.reference_accuracy:.2%}"),
    ("answers as in FP32", lambda result: f"{result.same_answers} of {result.digits}"),
    ("likelihoods off by", lambda result: f"{result.worst_difference:.2g}"),
    ("range violations", lambda result: str(result.violations)),
    ("one ModelInfer", lambda result: f"{result.round_trip_ms:.1f} ms"),
)


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
