# SPDX-License-Identifier: Apache-2.0
"""Read the inline operands of an operation, from messages, shared memory or the cache."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
from google.protobuf.message import Message
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2
from nnpa_emulator import DataLayouts, DataTypes, Ztensor, stick
from nnpa_emulator.machine import Memory
from nnpa_emulator.ztensor import TYPE_BYTES, UNSET, TensorDesc, getsize_ztensor

from nnpa_server.accelerator.operation_specs import OperationSpec, read_desc
from nnpa_server.errors import CallRefused, beyond, invalid, unspecified
from nnpa_server.sessions.page_buffers import staging
from nnpa_server.sessions.shared_memory import Sharing, shared_of
from nnpa_server.sessions.store import Session

BIG_ENDIAN = tensor_pb2.BYTE_ORDER_BIG_ENDIAN
_NAME_BYTES = (16, 64)  # source: nnpa/zdnn/v1/tensor.proto, Ztensor.cache_as


def too_large(field: str, size: int, limit: int) -> CallRefused:
    """Return the error for contents that are too large for a message."""
    text = f"{field} has {size} bytes, at most {limit} travel in a message: use a stream"
    return beyond(wire.ERROR_REASON_MESSAGE_TOO_LARGE, text, field, size, limit)


def size_mismatch(field: str, size: int, required: int) -> CallRefused:
    """Return the error for contents whose size does not fit the descriptors."""
    text = f"{field} has {size} bytes, must have {required}"
    return beyond(wire.ERROR_REASON_DATA_SIZE_MISMATCH, text, field, size, required)


def tensor_not_found(tensor_id: int, path: str) -> CallRefused:
    """Return the error for an id that names no tensor."""
    text = f"{path} is {tensor_id}, which names no tensor of the session here"
    return CallRefused(wire.ERROR_REASON_TENSOR_NOT_FOUND, text, field=path, tensor=tensor_id)


def id_in_use(tensor_id: int, path: str) -> CallRefused:
    """Return the error for a new id that already names a tensor."""
    text = f"{path} is {tensor_id}, which already names a tensor of the session"
    return CallRefused(wire.ERROR_REASON_TENSOR_ID_IN_USE, text, field=path, tensor=tensor_id)


def dense_bytes(tensor: Ztensor) -> int:
    """Return the bytes of the array that transform_origtensor makes of a tensor.

    The transformed dims count, as in the library; in a bidirectional layer's output the padding
    between its hidden states does not count.
    """
    pre, desc = tensor.pre_transformed_desc, tensor.transformed_desc
    dims = desc.dims[:3] if desc.type == DataTypes.ZDNN_BINARY_INT32 else desc.dims
    if pre.layout == DataLayouts.ZDNN_4DS and pre.dim3 != 1:
        dims = (2, desc.dim4, desc.dim2, min(pre.dim1, desc.dim1))
    return math.prod(dims) * TYPE_BYTES.get(pre.type, 4)


def decode_inline(
    message: tensor_pb2.Ztensor, path: str, spec: OperationSpec, name: str, operation: Message
) -> "Operand":
    """Decode an inline tensor; refuse it if it lacks a field that its operation reads."""
    if not message.HasField("transformed_desc"):
        raise unspecified(f"{path}.transformed_desc")
    check_names(message, path)
    pre, desc = _read_descs(message, path)
    if not message.HasField("pre_transformed_desc") and _needs_pre(spec, name, operation):
        raise unspecified(f"{path}.pre_transformed_desc")
    return Operand(message, path, pre, desc, name not in spec.read, spec.may_leave)


def _needs_pre(spec: OperationSpec, name: str, operation: Message) -> bool:
    """Return True if an operation reads an operand's pre-transformed descriptor."""
    creates_outputs = any(getattr(operation, output).new_id for output in spec.may_be_new)
    return spec.needs_pre or (creates_outputs and name in spec.pattern)


def _read_descs(message: tensor_pb2.Ztensor, path: str) -> tuple[TensorDesc, TensorDesc]:
    """Return the pre-transformed descriptor, or UNSET, and the transformed descriptor."""
    desc = read_desc(message.transformed_desc, f"{path}.transformed_desc", transformed=True)
    if not message.HasField("pre_transformed_desc"):
        return UNSET, desc
    path = f"{path}.pre_transformed_desc"
    return read_desc(message.pre_transformed_desc, path, transformed=False), desc


def read_structure(message: tensor_pb2.Ztensor, path: str) -> Ztensor:
    """Return the ztensor of a message, without its buffer."""
    return _structure(message, *_read_descs(message, path))


def _structure(message: tensor_pb2.Ztensor, pre: TensorDesc, desc: TensorDesc) -> Ztensor:
    return Ztensor(
        pre,
        desc,
        message.buffer_size if message.HasField("buffer_size") else getsize_ztensor(desc),
        None,
        message.is_transformed,
        message.rec_scale,
        message.offset,
    )


class Operand(NamedTuple):
    """An inline tensor of an operation: its message, the path of its field, and its use."""

    message: tensor_pb2.Ztensor
    path: str
    pre_transformed_desc: TensorDesc
    transformed_desc: TensorDesc
    is_output: bool
    may_leave: bool
    """Whether the operation may end before it has written its outputs."""


def read_operand(session: Session, operand: Operand) -> Ztensor:
    """Return an inline tensor, which counts in the quota while its operation runs.

    If the message has no contents, its buffer is NULL, unless the operation only writes it.
    """
    message = operand.message
    tensor = _structure(message, operand.pre_transformed_desc, operand.transformed_desc)
    contents = message.WhichOneof("contents")
    if not message.null_buffer and (contents or operand.is_output):
        source = contents or ("sticks_to" if message.HasField("sticks_to") else "new")
        tensor.buffer = _SOURCES[source](session, operand, tensor)
    return tensor


def _from_cache(session: Session, operand: Operand, tensor: Ztensor) -> Memory | None:
    """Return cached sticks: the cached memory for an input, a copy for a written operand."""
    cached = find_cached(session, tensor, operand.message, operand.path)
    return _copy(session, cached) if operand.is_output else cached


def _from_shared(session: Session, operand: Operand, tensor: Ztensor) -> Memory | None:
    """Return a copy of sticks in shared memory."""
    extent, path = operand.message.shared, f"{operand.path}.shared"
    memory = check_extent(session, extent, getsize_ztensor(tensor.transformed_desc), path)
    buffer = session.allocate(extent.size)
    if buffer is not None:
        memory.read(extent.offset, buffer, path)
        _receive(session, operand, tensor, buffer)
    return buffer


def _from_message(session: Session, operand: Operand, tensor: Ztensor) -> Memory | None:
    """Return a copy of sticks in the message."""
    sticks, path = operand.message.sticks, f"{operand.path}.sticks"
    size = getsize_ztensor(tensor.transformed_desc)
    if len(sticks) != size:
        raise size_mismatch(path, len(sticks), size)
    require_inline(session, size, path)
    buffer = _copy(session, np.frombuffer(sticks, np.uint8))
    if buffer is not None:
        _receive(session, operand, tensor, buffer)
    return buffer


def _for_shared(session: Session, operand: Operand, tensor: Ztensor) -> Memory | None:
    """Return a buffer for an output in shared memory: the memory in place, or new memory.

    Memory in place holds the client's own bytes, so it need not be cleared.
    """
    message, path = operand.message, f"{operand.path}.sticks_to"
    extent, size = message.sticks_to, getsize_ztensor(tensor.transformed_desc)
    memory = check_extent(session, extent, size, path)
    if message.cached_in_place and message.byte_order != BIG_ENDIAN:
        place = memory.place(extent.offset, size, path)
        if place is not None:
            if operand.may_leave:
                place[:] = 0
            return place
    return session.allocate(size)


def _for_message(session: Session, operand: Operand, tensor: Ztensor) -> Memory | None:
    """Return a buffer for an output that travels in the answer."""
    size = getsize_ztensor(tensor.transformed_desc)
    require_inline(session, size, f"{operand.path}.sticks")
    return session.allocate(size)


OperandSource: TypeAlias = Callable[[Session, Operand, Ztensor], Memory | None]
# Functions that provide the buffer of an inline tensor, by the contents of its message.
_SOURCES: Mapping[str, OperandSource] = {
    "cached": _from_cache,
    "shared": _from_shared,
    "sticks": _from_message,
    "sticks_to": _for_shared,
    "new": _for_message,
}


def require_inline(session: Session, size: int, path: str) -> None:
    """Refuse contents that are too large for a message of the session."""
    if size > session.limits.max_inline:
        raise too_large(path, size, session.limits.max_inline)


def _receive(session: Session, operand: Operand, tensor: Ztensor, buffer: Memory) -> None:
    """Convert received sticks to the host's byte order; cache them if the message says so."""
    message = operand.message
    from_order(tensor, buffer, message.byte_order)
    if not operand.is_output:
        keep(session, tensor, buffer, message.cache_as, message.byte_order)


def read_arrays(
    session: Session, extents: Iterable[tensor_pb2.Extent], path: str
) -> list[memoryview]:
    """Return user arrays in shared memory, in place or as copies that count in the quota."""
    arrays: list[memoryview] = []
    for index, extent in enumerate(extents):
        memory = check_extent(session, extent, extent.size, f"{path}[{index}]")
        if (array := memory.view(extent.offset, extent.size, path)) is not None:
            arrays.append(array.data)
            continue
        session.reserve(extent.size)
        array = staging(extent.size)
        session.pending_bytes += extent.size
        memory.read(extent.offset, array, f"{path}[{index}]")
        arrays.append(array.data)
    return arrays


def check_extent(session: Session, extent: tensor_pb2.Extent, size: int, path: str) -> Sharing:
    """Return the shared memory of an extent; refuse an extent outside it or of another size."""
    memory = shared_of(session)
    if memory is None:
        raise invalid(path, "set", "unset: the session shares no memory")
    if extent.size != size:
        raise size_mismatch(path, extent.size, size)
    memory.require(extent.offset, size, path)
    return memory


def _copy(session: Session, held: Memory) -> Memory | None:
    memory = session.allocate(held.nbytes)
    if memory is not None:
        np.copyto(memory, held)
    return memory


def find_cached(
    session: Session, tensor: Ztensor, message: tensor_pb2.Ztensor, path: str
) -> Memory:
    """Return the cached sticks of the name in a message, for reading only; raise CallRefused."""
    path, name = f"{path}.cached", message.cached
    memory = session.contents.get(_key(tensor, name, message.byte_order))
    if memory is None:
        text = f"{path}: the session's cache does not have these contents, or no more"
        raise CallRefused(wire.ERROR_REASON_CACHE_MISS, text, field=path)
    if memory.nbytes != (size := getsize_ztensor(tensor.transformed_desc)):
        raise size_mismatch(path, memory.nbytes, size)
    return memory


def keep(session: Session, tensor: Ztensor, memory: Memory, name: bytes, order: int) -> None:
    """Put the sticks of a tensor into the session's cache, unless `name` is empty.

    `memory` is in the host's byte order, `order` is the byte order on the wire. `memory` must not
    be written from now on.
    """
    if name:
        session.contents.put(_key(tensor, name, order), memory)


def cache_output(session: Session, tensor: Ztensor, request: tensor_pb2.Ztensor) -> None:
    """Cache an output if the request says so, in place of the cached contents that it overwrote."""
    if tensor.buffer is not None:
        if request.cache_as and request.cache_instead_of:
            session.contents.drop(_key(tensor, request.cache_instead_of, request.byte_order))
        keep(session, tensor, tensor.buffer, request.cache_as, request.byte_order)


def check_name(name: bytes, path: str) -> None:
    """Refuse a name of contents that is too short to be unique, or too long."""
    if not _NAME_BYTES[0] <= len(name) <= _NAME_BYTES[1]:
        raise invalid(path, f"{len(name)} bytes", f"{_NAME_BYTES[0]} to {_NAME_BYTES[1]} bytes")


def check_names(message: tensor_pb2.Ztensor, path: str) -> None:
    """Refuse the names of contents in a message that the cache does not take."""
    if message.WhichOneof("contents") == "cached":
        check_name(message.cached, f"{path}.cached")
    if message.cache_as:
        check_name(message.cache_as, f"{path}.cache_as")
    if message.cache_instead_of:
        check_name(message.cache_instead_of, f"{path}.cache_instead_of")


def _key(tensor: Ztensor, name: bytes, order: int) -> tuple[bytes, int]:
    """Return the key of contents in the cache; big-endian contents were swapped by their type."""
    is_swapped = order == BIG_ENDIAN
    return name, 1 + tensor.transformed_desc.type if is_swapped else 0


def from_order(tensor: Ztensor, buffer: Memory, order: int) -> None:
    """Convert bytes from a wire byte order to the host's, in place."""
    if order == BIG_ENDIAN:
        buffer[:] = stick.byteswapped(buffer, tensor.transformed_desc)
