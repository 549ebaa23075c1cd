# SPDX-License-Identifier: Apache-2.0
"""The options of commands for the credentials of a server: a token, and TLS."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import click
from nnpa_client.config import Credentials

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
"""The type of an option or argument that names a file to read."""
Command = TypeVar("Command", bound=Callable[..., object])


class Reaching(TypedDict):
    """The parameters that `reaching_options` adds to a command."""

    token: str | None
    tls_ca: Path | None
    tls_cert: Path | None
    tls_key: Path | None


def with_options(*options: Callable[..., Any]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, in their order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


token_option = click.option(
    "--token", help="Bearer token. Or set ZDNN_TOKEN, which no list of processes shows."
)


tls_options = with_options(
    click.option("--tls-ca", type=FILE, help="Certificates that may sign the server's, PEM."),
    click.option(
        "--tls-cert", type=FILE, help="The client's certificate, PEM, if the server requires one."
    ),
    click.option("--tls-key", type=FILE, help="The key of --tls-cert, PEM."),
)
reaching_options = with_options(token_option, tls_options)


def credentials(reaching: Reaching) -> Credentials:
    """Return the credentials for `connect`, which reads missing ones from the environment."""
    return Credentials(
        token=reaching["token"],
        tls_ca=reaching["tls_ca"],
        tls_cert=reaching["tls_cert"],
        tls_key=reaching["tls_key"],
    )
