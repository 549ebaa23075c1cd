# SPDX-License-Identifier: Apache-2.0
"""`nnpa network`: host an ONNX model on a machine, and measure it."""

import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, Unpack

import click
import numpy as np
from nnpa.network.v1.program_pb2 import Program
from nnpa_client._values.display import counted
from nnpa_client._values.user_arrays import Array
from nnpa_client.network.hosted import Network, ProbeRun
from nnpa_files import external_data
from rich.table import Table

from nnpa_tools.commands.exit_codes import NOT_AS_PROMISED, reported
from nnpa_tools.commands.hosting import (
    EPILOG,
    Hosting,
    hosting_options,
    loaded,
    options_of,
    table_console,
)
from nnpa_tools.commands.outputs import new_file_option, new_folder_option
from nnpa_tools.commands.terminal import echo, json_option, print_json
from nnpa_tools.commands.validate import validate
from nnpa_tools.estimates.programs import network_times
from nnpa_tools.evaluation.datasets.tables import read_arrays
from nnpa_tools.models import analysis
from nnpa_tools.tables import simple_table

_C_NAME = re.compile(r"[a-z_][a-z0-9_]{0,63}")


@click.group(epilog=EPILOG)
def network() -> None:
    """Host an ONNX model: analyze it, run it, validate it, probe it, generate C for it.

    Every command loads the model on a server, by default a private one that ends with the command.
    """


@network.command(epilog=EPILOG)
@hosting_options
@json_option("Print the report as JSON.")
def analyze(model: Path, as_json: bool, **hosting: Unpack[Hosting]) -> None:
    """Report the placement of nodes with reasons, sizes, multiply-accumulates and layers.

    The first lines say what runs on the accelerator and on the host CPU. The rest has the form of
    X-CUBE-AI's analyze. ROM is the size of the weights, RAM the size of the accelerator's sticks at
    the peak of a run; "why not" is the reason why a node stays on the host. Times on the machine
    are estimates from public figures, with a grade: `nnpa estimate` explains them.
    """
    with reported(), loaded(model, hosting) as net:
        report = net.report()
        program = Program.FromString(net.export_program(contents=False))
    times = network_times(program)
    if as_json:
        print_json(analysis.as_json(report, version("nnpa"), times))
        return
    directions = (("in", net.inputs), ("out", net.outputs))
    types = {
        f"onnx {direction} {port.name}": f"{port.dtype}{list(port.shape)}"
        for direction, ports in directions
        for port in ports
    }
    for line in analysis.header(report, model.name, types, times):
        echo(line)
    console = table_console()
    console.print(analysis.reasons(report))
    console.print(analysis.layers(report, times))
    console.print(analysis.histogram(report))


def _arrays(pairs: tuple[str, ...], net: Network) -> dict[str, Array]:
    """Read inputs: NAME=file.npy, a .npz with arrays by name, or file.npy for the only one."""
    feeds: dict[str, Array] = {}
    for text in pairs:
        name, _, path = text.rpartition("=")
        stored = read_arrays(Path(path))
        if "" in stored:
            stored = {name or net.inputs[0].name: stored[""]}
        feeds.update(stored)
    return feeds


network.add_command(validate)


@network.command("run", epilog=EPILOG)
@hosting_options
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="[NAME=]FILE",
    help="A .npy array for an input, or a .npz with arrays by name. Repeatable.",
)
@new_file_option("--output", help="Write the outputs to this .npz file.")
@json_option("Print the results as JSON.")
def run_model(
    model: Path,
    inputs: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    **hosting: Unpack[Hosting],
) -> None:
    """Run a model once on arrays from files, and print its outputs and its calls of zDNN."""
    with reported(), loaded(model, hosting) as net:
        result = net.infer(_arrays(inputs, net))
    if output is not None:
        arrays: Any = dict(result.outputs)
        np.savez(output, **arrays)
    summaries = {name: _summary(array) for name, array in result.outputs.items()}
    broken = [f"{violation.node}: {violation.function}" for violation in result.violations]
    if as_json:
        nans, calls = dict(result.nans), dict(result.calls)
        facts = {"outputs": summaries, "nans": nans, "violations": broken, "calls": calls}
        print_json(facts)
        return
    for name, text in summaries.items():
        echo(f"{name}: {text}, {result.nans.get(name, 0)} NaN")
    echo("calls: " + ", ".join(f"{name} {n}" for name, n in sorted(result.calls.items())))
    for text in broken:
        echo(f"range violation at {text}")


def _summary(array: Array) -> str:
    values = np.asarray(array, np.float64)
    if not values.size:
        return f"{array.dtype.name}{list(array.shape)}"
    least, most = np.nanmin(values), np.nanmax(values)
    return f"{array.dtype.name}{list(array.shape)}, {least:.6g} to {most:.6g}"


@network.command(epilog=EPILOG)
@hosting_options
@click.option(
    "--size", "sizes", type=click.IntRange(1), multiple=True, help="Size of free dims. Repeatable."
)
@json_option("Print the findings as JSON.")
@click.option("--check", is_flag=True, help="Exit code 1 if an input of zeros gives a NaN.")
def probe(
    model: Path, sizes: tuple[int, ...], as_json: bool, check: bool, **hosting: Unpack[Hosting]
) -> None:
    """Run a model on simple inputs at sizes around the edges of sticks; needs no data.

    Free dims take 1, 31 to 33, 63 to 65, 127 to 129; inputs are zeros, ones, masked ones, and the
    largest numbers, on Telum I and II.
    """
    with reported(), loaded(model, hosting) as net:
        rows = net.probe(sizes)
    if as_json:
        print_json(rows)
    else:
        table_console().print(_probe_table(rows, hosting["placement"]))
    bad = [row for row in rows if row["inputs"] == "zeros" and row["nans"]]
    if check and bad:
        echo(f"NaN over zeros: {counted(len(bad), 'run')}.", err=True)
        sys.exit(NOT_AS_PROMISED)


def _probe_table(rows: list[ProbeRun], placement: str) -> Table:
    numbers = ("NaN", "violations")
    headings = ("machine", "sizes", "inputs", *numbers, "first", "limit")
    table = simple_table(headings, right=numbers, title=f"Probe, placement {placement}")
    for row in rows:
        sizes = ", ".join(f"{name} {size}" for name, size in row["sizes"].items())
        cells = (row["machine"], sizes, row["inputs"], str(row["nans"]), str(row["violations"]))
        table.add_row(*cells, row["first"], row["limit"])
    return table


@network.command(epilog=EPILOG)
@hosting_options
@click.option("--name", default="network", show_default=True, help="C name of the network.")
@new_folder_option(
    "--output",
    default=Path(),
    help="Folder for the files; made where it is missing. Default: this one.",
)
@click.option("--allocate-inputs", is_flag=True, help="Inputs lie in the activations.")
@click.option("--allocate-outputs", is_flag=True, help="Outputs lie in the activations.")
@click.option("--split-weights", is_flag=True, help="One array per weight.")
def generate(model: Path, name: str, output: Path, **hosting: Unpack[Hosting]) -> None:
    """Write C for a model: <name>.h, .c, _data.h, _data.c, _config.h.

    The files are like the files of X-CUBE-AI's generator, with its C-defines; linked with
    libnnpa_network they run the network on the server that ZDNN_SERVER names:

    gcc main.c network.c network_data.c $(nnpa libzdnn --network --cflags --libs)
    """
    with reported():
        from nnpa_tools.models.generate import generated  # imports Jinja, of the extra onnx

        if not _C_NAME.fullmatch(name):
            raise ValueError(f"--name: {name!r}, expected a lower-case C identifier, at most 64")
        with loaded(model, hosting, name) as net:
            contents = external_data.read_model(model)
            files = generated(net, contents, model.name, options_of(hosting))
    output.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (output / file).write_text(text, encoding="ascii")
        echo(output / file)
