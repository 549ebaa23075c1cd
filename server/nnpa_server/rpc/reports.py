# SPDX-License-Identifier: Apache-2.0
"""Report calls that ended: in the access log, the metrics, and the last line of the log."""

import logging
import time
from collections import Counter

import grpc

from nnpa_server.logs import MAX_QUEUED, AccessLog
from nnpa_server.rpc.call import Call
from nnpa_server.sessions.metrics import Metrics
from nnpa_server.sessions.spans import SpanOfCall, Spans

_access = logging.getLogger("nnpa.access")
_TOO_LONG = "MESSAGE_TOO_LONG"  # the reason in metrics for a message above --max-message


class Reports:
    """Adds calls to metrics and spans, and logs the calls that failed or took `slow` seconds.

    `counts` has the number of calls by method and status, `log` the queued lines. If
    `names_tokens`, a line names the holder of the call's token.
    """

    def __init__(
        self, names_tokens: bool, metrics: Metrics | None, slow: float, spans: Spans | None = None
    ) -> None:
        self._spans = spans
        self.counts: Counter[tuple[str, str]] = Counter()
        self._names_tokens, self._metrics, self._slow = names_tokens, metrics, slow
        self.log = AccessLog()
        is_observed = metrics is not None or spans is not None
        self.slow = 0.0 if is_observed else slow
        """Seconds: a call that succeeds sooner need not be reported."""

    def add(self, call: Call, seconds: float) -> None:
        """Report a call, or a message of a conversation, that ended after `seconds`."""
        refused = call.refused
        if self._metrics is not None:
            self._metrics.call(call.method, seconds)
            if refused is not None:
                self._metrics.refused(refused.name)
            elif call.status == grpc.StatusCode.RESOURCE_EXHAUSTED.name:
                self._metrics.refused(_TOO_LONG)
        if self._spans is not None and call.span is not None:
            self._end_span(self._spans, call.span, call)
        is_logged = call.status != grpc.StatusCode.OK.name or seconds >= self._slow
        if is_logged and _access.isEnabledFor(logging.INFO):
            self.log.queue.append((time.time(), self._facts(call, seconds)))
            if len(self.log.queue) > MAX_QUEUED:
                self.log.write()

    def _end_span(self, spans: Spans, span: SpanOfCall, call: Call) -> None:
        facts: dict[str, str | int] = {
            "nnpa.session": call.session,
            "nnpa.operations": call.operations,
            "nnpa.request_id": call.request_id,
        }
        if call.refused is not None:
            code, error = call.refused.code, f"{call.status}: {call.refused.message}"
        else:
            code, error = grpc.StatusCode[call.status], call.status
        is_ok = code is grpc.StatusCode.OK
        number: int = code.value[0]
        spans.end(span, number, "" if is_ok else error, facts)

    def summary(self) -> str:
        """Return the number of calls by status, for the last line of the log."""
        by_status: Counter[str] = Counter()
        for (_, status), count in self.counts.items():
            by_status[status] += count
        texts = [f"{status}={count}" for status, count in sorted(by_status.items())]
        return " ".join(texts) or "no calls"

    def _facts(self, call: Call, seconds: float) -> dict[str, object]:
        facts: dict[str, object] = {
            "method": call.method,
            "session": call.session,
            "operations": call.operations,
            "status": call.status,
            "ms": round(seconds * 1e3, 3),
            "id": call.request_id,
        }
        if call.span is not None:
            facts |= {"trace": call.span.trace_id, "span": call.span.span_id}
        if self._names_tokens:
            facts["token"] = "-" if call.token is None else call.token.name
        if call.refused is not None:
            facts["why"] = call.refused.message
        return facts
