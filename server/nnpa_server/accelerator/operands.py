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

from nnpa_server.accelerator.arms import Arm, read_desc
from nnpa_server.errors import CallRefused, unspecified
from nnpa_server.store import Session


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


def read_inline(session: Session, message: tensor_pb2.Ztensor, path: str, room: bool) -> Ztensor:
    """Return an inline tensor; its buffer counts in the quota while the operation runs.

    Without contents the buffer is NULL, unless there is to be `room`: a tensor only written.
    """
    tensor = read_structure(message, path)
    has_sticks = message.WhichOneof("contents") is not None
    if message.null_buffer or not (has_sticks or room):
        return tensor
    size, limit = getsize_ztensor(tensor.transformed_desc), session.limits.max_inline
    sticks = message.sticks if has_sticks else b""
    if has_sticks and len(sticks) != size:
        raise size_mismatch(f"{path}.sticks", len(sticks), size)
    if size > limit:
        raise too_large(f"{path}.sticks", size, limit)
    tensor.buffer = session.allocate(size)
    if has_sticks and tensor.buffer is not None:
        np.copyto(tensor.buffer, np.frombuffer(sticks, np.uint8))
        from_order(tensor, tensor.buffer, message.byte_order)
    return tensor


def from_order(tensor: Ztensor, buffer: Memory, order: int) -> None:
    """Turn bytes that came in a wire byte order into the host's, in place."""
    if order == tensor_pb2.BYTE_ORDER_BIG_ENDIAN:
        buffer[:] = stick.byteswapped(buffer, tensor.transformed_desc)


def reference(message: Any, name: str, path: str) -> tuple[str, Any]:
    """Return what a TensorRef names: ("id", 5), ("new_id", 7) or ("inline_ztensor", message)."""
    ref = getattr(message, name)
    which = ref.WhichOneof("tensor")
    if which is None:
        raise unspecified(f"{path}.{name}")
    return which, getattr(ref, which)
