# SPDX-License-Identifier: Apache-2.0
"""`nnpa top`: show a server's current load from its metrics.

Source of their form: "Exposition formats", https://prometheus.io/docs/instrumenting/.
"""

import contextlib
import dataclasses
import signal
import ssl
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import BadStatusLine, HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import click
from nnpa_wire.installation import pip_install
from rich.console import Group
from rich.live import Live
from rich.table import Table

from nnpa_tools.commands.exit_codes import EXIT_CODES, Unreachable
from nnpa_tools.commands.reaching import tls_options
from nnpa_tools.commands.terminal import Terminal, json_option, print_json
from nnpa_tools.tables import simple_table

_DEFAULT = "127.0.0.1:9464"
_TIMEOUT = 10.0  # seconds for one scrape
_MAX_BYTES = 16 << 20  # of a scrape; a server's own is some tens of KiB
_MAX_ROWS = 20
_HTTP2 = "\0\0"  # a frame of HTTP/2, with its length in front; source: RFC 9113, 4.1
_OPERATIONS = "nnpa_operations_total"
_WHERE = "Give the address of the server's --metrics"
_START = "Start nnpa-server with --metrics ADDRESS, and give that ADDRESS."


@dataclass(frozen=True, slots=True)
class OperationRow:
    """An operation on a machine: runs since the server's start, those not OK, runs per second.

    `mean_ms` is the mean time of the operation in lists on any machine, 0 when it ran in none.
    """

    op: str
    machine: str
    total: int
    not_ok: int
    per_second: float
    mean_ms: float


@dataclass(frozen=True, slots=True)
class View:
    """A server at one moment; rates are since the previous view."""

    sessions: int
    store_bytes: int
    cache_hits: int
    received_per_second: float
    sent_per_second: float
    calls: Mapping[str, int]
    refused: Mapping[str, int]
    operations: tuple[OperationRow, ...]


@dataclass(frozen=True, slots=True)
class Scrape:
    """The samples of a scrape by name and labels, and its time in monotonic seconds."""

    samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]
    when: float = field(default_factory=time.monotonic)

    def by(self, name: str, *labels: str) -> Counter[tuple[str, ...]]:
        """Return the sums of a metric by some of its labels."""
        sums: Counter[tuple[str, ...]] = Counter()
        for (metric, pairs), value in self.samples.items():
            if metric == name:
                label_values = dict(pairs)
                sums[tuple(label_values.get(label, "") for label in labels)] += int(value)
        return sums

    def seconds(self, op: str) -> float:
        """Return the seconds that an operation took in all."""
        key = frozenset((("op", op),))
        return self.samples.get(("nnpa_operation_seconds_sum", key), 0.0)


def read_metrics(text: str) -> Scrape:
    """Parse a text in Prometheus' exposition format."""
    try:
        from prometheus_client.parser import text_string_to_metric_families as parse
    except ImportError as error:
        raise click.ClickException(f"nnpa top needs: {pip_install('metrics')}") from error
    return Scrape(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in parse(text)
            for sample in family.samples
        }
    )


def look(now: Scrape, before: Scrape) -> View:
    """Return the view of a scrape, with rates since the previous scrape; 0 after a restart."""
    elapsed = now.when - before.when

    def rates(name: str, *labels: str) -> Mapping[tuple[str, ...], float]:
        earlier = before.by(name, *labels)
        counts = now.by(name, *labels).items()
        return {key: max(0, count - earlier[key]) / elapsed for key, count in counts}

    moved = rates("nnpa_bytes_total", "direction")
    return View(
        sessions=now.by("nnpa_sessions")[()],
        store_bytes=now.by("nnpa_store_bytes")[()],
        cache_hits=now.by("nnpa_cache_hits_total")[()],
        received_per_second=moved.get(("received",), 0.0),
        sent_per_second=moved.get(("sent",), 0.0),
        calls={key[0]: n for key, n in now.by("nnpa_call_seconds_count", "method").items()},
        refused={key[0]: n for key, n in now.by("nnpa_refused_total", "reason").items()},
        operations=_operations(now, rates(_OPERATIONS, "op", "machine")),
    )


def _operations(
    now: Scrape, per_second: Mapping[tuple[str, ...], float]
) -> tuple[OperationRow, ...]:
    totals = now.by(_OPERATIONS, "op", "machine", "status")
    fine = Counter({key[:2]: count for key, count in totals.items() if key[2] == "ZDNN_OK"})
    timed = now.by("nnpa_operation_seconds_count", "op")
    rows = [
        OperationRow(
            op,
            machine,
            total,
            total - fine[op, machine],
            per_second[op, machine],
            now.seconds(op) / timed[(op,)] * 1e3 if timed[(op,)] else 0.0,
        )
        for (op, machine), total in now.by(_OPERATIONS, "op", "machine").items()
    ]
    return tuple(sorted(rows, key=_by_rate))


def _by_rate(row: OperationRow) -> tuple[float, int, str, str]:
    return (-row.per_second, -row.total, row.op, row.machine)


def show(view: View) -> Group:
    """Return the tables of a view."""
    head = Table.grid(padding=(0, 3))
    head.add_row(
        f"sessions {view.sessions}",
        f"held {view.store_bytes / 2**20:.1f} MiB",
        f"in {view.received_per_second / 2**20:.2f} MiB/s",
        f"out {view.sent_per_second / 2**20:.2f} MiB/s",
        f"cache hits {view.cache_hits}",
    )
    rates = ("per s", "total", "not OK", "mean ms")
    table = simple_table(("operation", "machine", *rates), right=rates)
    for column in table.columns[:2]:
        column.no_wrap = True
    for operation in view.operations[:_MAX_ROWS]:
        cells = (
            f"{operation.per_second:.1f}",
            str(operation.total),
            str(operation.not_ok),
            f"{operation.mean_ms:.3f}",
        )
        table.add_row(operation.op, operation.machine, *cells)
    return Group(head, table, _counts("calls", view.calls), _counts("refused", view.refused))


def _counts(title: str, counts: Mapping[str, int]) -> str:
    names = sorted(counts, key=lambda name: (-counts[name], name))
    return f"{title}: " + (", ".join(f"{name} {counts[name]}" for name in names) or "none")


def fetch(url: str, context: ssl.SSLContext | None) -> Scrape:
    """Return the metrics at a URL; raise `Unreachable`."""
    try:
        with urlopen(url, timeout=_TIMEOUT, context=context) as answer:
            body: bytes = answer.read(_MAX_BYTES + 1)
        if len(body) > _MAX_BYTES:
            raise Unreachable(f"{url}: the answer is above {_MAX_BYTES} bytes")
        return read_metrics(body.decode())
    except BadStatusLine as error:
        if str(error.args[0]).startswith(_HTTP2):
            raise Unreachable(f"{url}: that is a port of gRPC. {_WHERE}") from error
        raise Unreachable(f"{url}: no HTTP there. {_WHERE}") from error
    except (OSError, HTTPException, ValueError) as error:
        why = error.reason if isinstance(error, URLError) else error
        raise Unreachable(f"{url}: no metrics there: {why}. {_START}") from error


@click.command(epilog=EXIT_CODES)
@click.argument("address", default=_DEFAULT)
@click.option("--once", is_flag=True, help="Print one table and end.")
@json_option("Print one view as JSON and end.")
@click.option("--interval", type=click.FloatRange(0.1), default=1.0, show_default=True,
              help="Seconds between looks.")  # fmt: skip
@tls_options
def top(
    address: str,
    once: bool,
    as_json: bool,
    interval: float,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> None:
    """Show the load of a server, refreshed in a terminal, one table per interval in a pipe or file.

    ADDRESS is the address of its metrics, `nnpa-server --metrics ADDRESS`: host:port, or a URL.
    Rates of --once and --json are over one interval.
    """
    scheme, context = "https" if tls_ca else "http", _context(tls_ca, tls_cert, tls_key)
    url = address if "://" in address else f"{scheme}://{address}/metrics"
    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"ADDRESS: {address!r}, expected host:port or an http(s) URL")
    views = _views(url, context, interval)
    if as_json:
        print_json(dataclasses.asdict(next(views)))
    elif once:
        Terminal().print(show(next(views)))
    else:
        with contextlib.suppress(KeyboardInterrupt):
            _follow(views)


def _context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if ca is None:
        return None
    context = ssl.create_default_context(cafile=str(ca))
    if cert is not None:
        context.load_cert_chain(cert, key)
    return context


def _views(url: str, context: ssl.SSLContext | None, interval: float) -> Iterator[View]:
    """Yield a view each interval, with rates over it."""
    before = fetch(url, context)
    while True:
        time.sleep(interval)
        now = fetch(url, context)
        yield look(now, before)
        before = now


def _follow(views: Iterator[View]) -> None:
    """Show views: in a terminal each replaces the last, else each follows the last."""
    console = Terminal()
    if not console.is_terminal:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end with who reads, as programs in C do
        for view in views:
            console.print(show(view))
        return
    with Live(console=console, auto_refresh=False, screen=True) as live:
        for view in views:
            live.update(show(view), refresh=True)
