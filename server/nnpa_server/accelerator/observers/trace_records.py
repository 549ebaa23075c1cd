# SPDX-License-Identifier: Apache-2.0
"""What a session's trace is told: each call with its operations, their answers, times and contents.

`recorded` goes around a call, `stepping` around each of its operations. Both do nothing for a
session without a trace, and nothing here makes a call fail. A list of many small operations is what
must stay quick: its operations are taken over in their wire form, and a result that is told again
and again is recorded once.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias, TypeVar

from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, tensor_pb2
from nnpa.zdnn.v1 import trace_pb2 as pb

from nnpa_server.accelerator.encode import describe_session, describe_ztensor
from nnpa_server.accelerator.observers.trace_contents import (
    CARRIERS,
    Carried,
    bare_operation,
    bare_result,
    bare_ztensor,
)
from nnpa_server.accelerator.options import model_name
from nnpa_server.errors import CallCancelled, CallRefused, from_exception
from nnpa_server.rpc.codec import Listed
from nnpa_server.rpc.wire_fields import delimited
from nnpa_server.sessions.store import Session
from nnpa_server.sessions.traces import Trace, Traces

_log = logging.getLogger("nnpa.trace")
Request: TypeAlias = accelerator_pb2.ExecuteRequest
Result: TypeAlias = operation_pb2.OperationResult
Answer = TypeVar("Answer", bound=tuple[Any, ...])  # an outcome, its result, sticks apart from it
Recordable: TypeAlias = (
    Listed | operation_pb2.Operation | accelerator_pb2.WriteSticks | accelerator_pb2.ReadSticks
)
_STREAMED = pb.StreamedOperation()
_ROLES: Mapping[str | None, pb.ContentsRole.ValueType] = {
    "operation": pb.CONTENTS_ROLE_ARRAY_OUT,
    "write": pb.CONTENTS_ROLE_STICKS_IN,
    "read": pb.CONTENTS_ROLE_STICKS_OUT,
}
_MOST_KNOWN = 4096  # results that a session remembers to have told
_NOTHING: AbstractContextManager[None] = nullcontext()
# What a session's record leaves out: its key, and how it is for the moment.
_UNTOLD: tuple[Any, ...] = ("name", "trace", "tensor_count", "stored_bytes", "create_time",
                            "expire_time", "server_version", "shared_memory",
                            "injected_faults")  # fmt: skip
# A call's record is joined from two wire forms, so that its operations need not be copied.
assert pb.TracedCall.OPERATIONS_FIELD_NUMBER == Request.OPERATIONS_FIELD_NUMBER


class Tracing:
    """A session in a trace; used under the session's lock."""

    def __init__(self, trace: Trace, session: Session) -> None:
        self.trace = trace
        self.carried = Carried(trace, session)
        self.number = trace.new_session()
        self.call: Recorded | None = None
        self.unknown = set(session.tensors)
        self.known: dict[int, tuple[int, Result]] = {}
        self._next_result = 0

    def close(self) -> None:
        """Do nothing: a trace outlives its sessions."""

    def tell_options(self, session: Session) -> None:
        """Tell what the session is from here on."""
        model = model_name(session.options.machine_spec)
        options = describe_session(session, model, session.created)
        for name in _UNTOLD:
            options.ClearField(name)
        told = pb.TracedSession(session=self.number, options=options, start_ns=self.elapsed())
        self.trace.put(pb.TraceRecord(session=told).SerializeToString())

    def elapsed(self) -> int:
        """Return the nanoseconds since the trace began."""
        return time.monotonic_ns() - self.trace.started

    def number_of(self, result: Result, plain: bool) -> int:
        """Return the number of a result that is new; a plain one, which never changes, is known."""
        number = self._next_result
        self._next_result += 1
        if plain:
            if len(self.known) >= _MOST_KNOWN:
                self.known.clear()
            self.known[id(result)] = number, result
        return number


class Recorded:
    """A call while it runs: around it, and around each of its operations."""

    def __init__(self, tracing: Tracing, record: pb.TracedCall, request: Request | None) -> None:
        self._tracing = tracing
        self._record = record
        self._request = request
        self.numbers: list[int] = []
        self.durations: list[int] = []
        self._new: list[tuple[Result, bool]] = []
        self._carrying: set[int] = set()

    def __enter__(self) -> None:
        self._record.session = self._tracing.number
        self._record.start_ns = self._tracing.elapsed()
        self._tracing.call = self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._tracing.call = None
        try:
            self._tell(error)
        except Exception:
            self.fail()

    def fail(self) -> None:
        """Cut the trace: what cannot be recorded is a defect of ours, and the program's none."""
        _log.exception("a call could not be recorded")
        self._tracing.trace.end(pb.TRACE_END_REASON_FAILED)

    @property
    def is_watching(self) -> bool:
        """Whether any operation may have contents, or tensors, to tell of."""
        trace = self._tracing.trace
        return trace.is_open and (trace.contents or bool(self._tracing.unknown))

    def note(self, result: Result, plain: bool = True) -> None:
        """Note an answer; a plain one is recorded as it is, others without contents."""
        known = self._tracing.known.get(id(result)) if plain else None
        if known is not None:
            self.numbers.append(known[0])
            return
        self._new.append((result, plain))
        self.numbers.append(self._tracing.number_of(result, plain))

    def step(self, take: Callable[[Session, Any], Answer], session: Session, step: Any) -> Answer:
        """Run one operation of the call as `take` does, and tell of its contents."""
        plain = not step.others and step.arm.name not in CARRIERS
        index, trace = len(self.numbers), self._tracing.trace
        if not plain:
            self._carrying.add(index)
        if trace.is_open:
            self._before(session, step, index)
        started = time.perf_counter_ns()
        answer = take(session, step)
        self.durations.append(time.perf_counter_ns() - started)
        self.note(answer[1], plain)
        if trace.is_open and (trace.contents or not plain):
            self._after(step, index, answer)
        return answer

    def _before(self, session: Session, step: Any, index: int) -> None:
        try:
            for operand, number in step.ids.items():
                self.meet(session, number, operand, index)
            for operand, (which, value) in step.others.items():
                if which == "inline_ztensor":
                    self._tracing.carried.brought(self._record, index, operand, value)
        except Exception:
            self.fail()

    def meet(self, session: Session, number: int, operand: str = "", index: int = 0) -> None:
        """Tell about a tensor that the session had before it joined, when it is named first."""
        unknown, tensor = self._tracing.unknown, session.tensors.get(number)
        if number not in unknown or tensor is None:
            return
        unknown.discard(number)
        info = tensor_pb2.ZtensorInfo(id=number, operand=operand, ztensor=describe_ztensor(tensor))
        self._record.tensors.append(info)
        self._tracing.carried.found(self._record, index, operand, number, tensor)

    def _after(self, step: Any, index: int, answer: tuple[Any, ...]) -> None:
        try:
            self._tracing.carried.left(self._record, index, step, answer)
        except Exception:
            self.fail()

    def answered(self, result: Result, contents: Any) -> None:
        """Take the answer of a call that has no steps, and what came or went in chunks, if any."""
        self._carrying.add(0)
        self.note(result, False)
        self.durations.append(self._tracing.elapsed() - self._record.start_ns)
        if contents is None:
            return
        role, number = _ROLES[self._record.WhichOneof("stream")], result.outputs[0].id
        operand = "data" if role == pb.CONTENTS_ROLE_ARRAY_OUT else "ztensor"
        try:
            self._tracing.carried.refer(self._record, 0, role, operand, number, contents)
        except Exception:
            self.fail()

    def _tell(self, error: BaseException | None) -> None:
        """Put the call's record, whatever became of the call."""
        if not self._tracing.trace.is_open:
            return
        record = self._record
        record.results.extend(self.numbers)
        record.new_results.extend([one if plain else bare_result(one) for one, plain in self._new])
        record.durations_ns.extend(self.durations)
        if isinstance(error, Exception):
            record.error.CopyFrom(_told(error))
        contents = record.SerializeToString() + self._operations()
        number = pb.TraceRecord.CALL_FIELD_NUMBER
        self._tracing.trace.put(delimited(number, contents), call=True)

    def _operations(self) -> bytes:
        """Return the operations as a field of their record, without contents."""
        request = self._request
        if request is None:
            return b""
        ran = len(self.numbers)
        if ran == len(request.operations) and not self._carrying:
            name, request.session = request.session, ""  # a session's name is its key
            raw = request.SerializeToString()
            request.session = name
            return raw
        bare = [
            bare_operation(one) if index >= ran or index in self._carrying else one
            for index, one in enumerate(request.operations)
        ]
        return Request(operations=bare).SerializeToString()


def _told(error: Exception) -> pb.TracedError:
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
    """Return the session's place in its trace; None without one, or when that has ended."""
    held = session.trace
    if held is None:
        return None
    assert isinstance(held, Tracing)
    if held.trace.is_open:
        return held
    session.trace = None
    session.options.ClearField("trace")
    return None


def recorded(session: Session, what: Recordable) -> AbstractContextManager[None]:
    """Return what goes around a call: of a list, or of one operation or buffer that is streamed."""
    tracing = traced(session)
    if tracing is None:
        return _NOTHING
    request: Request | None = None
    match what:
        case Listed():
            return Recorded(tracing, pb.TracedCall(), what.message)
        case operation_pb2.Operation():
            record, request = pb.TracedCall(operation=_STREAMED), Request(operations=[what])
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


def streamed(session: Session, result: Result, contents: Any = None) -> Result:
    """Return the result of a call without steps, after its trace has been told of it."""
    call = running(session)
    if call is not None:
        call.answered(result, contents)
    return result


def running(session: Session) -> Recorded | None:
    """Return the call that `recorded` goes around, None where nothing is recorded."""
    tracing = session.trace
    return tracing.call if isinstance(tracing, Tracing) else None


def stepping(
    session: Session, take: Callable[[Session, Any], Answer]
) -> Callable[[Session, Any], Answer]:
    """Return what runs a step as `take` does, and has it recorded."""
    call, tracing = running(session), traced(session)
    if call is None or tracing is None:
        return take
    clock, watching, carriers = time.perf_counter_ns, call.is_watching, CARRIERS
    find, note, time_took = tracing.known.get, call.numbers.append, call.durations.append

    def run(session: Session, step: Any) -> Answer:
        if watching or step.others or step.arm.name in carriers:
            return call.step(take, session, step)
        started = clock()
        answer = take(session, step)
        time_took(clock() - started)
        told = find(id(answer[1]))
        if told is None:
            call.note(answer[1])
        else:
            note(told[0])
        return answer

    return run


def join(session: Session, traces: Traces) -> None:
    """Have a session recorded by the trace that its options want, if that is open."""
    wanted, tracing = session.options.trace, traced(session)
    if tracing is not None and tracing.trace.name == wanted:
        tracing.tell_options(session)
        return
    session.trace = None
    trace = traces.find(wanted) if wanted else None
    if trace is None:
        session.options.ClearField("trace")
        return
    tracing = session.trace = Tracing(trace, session)
    tracing.tell_options(session)
