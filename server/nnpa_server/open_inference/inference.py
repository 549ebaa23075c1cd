# SPDX-License-Identifier: Apache-2.0
"""One inference: from a request cut open to a response in parts.

What a request says beside its contents (model, names, types, shapes) is read and checked once and
remembered by its bytes; clients say the same again and again.
"""

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import Status
from nnpa_emulator.ztensor import getsize_ztensor
from nnpa_network.program import ModelRefused

from nnpa_server.errors import CallRefused, invalid
from nnpa_server.open_inference.messages import InferRequest, InferResponse
from nnpa_server.open_inference.repository import Model, Repository, State
from nnpa_server.open_inference.requests import (
    LIMIT_PARAMETER,
    Input,
    Output,
    Place,
    not_offered,
    read_inputs,
    read_outputs,
    response_limit,
)
from nnpa_server.open_inference.shared_memory import Region, Regions
from nnpa_server.open_inference.tensors import (
    Array,
    Buffer,
    mismatched,
    raw_of,
    raw_size,
    read_raw,
    said,
    wrong_size,
)
from nnpa_server.sessions.metrics import Metrics
from nnpa_server.sessions.tokens import require_machine

if TYPE_CHECKING:
    from nnpa_network.program import Program
    from nnpa_network.running.executor import Executor
    from nnpa_network.running.results import Result

VIOLATIONS, NANS = "nnpa_range_violations", "nnpa_nan_count"
_OPTION = "grpc.max_receive_message_length"
_REMEMBERED, _LONGEST = 256, 4096  # requests remembered, and the most bytes of one
_QUICK = 1_000_000  # nanoseconds from which a run is none that others should wait for
_RANGE_VIOLATION = Status.ZDNN_ELEMENT_RANGE_VIOLATION
Find = Callable[[str], Region]


@dataclass(slots=True)
class Prepared:
    """A request without its contents, checked. `heads` are answers' heads by shapes and sizes.

    `carried` are how many inputs have their contents in the request, `placed` whether a tensor
    lies in shared memory, `took` nanoseconds that the last run took.
    """

    model: Model
    executor: "Executor"
    inputs: Sequence[Input]
    outputs: Sequence[Output]
    most_bytes: int | None
    batch: int
    carried: int
    placed: bool
    heads: dict[tuple[tuple[int, ...], ...], bytes] = field(
        default_factory=dict[tuple[tuple[int, ...], ...], bytes]
    )
    took: int = _QUICK


@dataclass(frozen=True, slots=True)
class Shared:
    """Shared memory for a run: what finds the caller's regions, and what holds them meanwhile."""

    find: Find
    held: ExitStack


class Inference:
    """Runs the models of a repository.

    An answer is at most `max_response` bytes unless its request says otherwise; the tensors of a
    run are at most `max_bytes` together. `regions` is None where shared memory is not offered.
    """

    def __init__(
        self,
        repository: Repository,
        regions: Regions | None,
        max_response: int,
        max_bytes: int,
        metrics: Metrics | None = None,
    ) -> None:
        self._repository = repository
        self._regions = regions
        self._max_response = max_response
        self._max_bytes = max_bytes
        self._metrics = metrics
        self._prepared: OrderedDict[tuple[bytes, bool], Prepared] = OrderedDict()
        self._lock = Lock()

    def infer(self, request: InferRequest, context: Any) -> InferResponse:
        """Run a model once."""
        began = time.perf_counter_ns()
        prepared = self._prepare(request)
        model = prepared.model
        require_machine(prepared.executor.program.machine)
        try:
            return self._run(prepared, request, context, began)
        except ModelRefused as error:
            model.statistics.failed(time.perf_counter_ns() - began)
            raise mismatched(f"model {model.name}", str(error), "what the model takes") from error
        except CallRefused:
            model.statistics.failed(time.perf_counter_ns() - began)
            raise
        except Exception as error:
            model.statistics.failed(time.perf_counter_ns() - began)
            raise step_failed(model, error) from error

    def is_quick(self, request: InferRequest) -> bool:
        """Tell whether a request like one that came before ran within a millisecond then."""
        with self._lock:
            known = self._prepared.get((request.head, bool(request.raw)))
        return known is not None and known.took < _QUICK

    def _run(
        self, prepared: Prepared, request: InferRequest, context: Any, began: int
    ) -> InferResponse:
        if not prepared.placed:
            return self._compute(prepared, request, None, began)
        with ExitStack() as held:
            shared = Shared(self._finder(context), held)
            return self._compute(prepared, request, shared, began)

    def _compute(
        self, prepared: Prepared, request: InferRequest, shared: Shared | None, began: int
    ) -> InferResponse:
        feeds = _feeds(prepared, request.raw, shared, self._max_bytes)
        infer = time.perf_counter_ns()
        result = prepared.executor.run(feeds)
        output = time.perf_counter_ns()
        if self._metrics is not None:
            warned = Counter((one.verb, one.status) for one in result.violations)
            self._metrics.network(prepared.executor.program.machine, result.calls, warned)
        response = self._answer(prepared, result, request.id, shared)
        ended = time.perf_counter_ns()
        prepared.took = ended - began
        prepared.model.statistics.succeeded(prepared.batch, began, infer, output, ended)
        return response

    def _finder(self, context: Any) -> Find:
        """Return what finds the regions of the caller's connection."""

        def find(name: str) -> Region:
            if self._regions is None:
                raise not_offered("system_shared_memory", "start the server with --shared-memory")
            return self._regions.find(context.peer(), name)

        return find

    def _prepare(self, request: InferRequest) -> Prepared:
        key = (request.head, bool(request.raw))
        with self._lock:
            known = self._prepared.get(key)
            if known is not None:
                if known.model.state == State.READY:
                    self._prepared.move_to_end(key)
                    return known
                del self._prepared[key]
        try:
            message = pb.ModelInferRequest.FromString(request.head)
        except DecodeError as error:
            limit = "protocol buffer wire format"
            raise invalid("request", "no message of its type", limit) from error
        prepared = self._read(message, raw=bool(request.raw))
        if len(request.head) <= _LONGEST and all(one.array is None for one in prepared.inputs):
            with self._lock:
                self._prepared[key] = prepared
                ended = [at for at, one in self._prepared.items() if one.model.state != State.READY]
                for at in ended:  # their networks are not kept alive by being remembered
                    del self._prepared[at]
                while len(self._prepared) > _REMEMBERED:
                    self._prepared.popitem(last=False)
        return prepared

    def _read(self, message: pb.ModelInferRequest, *, raw: bool) -> Prepared:
        model = self._repository.find(message.model_name, message.model_version)
        began = time.perf_counter_ns()
        try:
            inputs = read_inputs(model, message.inputs, raw=raw)
            outputs = read_outputs(model, message.outputs)
            executor = self._executor(model, {one.name: one.shape for one in inputs})
        except (CallRefused, ModelRefused) as error:
            model.statistics.failed(time.perf_counter_ns() - began)
            if isinstance(error, CallRefused):
                raise
            raise mismatched(f"model {model.name}", str(error), "what the model takes") from error
        first = model.plan.inputs[0].shape if model.plan.inputs else ()
        batch = inputs[0].shape[0] if first and first[0] < 0 else 1
        most = response_limit(message.parameters)
        carried = sum(one.place is None and one.array is None for one in inputs)
        places = [one.place for one in inputs] + [one.place for one in outputs]
        placed = any(place is not None for place in places)
        return Prepared(model, executor, inputs, outputs, most, batch, carried, placed)

    def _executor(self, model: Model, shapes: Mapping[str, tuple[int, ...]]) -> "Executor":
        executor = model.plan.executor(shapes)
        total = bytes_of(executor.program)
        if total > self._max_bytes:
            path = f"model {model.name}: tensors of a run of these shapes"
            raise wrong_size(path, f"{total} bytes", f"at most {self._max_bytes}")
        return executor

    def _answer(
        self, prepared: Prepared, result: "Result", identifier: bytes, shared: Shared | None
    ) -> InferResponse:
        arrays = [result.outputs[one.name] for one in prepared.outputs]
        sizes = [raw_size(array) for array in arrays]
        self._require_small(prepared, sizes)
        raw: list[Buffer] = []
        for output, array, size in zip(prepared.outputs, arrays, sizes, strict=True):
            if output.place is None:
                raw.append(raw_of(array))
            else:
                _write(output, output.place, raw_of(array), size, shared)
        return InferResponse(_head(prepared, arrays, sizes, result), identifier, raw)

    def _require_small(self, prepared: Prepared, sizes: Sequence[int]) -> None:
        size = sum(sizes)
        if prepared.placed:
            wanted = zip(prepared.outputs, sizes, strict=True)
            size = sum(size for output, size in wanted if output.place is None)
        limit = self._max_response if prepared.most_bytes is None else prepared.most_bytes
        if 0 < limit < size:
            raise CallRefused(
                wire.ERROR_REASON_RESPONSE_TOO_LARGE,
                f"model {prepared.model.name}: the answer is {size} bytes, above {limit}, which is "
                f"what clients likely take: set {_OPTION} on the channel, and the request's "
                f"parameter {LIMIT_PARAMETER} to as much (0: any)",
                value=size,
                limit=limit,
                option=_OPTION,
            )


def step_failed(model: Model, error: Exception) -> Exception:
    """Return the error for a node that failed; anything else as it is."""
    from nnpa_network.running.results import StepFailed

    if not isinstance(error, StepFailed):
        return error
    return CallRefused(
        wire.ERROR_REASON_NETWORK_FAILED,
        f"model {model.name}: {error}",
        node=error.node,
        operation=error.verb,
        status=error.status,
    )


def bytes_of(program: "Program") -> int:
    """Return the bytes of all tensors and arrays of a run, as far as they are known before."""
    tensors = sum(getsize_ztensor(one.transformed_desc) for one in program.tensors.values())
    known = (one for one in program.arrays.values() if -1 not in one.shape)
    return tensors + sum(math.prod(one.shape) * one.dtype.itemsize for one in known)


def _feeds(
    prepared: Prepared, raw: Sequence[Buffer], shared: Shared | None, most: int
) -> dict[str, Array]:
    """Return the inputs' contents by name."""
    if prepared.carried != len(raw):
        path = f"model {prepared.model.name}: raw_input_contents"
        raise wrong_size(path, f"{len(raw)} entries", f"{prepared.carried}, one per such input")
    contents = iter(raw)
    return {one.name: _contents(one, contents, shared, most) for one in prepared.inputs}


def _contents(one: Input, raw: Iterator[Buffer], shared: Shared | None, most: int) -> Array:
    """Return an input's contents; from a region at most `most` bytes."""
    if one.array is not None:
        return one.array
    if one.place is None:
        return read_raw(one.kind, one.shape, next(raw), one.path)
    assert shared is not None
    region = shared.find(one.place.region)
    region.require(one.place.offset, one.place.size, one.path)
    size = math.prod(one.shape) * one.kind.dtype.itemsize
    if one.kind.dtype.kind != "O" and one.place.size != size:
        what = f"{size} bytes for {said(one.kind.name, one.shape)}"
        raise wrong_size(one.path, f"{one.place.size} bytes", what)
    if one.place.size > most:
        raise wrong_size(one.path, f"{one.place.size} bytes", f"at most {most}")
    shared.held.enter_context(region.held())
    data = region.read(one.place.offset, one.place.size, one.path)
    return read_raw(one.kind, one.shape, data, one.path)


def _write(output: Output, place: Place, data: Buffer, size: int, shared: Shared | None) -> None:
    path = f"output {output.name}"
    assert shared is not None
    if size > place.size:
        raise wrong_size(path, f"{place.size} bytes of shared memory", f"{size}")
    region = shared.find(place.region)
    shared.held.enter_context(region.held())
    region.write(place.offset, data, path)


def _head(
    prepared: Prepared, arrays: Sequence[Array], sizes: Sequence[int], result: "Result"
) -> bytes:
    """Return a response without its id and contents, in bytes; from memory if it is a plain one."""
    violations = sum([one.status == _RANGE_VIOLATION for one in result.violations])
    plain = not violations and not any(result.nans.values())
    key = (*[array.shape for array in arrays], tuple(sizes))
    if plain and key in prepared.heads:
        return prepared.heads[key]
    model = prepared.model
    message = pb.ModelInferResponse(model_name=model.name, model_version=model.version)
    if violations:
        message.parameters[VIOLATIONS].int64_param = violations
    for output, array, size in zip(prepared.outputs, arrays, sizes, strict=True):
        told = message.outputs.add(name=output.name, datatype=output.kind.name, shape=array.shape)
        if count := result.nans.get(output.name, 0):
            told.parameters[NANS].int64_param = count
        if output.place is not None:
            told.parameters["shared_memory_region"].string_param = output.place.region
            told.parameters["shared_memory_byte_size"].int64_param = size
            told.parameters["shared_memory_offset"].int64_param = output.place.offset
    head = message.SerializeToString()
    if plain and not prepared.heads:
        prepared.heads[key] = head
    return head
