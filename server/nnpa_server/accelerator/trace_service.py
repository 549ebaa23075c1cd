# SPDX-License-Identifier: Apache-2.0
"""TraceService: stream a trace, and end it; see nnpa/zdnn/v1/trace.proto."""

from collections.abc import Generator

from nnpa.zdnn.v1 import trace_pb2 as pb
from nnpa.zdnn.v1 import trace_pb2_grpc

from nnpa_server.accelerator.messages import SERVER_VERSION
from nnpa_server.sessions.cancellation import Context
from nnpa_server.sessions.traces import Traces

TRACE_SERVICE = pb.DESCRIPTOR.services_by_name["TraceService"].full_name


class TraceService(trace_pb2_grpc.TraceServiceServicer):
    """Implements TraceService for the traces that sessions join."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    def RecordTrace(  # noqa: N802 - the names of methods are the contract's
        self, request: pb.RecordTraceRequest, context: Context
    ) -> Generator[pb.RecordTraceResponse]:
        """Open a trace and stream its records until it ends."""
        start = pb.TraceStart(server_version=SERVER_VERSION, contents=request.contents)
        trace = self._traces.open(start, request.max_bytes)
        try:
            yield pb.RecordTraceResponse(trace=trace.name)
            for records in trace.read(context.is_active):
                yield pb.RecordTraceResponse(records=records)
        finally:
            self._traces.forget(trace)

    def EndTrace(self, request: pb.EndTraceRequest, context: Context) -> pb.EndTraceResponse:  # noqa: N802, ARG002
        """End a trace; its records can still be read."""
        trace = self._traces.find(request.trace)
        if trace is not None:
            trace.end()
        return pb.EndTraceResponse()
