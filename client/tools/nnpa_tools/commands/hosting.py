# SPDX-License-Identifier: Apache-2.0
"""The options of `nnpa network` that say where and how a model is hosted."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NotRequired, TypeVar

import click
from nnpa_client.connection import connect
from nnpa_client.network.calls import Options
from nnpa_client.network.hosted import Network

from nnpa_tools.commands.exit_codes import EXIT_CODES
from nnpa_tools.commands.reaching import Reaching, credentials, reaching_options
from nnpa_tools.commands.terminal import Terminal

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_PIPE_WIDTH = 140
EPILOG = (
    f"{EXIT_CODES} A model that cannot be hosted is refused: the message names the node and why."
)


Command = TypeVar("Command", bound=Callable[..., object])


class Asking(Reaching):
    """The options that say where and how a model is hosted on several machines in turn."""

    target: str | None
    shapes: tuple[str, ...]
    placement: Literal["compiler", "all"]


class Hosting(Asking):
    """The options that say where and how a model is hosted, and what `generate` adds to them."""

    machine: str
    strict: bool
    offload_integer: bool
    overflow: Literal["saturate", "ninf"]
    allocate_inputs: NotRequired[bool]
    allocate_outputs: NotRequired[bool]
    split_weights: NotRequired[bool]


def asking_options(command: Command) -> Command:
    """Add the options that say where and how a model is hosted on several machines in turn."""
    options = (
        click.option(
            "--shape",
            "shapes",
            multiple=True,
            metavar="NAME=D,D,..",
            help="Shape of a model's input with free dims; without it they are 1, or 32 where 1 "
            "does not fit. Repeatable.",
        ),
        click.option(
            "--placement",
            type=click.Choice(("compiler", "all")),
            default="compiler",
            show_default=True,
            help="What of a model goes to the accelerator.",
        ),
        click.option(
            "--target",
            help="Server that places a model: host:port or unix:/path. Default: a private one.",
        ),
        reaching_options,
    )
    for option in reversed(options):
        command = option(command)
    return command


def hosting_on(machine: str, asking: Asking) -> Hosting:
    """Return the options of hosting on a machine."""
    return {
        **asking,
        "machine": machine,
        "strict": False,
        "offload_integer": False,
        "overflow": "saturate",
        "allocate_inputs": False,
        "allocate_outputs": False,
        "split_weights": False,
    }


def hosting_options(command: Command) -> Command:
    """Add the options that say where and how a model is hosted."""
    options = (
        click.argument("model", type=FILE),
        click.option("--target", help="Server: host:port or unix:/path. Default: a private one."),
        reaching_options,
        click.option(
            "--machine",
            default="telum2",
            show_default=True,
            help="Machine, or alias; or JSON of a custom machine, or a file of it.",
        ),
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
def loaded(model: Path, hosting: Hosting, c_name: str = "network") -> Generator[Network]:
    """Load a model as options say, for the time of a block."""
    with (
        connect(hosting["target"], hosting["machine"], **credentials(hosting)) as session,
        session.load(model, c_name=c_name, options=options_of(hosting)) as net,
    ):
        _require_inputs(hosting["shapes"], net)
        yield net


def _require_inputs(shapes: tuple[str, ...], net: Network) -> None:
    """Refuse shapes of what is no input, which would be ignored."""
    names = [port.name for port in net.inputs]
    for name, _ in map(_shape, shapes):
        if name not in names:
            raise ValueError(f"--shape: {name!r} is no input, expected one of {', '.join(names)}")


def options_of(hosting: Hosting) -> Options:
    """Return how to compile a model."""
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


def table_console() -> Terminal:
    """Return the console for tables: as wide as the terminal, wider for a file or pipe."""
    return Terminal(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
