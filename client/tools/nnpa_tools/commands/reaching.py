# SPDX-License-Identifier: Apache-2.0
"""The options of commands that say how a server is reached: a token, and TLS."""

from collections.abc import Callable
from pathlib import Path
from typing import TypedDict, TypeVar

import click
from nnpa_client.config import Credentials

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
Command = TypeVar("Command", bound=Callable[..., object])


class Reaching(TypedDict):
    """What `reaching_options` gives to a command."""

    token: str | None
    tls_ca: Path | None
    tls_cert: Path | None
    tls_key: Path | None


token_option = click.option(
    "--token", help="Bearer token. ZDNN_TOKEN says it too, and no list of processes shows that."
)


def tls_options(command: Command) -> Command:
    """Add the options of TLS."""
    options = (
        click.option("--tls-ca", type=_FILE, help="Certificates that may sign the server's, PEM."),
        click.option(
            "--tls-cert", type=_FILE, help="The client's certificate, PEM, where the server asks."
        ),
        click.option("--tls-key", type=_FILE, help="The key of --tls-cert, PEM."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def reaching_options(command: Command) -> Command:
    """Add --token and the options of TLS."""
    return token_option(tls_options(command))


def credentials(reaching: Reaching) -> Credentials:
    """Return what the options say, for `connect`; what they leave out the environment says."""
    return Credentials(
        token=reaching["token"],
        tls_ca=reaching["tls_ca"],
        tls_cert=reaching["tls_cert"],
        tls_key=reaching["tls_key"],
    )
