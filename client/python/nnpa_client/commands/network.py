# SPDX-License-Identifier: Apache-2.0
"""`nnpa network`: host an ONNX model on a machine, and measure it."""

import json
import re
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, TypeVar, Unpack

import click
import numpy as np
from nnpa.network.v1 import network_pb2 as pb
from rich import box
from rich.console import Console
from rich.table import Table

from nnpa_client._wire import Array
from nnpa_client.commands.exit_codes import EXIT_CODES, NOT_AS_PROMISED, reported
from nnpa_client.connection import connect
from nnpa_client.network import analysis
from nnpa_client.network.calls import Options
from nnpa_client.network.hosted import Inference, Network, ProbeRun

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_PIPE_WIDTH = 140
_C_NAME = re.compile(r"[a-z_][a-z0-9_]{0,63}")
_NEW = click.Path(dir_okay=False, path_type=Path)
_EPILOG = (
    f"{EXIT_CODES} A model that cannot be hosted is refused: the message names the node and why."
)


Command = TypeVar("Command", bound=Callable[..., object])


class Hosting(TypedDict):
    """The options that say where and how a model is hosted, and what `generate` adds to them."""

    target: str | None
    machine: str
    strict: bool
    shapes: tuple[str, ...]
    offload_integer: bool
    placement: Literal["compiler", "all"]
    overflow: Literal["saturate", "ninf"]
    allocate_inputs: NotRequired[bool]
    allocate_outputs: NotRequired[bool]
    split_weights: NotRequired[bool]


@click.group(epilog=_EPILOG)
def network() -> None:
    """Host an ONNX model: analyze it, run it, validate it, probe it, generate C for it.

    Every command loads the model on a server, by default a private one that ends with the command.
    """


def _hosting(command: Command) -> Command:
    """Add the options that say where and how a model is hosted."""
    options = (
        click.argument("model", type=_FILE),
        click.option("--target", help="Server: host:port or unix:/path. Default: a private one."),
        click.option("--machine", default="telum2", show_default=True, help="Machine, or alias."),
        click.option("--strict", is_flag=True, help="Refuse a model with a node on the host."),
        click.option(
            "--offload-integer",
            is_flag=True,
            help="Integer products on the accelerator, where they are not exact.",
        ),
        click.option(
            "--placement",
            type=click.Choice(("compiler", "all")),
            default="compiler",
            show_default=True,
            help="What goes to the accelerator: what the compiler for the machine places, or what "
            "zDNN can express beyond it, too.",
        ),
        click.option(
            "--overflow",
            type=click.Choice(("saturate", "ninf")),
            default="saturate",
            show_default=True,
            help="What values beyond DLFLOAT16 become.",
        ),
        click.option(
            "--shape",
            "shapes",
            multiple=True,
            metavar="NAME=D,D,..",
            help="Shape of an input with free dims; without it they are 1, or 32 where 1 does not "
            "fit. Repeatable.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@contextmanager
def _loaded(model: Path, hosting: Hosting, c_name: str = "network") -> Generator[Network]:
    with (
        connect(hosting["target"], hosting["machine"]) as session,
        session.load(model, c_name=c_name, options=_options(hosting)) as net,
    ):
        yield net


def _options(hosting: Hosting) -> Options:
    return Options(
        strict_placement=hosting["strict"],
        shapes=dict(map(_shape, hosting["shapes"])),
        offload_integer=hosting["offload_integer"],
        placement=hosting["placement"],
        overflow=hosting["overflow"],
        allocate_inputs=hosting.get("allocate_inputs", False),
        allocate_outputs=hosting.get("allocate_outputs", False),
        split_weights=hosting.get("split_weights", False),
    )


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, dims = text.rpartition("=")
    if not equals or not all(dim.isdecimal() for dim in dims.split(",")):
        raise ValueError(f"--shape: {text!r}, expected NAME=D,D,..")
    return name, tuple(map(int, dims.split(",")))


@network.command(epilog=_EPILOG)
@_hosting
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def analyze(model: Path, as_json: bool, **hosting: Unpack[Hosting]) -> None:
    """Report sizes, multiply-accumulates, layers, and what runs where.

    The form is that of X-CUBE-AI's analyze. ROM are the weights; RAM is what the accelerator's
    sticks take at the peak of a run; "why not" tells what keeps a node on the host.
    """

    def ask() -> tuple[pb.NetworkReport, Network]:
        with _loaded(model, hosting) as net:
            return net.report(), net

    report, net = reported(ask)
    if as_json:
        click.echo(json.dumps(analysis.as_json(report, version("nnpa")), indent=2))
        return
    directions = (("in", net.inputs), ("out", net.outputs))
    types = {
        f"onnx {direction} {port.name}": f"{port.dtype}{list(port.shape)}"
        for direction, ports in directions
        for port in ports
    }
    for line in analysis.header(report, model.name, types):
        click.echo(line)
    console = _console()
    console.print(analysis.layers(report))
    console.print(analysis.histogram(report))


def _console() -> Console:
    """Return the console for tables: as wide as the terminal, wider for a file or pipe."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def _arrays(pairs: tuple[str, ...], net: Network) -> dict[str, Array]:
    """Read inputs: NAME=file.npy, a .npz with arrays by name, or file.npy for the only one."""
    feeds: dict[str, Array] = {}
    for text in pairs:
        name, _, path = text.rpartition("=")
        stored = np.load(Path(path), allow_pickle=False)
        if isinstance(stored, Mapping):
            feeds.update(stored)
        else:
            feeds[name or net.inputs[0].name] = stored
    return feeds


@network.command("run", epilog=_EPILOG)
@_hosting
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="[NAME=]FILE",
    help="A .npy array for an input, or a .npz with arrays by name. Repeatable.",
)
@click.option("--output", type=_NEW, help="Write the outputs to this .npz file.")
@click.option("--json", "as_json", is_flag=True, help="Print what happened as JSON.")
def run_model(
    model: Path,
    inputs: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    **hosting: Unpack[Hosting],
) -> None:
    """Run a model once over arrays from files, and tell what the accelerator did."""

    def ask() -> Inference:
        with _loaded(model, hosting) as net:
            return net.infer(**_arrays(inputs, net))

    result = reported(ask)
    if output is not None:
        arrays: Any = dict(result.outputs)
        np.savez(output, **arrays)
    summaries = {name: _summary(array) for name, array in result.outputs.items()}
    broken = [f"{violation.node}: {violation.function}" for violation in result.violations]
    if as_json:
        nans, calls = dict(result.nans), dict(result.calls)
        facts = {"outputs": summaries, "nans": nans, "violations": broken, "calls": calls}
        click.echo(json.dumps(facts, indent=2))
        return
    for name, text in summaries.items():
        click.echo(f"{name}: {text}, {result.nans.get(name, 0)} NaN")
    click.echo("calls: " + ", ".join(f"{name} {n}" for name, n in sorted(result.calls.items())))
    for text in broken:
        click.echo(f"range violation at {text}")


def _summary(array: Array) -> str:
    values = np.asarray(array, np.float64)
    if not values.size:
        return f"{array.dtype.name}{list(array.shape)}"
    least, most = np.nanmin(values), np.nanmax(values)
    return f"{array.dtype.name}{list(array.shape)}, {least:.6g} to {most:.6g}"


def _samples(path: Path, net: Network) -> list[pb.Sample]:
    """Read a .npz whose arrays have the samples as an additional first axis."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    counts = {len(array) for array in arrays.values()}
    if len(counts) != 1:
        raise ValueError(f"{path.name}: {sorted(counts)} samples, expected as many of each input")
    return [
        pb.Sample(inputs=net.named_arrays({name: array[at] for name, array in arrays.items()}))
        for at in range(counts.pop())
    ]


@network.command(epilog=_EPILOG)
@_hosting
@click.option("--data", type=_FILE, help=".npz: inputs by name, samples along the first axis.")
@click.option("--samples", default=16, show_default=True, help="Without --data: how many to make.")
@click.option("--seed", default=0, show_default=True, help="Without --data: seed of made-up data.")
@click.option("--html", type=_NEW, help="Write one self-contained page with plots.")
@click.option("--json", "as_json", is_flag=True, help="Print the measurements as JSON.")
@click.option(
    "--max-l2r",
    type=float,
    help="Exit code 1 if the relative L2 error of any output, saturating, is above this.",
)
def validate(
    model: Path,
    data: Path | None,
    samples: int,
    seed: int,
    html: Path | None,
    as_json: bool,
    max_l2r: float | None,
    **hosting: Unpack[Hosting],
) -> None:
    """Measure a model on Telum I and II beside FP32, node by node.

    Figures are those of X-CUBE-AI's validate (ACC, RMSE, MAE, L2R, MEAN, STD, NSE, COS), with and
    without saturation, and the first node that leaves the range of numbers with the elements that
    caused it.
    """

    def ask() -> pb.MeasureAccuracyResponse:
        with _loaded(model, hosting) as net:
            recorded = [] if data is None else _samples(data, net)
            return net.measure_accuracy(recorded, made_up=samples, seed=seed, html=html is not None)

    answer = reported(ask)
    if html is not None:
        html.write_text(answer.html, encoding="utf-8")
    click.echo(answer.json if as_json else answer.text, nl=False)
    runs = [entry for entry in json.loads(answer.json)["runs"] if entry["saturate"]]
    l2r_errors = (output["l2r"] or 0.0 for run in runs for output in run["outputs"])
    worst = max(l2r_errors, default=0.0)
    if max_l2r is not None and worst > max_l2r:
        click.echo(f"L2R is {worst:.3g}, must be at most {max_l2r:g}.", err=True)
        sys.exit(NOT_AS_PROMISED)


@network.command(epilog=_EPILOG)
@_hosting
@click.option(
    "--size", "sizes", type=click.IntRange(1), multiple=True, help="Size of free dims. Repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--check", is_flag=True, help="Exit code 1 if an input of zeros gives a NaN.")
def probe(
    model: Path, sizes: tuple[int, ...], as_json: bool, check: bool, **hosting: Unpack[Hosting]
) -> None:
    """Run a model at sizes around the edges of sticks over inputs that carry nothing.

    Free dims take 1, 31 to 33, 63 to 65, 127 to 129; inputs are zeros, ones, masked, and the
    largest numbers, on Telum I and II. Needs no data.
    """

    def ask() -> list[ProbeRun]:
        with _loaded(model, hosting) as net:
            return net.probe(sizes)

    rows = reported(ask)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        _console().print(_probe_table(rows, hosting["placement"]))
    bad = [row for row in rows if row["inputs"] == "zeros" and row["nans"]]
    if check and bad:
        click.echo(f"{len(bad)} runs over zeros give NaN.", err=True)
        sys.exit(NOT_AS_PROMISED)


def _probe_table(rows: list[ProbeRun], placement: str) -> Table:
    title = f"Probe, placement {placement}"
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    for heading in ("machine", "sizes", "inputs", "NaN", "violations", "first", "limit"):
        table.add_column(heading, justify="right" if heading in ("NaN", "violations") else "left")
    for row in rows:
        sizes = ", ".join(f"{name} {size}" for name, size in row["sizes"].items())
        cells = (row["machine"], sizes, row["inputs"], str(row["nans"]), str(row["violations"]))
        table.add_row(*cells, row["first"], row["limit"])
    return table


@network.command(epilog=_EPILOG)
@_hosting
@click.option("--name", default="network", show_default=True, help="C name of the network.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Folder for the files; made where it is missing. Default: this one.",
)
@click.option("--allocate-inputs", is_flag=True, help="Inputs lie in the activations.")
@click.option("--allocate-outputs", is_flag=True, help="Outputs lie in the activations.")
@click.option("--split-weights", is_flag=True, help="One array per weight.")
def generate(model: Path, name: str, output: Path, **hosting: Unpack[Hosting]) -> None:
    """Write C for a model: <name>.h, .c, _data.h, _data.c, _config.h.

    The C is that of X-CUBE-AI's generator, with its C-defines; linked with libnnpa_network it runs
    the network on the server that ZDNN_SERVER names:

    gcc main.c network.c network_data.c $(nnpa libzdnn --network --cflags --libs)
    """
    from nnpa_client.network.generate import generated

    def ask() -> dict[str, str]:
        if not _C_NAME.fullmatch(name):
            raise ValueError(f"--name: {name!r}, expected a lower-case C identifier, at most 64")
        with _loaded(model, hosting, name) as net:
            return generated(net, model.read_bytes(), model.name, _options(hosting))

    files = reported(ask)
    output.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (output / file).write_text(text, encoding="ascii")
        click.echo(output / file)
