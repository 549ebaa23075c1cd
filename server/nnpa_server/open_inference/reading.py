# SPDX-License-Identifier: Apache-2.0
"""Read a request: find its model and executor, and check its inputs and outputs."""

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from google.protobuf.message import DecodeError
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator.ztensor import getsize_ztensor
from nnpa_network.program import ModelRefused, Program
from nnpa_network.running.executor import ProgramRunner
from nnpa_network.running.results import StepFailed

from nnpa_server.errors import CallRefused, invalid
from nnpa_server.open_inference.messages import InferRequest
from nnpa_server.open_inference.repository import Model, Repository, executor_of
from nnpa_server.open_inference.requests import (
    Input,
    Output,
    read_inputs,
    read_outputs,
    require_place,
    response_limit,
)
from nnpa_server.open_inference.tensors import mismatched, wrong_size


@dataclass(slots=True)
class CheckedRequest:
    """A checked request without its raw contents."""

    model: Model
    executor: ProgramRunner
    inputs: Sequence[Input]
    outputs: Sequence[Output]
    max_bytes: int | None
    batch: int
    known_bytes: int  # of the answer's contents, as far as they are known before the run
    n_raw: int  # inputs with raw contents in the request
    has_typed_contents: bool  # in an input


ReadRequest: TypeAlias = Callable[[InferRequest], CheckedRequest]
"""A function that reads a request, and raises CallRefused: the seam of inference."""


@contextmanager
def counting_failures(model: Model, began: int) -> Generator[None]:
    """Count a failed request of a model, and turn its exception into CallRefused.

    `began` is when the request began, by time.perf_counter_ns.
    """
    try:
        yield
    except Exception as error:
        model.statistics.failed(time.perf_counter_ns() - began)
        path = f"model {model.name}"
        match error:
            case ModelRefused():
                raise mismatched(path, str(error), "what the model takes") from error
            case StepFailed():
                reason, text = wire.ERROR_REASON_NETWORK_FAILED, f"{path}: {error}"
                facts = {"node": error.node, "operation": error.verb, "status": error.status}
                raise CallRefused(reason, text, **facts) from error
            case _:
                raise


class RequestReader:
    """Reads requests for the models of a repository; a run takes at most `max_bytes`."""

    def __init__(self, repository: Repository, max_bytes: int) -> None:
        self._repository, self._max_bytes = repository, max_bytes

    def read(self, request: InferRequest) -> CheckedRequest:
        """Parse and check a request except its raw contents; raise CallRefused."""
        try:
            message = pb.ModelInferRequest.FromString(request.head)
        except DecodeError as error:
            limit = "protocol buffer wire format"
            raise invalid("request", "no message of its type", limit) from error
        model = self._repository.find(message.model_name, message.model_version)
        with counting_failures(model, time.perf_counter_ns()):
            return self._check(model, message, raw=bool(request.raw))

    def _check(self, model: Model, message: pb.ModelInferRequest, *, raw: bool) -> CheckedRequest:
        inputs = read_inputs(model, message.inputs, raw=raw)
        outputs = read_outputs(model, message.outputs)
        executor = self._executor(model, {tensor.name: tensor.shape for tensor in inputs})
        sizes = output_bytes(executor.program)
        for output in outputs:
            if output.place is not None:
                require_place(output.name, output.place, sizes.get(output.name, 0))
        return CheckedRequest(
            model,
            executor,
            inputs,
            outputs,
            max_bytes=response_limit(message.parameters),
            batch=_batch(model, inputs),
            known_bytes=sum(
                sizes.get(requested.name, 0) for requested in outputs if requested.place is None
            ),
            n_raw=sum(tensor.place is None and tensor.array is None for tensor in inputs),
            has_typed_contents=any(tensor.array is not None for tensor in inputs),
        )

    def _executor(self, model: Model, shapes: Mapping[str, tuple[int, ...]]) -> ProgramRunner:
        executor = executor_of(model.plan, shapes)
        total = run_bytes(executor.program)
        if total > self._max_bytes:
            path = f"model {model.name}: tensors of a run of these shapes"
            raise wrong_size(path, f"{total} bytes", f"at most {self._max_bytes}")
        return executor


def _batch(model: Model, inputs: Sequence[Input]) -> int:
    """Return the size of the first input's first dim if that is free, else 1."""
    free = [port.name for port in model.inputs[:1] if port.shape[:1] == (-1,)]
    return next((tensor.shape[0] for tensor in inputs if tensor.name in free), 1)


def run_bytes(program: Program) -> int:
    """Return the bytes of a run's tensors and arrays, as far as they are known before."""
    tensors = sum(getsize_ztensor(info.transformed_desc) for info in program.tensors.values())
    arrays = (info for info in program.arrays.values() if -1 not in info.shape)
    return tensors + sum(math.prod(info.shape) * info.dtype.itemsize for info in arrays)


def output_bytes(program: Program) -> dict[str, int]:
    """Return the bytes by name of the outputs whose sizes are known before a run."""
    arrays = [program.arrays.get(number) for number in program.output_ids]
    return {
        port.name: math.prod(info.shape) * info.dtype.itemsize
        for port, info in zip(program.outputs, arrays, strict=True)
        if info is not None and -1 not in info.shape and info.dtype.kind not in "USO"
    }
