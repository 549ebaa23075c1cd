# SPDX-License-Identifier: Apache-2.0
"""`nnpa view`: show traces, models and reports in a browser."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Unpack

import click
from nnpa.network.v1.program_pb2 import Program
from nnpa_client.trace.format import is_trace
from nnpa_client.trace.history import read
from nnpa_page import Guard, Page, View, open_page

from nnpa_tools.commands.exit_codes import EXIT_CODES, reported
from nnpa_tools.commands.hosting import Asking, asking_options, hosting_on, loaded
from nnpa_tools.commands.reaching import FILE
from nnpa_tools.commands.terminal import echo
from nnpa_tools.estimates.coefficients import machines
from nnpa_tools.models.accuracy import read_accuracy
from nnpa_tools.models.views import Placed, model_views
from nnpa_tools.views.traces import TraceViews

_OPENED = "telum2"  # the machine that a model is shown on first
_HOST = "127.0.0.1"
_MOST = {"traces": 2, "models": 1, "reports": 1}
_BEGIN = 64  # bytes of a file that tell its kind


@click.command(epilog=f"{EXIT_CODES} A model that cannot be hosted is refused.")
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True,
              help="Port on 127.0.0.1; 0 picks one.")  # fmt: skip
@click.option("--machine", "names", multiple=True, metavar="MACHINE",
              help="Machine or alias that hosts a model, or JSON of a custom machine, or its file; "
              "repeatable. Default: both Telums.")  # fmt: skip
@asking_options
def view(files: Sequence[Path], port: int, names: Sequence[str], **asking: Unpack[Asking]) -> None:
    """Show traces, a model, or an accuracy report in a browser, until Ctrl-C.

    A trace has a line for each call, with status, operands and findings of lint; two traces stand
    side by side with their differences in ulp. An ONNX model is shown as a graph, with the place of
    each node, the reason, and an estimate of the machine's time. With a report of
    `nnpa network validate --json` nodes also have their errors; the report may stand alone.

    The command prints "nnpa view on URL": open the URL. The token in its fragment admits your
    browser, and no other user of this machine. The page reads no other files and no other hosts.
    """
    chosen = names or sorted(machines(), key=lambda name: name != _OPENED)
    with reported():
        views = _views(files, chosen, asking)
    guard = Guard(_HOST)
    try:
        endpoint = open_page(_HOST, port, Page(guard, views))
    except OSError as error:
        raise click.UsageError(f"--port: {port}: {error.strerror}") from error
    echo(f"nnpa view on http://{endpoint.address}/#token={guard.token}")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    endpoint.close()


def _views(files: Sequence[Path], names: Sequence[str], asking: Asking) -> Mapping[str, View]:
    """Read files, and return the views that show them."""
    kinds: dict[str, list[Path]] = {kind: [] for kind in _MOST}
    for path in files:
        kinds[_kind_of(path)].append(path)
    for kind, paths in kinds.items():
        if len(paths) > _MOST[kind]:
            raise ValueError(f"FILES: {len(paths)} {kind}, at most {_MOST[kind]}")
    views: dict[str, View] = {}
    if kinds["traces"]:
        views |= TraceViews((str(path), read(path)) for path in kinds["traces"]).views
    if kinds["models"] or kinds["reports"]:
        views |= _models(kinds["models"], kinds["reports"], names, asking)
    return views


def _kind_of(path: Path) -> str:
    """Return the kind of a file by its first bytes; anything but a trace or JSON is a model."""
    if is_trace(path):
        return "traces"
    with path.open("rb") as file:
        begin = file.read(_BEGIN).lstrip()
    if not begin:
        raise ValueError(f"{path}: empty, must be a trace, an ONNX model or an accuracy report")
    if begin.startswith(b"<"):
        raise ValueError(f"{path}: a page by itself: open it in a browser, or view the report that "
                         "`nnpa network validate --json` prints")  # fmt: skip
    return "reports" if begin.startswith((b"{", b"[")) else "models"


def _models(
    models: Sequence[Path], reports: Sequence[Path], names: Sequence[str], asking: Asking
) -> Mapping[str, View]:
    accuracy = {str(path): read_accuracy(path) for path in reports}
    placed = [_placed(path, name, asking) for path in models for name in dict.fromkeys(names)]
    report = next(iter(accuracy.values()), None)
    return model_views("".join(map(str, models)), placed, "".join(accuracy), report)


def _placed(path: Path, machine: str, asking: Asking) -> Placed:
    with loaded(path, hosting_on(machine, asking)) as net:
        return Placed(net.report(), Program.FromString(net.export_program(contents=False)))
