# SPDX-License-Identifier: Apache-2.0
"""Upload and download tensors that are too large for a message, as a header and chunks.

A chunk is never parsed into a message: protobuf would copy it each time it is accessed.
`parse_write` returns the bytes of a chunk as they came; `serialize_read` puts tag and length before
them.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TypeAlias

import numpy as np
from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import Outcome, Refusal, Status, Ztensor
from nnpa_emulator.machine import Memory
from nnpa_emulator.status import Malformed
from nnpa_emulator.ztensor import getsize_ztensor
from nnpa_wire.chunks import parse_chunk, serialize_chunk

from nnpa_server.accelerator.decode import LiveIds, Step, decode_operation
from nnpa_server.accelerator.encode import dense, in_order
from nnpa_server.accelerator.execute import answer, describe_ztensor, path_of
from nnpa_server.accelerator.observers.sanitizing import sanitizer_of
from nnpa_server.accelerator.observers.trace_contents import CARRIERS
from nnpa_server.accelerator.observers.trace_records import record_step, recorded, streamed
from nnpa_server.accelerator.operands import (
    BIG_ENDIAN,
    check_name,
    check_names,
    dense_bytes,
    find_cached,
    from_order,
    keep,
    read_structure,
    size_mismatch,
    too_large,
)
from nnpa_server.config import MAX_CHUNK_BYTES, MIB
from nnpa_server.errors import CallRefused, invalid, unspecified
from nnpa_server.faults import attend, faults_of
from nnpa_server.rpc.reading import next_message
from nnpa_server.sessions.cancellation import CancellationCheck, Context
from nnpa_server.sessions.page_buffers import staging
from nnpa_server.sessions.store import Session, Store

Upload: TypeAlias = accelerator_pb2.WriteTensorRequest | memoryview
Download: TypeAlias = accelerator_pb2.ReadTensorResponse | memoryview
Result = operation_pb2.OperationResult

READ_CHUNK = MIB
_TRANSFORMS = CARRIERS - {"transform_origtensor"}


def parse_write(raw: bytes) -> Upload:
    """Return the bytes of a chunk, or the parsed message of a header."""
    chunk = parse_chunk(raw)
    return accelerator_pb2.WriteTensorRequest.FromString(raw) if chunk is None else chunk


def serialize_read(part: Download) -> bytes:
    """Return the wire form of a header message or of a chunk's bytes."""
    return serialize_chunk(part) if isinstance(part, memoryview) else part.SerializeToString()


def out_of_order(text: str) -> CallRefused:
    """Return the error for stream messages in the wrong order."""
    return CallRefused(wire.ERROR_REASON_STREAM_ORDER, text, field="message")


def write_tensor(store: Store, uploads: Iterator[Upload], context: Context) -> Result:
    """Fill one tensor from a stream; change it only when every chunk has arrived."""
    first = next_message(uploads, context)
    if first is None or isinstance(first, memoryview) or not first.HasField("header"):
        raise out_of_order("the first message of the stream must be a header")
    header = first.header
    with store.using(header.session) as session, _in_flight(session, header.arrays.operation):
        match header.WhichOneof("target"):
            case "arrays":
                return _write_arrays(session, header.arrays, uploads, context)
            case "sticks":
                return _write_sticks(session, header.sticks, uploads, context)
            case _:
                raise unspecified("header.target")


def _in_flight(
    session: Session, operation: operation_pb2.Operation
) -> AbstractContextManager[None]:
    """Return a context that tells the sanitizer of an operation whose data is streamed."""
    sanitizer = sanitizer_of(session)
    return nullcontext() if sanitizer is None else sanitizer.in_flight((operation,))


def _receive(uploads: Iterator[Upload], context: Context, total: int) -> Memory:
    """Return the bytes of all chunks; raise CallRefused if they are not `total` bytes."""
    memory, position = staging(total), 0
    while (upload := next_message(uploads, context)) is not None:
        if isinstance(upload, memoryview):
            chunk = upload
        elif upload.WhichOneof("message") == "chunk":
            chunk = memoryview(upload.chunk)
        else:
            raise out_of_order("after the header only chunks may come")
        size = chunk.nbytes
        if size > MAX_CHUNK_BYTES:
            raise too_large("chunk", size, MAX_CHUNK_BYTES)
        if not size:
            raise invalid("chunk", "empty", f"1 to {MAX_CHUNK_BYTES} bytes")
        if position + size > total:
            raise out_of_order(f"chunks go beyond the {total} bytes that the header announced")
        memory[position : position + size] = np.frombuffer(chunk, np.uint8)
        position += size
    if position != total:
        raise size_mismatch("chunks", position, total)
    return memory


def _write_arrays(
    session: Session,
    target: accelerator_pb2.WriteArrays,
    uploads: Iterator[Upload],
    context: Context,
) -> Result:
    sizes = list(target.array_bytes)
    with session.running(context.time_remaining()):
        step = _transform_step(session, target.operation, "header.arrays.operation")
        attend(session, context)
        refused = _refused_before_reading(session, step, sizes)
        if refused is not None:
            with recorded(session, target.operation):
                return streamed(session, refused)
    with session.staged(sum(sizes)):
        memory = _receive(uploads, context, sum(sizes)).data
        arrays: list[memoryview] = []
        for size in sizes:
            arrays.append(memory[:size])
            memory = memory[size:]
        with session.running(context.time_remaining()), recorded(session, target.operation):
            step = _transform_step(session, target.operation, "header.arrays.operation")
            values = {**step.values, "data": arrays}
            attend(session, context)
            step = step._replace(values=values)
            return record_step(session, path_of(session).run_chunked, step).result


def _transform_step(session: Session, operation: operation_pb2.Operation, path: str) -> Step:
    name = operation.WhichOneof("operation")
    if name not in _TRANSFORMS:
        text = f"{path} is {name or 'unset'}, must be a transform to sticks"
        raise CallRefused(wire.ERROR_REASON_OPERATION_UNKNOWN, text, field=path)
    step = decode_operation(LiveIds(session), operation, name, path)
    if step.inline or step.new_ids:
        raise invalid(f"{step.path}.ztensor", "inline", "a tensor of the session")
    if step.values["data"]:
        raise invalid(f"{step.path}.data", "set", "left out: the chunks are the data")
    return step


def _refused_before_reading(session: Session, step: Step, sizes: list[int]) -> Result | None:
    """Return the result of a call that the library refuses before it reads the arrays.

    Return None for any other call; raise `Malformed` if it takes arrays of other sizes, in bytes.
    """
    run_step = path_of(session).run_chunked
    probe = step._replace(values={**step.values, "data": [b""] * len(sizes)}, of_program=False)
    try:
        refused = run_step(session, probe).result
        if faults_of(session) is None:
            return refused
        return run_step(session, probe._replace(of_program=step.of_program)).result
    except Malformed as malformed:
        if not malformed.field.startswith("data["):
            raise
        for number, size in enumerate(sizes):
            if f"{size} bytes" != malformed.limit:
                raise Malformed(f"data[{number}]", f"{size} bytes", malformed.limit) from malformed
    return None


def _write_sticks(
    session: Session,
    target: accelerator_pb2.WriteSticks,
    uploads: Iterator[Upload],
    context: Context,
) -> Result:
    path, total = "header.sticks", target.total_bytes
    fresh = _new_ztensor(target, path) if target.HasField("new_ztensor") else None
    with session.running(context.time_remaining()):
        _writable(session, target, fresh, path)
    with session.staged(max(total, _buffer_size(target, fresh))):
        memory = _receive(uploads, context, total)
        with session.running(context.time_remaining()), recorded(session, target):
            tensor = _writable(session, target, fresh, path)
            if fresh is not None and not total:
                memory = _without_chunks(session, fresh, target, path)
            else:
                from_order(tensor, memory, target.byte_order)
            if fresh is not None and total and (name := target.new_ztensor.cache_as):
                keep(session, tensor, memory.copy(), name, target.byte_order)
            if not (fresh is not None and target.new_ztensor.null_buffer):
                tensor.buffer = memory
            if fresh is None and target.HasField("is_transformed"):
                tensor.is_transformed = target.is_transformed
            session.tensors[target.id] = tensor
            session.settle(target.id)
            if (sanitizer := sanitizer_of(session)) is not None:
                sanitizer.received(target)
            result = answer(Outcome())
            result.outputs.add(id=target.id, operand="ztensor", ztensor=describe_ztensor(tensor))
            return streamed(session, result, tensor.buffer)


def _without_chunks(
    session: Session, fresh: Ztensor, target: accelerator_pb2.WriteSticks, path: str
) -> Memory:
    """Return the buffer of a new tensor without chunks: from the cache, filled, or zeros."""
    message, memory = target.new_ztensor, staging(_buffer_size(target, fresh))
    if message.WhichOneof("contents") == "cached":
        np.copyto(memory, find_cached(session, fresh, message, f"{path}.new_ztensor"))
    elif session.fill_new is not None:
        session.fill_new(memory)
    else:
        memory.fill(0)
    return memory


def _new_ztensor(target: accelerator_pb2.WriteSticks, path: str) -> Ztensor:
    message, path = target.new_ztensor, f"{path}.new_ztensor"
    if not message.HasField("transformed_desc"):
        raise unspecified(f"{path}.transformed_desc")
    if message.WhichOneof("contents") == "sticks":
        raise invalid(f"{path}.sticks", "set", "unset: the chunks are the contents")
    if message.WhichOneof("contents") == "cached" and (target.total_bytes or message.null_buffer):
        raise invalid(f"{path}.cached", "set", "unset with chunks, or without a buffer")
    check_names(message, path)
    return read_structure(message, path)


def _buffer_size(target: accelerator_pb2.WriteSticks, fresh: Ztensor | None) -> int:
    """Return the size in bytes of a new tensor's buffer; 0 for an existing tensor."""
    if fresh is None or target.new_ztensor.null_buffer:
        return 0
    return getsize_ztensor(fresh.transformed_desc)


def _writable(
    session: Session, target: accelerator_pb2.WriteSticks, fresh: Ztensor | None, path: str
) -> Ztensor:
    """Return the tensor to fill; refuse it if its buffer has not the announced size."""
    total, ids = target.total_bytes, LiveIds(session)
    if fresh is not None:
        ids.create(target.id, f"{path}.id")
        session.require_room()
        size = _buffer_size(target, fresh)
        if total and total != size:
            raise size_mismatch(f"{path}.total_bytes", total, size)
        return fresh
    ids.require(target.id, f"{path}.id")
    tensor = session.tensors[target.id]
    size = 0 if tensor.buffer is None else tensor.buffer.nbytes
    if total != size or not size:
        raise size_mismatch(f"{path}.total_bytes", total, size)
    return tensor


def read_tensor(
    store: Store, request: accelerator_pb2.ReadTensorRequest, context: Context
) -> Generator[Download]:
    """Read one tensor: a header with the status, then its bytes in chunks."""
    read: Callable[..., tuple[Result, Memory | None]]
    match request.WhichOneof("source"):
        case "operation":
            read = _read_array
        case "sticks":
            read = _read_sticks
        case _:
            raise unspecified("source")
    with store.using(request.session) as session, ExitStack() as stack:
        stack.enter_context(_in_flight(session, request.operation))
        source = request.operation if request.HasField("operation") else request.sticks
        with session.running(context.time_remaining()), recorded(session, source):
            attend(session, context)
            result, memory = read(session, request)
            streamed(session, result, memory)
            size = 0 if memory is None else memory.nbytes
            session.staged_bytes += size
        stack.callback(session.unstage, size)
        header = accelerator_pb2.ReadTensorHeader(result=result, total_bytes=size)
        yield accelerator_pb2.ReadTensorResponse(header=header)
        go_on = CancellationCheck(context, session)
        whole = memoryview(b"") if memory is None else memory.data
        for start in range(0, size, READ_CHUNK):
            go_on()
            yield whole[start : start + READ_CHUNK]


def _read_array(
    session: Session, request: accelerator_pb2.ReadTensorRequest
) -> tuple[Result, Memory | None]:
    operation, name = request.operation, request.operation.WhichOneof("operation")
    if name != "transform_origtensor":
        text = f"operation is {name or 'unset'}, must be transform_origtensor"
        raise CallRefused(wire.ERROR_REASON_OPERATION_UNKNOWN, text, field="operation")
    step = decode_operation(LiveIds(session), operation, name, "operation")
    if step.inline or step.new_ids:
        raise invalid(f"{step.path}.ztensor", "inline", "a tensor of the session")
    tensor_id = step.ids["ztensor"]
    tensor = session.tensors[tensor_id]
    if tensor.is_transformed and tensor.buffer is not None:
        session.reserve(dense_bytes(tensor))
    path, tensors = path_of(session), {"ztensor": tensor}
    outcome = path.call_function(session, step, tensors)
    result, _ = path.encode_result(session, step, tensors, outcome)
    result.outputs.add(id=tensor_id, operand="ztensor", ztensor=describe_ztensor(tensor))
    return result, None if outcome.value is None else dense(outcome.value)


def _read_sticks(
    session: Session, request: accelerator_pb2.ReadTensorRequest
) -> tuple[Result, Memory | None]:
    target = request.sticks
    LiveIds(session).require(target.id, "sticks.id")
    tensor = session.tensors[target.id]
    if tensor.buffer is None:
        status, memory = int(Status.ZDNN_INVALID_BUFFER), None
        outcome = Outcome(status, Refusal(status, "ztensor.buffer", "NULL", "allocated"))
    else:
        if target.cache_as:
            check_name(target.cache_as, "sticks.cache_as")
        session.reserve(tensor.buffer.nbytes)
        outcome, memory = Outcome(), in_order(tensor, target.byte_order)
        if memory is tensor.buffer:
            memory = memory.copy()  # later operations must not show in the stream
        if target.cache_as:
            own = memory if target.byte_order != BIG_ENDIAN else tensor.buffer.copy()
            keep(session, tensor, own, target.cache_as, target.byte_order)
    result = answer(outcome)
    result.outputs.add(id=target.id, operand="ztensor", ztensor=describe_ztensor(tensor))
    return result, memory
