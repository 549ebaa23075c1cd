# SPDX-License-Identifier: Apache-2.0
"""The command `nnpa`."""

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path

import click
from google.protobuf.json_format import MessageToDict
from nnpa.zdnn.v1.accelerator_pb2 import Machine
from nnpa.zdnn.v1.operation_pb2 import NnpaFunctionCode
from rich import box
from rich.console import Console
from rich.table import Table

from nnpa_client import __version__
from nnpa_client.commands import demo
from nnpa_client.commands.check import check
from nnpa_client.commands.conformance import conformance
from nnpa_client.commands.exit_codes import EXIT_CODES, NOT_AS_PROMISED, reported
from nnpa_client.commands.faults import faults
from nnpa_client.commands.network import network
from nnpa_client.commands.new_token import token
from nnpa_client.commands.run import run
from nnpa_client.commands.top import top
from nnpa_client.commands.trace import trace
from nnpa_client.connection import list_machines
from nnpa_client.libzdnn import libzdnn

_EPILOG = (
    f"{EXIT_CODES} TARGET is host:port or unix:/path; without one, a private server is started."
)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="nnpa", message="%(prog)s %(version)s")
def main() -> None:
    """A Telum in a container: IBM's NNPA accelerator and zDNN, emulated.

    `nnpa demo` shows it at work; `nnpa-server` serves it to others.
    """


main.add_command(check)
main.add_command(conformance)
main.add_command(faults)
main.add_command(libzdnn)
main.add_command(network)
main.add_command(run)
main.add_command(token)
main.add_command(top)
main.add_command(trace)


@main.command(epilog=_EPILOG)
@click.argument("target", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the machines as the wire has them.")
@click.option("--tls-ca", type=_FILE, help="Certificates that may sign the server's, PEM.")
@click.option("--tls-cert", type=_FILE, help="The client's certificate, PEM, for mutual TLS.")
@click.option("--tls-key", type=_FILE, help="The key of --tls-cert, PEM.")
def info(
    target: str | None,
    as_json: bool,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """List the machines of a server: what each has installed, and its limits."""
    machines: list[Machine] = reported(
        lambda: list_machines(target, tls_ca=tls_ca, tls_cert=tls_cert, tls_key=tls_key)
    )
    if as_json:
        click.echo(json.dumps([MessageToDict(machine) for machine in machines], indent=2))
        return
    console = Console()
    console.print(_limits_table(machines))
    console.print(_functions_table(machines))


def _short(machine: Machine) -> str:
    return machine.name.removeprefix("machines/")


def _limits_table(machines: list[Machine]) -> Table:
    table = Table(box=box.SIMPLE, title="Machines", title_justify="left")
    for heading in (
        "name",
        "alias",
        "machine",
        "NNPA",
        "max dim4..dim1",
        "max MiB",
    ):
        table.add_column(heading)
    for machine in machines:
        installed = machine.nnpa_installed
        sizes = (machine.max_dim4, machine.max_dim3, machine.max_dim2, machine.max_dim1)
        limits = " ".join(str(size or machine.max_dim_idx_size) for size in sizes)
        table.add_row(
            _short(machine),
            ", ".join(machine.aliases),
            machine.display_name,
            "yes" if installed else "no",
            limits if installed else "",
            str(machine.max_tensor_size >> 20) if installed else "",
        )
    return table


def _functions_table(machines: list[Machine]) -> Table:
    """Return one row per function that any machine has, one column per machine with NNPA."""
    able = [machine for machine in machines if machine.nnpa_installed]
    table = Table(box=box.SIMPLE, title="Functions", title_justify="left")
    table.add_column("function")
    table.add_column("code", justify="right")
    for machine in able:
        table.add_column(_short(machine), justify="center")
    for code in sorted({code for machine in able for code in machine.functions}):
        marks = ["yes" if code in machine.functions else "-" for machine in able]
        table.add_row(NnpaFunctionCode.Name(code), str(code), *marks)
    return table


@main.command("demo", epilog=_EPILOG)
@click.argument("target", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def run_demo(target: str | None, as_json: bool) -> None:
    """Read handwritten digits with two trained networks on both Telums.

    Each inference is one list of zDNN calls; then the server hosts one of the networks, an ONNX
    file, and is asked through the Open Inference Protocol. Accuracy is compared with the same
    networks in NumPy FP32. Exit code 1 when it is not as promised.
    """
    reports: list[demo.Report] = reported(lambda: demo.run(target))
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(report) for report in reports], indent=2))
    else:
        Console().print(_demo_table(reports))
    if not all(report.as_promised for report in reports):
        click.echo("The result is not as promised.", err=True)
        sys.exit(NOT_AS_PROMISED)


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
