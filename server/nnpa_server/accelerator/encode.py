# SPDX-License-Identifier: Apache-2.0
"""Encode the contents of results: arrays and sticks, in shared memory or in a message."""

import numpy as np
import numpy.typing as npt
from nnpa.zdnn.v1 import tensor_pb2
from nnpa_emulator import Ztensor, stick

from nnpa_server.sessions.shared_memory import shared_of
from nnpa_server.sessions.store import Session


def in_order(tensor: Ztensor, order: int) -> stick.Array:
    """Return a tensor's buffer in a wire byte order: the buffer itself if it is that already."""
    if order == tensor_pb2.BYTE_ORDER_BIG_ENDIAN:
        return stick.byteswapped(tensor.sticks, tensor.transformed_desc)
    return tensor.sticks


def put(session: Session, extent: tensor_pb2.Extent, array: stick.Array, path: str) -> bool:
    """Write an array to shared memory; return False if there is no room for it."""
    memory = shared_of(session)
    if memory is None or extent.size < array.nbytes:
        return False
    place = memory.view(extent.offset, array.nbytes, path)
    if place is not None and place.ctypes.data == array.ctypes.data:
        return True  # it was computed there
    return memory.write(extent.offset, array, path)


def place_output(
    session: Session, tensor: Ztensor, request: tensor_pb2.Ztensor
) -> stick.Array | None:
    """Write an output's sticks to shared memory; return the sticks if they must travel instead."""
    sticks = in_order(tensor, request.byte_order).view(np.uint8)
    if request.HasField("sticks_to") and put(session, request.sticks_to, sticks, "sticks_to"):
        return None
    return sticks


def dense(value: npt.ArrayLike) -> stick.Array:
    """Return a user array as one contiguous line of little-endian bytes."""
    array = np.ascontiguousarray(value)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.reshape(-1).view(np.uint8)
