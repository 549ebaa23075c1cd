# SPDX-License-Identifier: Apache-2.0
"""Record the contents that operations read and write in a trace, once for each digest.

The records of operations and results only refer to them; see nnpa/zdnn/v1/trace.proto, TracedCall.
"""

import hashlib
from copy import deepcopy
from typing import TypeAlias

import numpy as np
from google.protobuf.message import Message
from nnpa.zdnn.v1 import operation_pb2, tensor_pb2
from nnpa.zdnn.v1 import trace_pb2 as pb
from nnpa_emulator import Ztensor
from nnpa_emulator.machine import Memory

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.encode import dense, in_order
from nnpa_server.accelerator.seams import Answer
from nnpa_server.config import MIB
from nnpa_server.errors import CallRefused
from nnpa_server.sessions.page_buffers import staging
from nnpa_server.sessions.shared_memory import shared_of
from nnpa_server.sessions.store import Session
from nnpa_server.sessions.traces import Trace

CARRIERS = frozenset(
    (
        "transform_ztensor",
        "transform_ztensor_with_saturation",
        "transform_quantized_ztensor",
        "transform_origtensor",
    )
)
"""Operations that take or return arrays of the user."""
Buffer: TypeAlias = bytes | memoryview
# Fields of a ztensor that carry its contents, or say where they are kept.
_CARRYING = ("contents", "cache_as", "cache_instead_of", "sticks_to", "cached_in_place")
_DIGEST_BYTES = 16  # source: nnpa/zdnn/v1/trace.proto, TracedContents.digest
_MAX_NAMES = 4096  # of cached contents that a session remembers


class Contents:
    """Records contents of one session in its trace, under the session's lock."""

    def __init__(self, trace: Trace, session: Session) -> None:
        self.record = pb.TracedCall()  # of the call under way
        self._trace = trace
        self._session = session
        self._cached: dict[tuple[bytes, int], tuple[bytes, int]] = {}

    def refer(
        self,
        index: int,
        role: pb.ContentsRole.ValueType,
        operand: str,
        number: int,
        contents: Buffer | Memory,
    ) -> tuple[bytes, int]:
        """Add a reference to an operand's contents to the record; return their digest and size.

        Put the contents themselves into a trace that records contents and lacks these.
        """
        view = contents.data if isinstance(contents, np.ndarray) else memoryview(contents)
        view, size = view.cast("B"), view.nbytes
        digest = hashlib.sha256(view).digest()[:_DIGEST_BYTES]
        self.record.contents.add(
            operation_index=index, role=role, operand=operand, id=number, size=size, digest=digest
        )
        if self._trace.contents and self._trace.lacks(digest):
            for offset in range(0, size, MIB):
                piece = view[offset : offset + MIB].tobytes()
                record_bytes = pb.TracedBytes(digest=digest, offset=offset, piece=piece)
                self._trace.put(pb.TraceRecord(bytes=record_bytes).SerializeToString())
        return digest, size

    def record_inline(self, index: int, operand: str, message: tensor_pb2.Ztensor) -> None:
        """Record the sticks of an inline tensor before an operation may overwrite them."""
        role, key = pb.CONTENTS_ROLE_STICKS_IN, (message.cached, message.byte_order)
        cached = self._cached.get(key) if message.cached else None
        if cached is not None:
            self.record.contents.add(
                operation_index=index, role=role, operand=operand, digest=cached[0], size=cached[1]
            )
            return
        contents = self._sticks_of(message)
        if contents is not None:
            recorded = self.refer(index, role, operand, 0, contents)
            self._remember(message.cached or message.cache_as, message.byte_order, recorded)

    def _sticks_of(self, message: tensor_pb2.Ztensor) -> Buffer | Memory | None:
        match message.WhichOneof("contents"):
            case "sticks":
                return message.sticks
            case "shared":
                return self._read(message.shared)
            case "cached":
                swapped = message.byte_order == tensor_pb2.BYTE_ORDER_BIG_ENDIAN
                kind = 1 + message.transformed_desc.type if swapped else 0
                return self._session.contents.get((message.cached, kind))
            case _:
                return None

    def _read(self, extent: tensor_pb2.Extent) -> Memory | None:
        """Return a copy of an extent of shared memory; None if the operation will refuse it."""
        if (shared := shared_of(self._session)) is None or not extent.size:
            return None
        try:
            shared.require(extent.offset, extent.size, "")
            self._session.reserve(extent.size)
            memory = staging(extent.size)
            shared.read(extent.offset, memory, "")
        except CallRefused:
            return None
        return memory

    def _remember(self, name: bytes, order: int, recorded: tuple[bytes, int]) -> None:
        if not name:
            return
        if len(self._cached) >= _MAX_NAMES:
            self._cached.clear()
        self._cached[name, order] = recorded

    def record_held(self, index: int, operand: str, number: int, tensor: Ztensor) -> None:
        """Record the sticks of a tensor that is older than the trace."""
        if self._trace.contents and tensor.buffer is not None:
            sticks = in_order(tensor, 0)
            self.refer(index, pb.CONTENTS_ROLE_STICKS_HELD, operand, number, sticks)

    def record_outputs(self, index: int, step: Step, answer: Answer) -> None:
        """Record an operation's arrays, and the sticks that it wrote."""
        outcome, result, apart = answer
        number = step.ids.get("ztensor", 0)
        for array in step.values.get("data", ()) if step.spec.name in CARRIERS else ():
            self.refer(index, pb.CONTENTS_ROLE_ARRAY_IN, "data", number, array)
        if isinstance(outcome.value, np.ndarray):
            array = dense(outcome.value)
            self.refer(index, pb.CONTENTS_ROLE_ARRAY_OUT, "data", number, array)
        for place, output in enumerate(result.outputs):
            if output.id:
                self._record_stored(index, step, output)
            else:
                self._record_inline_output(index, step, output, apart.get(place))

    def _record_stored(self, index: int, step: Step, output: tensor_pb2.ZtensorInfo) -> None:
        tensor = self._session.tensors.get(output.id)
        filled = output.operand in step.spec.filled and step.spec.name != "allochelper_ztensor"
        if self._trace.contents and filled and tensor is not None and tensor.buffer is not None:
            role, sticks = pb.CONTENTS_ROLE_STICKS_OUT, in_order(tensor, 0)
            self.refer(index, role, output.operand, output.id, sticks)

    def _record_inline_output(
        self, index: int, step: Step, output: tensor_pb2.ZtensorInfo, apart: Memory | None
    ) -> None:
        contents: Buffer | Memory | None = apart
        if contents is None and (output.ztensor.sticks or output.ztensor.HasField("shared")):
            contents = self._sticks_of(output.ztensor)
        if contents is None:
            return
        role = pb.CONTENTS_ROLE_STICKS_OUT
        recorded = self.refer(index, role, output.operand, 0, contents)
        request = step.inline[output.operand].message
        self._remember(request.cache_as, request.byte_order, recorded)


def bare_operation(operation: operation_pb2.Operation) -> operation_pb2.Operation:
    """Return a copy of an operation without contents."""
    bare = deepcopy(operation)
    bare.ClearField("shared_data")
    name = bare.WhichOneof("operation")
    if name is None:
        return bare
    message: Message = getattr(bare, name)
    for field, value in message.ListFields():
        if field.name == "data":
            message.ClearField("data")
        elif isinstance(value, tensor_pb2.TensorRef) and value.HasField("inline_ztensor"):
            bare_ztensor(value.inline_ztensor)
    return bare


def bare_result(result: operation_pb2.OperationResult) -> operation_pb2.OperationResult:
    """Return a copy of a result without contents."""
    bare = deepcopy(result)
    if bare.WhichOneof("value") in ("data", "shared"):
        bare.ClearField("value")
    for output in bare.outputs:
        bare_ztensor(output.ztensor)
    return bare


def bare_ztensor(message: tensor_pb2.Ztensor) -> None:
    """Remove the contents from the message of a ztensor."""
    bare: Message = message
    for name in _CARRYING:
        bare.ClearField(name)
