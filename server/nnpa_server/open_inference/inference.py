# SPDX-License-Identifier: Apache-2.0
"""Run one inference: read the request, run the model, encode the answer."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import Status, interruption
from nnpa_network.program import Array
from nnpa_network.running.executor import Executor
from nnpa_network.running.results import Result

from nnpa_server.config import MAX_RESPONSE
from nnpa_server.errors import CallCancelled, CallRefused
from nnpa_server.open_inference.messages import InferRequest, InferResponse
from nnpa_server.open_inference.reading import CheckedRequest, ReadRequest, counting_failures
from nnpa_server.open_inference.repository import Model, State
from nnpa_server.open_inference.requests import LIMIT_PARAMETER, Input, Place, require_place
from nnpa_server.open_inference.shared_memory import Region, Regions, require_regions
from nnpa_server.open_inference.tensors import Buffer, raw_of, raw_size, read_raw, said, wrong_size
from nnpa_server.rpc.budget import expect_answer
from nnpa_server.sessions.cancellation import CancellationCheck, Context
from nnpa_server.sessions.metrics import Metrics, model_run
from nnpa_server.sessions.tokens import require_machine

VIOLATIONS, NANS = "nnpa_range_violations", "nnpa_nan_count"
_LEFT_SECONDS = 1.0  # that a run goes on for nobody
_OPTION = "grpc.max_receive_message_length"


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The regions of the caller's connection; `held` keeps them open until the run ends."""

    regions: Regions | None
    caller: Context
    held: ExitStack

    def hold(self, name: str) -> Region:
        """Return a region, and keep it open until the run ends; raise CallRefused."""
        region = require_regions(self.regions).find(self.caller.peer(), name)
        self.held.enter_context(region.held())
        return region


class _LeftAlone:
    """A check that raises one second after the caller left, so that short runs still end.

    To end a run ends its worker, which other requests use.
    """

    def __init__(self, caller: Context) -> None:
        self._check = CancellationCheck(caller)
        self._left = math.inf

    def __call__(self) -> None:
        """Raise `CallCancelled` if the caller left more than a second ago."""
        try:
            self._check()
        except CallCancelled:
            now = time.monotonic()
            self._left = min(self._left, now)
            if now - self._left > _LEFT_SECONDS:
                raise


@dataclass(eq=False)
class Inference:
    """Runs models for requests that `read` reads.

    If the size of an answer is known before the run, a larger one is refused before.
    """

    read: ReadRequest
    note_success: Callable[[Model], None]  # of a model that was not ready, when it has run
    regions: Regions | None  # None if shared memory is not offered
    max_response: int  # bytes, unless a request allows more; never more than a message holds
    max_bytes: int  # of an input in shared memory
    metrics: Metrics | None

    def infer(self, request: InferRequest, context: Context) -> InferResponse:
        """Run a model once."""
        began = time.perf_counter_ns()
        interruption.thread.check = CancellationCheck(context)
        try:
            return self._infer(request, context, began)
        finally:
            interruption.thread.check = None

    def _infer(self, request: InferRequest, context: Context, began: int) -> InferResponse:
        checked = self.read(request)
        require_machine(checked.executor.program.machine)
        if not isinstance(checked.executor, Executor):
            interruption.thread.check = _LeftAlone(context)
        with counting_failures(checked.model, began), ExitStack() as held:
            shared = SharedMemory(self.regions, context, held)
            return self._run(checked, request, shared, began)

    def _run(
        self, checked: CheckedRequest, request: InferRequest, shared: SharedMemory, began: int
    ) -> InferResponse:
        self._require_room(checked, checked.known_bytes)
        inputs = _inputs(checked, request.raw, shared, self.max_bytes)
        infer = time.perf_counter_ns()
        machine = checked.executor.program.machine
        with model_run(self.metrics, checked.model.name, machine):
            result = checked.executor.run(inputs)
            output = time.perf_counter_ns()
            if self.metrics is not None:
                warned = Counter(
                    (violation.verb, violation.status) for violation in result.violations
                )
                self.metrics.network(machine, result.calls, warned)
        response = self._answer(checked, result, request.id, shared)
        ended = time.perf_counter_ns()
        checked.model.statistics.succeeded(checked.batch, began, infer, output, ended)
        if checked.model.state != State.READY:
            self.note_success(checked.model)
        return response

    def _answer(
        self, checked: CheckedRequest, result: Result, identifier: bytes, shared: SharedMemory
    ) -> InferResponse:
        arrays = [result.outputs[output.name] for output in checked.outputs]
        sizes = [raw_size(array) for array in arrays]
        outputs = zip(checked.outputs, sizes, strict=True)
        self._require_room(checked, sum(size for output, size in outputs if output.place is None))
        raw: list[Buffer] = []
        for output, array, size in zip(checked.outputs, arrays, sizes, strict=True):
            if output.place is None:
                raw.append(raw_of(array))
            else:
                require_place(output.name, output.place, size)
                region = shared.hold(output.place.region)
                region.write(output.place.offset, raw_of(array), f"output {output.name}")
        message = _describe(checked, arrays, sizes, result)
        message.id = identifier.decode()
        return InferResponse(message, raw)

    def _require_room(self, checked: CheckedRequest, size: int) -> None:
        """Reserve room for an answer with contents of `size` bytes; 0 means unknown.

        Raise CallRefused if the answer is too large.
        """
        limit = (self.max_response if checked.max_bytes is None else checked.max_bytes) or size
        limit = min(limit, MAX_RESPONSE)
        if size > limit:
            raise CallRefused(
                wire.ERROR_REASON_RESPONSE_TOO_LARGE,
                f"model {checked.model.name}: the answer has {size} bytes, above {limit}: request "
                f"fewer outputs, or have them written to shared memory; up to {MAX_RESPONSE} the "
                f"request's parameter {LIMIT_PARAMETER} allows (0: all of them), where {_OPTION} "
                "of the client's channel does",
                value=size,
                limit=limit,
                option=_OPTION,
            )
        expect_answer(size or None)


def _inputs(
    checked: CheckedRequest, raw: Sequence[Buffer], shared: SharedMemory, most: int
) -> dict[str, Array]:
    """Return the inputs' contents by name."""
    if checked.n_raw != len(raw):
        path = f"model {checked.model.name}: raw_input_contents"
        raise wrong_size(path, f"{len(raw)} entries", f"{checked.n_raw}, one per such input")
    contents = iter(raw)
    return {tensor.name: _contents(tensor, contents, shared, most) for tensor in checked.inputs}


def _contents(tensor: Input, raw: Iterator[Buffer], shared: SharedMemory, most: int) -> Array:
    """Return the contents of an input; from a region at most `most` bytes."""
    if tensor.array is not None:
        return tensor.array
    if tensor.place is None:
        return read_raw(tensor.kind, tensor.shape, next(raw), tensor.path)
    return _from_region(tensor, tensor.place, shared, most)


def _from_region(tensor: Input, place: Place, shared: SharedMemory, most: int) -> Array:
    region = shared.hold(place.region)
    region.require(place.offset, place.size, tensor.path)
    size = math.prod(tensor.shape) * tensor.kind.dtype.itemsize
    if tensor.kind.dtype.kind != "O" and place.size != size:
        what = f"{size} bytes for {said(tensor.kind.name, tensor.shape)}"
        raise wrong_size(tensor.path, f"{place.size} bytes", what)
    if place.size > most:
        raise wrong_size(tensor.path, f"{place.size} bytes", f"at most {most}")
    data = region.read(place.offset, place.size, tensor.path)
    return read_raw(tensor.kind, tensor.shape, data, tensor.path)


def _describe(
    checked: CheckedRequest, arrays: Sequence[Array], sizes: Sequence[int], result: Result
) -> pb.ModelInferResponse:
    """Return the response message without its id and raw contents."""
    model = checked.model
    message = pb.ModelInferResponse(model_name=model.name, model_version=model.version)
    status = Status.ZDNN_ELEMENT_RANGE_VIOLATION
    if violations := sum(warning.status == status for warning in result.violations):
        message.parameters[VIOLATIONS].int64_param = violations
    for output, array, size in zip(checked.outputs, arrays, sizes, strict=True):
        tensor = message.outputs.add(name=output.name, datatype=output.kind.name, shape=array.shape)
        if count := result.nans.get(output.name, 0):
            tensor.parameters[NANS].int64_param = count
        if output.place is not None:
            tensor.parameters["shared_memory_region"].string_param = output.place.region
            tensor.parameters["shared_memory_byte_size"].int64_param = size
            tensor.parameters["shared_memory_offset"].int64_param = output.place.offset
    return message
