# SPDX-License-Identifier: Apache-2.0
"""A guest on the emulated machine: the one place from which operations leave the client.

A call runs at once, or joins the list of an open pipeline. Every Execute begins with freeing the
tensors whose Python objects have been dropped since the last one, so dropping costs no round trip.
"""

import itertools
import logging
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from nnpa.zdnn.v1 import accelerator_pb2
from nnpa.zdnn.v1.accelerator_pb2 import ExecuteRequest, ListTensorsRequest
from nnpa.zdnn.v1.operation_pb2 import (
    DIAGNOSTIC_KIND_SANITIZER,
    DIAGNOSTIC_STREAM_STDERR,
    Diagnostic,
    FreeZtensorBuffer,
    Operation,
    OperationResult,
)
from nnpa.zdnn.v1.tensor_pb2 import TensorRef, ZtensorInfo

from nnpa_client._guest.call import Call, Tensor
from nnpa_client._guest.sanitizer import Watch, user_frame
from nnpa_client._server.methods import LIST_TENSORS
from nnpa_client._server.transport import EXECUTE, OUT_OF_BAND_BYTES, Request, Response, Transport
from nnpa_client._values.advice import NOTHING_HAS_RUN
from nnpa_client.errors import NnpaError, TransportError, ZdnnError, ZdnnWarning, renumbered
from nnpa_client.status import Status, is_warning, status_name

__tracebackhide__ = True  # pytest shows the line that called, not these

# The library's standard error, as errors, and its standard output, as information; at debug level
# where an exception or a warning says the same.
_library_log = logging.getLogger("nnpa_client.zdnn")
_library_log.addHandler(logging.NullHandler())  # an exception says it; a caller may log it too


class Guest:
    """The state that a session shares with its ztensors: ids, the open list, tensors to free.

    `keep` lives as long as the session or one of its ztensors.
    """

    def __init__(
        self, transport: Transport, session: accelerator_pb2.Session, keep: object = None
    ) -> None:
        self.transport = transport
        self._keep = keep
        self.name = session.name
        self.limits = session.limits
        self.library = session.library_version
        self._results: list[OperationResult] = []
        self._ids = itertools.count(1)
        self._dropped: deque[int] = deque()
        self._living: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()
        self._queue: list[Call] = []
        self._queued_bytes = 0
        self._pipelines = 0
        self._uncertain = False
        self._lock = threading.RLock()
        self.watch = Watch() if session.sanitize else None

    def new_id(self) -> int:
        """Return an id that no tensor of the session has had."""
        return next(self._ids)

    def adopt(self, tensor: Tensor) -> None:
        """Remember a tensor that now has a buffer, to be freed when its object is dropped."""
        self._living[tensor.id] = tensor
        tensor.finalizer = weakref.finalize(tensor, self._dropped.append, tensor.id)
        tensor.finalizer.atexit = False

    def forget(self, tensor: Tensor) -> None:
        """Note that the server has forgotten a tensor; the object keeps its structure."""
        self._living.pop(tensor.id, None)
        if tensor.finalizer is not None:
            tensor.finalizer.detach()
            tensor.finalizer = None
        tensor.freed_id = 0 if self.watch is None else tensor.id
        tensor.id = 0
        tensor.structure.null_buffer = True

    def in_flight(self, *calls: Call) -> AbstractContextManager[None]:
        """Return a context manager that marks calls as in flight where the session sanitizes."""
        return nullcontext() if self.watch is None else self.watch.in_flight(calls)

    def submit(self, *calls: Call) -> None:
        """Run the calls, or queue them while a pipeline is open.

        Raises ZdnnError for the first call that fails; the calls after it have not run.
        """
        with self.in_flight(*calls), self._lock:
            if not self._pipelines:
                self._run(calls)
                return
            size = sum(call.size() for call in calls)
            if self._queue and self._queued_bytes + size > self.limits.max_message_bytes // 2:
                self.flush()
            self._queue.extend(call.with_copies() for call in calls)
            self._queued_bytes += size

    def ask(self, call: Call) -> OperationResult:
        """Run a call, with what is queued before it, and return its answer."""
        answers: list[OperationResult] = []
        self.submit(replace(call, read=answers.append))
        self.flush()
        return answers[0]

    def flush(self) -> None:
        """Run the calls that an open pipeline has queued."""
        with self.in_flight(*self._queue), self._lock:
            calls, self._queue, self._queued_bytes = self._queue, [], 0
            if calls:
                self._run(calls)

    def begin(self) -> list[OperationResult]:
        """Open a pipeline, which queues calls until its end; return the list of its answers.

        Pipelines may nest: the outermost one runs the calls, and has all answers.
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

    def execute(self, calls: Sequence[Call]) -> Response:
        """Free dropped tensors, run calls, and return their answers, whatever the statuses."""
        with self._lock:
            if self._uncertain:
                self._reconcile()
            freed, operations = list[int](), list[Operation]()
            while self._dropped:
                freed.append(self._dropped.popleft())
                operations.append(_free(freed[-1]))
            arrays = dict[int, Sequence[memoryview]]()
            for index, call in enumerate(calls, len(freed)):
                operations.append(call.operation)
                if call.arrays:
                    arrays[index] = call.arrays
            request = ExecuteRequest(session=self.name, operations=operations)
            try:
                response = self.transport.unary(EXECUTE, Request(request, arrays))
            except NnpaError as error:
                self._dropped.extendleft(reversed(freed))
                if self._is_to_be_retried(error, freed):
                    return self.execute(calls)
                raise renumbered(error, len(freed)) from None
            return response.without(len(freed)) if freed else response

    def _is_to_be_retried(self, error: NnpaError, freed: Sequence[int]) -> bool:
        """Reconcile after a failed list; return True if only a free of our own failed."""
        reason = error.reason if isinstance(error, TransportError) else "PROGRAM_CHECK"
        if reason not in NOTHING_HAS_RUN:
            self.mark_uncertain()
        elif reason == "TENSOR_NOT_FOUND" and _missing(error) in freed:
            self._reconcile()
            return True
        return False

    def apply_result(self, call: Call, result: OperationResult) -> None:
        """Store an answer's structures, log its diagnostics, and pass it to the call's reader."""
        for info in result.outputs:
            tensor = call.tensors.get(info.operand)
            if tensor is not None:
                _apply_structure(tensor, info)
        if _is_error(result.zdnn_status):
            _void([call], f"zdnn_{call.name} failed")
        for tensor in call.tensors.values():
            if tensor.id and tensor.finalizer is None and not tensor.structure.null_buffer:
                self.adopt(tensor)
        for line in result.diagnostics:
            if line.kind != DIAGNOSTIC_KIND_SANITIZER:
                _library_log.log(log_level(line, result.zdnn_status), "%s", line.text)
        if call.read is not None:
            call.read(result)

    def raise_for_status(
        self, call: Call, result: OperationResult, index: int | None = None
    ) -> None:
        """Raise ZdnnError for an error status; warn for a warning and for the sanitizer's reports.

        A transform that takes values beyond DLFLOAT16's range in silence is a warning, too.
        """
        if self.watch is not None:
            self.watch.warn(line.report for line in result.diagnostics if line.HasField("report"))
        status = result.zdnn_status
        violation = result.range_violation if result.HasField("range_violation") else None
        if status == Status.ZDNN_OK and violation is None:
            return
        if status == Status.ZDNN_OK or is_warning(status):
            _frame, level = user_frame()
            warnings.warn(ZdnnWarning(status, call.name, violation), stacklevel=level)
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
            response = self.execute(calls)
        except NnpaError:
            _void(calls, "the call that makes it failed")
            raise
        done, results = len(self._results), response.results
        for index, (call, result) in enumerate(zip(calls, results, strict=False)):
            self.apply_result(call, result)
            array = None if call.sink is None else response.data(index)
            if call.sink is not None and array is not None:
                call.sink.fill(array)
                _keep_array(result, array)
        if len(results) < len(calls):
            _void(calls[len(results) :], "the list of operations ended before")
        if self._pipelines:
            self._results.extend(results)
        for index, (call, result) in enumerate(zip(calls, results, strict=False), done):
            self.raise_for_status(call, result, index if self._pipelines else None)

    def mark_uncertain(self) -> None:
        """Ask which calls have run, as their answers are lost; at the next call if that fails."""
        self._uncertain = True
        try:
            self._reconcile()
        except NnpaError:
            return

    def _reconcile(self) -> None:
        present = {info.id: info for info in self.list_tensors()}
        for number in [number for number in self._dropped if number not in present]:
            self._dropped.remove(number)
        for number, tensor in list(self._living.items()):
            if number in present:
                _apply_structure(tensor, present[number])
        self._uncertain = False

    def list_tensors(self) -> list[ZtensorInfo]:
        """List the tensors that the server holds for the session, by ascending id."""
        tensors: list[ZtensorInfo] = []
        request = ListTensorsRequest(session=self.name, page_size=1000)
        while True:
            page = self.transport.unary(LIST_TENSORS, request)
            tensors.extend(page.tensors)
            if not page.next_page_token:
                return tensors
            request.page_token = page.next_page_token


def log_level(line: Diagnostic, status: int) -> int:
    """Return the level of a line; one that names the status repeats an exception or a warning."""
    if status != Status.ZDNN_OK and status_name(status) in line.text:
        return logging.DEBUG
    return logging.ERROR if line.stream == DIAGNOSTIC_STREAM_STDERR else logging.INFO


def _is_error(status: int) -> bool:
    return status != Status.ZDNN_OK and not is_warning(status)


def _keep_array(result: OperationResult, array: bytes | memoryview) -> None:
    """Keep a small array, and any array of a failed call, in its answer."""
    if len(array) >= OUT_OF_BAND_BYTES and not _is_error(result.zdnn_status):
        result.ClearField("data")
    elif not result.HasField("data"):
        result.data = bytes(array)


def _apply_structure(tensor: Tensor, info: ZtensorInfo) -> None:
    """Store the structure of an answer, but keep the user's own descriptor."""
    structure = info.ztensor
    structure.ClearField("contents")
    if tensor.held is not None:
        structure.pre_transformed_desc.CopyFrom(tensor.held.pre_transformed_desc)
    tensor.held = structure


def _void(calls: Sequence[Call], reason: str) -> None:
    """Note why the ztensors that the calls should have created do not exist."""
    for call in calls:
        for tensor in call.creates:
            tensor.id = 0
            if tensor.held is None:
                tensor.missing = reason


def _missing(error: NnpaError) -> int:
    """Return the id of the tensor that does not exist."""
    return int(error.metadata.get("tensor", 0)) if isinstance(error, TransportError) else 0


def _free(number: int) -> Operation:
    free = FreeZtensorBuffer(ztensor=TensorRef(id=number))
    return Operation(free_ztensor_buffer=free, housekeeping=True)
