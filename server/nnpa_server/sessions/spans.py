# SPDX-License-Identifier: Apache-2.0
"""Traces of calls by OpenTelemetry: a span for each call and each run of a model.

A call belongs to the trace that its client names (W3C Trace Context, `traceparent`). Spans leave by
OTLP over HTTP; the environment configures the exporter, sampling and batches.

Source: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables and
"Semantic conventions for gRPC", https://opentelemetry.io/docs/specs/semconv/rpc/grpc.
"""

import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnpa_wire.installation import pip_install

if TYPE_CHECKING:  # imported by a server that was started with --telemetry
    from opentelemetry.trace import Span

_END_TIMEOUT = 0.5  # seconds that the end waits for the last spans to leave
_CARRIED = ("traceparent", "tracestate")


class TelemetryMissing(Exception):
    """The packages of the extra otel are not installed."""


@dataclass(frozen=True, slots=True)
class SpanOfCall:
    """A span that has begun, and the hexadecimal ids of trace and span for the log."""

    span: "Span"
    trace_id: str
    span_id: str


class Spans:
    """Makes spans and sends them; raises TelemetryMissing if the packages are not installed.

    Each thread remembers the span of its call, for events and runs of models.
    """

    def __init__(self, version: str) -> None:
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError as error:
            text = f"--telemetry needs the extra otel: {pip_install('otel')} ({error})"
            raise TelemetryMissing(text) from error
        service = Resource({"service.name": "nnpa-server", "service.version": version})
        resource = Resource.create().merge(service).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("nnpa_server", version)
        self._propagator = TraceContextTextMapPropagator()
        self._trace = trace
        self._thread = threading.local()

    def begin(self, path: str, metadata: Iterable[tuple[str, str | bytes]]) -> SpanOfCall:
        """Begin the span of a call; `path` is the method as /package.Service/Method."""
        carrier = {key: value for key, value in metadata if key in _CARRIED}
        context = self._propagator.extract(carrier)
        service, _, method = path.strip("/").rpartition("/")
        span = self._tracer.start_span(
            path.strip("/"),
            context,
            self._trace.SpanKind.SERVER,
            {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method},
        )
        self._thread.span = span
        ids = span.get_span_context()
        return SpanOfCall(span, f"{ids.trace_id:032x}", f"{ids.span_id:016x}")

    def end(self, call: SpanOfCall, code: int, error: str, facts: Mapping[str, str | int]) -> None:
        """End the span of a call with its gRPC code; `error` is the text of its error, or ""."""
        call.span.set_attributes({"rpc.grpc.status_code": code, **facts})
        if error:
            call.span.set_status(self._trace.StatusCode.ERROR, error)
        call.span.end()
        self._thread.span = None

    def status(self, op: str, machine: str, status: str, count: int = 1) -> None:
        """Add an event to this thread's span for operations with a status other than ZDNN_OK."""
        span: Span | None = getattr(self._thread, "span", None)
        if span is not None:
            facts = {"nnpa.op": op, "nnpa.machine": machine, "nnpa.status": status}
            span.add_event("nnpa.status", {**facts, "nnpa.count": count})

    @contextmanager
    def model_run(self, model: str, machine: str) -> Generator[None]:
        """Make a span of a model's run, as a child of the span of this thread's call."""
        call: Span | None = getattr(self._thread, "span", None)
        facts = {"nnpa.model": model, "nnpa.machine": machine}
        context = None if call is None else self._trace.set_span_in_context(call)
        with self._tracer.start_as_current_span(f"run {model}", context, attributes=facts) as span:
            self._thread.span = span
            try:
                yield
            finally:
                self._thread.span = call

    def close(self) -> None:
        """Send the last spans, for at most half a second."""
        sending = threading.Thread(target=self._provider.shutdown, name="telemetry", daemon=True)
        sending.start()
        sending.join(_END_TIMEOUT)
