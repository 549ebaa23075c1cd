# SPDX-License-Identifier: Apache-2.0
"""Memory for transfers."""

from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator.machine import Memory, page_memory

from nnpa_server.errors import beyond


def staging(size: int) -> Memory:
    """Return memory for a transfer, on a page boundary so that it can become a tensor's buffer.

    It is not zeroed: do not show it to clients before the transfer has filled all of it.
    """
    memory = page_memory(size, zeroed=False)
    if memory is None:
        text = f"the server has no {size} bytes left"
        reason, limit = wire.ERROR_REASON_TENSOR_QUOTA_EXCEEDED, "what the host has"
        raise beyond(reason, text, "max_bytes", size, limit)
    return memory
