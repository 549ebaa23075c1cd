# SPDX-License-Identifier: Apache-2.0
"""`nnpa token`: make a bearer token, and the digest that the server's operator keeps."""

import hashlib
import re
import secrets

import click

from nnpa_tools.commands.exit_codes import EXIT_CODES
from nnpa_tools.commands.terminal import echo

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TOKEN_BYTES = 32  # 256 random bits


@click.command(epilog=EXIT_CODES)
@click.argument("name")
def token(name: str) -> None:
    """Make a token for NAME.

    The first line is the token, for its holder (ZDNN_TOKEN). The rest is an entry for the file that
    `nnpa-server --tokens` reads; it has the token's digest, not the token.
    """
    if _NAME.fullmatch(name) is None:
        raise click.UsageError(f"NAME: {name[:80]!r}, expected 1 to 64 of A-Z a-z 0-9 . _ -")
    secret = secrets.token_urlsafe(_TOKEN_BYTES)
    echo(secret)
    echo(f'\n[tokens."{name}"]\nsha256 = "{hashlib.sha256(secret.encode()).hexdigest()}"')
