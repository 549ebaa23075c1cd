# SPDX-License-Identifier: Apache-2.0
"""`nnpa view`: look at files in a browser."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click
from nnpa_page import Guard, Page, View, open_page

from nnpa_client.commands.exit_codes import EXIT_CODES, reported
from nnpa_client.commands.hosting import FILE
from nnpa_client.trace.history import read
from nnpa_client.trace.views import TraceViews

_HOST = "127.0.0.1"
_MAX_TRACES = 2


@click.command(epilog=EXIT_CODES)
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True,
              help="Port on 127.0.0.1; 0 picks one.")  # fmt: skip
def view(files: Sequence[Path], port: int) -> None:
    """Show a trace in a browser, or two side by side with what differs, until Ctrl-C.

    A trace has a line for each call: when, operands, status, what lint finds; one that is chosen
    shows its message, its refusal, and its differences in ulp.

    It prints "nnpa view on URL": open the URL. The token in its fragment lets this browser in, and
    no other user of this machine; the page opens no other files, and asks nothing of other hosts.
    """
    views = reported(lambda: _views(files))
    guard = Guard(_HOST)
    try:
        endpoint = open_page(_HOST, port, Page(guard, views))
    except OSError as error:
        raise click.UsageError(f"--port: {port}: {error.strerror}") from error
    click.echo(f"nnpa view on http://{endpoint.address}/#token={guard.token}")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    endpoint.close()


def _views(files: Sequence[Path]) -> dict[str, View]:
    """Read files, and return the views that show them."""
    if len(files) > _MAX_TRACES:
        raise ValueError(f"FILES: {len(files)} traces, at most {_MAX_TRACES}")
    return {**TraceViews((str(path), read(path)) for path in files).views}
