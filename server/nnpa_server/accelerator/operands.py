# SPDX-License-Identifier: Apache-2.0
"""Tensors of one operation: found by id, brought inline, or new."""

import math
from typing import Any

import numpy as np
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa.zdnn.v1 import tensor_pb2
from nnpa_emulator import DataLayouts, DataTypes, Ztensor, stick
from nnpa_emulator.machine import Memory
from nnpa_emulator.ztensor import TYPE_BYTES, UNSET, getsize_ztensor

from nnpa_server.accelerator.operation_specs import Arm, read_desc
from nnpa_server.errors import CallRefused, invalid, unspecified
from nnpa_server.sessions.shared_memory import Sharing
from nnpa_server.sessions.store import Session

BIG_ENDIAN = tensor_pb2.BYTE_ORDER_BIG_ENDIAN
_NAME_BYTES = (16, 64)  # source: nnpa/zdnn/v1/tensor.proto, Ztensor.cache_as


def too_large(field: str, size: int, limit: int) -> CallRefused:
    """Return the error for contents that must go through WriteTensor or ReadTensor."""
    return CallRefused(
        wire.ERROR_REASON_MESSAGE_TOO_LARGE,
        f"{field} has {size} bytes, at most {limit} travel in a message: use a stream",
        field=field,
        value=size,
        limit=limit,
    )


def size_mismatch(field: str, given: int, wanted: int) -> CallRefused:
    """Return the error for contents that do not have the bytes that descriptors call for."""
    return CallRefused(
        wire.ERROR_REASON_DATA_SIZE_MISMATCH,
        f"{field} has {given} bytes, must have {wanted}",
        field=field,
        value=given,
        limit=wanted,
    )


def tensor_not_found(tensor_id: int, path: str) -> CallRefused:
    """Return the error for an id that names no tensor."""
    text = f"{path} is {tensor_id}, which names no tensor of the session here"
    return CallRefused(wire.ERROR_REASON_TENSOR_NOT_FOUND, text, field=path, tensor=tensor_id)


def id_in_use(tensor_id: int, path: str) -> CallRefused:
    """Return the error for an id to be created that names a tensor already."""
    text = f"{path} is {tensor_id}, which already names a tensor of the session"
    return CallRefused(wire.ERROR_REASON_TENSOR_ID_IN_USE, text, field=path, tensor=tensor_id)


def dense_bytes(tensor: Ztensor) -> int:
    """Return the bytes of the array that transform_origtensor makes of a tensor.

    The transformed dims count, as for the library; of a bidirectional layer's output only the
    hidden states without their padding.
    """
    pre, desc = tensor.pre_transformed_desc, tensor.transformed_desc
    dims = desc.dims[:3] if desc.type == DataTypes.ZDNN_BINARY_INT32 else desc.dims
    if pre.layout == DataLayouts.ZDNN_4DS and pre.dim3 != 1:
        dims = (2, desc.dim4, desc.dim2, min(pre.dim1, desc.dim1))
    return math.prod(dims) * TYPE_BYTES.get(pre.type, 4)


def check_inline(
    message: tensor_pb2.Ztensor, path: str, arm: Arm, name: str, creates: bool
) -> None:
    """Refuse an inline tensor that lacks what the operation reads of it."""
    if not message.HasField("transformed_desc"):
        raise unspecified(f"{path}.transformed_desc")
    check_names(message, path)
    read_desc(message.transformed_desc, f"{path}.transformed_desc", transformed=True)
    if message.HasField("pre_transformed_desc"):
        read_desc(message.pre_transformed_desc, f"{path}.pre_transformed_desc", transformed=False)
    elif arm.needs_pre or (creates and name in arm.pattern):
        raise unspecified(f"{path}.pre_transformed_desc")


def read_structure(message: tensor_pb2.Ztensor, path: str) -> Ztensor:
    """Return a ztensor as a message tells it, without its buffer."""
    desc = read_desc(message.transformed_desc, f"{path}.transformed_desc", transformed=True)
    pre = UNSET
    if message.HasField("pre_transformed_desc"):
        pre = read_desc(
            message.pre_transformed_desc, f"{path}.pre_transformed_desc", transformed=False
        )
    return Ztensor(
        pre,
        desc,
        message.buffer_size if message.HasField("buffer_size") else getsize_ztensor(desc),
        None,
        message.is_transformed,
        message.rec_scale,
        message.offset,
    )


def bare(tensor: Ztensor) -> Ztensor:
    """Return another tensor of the same structure, without a buffer."""
    return Ztensor(
        tensor.pre_transformed_desc,
        tensor.transformed_desc,
        tensor.buffer_size,
        None,
        tensor.is_transformed,
        tensor.rec_scale,
        tensor.offset,
    )


def read_inline(
    session: Session,
    message: tensor_pb2.Ztensor,
    path: str,
    arm: Arm,
    name: str,
    structure: Ztensor | None = None,
) -> Ztensor:
    """Return the inline tensor of an arm's operand; it counts in the quota while the arm runs.

    Without contents the buffer is NULL, unless there is to be room: a tensor only written.
    `structure` is what has been read of the message before.
    """
    room = name not in arm.read
    tensor = read_structure(message, path) if structure is None else bare(structure)
    contents = message.WhichOneof("contents")
    if message.null_buffer or not (contents or room):
        return tensor
    if contents == "cached":
        held = find_cached(session, tensor, message, path)
        tensor.buffer = _copy(session, held) if room else held
        return tensor
    size, limit = getsize_ztensor(tensor.transformed_desc), session.limits.max_inline
    if contents == "shared" or (room and message.HasField("sticks_to")):
        extent, field = (message.shared, "shared") if contents else (message.sticks_to, "sticks_to")
        there = check_extent(session, extent, size, f"{path}.{field}")
        if not contents and (place := _place(session, there, message)) is not None:
            if arm.may_leave:
                place[:] = 0
            tensor.buffer = place
            return tensor
        tensor.buffer = session.allocate(size)
        if contents and tensor.buffer is not None:
            there.read(extent.offset, tensor.buffer, f"{path}.{field}")
            _arrived(session, tensor, tensor.buffer, message, room)
        return tensor
    sticks = message.sticks
    if contents and len(sticks) != size:
        raise size_mismatch(f"{path}.sticks", len(sticks), size)
    if size > limit:
        raise too_large(f"{path}.sticks", size, limit)
    tensor.buffer = session.allocate(size)
    if contents and tensor.buffer is not None:
        np.copyto(tensor.buffer, np.frombuffer(sticks, np.uint8))
        _arrived(session, tensor, tensor.buffer, message, room)
    return tensor


def _place(session: Session, there: Sharing, message: tensor_pb2.Ztensor) -> Memory | None:
    """Return where an output is made that the cache has in place; None if it is made elsewhere.

    What is there was the client's before, so that it need not be cleared.
    """
    if not message.cached_in_place or message.byte_order == BIG_ENDIAN or session.sanitizer:
        return None
    place = message.sticks_to
    return there.place(place.offset, place.size, "sticks_to")


def _arrived(
    session: Session, tensor: Ztensor, buffer: Memory, message: tensor_pb2.Ztensor, room: bool
) -> None:
    """Turn what arrived into the host's order, and keep it if the client wants that."""
    from_order(tensor, buffer, message.byte_order)
    if not room:
        keep(session, tensor, buffer, message.cache_as, message.byte_order)


def check_extent(session: Session, extent: tensor_pb2.Extent, size: int, path: str) -> Sharing:
    """Refuse a part of shared memory that is not there, or not as large as it must be.

    Return the memory.
    """
    if session.shared is None:
        raise invalid(path, "set", "unset: the session shares no memory")
    if extent.size != size:
        raise size_mismatch(path, extent.size, size)
    session.shared.require(extent.offset, size, path)
    return session.shared


def _copy(session: Session, held: Memory) -> Memory | None:
    memory = session.allocate(held.nbytes)
    if memory is not None:
        np.copyto(memory, held)
    return memory


def find_cached(
    session: Session, tensor: Ztensor, message: tensor_pb2.Ztensor, path: str
) -> Memory:
    """Return what the session's cache has under the name in a message, for reading only."""
    path, name = f"{path}.cached", message.cached
    memory = session.contents.get(_key(tensor, name, message.byte_order))
    if memory is None:
        text = f"{path}: the session's cache does not have these contents, or no more"
        raise CallRefused(wire.ERROR_REASON_CACHE_MISS, text, field=path)
    if memory.nbytes != (size := getsize_ztensor(tensor.transformed_desc)):
        raise size_mismatch(path, memory.nbytes, size)
    return memory


def keep(session: Session, tensor: Ztensor, memory: Memory, name: bytes, order: int) -> None:
    """Have the session's cache hold sticks of a tensor, if they have a name there.

    `memory` is in the host's order, `order` is that in which they travel. Nobody may write to it
    from here on.
    """
    if name:
        session.contents.put(_key(tensor, name, order), memory)


def forget(session: Session, tensor: Ztensor, message: tensor_pb2.Ztensor) -> None:
    """Have the session's cache forget what sticks that it is to hold were written over."""
    if message.cache_as and message.cache_instead_of:
        session.contents.drop(_key(tensor, message.cache_instead_of, message.byte_order))


def check_name(name: bytes, path: str) -> None:
    """Refuse a name of contents that is too short to be the only one of its kind, or too long."""
    if not _NAME_BYTES[0] <= len(name) <= _NAME_BYTES[1]:
        raise invalid(path, f"{len(name)} bytes", f"{_NAME_BYTES[0]} to {_NAME_BYTES[1]} bytes")


def check_names(message: tensor_pb2.Ztensor, path: str) -> None:
    """Refuse names of contents that no cache takes."""
    if message.WhichOneof("contents") == "cached":
        check_name(message.cached, f"{path}.cached")
    if message.cache_as:
        check_name(message.cache_as, f"{path}.cache_as")
    if message.cache_instead_of:
        check_name(message.cache_instead_of, f"{path}.cache_instead_of")


def _key(tensor: Ztensor, name: bytes, order: int) -> tuple[bytes, int]:
    """Return where the cache has contents: what arrived big-endian was swapped by its type."""
    is_swapped = order == BIG_ENDIAN
    return name, 1 + tensor.transformed_desc.type if is_swapped else 0


def from_order(tensor: Ztensor, buffer: Memory, order: int) -> None:
    """Turn bytes that came in a wire byte order into the host's, in place."""
    if order == BIG_ENDIAN:
        buffer[:] = stick.byteswapped(buffer, tensor.transformed_desc)


def reference(message: Any, name: str, path: str) -> tuple[str, Any]:
    """Return what a TensorRef names: ("id", 5), ("new_id", 7) or ("inline_ztensor", message)."""
    ref = getattr(message, name)
    which = ref.WhichOneof("tensor")
    if which is None:
        raise unspecified(f"{path}.{name}")
    return which, getattr(ref, which)
