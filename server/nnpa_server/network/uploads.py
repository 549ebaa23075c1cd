# SPDX-License-Identifier: Apache-2.0
"""Receive a model's file: a header, then exactly the bytes that it announced, in chunks."""

from collections.abc import Iterator

import numpy as np
from nnpa.network.v1 import network_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.accelerator.streaming import out_of_order
from nnpa_server.config import MAX_CHUNK_BYTES
from nnpa_server.errors import CallRefused, invalid
from nnpa_server.rpc.reading import next_message
from nnpa_server.sessions.cancellation import Context
from nnpa_server.sessions.page_buffers import staging
from nnpa_server.tuning.process import give_back


def receive_header(
    requests: Iterator[pb.CreateNetworkRequest], context: Context
) -> pb.CreateNetworkHeader:
    """Return the header, which must come first."""
    first = next_message(requests, context)
    if first is None or not first.HasField("header"):
        raise out_of_order("the first message of the stream must be a header")
    return first.header


def receive_file(
    requests: Iterator[pb.CreateNetworkRequest], context: Context, total: int
) -> bytes:
    """Return the bytes of all chunks, which are `total`; raise CallRefused for any other number."""
    memory, position = staging(total), 0
    while (request := next_message(requests, context)) is not None:
        if request.WhichOneof("message") != "chunk":
            raise out_of_order("after the header only chunks may come")
        size = len(request.chunk)
        if size > MAX_CHUNK_BYTES:
            text = f"chunk has {size} bytes, must have at most {MAX_CHUNK_BYTES}"
            facts = {"field": "chunk", "value": size, "limit": MAX_CHUNK_BYTES}
            raise CallRefused(wire.ERROR_REASON_MESSAGE_TOO_LARGE, text, **facts)
        if not size:
            raise invalid("chunk", "empty", f"1 to {MAX_CHUNK_BYTES} bytes")
        if position + size > total:
            raise _mismatch(position + size, total)
        memory[position : position + size] = np.frombuffer(request.chunk, np.uint8)
        position += size
    if position != total:
        raise _mismatch(position, total)
    file = memory.tobytes()
    del memory
    give_back()  # the memory of the messages: no other upload follows soon
    return file


def _mismatch(received: int, expected: int) -> CallRefused:
    text = f"chunks have {received} bytes, the header announced {expected}"
    facts = {"field": "chunks", "value": received, "limit": expected}
    return CallRefused(wire.ERROR_REASON_DATA_SIZE_MISMATCH, text, **facts)
