# SPDX-License-Identifier: Apache-2.0
"""The metrics over HTTP, in Prometheus' text format.

Source: "Exposition formats", https://prometheus.io/docs/instrumenting/exposition_formats.
"""

import socket
import ssl
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from itertools import accumulate
from typing import Protocol, TypeAlias

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from nnpa_server.config import Tls, split_address
from nnpa_server.sessions.metrics import BOUNDS, Durations, Metrics
from nnpa_server.sessions.store import Store

MAX_SCRAPES = 8  # clients at a time, each of which keeps a thread
_TIMEOUT = 5.0  # seconds that a client may be silent
_BOUNDS = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")


Request: TypeAlias = socket.socket | tuple[bytes, socket.socket]
"""What socketserver calls a request: over UDP it is a datagram."""


class Endpoint(ThreadingHTTPServer):
    """Serves HTTP to at most `MAX_SCRAPES` clients: one more ends the oldest's connection."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, tls: Tls | None) -> None:
        self._tls = None if tls is None else _tls_context(tls)
        self._open: dict[socket.socket, None] = {}  # the oldest first
        self._lock = threading.Lock()
        if ":" in host:
            self.address_family = socket.AF_INET6
        handler = type("Handler", (MetricsHandler,), {"registry": registry, "timeout": _TIMEOUT})
        super().__init__((host, port), handler)

    def get_request(self) -> tuple[socket.socket, object]:
        """Accept a client, whose thread does the handshake of TLS."""
        request, address = super().get_request()
        if self._tls is not None:
            request = self._tls.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            )
        return request, address

    def process_request(self, request: Request, client_address: object) -> None:
        """Have a thread answer a client, and let the oldest go where there are too many."""
        with self._lock:
            if len(self._open) >= MAX_SCRAPES:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):
                    socket.socket.shutdown(oldest, socket.SHUT_RDWR)
            self._open[_stream(request)] = None
        super().process_request(request, client_address)

    def finish_request(self, request: Request, client_address: object) -> None:
        """Answer a client."""
        stream = _stream(request)
        stream.settimeout(_TIMEOUT)
        if isinstance(stream, ssl.SSLSocket):
            stream.do_handshake()
        super().finish_request(request, client_address)

    def shutdown_request(self, request: Request) -> None:
        """End a client's connection."""
        with self._lock:
            self._open.pop(_stream(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Request, client_address: object) -> None:
        """Leave a client alone that speaks no TLS or HTTP, or takes its time."""


def _stream(request: Request) -> socket.socket:
    """Return the socket of a request over TCP."""
    assert isinstance(request, socket.socket)
    return request


def _tls_context(tls: Tls) -> ssl.SSLContext:
    certificate, key, client_ca = tls.files
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(str(certificate), None if key is None else str(key))
    if client_ca is not None:
        context.load_verify_locations(str(client_ca))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@dataclass(frozen=True, slots=True)
class Exposition:
    """An open endpoint at `address`, host:port."""

    address: str
    _server: Endpoint
    _thread: threading.Thread

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Collector:
    """Collects the metric families of a scrape, from the counts and from `store`."""

    def __init__(self, metrics: Metrics, store: Store) -> None:
        self._metrics, self._store = metrics, store

    def collect(self) -> Generator[Metric]:
        """Yield every family."""
        reading, counts = self._metrics.read(), self._store.counts()
        yield _counter(
            "nnpa_operations", "Operations run, those of hosted networks included.",
            ("op", "machine", "status"), reading.operations.items(),
        )  # fmt: skip
        yield _histogram(
            "nnpa_operation_seconds", "Time of an operation of a list.", "op",
            reading.operation_seconds,
        )  # fmt: skip
        yield _histogram(
            "nnpa_call_seconds", "Time of a gRPC call, however it ended.", "method",
            reading.call_seconds,
        )  # fmt: skip
        yield _counter(
            "nnpa_bytes", "Bytes of messages.", ("direction",), _keyed(reading.bytes_moved)
        )
        yield _counter(
            "nnpa_refused", "Calls that ended with an error, by its reason.", ("reason",),
            _keyed(reading.refused),
        )  # fmt: skip
        yield GaugeMetricFamily("nnpa_sessions", "Sessions at this moment.", counts.sessions)
        held = counts.stored_bytes + counts.staged_bytes + counts.cached_bytes
        yield GaugeMetricFamily("nnpa_store_bytes", "Bytes that sessions hold.", held)
        hits = self._store.cache_hits()
        yield CounterMetricFamily("nnpa_cache_hits", "Sticks that need not travel again.", hits)


def _keyed(counts: Mapping[str, int]) -> list[tuple[tuple[str, ...], int]]:
    return [((name,), count) for name, count in counts.items()]


def _counter(
    name: str, text: str, labels: tuple[str, ...], counts: Iterable[tuple[tuple[str, ...], int]]
) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, count in counts:
        family.add_metric(key, count)
    return family


def _histogram(name: str, text: str, label: str, durations: Mapping[str, Durations]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=(label,))
    for key, duration in durations.items():
        buckets = list(zip(_BOUNDS, accumulate(duration.buckets), strict=True))
        family.add_metric((key,), buckets, duration.total)
    return family


class Collecting(Protocol):
    """What collects the metric families of a scrape."""

    def collect(self) -> Iterable[Metric]:
        """Yield every family."""
        ...


def expose(address: str, collector: Collecting, tls: Tls | None) -> Exposition:
    """Serve metrics at host:port, port 0 picks one; with `tls` over HTTPS.

    Raises OSError where the address cannot be had.
    """
    registry = CollectorRegistry()
    registry.register(collector)
    host, port = split_address(address)
    server = Endpoint(host, port, registry, tls)
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    shown = f"[{host}]" if ":" in host else host
    return Exposition(f"{shown}:{server.server_port}", server, thread)
