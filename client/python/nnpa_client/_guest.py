# SPDX-License-Identifier: Apache-2.0
"""A guest on the emulated machine: the one place from which operations leave the client.

A call runs at once, or joins the list of an open pipeline. Every Execute begins with freeing the
tensors whose Python objects have been dropped since the last one, so dropping costs no round trip.
"""

import inspect
import itertools
import logging
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from nnpa.zdnn.v1 import accelerator_pb2
from nnpa.zdnn.v1.accelerator_pb2 import ExecuteRequest, ListTensorsRequest
from nnpa.zdnn.v1.operation_pb2 import (
    DIAGNOSTIC_KIND_SANITIZER,
    DIAGNOSTIC_STREAM_STDERR,
    FreeZtensorBuffer,
    Operation,
    OperationResult,
)
from nnpa.zdnn.v1.tensor_pb2 import TensorRef, ZtensorInfo

from nnpa_client._sanitizer import Watch
from nnpa_client._shortcuts.out_of_band_arrays import APART, Answered, Copies, Listed
from nnpa_client._shortcuts.shared_memory import Shared
from nnpa_client._sink import Sink
from nnpa_client._transport import Transport
from nnpa_client.errors import NnpaError, TransportError, ZdnnError, ZdnnWarning, renumbered
from nnpa_client.status import Status, is_warning

if TYPE_CHECKING:
    from nnpa_client.ztensor import Ztensor

# What the library prints: its standard error as errors, its standard output as information.
_library_log = logging.getLogger("nnpa_client.zdnn")
_PACKAGE = str(Path(__file__).parent)

# Reasons of errors that the server finds before anything of a list has run.
NOTHING_HAS_RUN = frozenset(
    {
        "CALL_QUOTA_EXCEEDED",
        "FIELD_INVALID",
        "FIELD_UNSPECIFIED",
        "FUNCTION_NOT_IMPLEMENTED",
        "FUNCTION_NOT_IN_LIBRARY",
        "OPERATION_UNKNOWN",
        "SERVER_DRAINING",
        "SESSION_NOT_FOUND",
        "TENSOR_ID_IN_USE",
        "TENSOR_NOT_FOUND",
        "TOKEN_INVALID",
    }
)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a C function: its name without prefix, and what it becomes on the wire.

    `tensors` are its ztensors by C parameter name, kept alive until it has run; the answer may
    change their structure. `creates` are those that exist only when the answer says so. `read` gets
    every answer. `arrays` are the user's that the operation lacks, `sink` gets the one that it
    returns, of at most `room` bytes.
    """

    name: str
    operation: Operation
    tensors: Mapping[str, "Ztensor"] = field(default_factory=dict[str, "Ztensor"])
    creates: tuple["Ztensor", ...] = ()
    read: Callable[[OperationResult], None] | None = None
    arrays: Sequence[memoryview] = ()
    sink: Sink | None = None
    room: int = 0

    def size(self) -> int:
        """Return the bytes that the call adds to a message, about."""
        return self.operation.ByteSize() + sum(one.nbytes for one in self.arrays)


class Guest:
    """State that a session shares with its ztensors: ids, the open list, what to free.

    `keep` is kept alive as long as session or ztensors are. `shared` is memory that the server has
    opened too.
    """

    def __init__(
        self,
        transport: Transport,
        session: accelerator_pb2.Session,
        keep: object = None,
        shared: Shared | None = None,
    ) -> None:
        self.transport = transport
        self._keep = keep
        self.name = session.name
        self.limits = session.limits
        self.library = session.library_version
        self._results: list[OperationResult] = []
        self._ids = itertools.count(1)
        self._dropped: deque[int] = deque()
        self._living: weakref.WeakValueDictionary[int, Ztensor] = weakref.WeakValueDictionary()
        self._queue: list[Call] = []
        self._queued_bytes = 0
        self._pipelines = 0
        self._copies = Copies()
        self._shared = shared
        self._uncertain = False
        self._lock = threading.RLock()
        self.watch = Watch() if session.sanitize else None

    def new_id(self) -> int:
        """Return an id that no tensor of the session has had."""
        return next(self._ids)

    def adopt(self, ztensor: "Ztensor") -> None:
        """Remember a tensor that now has a buffer, to be freed when its object is dropped."""
        self._living[ztensor.id] = ztensor
        ztensor.finalizer = weakref.finalize(ztensor, self._dropped.append, ztensor.id)
        ztensor.finalizer.atexit = False

    def forget(self, ztensor: "Ztensor") -> None:
        """Note that the server has forgotten a tensor; the object keeps its structure."""
        self._living.pop(ztensor.id, None)
        if ztensor.finalizer is not None:
            ztensor.finalizer.detach()
            ztensor.finalizer = None
        ztensor.freed_id = 0 if self.watch is None else ztensor.id
        ztensor.id = 0
        ztensor.structure.null_buffer = True

    def flying(self, *calls: Call) -> AbstractContextManager[None]:
        """Return a block in which calls are under way, for a session that sanitizes."""
        return nullcontext() if self.watch is None else self.watch.flying(calls)

    def submit(self, *calls: Call) -> None:
        """Run the calls, or queue them while a pipeline is open.

        Raises ZdnnError for the first that fails; what follows it has not run.
        """
        if self.watch is None:
            self._submit(calls)
            return
        with self.watch.flying(calls):
            self._submit(calls)

    def _submit(self, calls: Sequence[Call]) -> None:
        with self._lock:
            if not self._pipelines:
                try:
                    self._run([self._sharing(call) for call in calls])
                finally:
                    self._release()
                return
            size = sum(call.size() for call in calls)
            if self._queue and self._queued_bytes + size > self.limits.max_message_bytes // 2:
                self.flush()
            self._queue.extend(self._kept(self._sharing(call)) for call in calls)
            self._queued_bytes += size

    def _sharing(self, call: Call) -> Call:
        """Return a call whose arrays are in shared memory, where that is and has room for them."""
        shared = self._shared
        if shared is None or not (call.arrays or call.room >= APART):
            return call
        places = [shared.put(array) for array in call.arrays] or [shared.place(call.room)]
        found = [one for one in places if one is not None]
        if len(found) < len(places):
            return call
        operation = Operation()
        operation.CopyFrom(call.operation)
        operation.shared_data.extend(found)
        return replace(call, operation=operation, arrays=())

    def _kept(self, call: Call) -> Call:
        """Return a call whose arrays stay as they are until it is sent, whatever the user does."""
        if not call.arrays:
            return call
        return replace(call, arrays=[self._copies.copy(array) for array in call.arrays])

    def _release(self) -> None:
        """Take back the memory of arrays that have arrived."""
        self._copies.release()
        if self._shared is not None:
            self._shared.release()

    def ask(self, call: Call) -> OperationResult:
        """Run a call, with what is queued before it, and return its answer."""
        answers: list[OperationResult] = []
        self.submit(replace(call, read=answers.append))
        self.flush()
        return answers[0]

    def flush(self) -> None:
        """Run what an open pipeline has queued."""
        if self.watch is None:
            self._flush()
            return
        with self.watch.flying(self._queue):
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            calls, self._queue, self._queued_bytes = self._queue, [], 0
            try:
                if calls:
                    self._run(calls)
            finally:
                self._release()

    def begin(self) -> list[OperationResult]:
        """Open a pipeline: calls queue until its end; return where their answers will be.

        Pipelines may nest: the outer one runs, and has all answers.
        """
        with self._lock:
            if not self._pipelines:
                self._results = []
            self._pipelines += 1
            return self._results

    def end(self, run: bool) -> None:
        """Close a pipeline; run its calls, or drop them."""
        with self._lock:
            if self._pipelines > 1:
                self._pipelines -= 1
                return
            try:
                if run:
                    self.flush()
            finally:
                self._pipelines, self._results = 0, []
                _void(self._queue, "its pipeline was left by an exception")
                self._queue, self._queued_bytes = [], 0
                self._release()

    def execute(self, calls: Sequence[Call]) -> Answered:
        """Run calls without judging them, after dropped tensors have been freed."""
        with self._lock:
            if self._uncertain:
                self._reconcile()
            freed = [self._dropped.popleft() for _ in range(len(self._dropped))]
            frees = [_free(number) for number in freed]
            operations = [*frees, *(call.operation for call in calls)]
            request = ExecuteRequest(session=self.name, operations=operations)
            arrays = {n: call.arrays for n, call in enumerate(calls, len(frees)) if call.arrays}
            try:
                answer = self.transport.execute(Listed(request, arrays))
            except NnpaError as error:
                self._dropped.extendleft(reversed(freed))
                reason = error.reason if isinstance(error, TransportError) else "PROGRAM_CHECK"
                if reason not in NOTHING_HAS_RUN:
                    self.doubt()
                elif reason == "TENSOR_NOT_FOUND" and _missing(error) in freed:
                    self._reconcile()
                    return self.execute(calls)
                raise renumbered(error, len(frees)) from None
            returned = {n - len(frees): array for n, array in answer.arrays.items()}
            return Answered(list(answer.results)[len(frees) :], returned)

    def settle(self, call: Call, result: OperationResult) -> None:
        """Take over what one answer says of ztensors; hand it to who wants to read it."""
        valid = result.zdnn_status == Status.ZDNN_OK or is_warning(result.zdnn_status)
        for info in result.outputs:
            ztensor = call.tensors.get(info.operand)
            if ztensor is not None:
                ztensor.settle(info.ztensor)
        for ztensor in call.creates:
            if not valid:
                ztensor.void(f"zdnn_{call.name} failed")
        for ztensor in call.tensors.values():
            if ztensor.id and ztensor.finalizer is None and not ztensor.structure.null_buffer:
                self.adopt(ztensor)
        for line in result.diagnostics:
            if line.kind == DIAGNOSTIC_KIND_SANITIZER:
                continue
            level = logging.ERROR if line.stream == DIAGNOSTIC_STREAM_STDERR else logging.INFO
            _library_log.log(level, "%s", line.text)
        if call.read is not None:
            call.read(result)

    def judge(self, call: Call, result: OperationResult, index: int | None = None) -> None:
        """Raise ZdnnError for an error status, warn of a warning and of what is found."""
        if self.watch is not None:
            self.watch.tell(line.report for line in result.diagnostics if line.HasField("report"))
        status = result.zdnn_status
        violation = result.range_violation if result.HasField("range_violation") else None
        if status == Status.ZDNN_OK:
            return
        if is_warning(status):
            warnings.warn(ZdnnWarning(status, call.name, violation), stacklevel=_user_level())
            return
        raise ZdnnError(
            status,
            call.name,
            refusal=result.refusal if result.HasField("refusal") else None,
            violation=violation,
            result=result,
            operation_index=index,
        )

    def _run(self, calls: Sequence[Call]) -> None:
        try:
            answered = self.execute(calls)
        except NnpaError:
            _void(calls, "the call that makes it failed")
            raise
        done, results = len(self._results), answered.results
        for index, (call, result) in enumerate(zip(calls, results, strict=False)):
            self.settle(call, result)
            if call.sink is not None:
                self._fill(call.sink, result, answered.data(index))
        _void(calls[len(results) :], "the list of operations ended before")
        if self._pipelines:
            self._results.extend(results)
        for index, (call, result) in enumerate(zip(calls, results, strict=False), done):
            self.judge(call, result, index if self._pipelines else None)

    def _fill(self, sink: Sink, result: OperationResult, array: bytes | memoryview | None) -> None:
        """Hand on the array that an answer brings, or that it says is in shared memory."""
        if array is not None:
            sink.expect(len(array))
            sink.take(array)
        elif self._shared is not None and result.HasField("shared"):
            sink.expect(result.shared.size)
            self._shared.take(result.shared, sink.filled)

    def doubt(self) -> None:
        """Find out what has run of calls whose answers are lost, now or before the next call."""
        self._uncertain = True
        try:
            self._reconcile()
        except NnpaError:
            return

    def _reconcile(self) -> None:
        present = {info.id: info for info in self.list_tensors()}
        for number in [number for number in self._dropped if number not in present]:
            self._dropped.remove(number)
        for number, ztensor in list(self._living.items()):
            if number in present:
                ztensor.settle(present[number].ztensor)
        self._uncertain = False

    def list_tensors(self) -> list[ZtensorInfo]:
        """List the tensors that the server holds for the session, by ascending id."""
        tensors: list[ZtensorInfo] = []
        request = ListTensorsRequest(session=self.name, page_size=1000)
        while True:
            page = self.transport.list_tensors(request)
            tensors.extend(page.tensors)
            if not page.next_page_token:
                return tensors
            request.page_token = page.next_page_token


def _missing(error: NnpaError) -> int:
    """Return the id of the tensor that does not exist."""
    return int(error.metadata.get("tensor", 0)) if isinstance(error, TransportError) else 0


def _free(number: int) -> Operation:
    free = FreeZtensorBuffer(ztensor=TensorRef(id=number))
    return Operation(free_ztensor_buffer=free, housekeeping=True)


def _void(calls: Sequence[Call], reason: str) -> None:
    for call in calls:
        for ztensor in call.creates:
            ztensor.void(reason)


def _user_level() -> int:
    """Return the `stacklevel` of the first frame outside this package, seen from `judge`."""
    level = 0
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
