# SPDX-License-Identifier: Apache-2.0
"""The metrics over HTTP, in Prometheus' text format.

Source: "Exposition formats", https://prometheus.io/docs/instrumenting/exposition_formats.
"""

import logging
from collections.abc import Generator, Iterable, Mapping
from itertools import accumulate

from nnpa_page import TIMEOUT, Endpoint
from prometheus_client import CollectorRegistry, MetricsHandler, registry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from nnpa_server.config import Config, split_address
from nnpa_server.rpc.listening import serving_over_http, tls_context
from nnpa_server.sessions.metrics import BOUNDS, Durations, Metrics
from nnpa_server.sessions.store import Store

_log = logging.getLogger("nnpa.server")
MAX_SCRAPES = 8  # clients at a time, each of which keeps a thread
_BOUNDS = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")


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


def expose(config: Config, collector: registry.Collector) -> Endpoint:
    """Serve metrics at `--metrics`, over HTTPS if other hosts can reach it; raise CannotListen.

    The log names the address, unless this is one of several server processes.
    """
    collectors = CollectorRegistry()
    collectors.register(collector)
    handler = type("Handler", (MetricsHandler,), {"registry": collectors, "timeout": TIMEOUT})
    with serving_over_http("metrics", config.metrics):
        tls = tls_context(config.metrics, config)
        endpoint = Endpoint(*split_address(config.metrics), handler, MAX_SCRAPES, tls)
    endpoint.start("metrics")
    if not config.quota:
        _log.info("metrics at http%s://%s/metrics", "s" if tls else "", endpoint.address)
    return endpoint
