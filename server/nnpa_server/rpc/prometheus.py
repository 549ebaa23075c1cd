# SPDX-License-Identifier: Apache-2.0
"""The metrics over HTTP, in Prometheus' text format.

Source: "Exposition formats", https://prometheus.io/docs/instrumenting/exposition_formats.
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from threading import Thread
from typing import Protocol

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from nnpa_server.config import Tls, split_address
from nnpa_server.sessions.metrics import BOUNDS, Durations, Metrics
from nnpa_server.sessions.store import Store

_BOUNDS = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")


class Endpoint(Protocol):
    """What serves HTTP."""

    server_port: int

    def shutdown(self) -> None:
        """Stop serving."""
        ...

    def server_close(self) -> None:
        """Close the socket."""
        ...


@dataclass(frozen=True, slots=True)
class Exposition:
    """An open endpoint at `address`, host:port."""

    address: str
    _server: Endpoint
    _thread: Thread

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


def expose(address: str, metrics: Metrics, store: Store, tls: Tls | None) -> Exposition:
    """Serve the metrics at host:port, port 0 picks one; with `tls` over HTTPS.

    Raises OSError where the address cannot be had.
    """
    registry = CollectorRegistry()
    registry.register(Collector(metrics, store))
    host, port = split_address(address)
    files = (None, None, None) if tls is None else tls.files
    certificate, key, client_ca = (None if path is None else str(path) for path in files)
    server, thread = start_http_server(
        port,
        host,
        registry,
        certfile=certificate,
        keyfile=key,
        client_cafile=client_ca,
        client_auth_required=client_ca is not None,
    )
    shown = f"[{host}]" if ":" in host else host
    return Exposition(f"{shown}:{server.server_port}", server, thread)
