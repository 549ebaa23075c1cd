# SPDX-License-Identifier: Apache-2.0
"""The counts of a server for Prometheus; `rpc.prometheus` exposes them.

Labels are bounded: the names of operations, machines, statuses, methods and reasons. Counting costs
a few additions under one lock; a server without --metrics and --telemetry has no `Metrics`.
"""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from nnpa_emulator.status import Status

from nnpa_server.sessions.spans import Spans

# Upper bounds of the buckets of a duration, seconds.
BOUNDS = (1e-5, 2.5e-5, 1e-4, 2.5e-4, 1e-3, 2.5e-3, 1e-2, 2.5e-2, 0.1, 0.25, 1.0, 2.5, 10.0, 60.0)
_STATUSES = {int(status): status.name for status in Status}
_OTHER = "OTHER"  # a response code of the hardware that has no name


@dataclass(slots=True)
class Durations:
    """A histogram of seconds: counts by bucket, of which the last has no bound."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass(frozen=True, slots=True)
class Reading:
    """All counts at one moment. Bytes are counted in messages, before TLS and framing."""

    operations: Mapping[tuple[str, str, str], int]
    operation_seconds: Mapping[str, Durations]
    call_seconds: Mapping[str, Durations]
    refused: Mapping[str, int]
    bytes_moved: Mapping[str, int]


class Metrics:
    """The counts of one server. Methods may be called from any thread.

    `spans` gets events for statuses other than ZDNN_OK, and spans for runs of models.
    """

    def __init__(self, spans: Spans | None = None) -> None:
        self.spans = spans
        self._lock = threading.Lock()
        self._operations: Counter[tuple[str, str, str]] = Counter()
        self._operation_seconds: dict[str, Durations] = {}
        self._call_seconds: dict[str, Durations] = {}
        self._refused: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter(received=0, sent=0)

    def operation(self, op: str, machine: str, status: int | str, seconds: float) -> None:
        """Count an operation by its zdnn_status, or by the reason with which it ended the call."""
        name = _STATUSES.get(status, _OTHER) if isinstance(status, int) else status
        with self._lock:
            self._operations[op, machine, name] += 1
            durations = self._operation_seconds.get(op)
            if durations is None:
                durations = self._operation_seconds[op] = Durations()
            durations.add(seconds)
        if self.spans is not None and status != Status.ZDNN_OK:
            self.spans.status(op, machine, name)

    def network(
        self, machine: str, calls: Mapping[str, int], violations: Mapping[tuple[str, int], int]
    ) -> None:
        """Count a run of a hosted network: calls by verb, warnings by verb and status."""
        warned: Counter[str] = Counter()
        with self._lock:
            for (verb, status), count in violations.items():
                self._operations[verb, machine, _STATUSES.get(status, _OTHER)] += count
                warned[verb] += count
            for verb, count in calls.items():
                if count > warned[verb]:
                    self._operations[verb, machine, "ZDNN_OK"] += count - warned[verb]
        if self.spans is not None:
            for (verb, status), count in violations.items():
                self.spans.status(verb, machine, _STATUSES.get(status, _OTHER), count)

    def call(self, method: str, seconds: float) -> None:
        """Count the duration of a gRPC call, however it ended."""
        with self._lock:
            self._call_seconds.setdefault(method, Durations()).add(seconds)

    def refused(self, reason: str) -> None:
        """Count a call that ended with an error, by its reason."""
        with self._lock:
            self._refused[reason] += 1

    def moved(self, direction: str, size: int) -> None:
        """Count the bytes of a message that was "received" or "sent"."""
        with self._lock:
            self._bytes[direction] += size

    def read(self) -> Reading:
        """Return a copy of all counts."""
        with self._lock:
            return Reading(
                dict(self._operations),
                _copied(self._operation_seconds),
                _copied(self._call_seconds),
                dict(self._refused),
                dict(self._bytes),
            )


def model_run(metrics: Metrics | None, model: str, machine: str) -> AbstractContextManager[None]:
    """Return a context that makes a span of a model's run, where there are spans."""
    spans = None if metrics is None else metrics.spans
    return nullcontext() if spans is None else spans.model_run(model, machine)


def _copied(durations: Mapping[str, Durations]) -> dict[str, Durations]:
    """Copy histograms, under the lock that operations wait for."""
    return {
        name: Durations(list(duration.buckets), duration.total)
        for name, duration in durations.items()
    }
