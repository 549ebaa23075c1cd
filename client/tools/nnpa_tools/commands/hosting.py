# SPDX-License-Identifier: Apache-2.0
"""The options of commands that host a model: server, machine, compilation."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NotRequired, cast

import click
from nnpa_client.connection import connect
from nnpa_client.network.calls import Options
from nnpa_client.network.hosted import Network

from nnpa_tools.commands.exit_codes import EXIT_CODES
from nnpa_tools.commands.reaching import FILE, Reaching, credentials, reaching_options, with_options
from nnpa_tools.commands.terminal import Terminal

_PIPE_WIDTH = 140
EPILOG = (
    f"{EXIT_CODES} A model that cannot be hosted is refused: the message names the node and why."
)


class Asking(Reaching):
    """The options of hosting a model on several machines in turn."""

    target: str | None
    shapes: tuple[str, ...]
    placement: Literal["compiler", "all"]


class Hosting(Asking):
    """The options of hosting a model on a machine, and the options that `generate` adds."""

    machine: str
    strict: NotRequired[bool]
    offload_integer: NotRequired[bool]
    overflow: NotRequired[Literal["saturate", "ninf"]]
    allocate_inputs: NotRequired[bool]
    allocate_outputs: NotRequired[bool]
    split_weights: NotRequired[bool]


asking_options = with_options(
    click.option("--target", help="Server: host:port or unix:/path. Default: a private one."),
    reaching_options,
    click.option(
        "--placement",
        type=click.Choice(("compiler", "all")),
        default="compiler",
        show_default=True,
        help="Nodes that go to the accelerator: those that the compiler for the machine places "
        "there, or all that zDNN can express.",
    ),
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME=D,D,..",
        help="Shape of an input with free dims; by default they are 1, or 32 where 1 does not fit. "
        "Repeatable.",
    ),
)
hosting_options = with_options(
    click.argument("model", type=FILE),
    asking_options,
    click.option(
        "--machine",
        default="telum2",
        show_default=True,
        help="Machine or alias, or JSON of a custom machine, or its file.",
    ),
    click.option("--strict", is_flag=True, help="Refuse a model with a node on the host."),
    click.option(
        "--offload-integer",
        is_flag=True,
        help="Run integer products on the accelerator, where they are not exact.",
    ),
    click.option(
        "--overflow",
        type=click.Choice(("saturate", "ninf")),
        default="saturate",
        show_default=True,
        help="Result for values beyond DLFLOAT16: the greatest number, or no number.",
    ),
)


def hosting_on(machine: str, asking: Asking) -> Hosting:
    """Return the options of hosting on a machine, with the defaults of the other options."""
    return cast("Hosting", {**asking, "machine": machine})


@contextmanager
def loaded(model: Path, hosting: Hosting, c_name: str = "network") -> Generator[Network]:
    """Load a model by the options of a command; the block's end destroys it."""
    with (
        connect(hosting["target"], hosting["machine"], **credentials(hosting)) as session,
        session.load(model, c_name=c_name, options=options_of(hosting)) as net,
    ):
        _require_inputs(hosting["shapes"], net)
        yield net


def _require_inputs(shapes: tuple[str, ...], net: Network) -> None:
    """Raise ValueError for a --shape of a name that is no input."""
    names = [port.name for port in net.inputs]
    for name, _ in map(_shape, shapes):
        if name not in names:
            raise ValueError(f"--shape: {name!r} is no input, expected one of {', '.join(names)}")


def options_of(hosting: Hosting) -> Options:
    """Return the options of compilation."""
    return Options(
        strict_placement=hosting.get("strict", False),
        shapes=dict(map(_shape, hosting["shapes"])),
        offload_integer=hosting.get("offload_integer", False),
        placement=hosting["placement"],
        overflow=hosting.get("overflow", "saturate"),
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
