# SPDX-License-Identifier: Apache-2.0
"""Record the calls of a session in its trace: operations, answers, times and contents.

A session without a trace runs nothing of this, and an error here cuts the trace, not the call.
Lists of many small operations must stay quick: the record takes their operations in wire form, and
equal results are recorded once.
"""

import logging
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TypeAlias

from google.protobuf.message import Message
from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, tensor_pb2
from nnpa.zdnn.v1 import trace_pb2 as pb
from nnpa_emulator.machine import Memory
from nnpa_wire.fields import delimited

from nnpa_server.accelerator.decode import Request, Step
from nnpa_server.accelerator.execute import describe_ztensor
from nnpa_server.accelerator.messages import describe_session
from nnpa_server.accelerator.observers.trace_contents import (
    CARRIERS,
    Buffer,
    Contents,
    bare_operation,
    bare_result,
    bare_ztensor,
)
from nnpa_server.accelerator.options import model_name
from nnpa_server.accelerator.seams import Answer, CallPath, RunStep
from nnpa_server.errors import CallCancelled, CallRefused, from_exception
from nnpa_server.rpc.codec import Response, WireRequest
from nnpa_server.sessions.cancellation import Context
from nnpa_server.sessions.store import Session
from nnpa_server.sessions.traces import Trace, Traces

_log = logging.getLogger("nnpa.trace")
ExecuteRequest: TypeAlias = accelerator_pb2.ExecuteRequest
Result: TypeAlias = operation_pb2.OperationResult
Recordable: TypeAlias = (
    operation_pb2.Operation | accelerator_pb2.WriteSticks | accelerator_pb2.ReadSticks
)
_HOLDING = "trace"
_STREAMED = pb.StreamedOperation()
_ROLES: Mapping[str | None, pb.ContentsRole.ValueType] = {
    "operation": pb.CONTENTS_ROLE_ARRAY_OUT,
    "write": pb.CONTENTS_ROLE_STICKS_IN,
    "read": pb.CONTENTS_ROLE_STICKS_OUT,
}
_MAX_RESULTS = 4096  # that a session has recorded, by their wire form
_NOTHING: AbstractContextManager[None] = nullcontext()
# Fields that the record of a session leaves out: its credential, and its momentary state.
_LEFT_OUT = ("name", "trace", "tensor_count", "stored_bytes", "create_time",
                            "expire_time", "server_version", "shared_memory",
                            "injected_faults", "lease")  # fmt: skip
# A call's record is joined from two wire forms, so that its operations need not be copied.
assert pb.TracedCall.OPERATIONS_FIELD_NUMBER == ExecuteRequest.OPERATIONS_FIELD_NUMBER


class Tracing:
    """The part of a session in a trace, used under the session's lock."""

    def __init__(self, trace: Trace, session: Session) -> None:
        self.trace = trace
        self.contents = Contents(trace, session)
        self.number = trace.new_session()
        self.call: Recorded | None = None
        self.unknown = set(session.tensors)
        self._results: dict[bytes, int] = {}
        self._next_result = 0

    def close(self) -> None:
        """Do nothing: a trace outlives its sessions."""

    def record_options(self, session: Session) -> None:
        """Record the options that the session has from now on."""
        model = model_name(session.options.machine_spec)
        options = describe_session(session, model, session.created)
        bare: Message = options
        for name in _LEFT_OUT:
            bare.ClearField(name)
        record = pb.TracedSession(session=self.number, options=options, start_ns=self.elapsed())
        self.trace.put(pb.TraceRecord(session=record).SerializeToString())

    @contextmanager
    def cut_on_error(self, what: str) -> Generator[None]:
        """Log an exception and cut the trace, which then lacks `what`; the program goes on."""
        try:
            yield
        except Exception:
            _log.exception("%s could not be recorded", what)
            self.trace.end(pb.TRACE_END_REASON_FAILED)

    def elapsed(self) -> int:
        """Return the nanoseconds since the trace began."""
        return time.monotonic_ns() - self.trace.started

    def record_result(self, record: pb.TracedCall, result: Result) -> None:
        """Record the number of a result, and the result itself if it is the first of its kind."""
        raw = result.SerializeToString()
        if raw not in self._results:
            if len(self._results) >= _MAX_RESULTS:
                self._results.clear()
            self._results[raw] = self._next_result
            self._next_result += 1
            record.new_results.append(result)
        record.results.append(self._results[raw])


class Recorded:
    """A context that records one call; `step` records each of its operations."""

    def __init__(
        self, tracing: Tracing, record: pb.TracedCall, request: ExecuteRequest | None
    ) -> None:
        self._tracing = tracing
        self._record = record
        self._request = request
        self.results: list[Result] = []
        self.durations: list[int] = []
        self._carrying: set[int] = set()
        self.watching = False
        """Whether operations may have contents, or tensors not met before, to record."""
        tracing.contents.record = record

    def __enter__(self) -> None:
        tracing, trace = self._tracing, self._tracing.trace
        self._record.session = tracing.number
        self._record.start_ns = tracing.elapsed()
        self.watching = trace.is_open and (trace.contents or bool(tracing.unknown))
        tracing.call = self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._tracing.call = None
        with self._tracing.cut_on_error("a call"):
            self._tell(error)

    def step(self, take: RunStep, session: Session, step: Step) -> Answer:
        """Run one operation of the call by `take`, and record its time, result and contents."""
        plain = not (step.inline or step.new_ids) and step.spec.name not in CARRIERS
        index, trace = len(self.results), self._tracing.trace
        if not plain:
            self._carrying.add(index)
        if trace.is_open:
            with self._tracing.cut_on_error("a call"):
                self._before(session, step, index)
        started = time.perf_counter_ns()
        answer = take(session, step)
        self.durations.append(time.perf_counter_ns() - started)
        self.results.append(answer.result)
        if trace.is_open and (trace.contents or not plain):
            with self._tracing.cut_on_error("a call"):
                self._tracing.contents.record_outputs(index, step, answer)
        return answer

    def _before(self, session: Session, step: Step, index: int) -> None:
        for name, number in step.ids.items():
            self.meet(session, number, name, index)
        for name, operand in step.inline.items():
            self._tracing.contents.record_inline(index, name, operand.message)

    def meet(self, session: Session, number: int, operand: str = "", index: int = 0) -> None:
        """Record a tensor that is older than the trace, the first time an operation names it."""
        unknown, tensor = self._tracing.unknown, session.tensors.get(number)
        if number not in unknown or tensor is None:
            return
        unknown.discard(number)
        info = tensor_pb2.ZtensorInfo(id=number, operand=operand, ztensor=describe_ztensor(tensor))
        self._record.tensors.append(info)
        self._tracing.contents.record_held(index, operand, number, tensor)

    def answered(self, result: Result, contents: Buffer | Memory | None) -> None:
        """Record the answer of a call without steps, and the contents that it streamed, if any."""
        self._carrying.add(0)
        self.results.append(result)
        self.durations.append(self._tracing.elapsed() - self._record.start_ns)
        if contents is None:
            return
        role, number = _ROLES[self._record.WhichOneof("stream")], result.outputs[0].id
        operand = "data" if role == pb.CONTENTS_ROLE_ARRAY_OUT else "ztensor"
        with self._tracing.cut_on_error("a call"):
            self._tracing.contents.refer(0, role, operand, number, contents)

    def _tell(self, error: BaseException | None) -> None:
        """Put the call's record into the trace, with the error that ended the call, if any."""
        if not self._tracing.trace.is_open:
            return
        record = self._record
        for index, result in enumerate(self.results):
            bare = bare_result(result) if index in self._carrying else result
            self._tracing.record_result(record, bare)
        record.durations_ns.extend(self.durations)
        if isinstance(error, Exception):
            record.error.CopyFrom(_error_of(error))
        contents = record.SerializeToString() + self._operations()
        number = pb.TraceRecord.CALL_FIELD_NUMBER
        self._tracing.trace.put(delimited(number, contents), call=True)

    def _operations(self) -> bytes:
        """Return the wire form of the record's field of operations, without contents."""
        request = self._request
        if request is None:
            return b""
        ran = len(self.results)
        if ran == len(request.operations) and not self._carrying:
            name, request.session = request.session, ""  # a session's name is its key
            raw = request.SerializeToString()
            request.session = name
            return raw
        bare = [
            bare_operation(operation) if index >= ran or index in self._carrying else operation
            for index, operation in enumerate(request.operations)
        ]
        return ExecuteRequest(operations=bare).SerializeToString()


def _error_of(error: Exception) -> pb.TracedError:
    if isinstance(error, CallCancelled):
        return pb.TracedError(code=error.code.name, message=str(error))
    refused = from_exception(error)
    metadata = {key: value for key, value in refused.metadata.items() if key != "session"}
    if not isinstance(error, CallRefused) and refused.name == "INTERNAL":
        metadata = {}  # the id that the caller gets is made elsewhere
    return pb.TracedError(
        code=refused.code.name, reason=refused.name, message=refused.message, metadata=metadata
    )


def traced(session: Session) -> Tracing | None:
    """Return the session's part in its trace; None if it has no trace or the trace has ended."""
    tracing = session.holdings.get(_HOLDING)
    if not isinstance(tracing, Tracing) or tracing.trace.is_open:
        return tracing if isinstance(tracing, Tracing) else None
    del session.holdings[_HOLDING]
    session.options.ClearField("trace")
    return None


def recorded(session: Session, what: Recordable) -> AbstractContextManager[None]:
    """Return a context that records a call which streams one operation's data or one buffer."""
    tracing = traced(session)
    if tracing is None:
        return _NOTHING
    request: ExecuteRequest | None = None
    match what:
        case operation_pb2.Operation():
            record, request = pb.TracedCall(operation=_STREAMED), ExecuteRequest(operations=[what])
            number = getattr(what, what.WhichOneof("operation") or "").ztensor.id
        case accelerator_pb2.WriteSticks():
            record, number = pb.TracedCall(write=what), what.id
            if what.HasField("new_ztensor"):
                bare_ztensor(record.write.new_ztensor)
            record.write.ClearField("byte_order")
        case _:
            record, number = pb.TracedCall(read=what), what.id
            record.read.ClearField("cache_as")
    call = Recorded(tracing, record, request)
    call.meet(session, number)
    return call


def streamed(session: Session, result: Result, contents: Buffer | Memory | None = None) -> Result:
    """Record the result of a call without steps, and return the result."""
    call = running(session)
    if call is not None:
        call.answered(result, contents)
    return result


def running(session: Session) -> Recorded | None:
    """Return the call that is being recorded, or None."""
    tracing = session.holdings.get(_HOLDING)
    return tracing.call if isinstance(tracing, Tracing) else None


def wrap(path: CallPath, session: Session) -> None:
    """Record the calls of a session that is in a trace."""
    tracing = traced(session)
    if tracing is not None:
        _record_calls(path, tracing)
        path.run_step = _recording(path.run_step, tracing)


def _record_calls(path: CallPath, tracing: Tracing) -> None:
    """Begin a record when a list is decoded, and end it when the whole list has run."""
    plain_decode, plain_run = path.decode, path.run

    def decode(session: Session, request: Request) -> Sequence[Step]:
        if traced(session) is None:
            return plain_decode(session, request)
        message = request.message if isinstance(request, WireRequest) else request
        call = Recorded(tracing, pb.TracedCall(), message)
        with ExitStack() as stack:
            stack.enter_context(call)
            steps = plain_decode(session, request)
            stack.pop_all()
        return steps

    def run(session: Session, steps: Sequence[Step], context: Context) -> Response:
        call = tracing.call
        with ExitStack() as stack:
            if call is not None:
                stack.push(call)
            return plain_run(session, steps, context)

    path.decode, path.run = decode, run


def record_step(session: Session, plain: RunStep, step: Step) -> Answer:
    """Run a step, and record it if its call is recorded."""
    call = running(session)
    return plain(session, step) if call is None else call.step(plain, session, step)


def _recording(plain: RunStep, tracing: Tracing) -> RunStep:
    clock = time.perf_counter_ns

    def run_step(session: Session, step: Step) -> Answer:
        call = tracing.call
        if call is None:
            return plain(session, step)
        if call.watching or step.inline or step.new_ids or step.spec.name in CARRIERS:
            return call.step(plain, session, step)
        started = clock()
        answer = plain(session, step)
        call.durations.append(clock() - started)
        call.results.append(answer.result)
        return answer

    return run_step


def join(session: Session, traces: Traces) -> None:
    """Make the trace that a session's options name record the session, if it is open."""
    name, tracing = session.options.trace, traced(session)
    session.options.trace = name  # which is cleared with a trace before it that has ended
    if tracing is not None and tracing.trace.name == name:
        tracing.record_options(session)
        return
    session.holdings.pop(_HOLDING, None)
    trace = traces.find(name) if name else None
    if trace is None:
        session.options.ClearField("trace")
        return
    tracing = session.holdings[_HOLDING] = Tracing(trace, session)
    tracing.record_options(session)
