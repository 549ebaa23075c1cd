# SPDX-License-Identifier: Apache-2.0
"""Memory for what is on its way."""

import numpy as np
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator.machine import Memory

from nnpa_server.errors import CallRefused

_PAGE = 4096  # the boundary of a tensor's buffer, bytes


def staging(size: int) -> Memory:
    """Return memory for a transfer, on a page boundary so that it can become a tensor's buffer.

    It holds what it held before: nobody may see it until the transfer has filled all of it.
    """
    try:
        raw = np.empty(size + _PAGE, np.uint8)
    except (MemoryError, ValueError):
        raise CallRefused(
            wire.ERROR_REASON_TENSOR_QUOTA_EXCEEDED,
            f"the server has no {size} bytes left",
            field="max_bytes",
            value=size,
            limit="what the host has",
        ) from None
    start = -raw.ctypes.data % _PAGE
    return raw[start : start + size]
