# SPDX-License-Identifier: Apache-2.0
"""Arrays and sticks that an operation finds, or leaves, in the memory that a session shares."""

from collections.abc import Iterable

import numpy as np
from nnpa.zdnn.v1 import operation_pb2, tensor_pb2
from nnpa_emulator import Ztensor, stick

from nnpa_server.accelerator.encode import dense, describe_ztensor, in_order
from nnpa_server.accelerator.operands import check_extent
from nnpa_server.sessions.page_buffers import staging
from nnpa_server.sessions.store import Session


def read_arrays(
    session: Session, extents: Iterable[tensor_pb2.Extent], path: str
) -> list[memoryview]:
    """Return user arrays in shared memory; copies once the quota has room for all of them."""
    arrays: list[memoryview] = []
    for index, extent in enumerate(extents):
        there = check_extent(session, extent, extent.size, f"{path}[{index}]")
        if (array := there.view(extent.offset, extent.size, path)) is not None:
            arrays.append(array.data)
            continue
        session.reserve(extent.size)
        array = staging(extent.size)
        session.pending_bytes += extent.size
        there.read(extent.offset, array, f"{path}[{index}]")
        arrays.append(array.data)
    return arrays


def _put(session: Session, extent: tensor_pb2.Extent, array: stick.Array, path: str) -> bool:
    """Write an array where the client wants it, and tell whether there was storage for it."""
    if session.shared is None or extent.size < array.nbytes:
        return False
    there = session.shared.view(extent.offset, array.nbytes, path)
    if there is not None and there.ctypes.data == array.ctypes.data:
        return True  # it was made there
    return session.shared.write(extent.offset, array, path)


def put_array(
    session: Session,
    place: tensor_pb2.Extent | None,
    array: stick.Array,
    result: operation_pb2.OperationResult,
    path: str,
) -> bool:
    """Put a user array where the client wants it, if it does; tell, and have the result tell it."""
    if place is None or not _put(session, place, dense(array), path):
        return False
    result.shared.offset, result.shared.size = place.offset, dense(array).nbytes
    return True


def place_output(
    session: Session, tensor: Ztensor, wanted: tensor_pb2.Ztensor
) -> stick.Array | None:
    """Put an output's sticks where the client wants them; return them if they travel instead."""
    sticks = in_order(tensor, wanted.byte_order).view(np.uint8)
    if wanted.HasField("sticks_to") and _put(session, wanted.sticks_to, sticks, "sticks_to"):
        return None
    return sticks


def describe_output(
    tensor: Ztensor, wanted: tensor_pb2.Ztensor, travels: bool
) -> tensor_pb2.Ztensor:
    """Return the structure of an inline output that has sticks, and where they are."""
    message = describe_ztensor(tensor)
    message.byte_order = wanted.byte_order
    if not travels:
        message.shared.CopyFrom(wanted.sticks_to)
    return message
