# SPDX-License-Identifier: Apache-2.0
"""Shortcut out-of-band-arrays: raw contents pass beside their messages.

A protocol buffer copies bytes at every turn, and tensors are bytes. A large request is parted at
its top level: raw contents become views of what came over the wire, and only the rest is parsed. A
response is joined from its message and the outputs' own memory, in one copy.
"""

from collections.abc import Iterable

from google.protobuf.message import DecodeError
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_wire.fields import byte_fields, head

from nnpa_server.open_inference import messages
from nnpa_server.open_inference.messages import Codec, InferRequest, InferResponse, StreamResponse
from nnpa_server.open_inference.tensors import Buffer

MAX_COPIED_BYTES = 1 << 16
"""Bytes of a request up to which protobuf parses it as fast, and aligns its contents."""
_ID = pb.ModelInferRequest.ID_FIELD_NUMBER
_RAW_INPUT = pb.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
_RAW_OUTPUT = pb.ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER
_INFER_RESPONSE = pb.ModelStreamInferResponse.INFER_RESPONSE_FIELD_NUMBER
_PARTED = frozenset((_ID, _RAW_INPUT))


def parse(data: bytes) -> InferRequest:
    """Read a serialised ModelInferRequest; raise DecodeError when it cannot be one."""
    return messages.parse(data) if len(data) <= MAX_COPIED_BYTES else parse_views(data)


def parse_views(data: bytes) -> InferRequest:
    """Read a request whose raw contents become views of its bytes."""
    fields, view = byte_fields(data, _PARTED), memoryview(data)
    raw = [view[field.value : field.end] for field in fields if field.number == _RAW_INPUT]
    ids = [data[field.value : field.end] for field in fields if field.number == _ID]
    identifier = ids[-1] if ids else b""
    try:
        identifier.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("id is not UTF-8") from error
    return InferRequest(
        _without(data, ((each.start, each.end) for each in fields)), identifier, raw
    )


def _without(data: bytes, gaps: Iterable[tuple[int, int]]) -> bytes:
    """Return bytes without those in gaps."""
    pieces, since = list[bytes](), 0
    for start, end in (*gaps, (len(data), len(data))):
        pieces.append(data[since:start])
        since = end
    return b"".join(pieces)


def serialize(response: InferResponse) -> bytes:
    """Return a serialised ModelInferResponse."""
    return b"".join(_parts(response))


def serialize_for_stream(response: StreamResponse) -> bytes:
    """Return a serialised ModelStreamInferResponse, of an answer or of an error."""
    if isinstance(response, pb.ModelStreamInferResponse):
        return response.SerializeToString()
    parts = _parts(response)
    return b"".join((head(_INFER_RESPONSE, sum(map(len, parts))), *parts))


def _parts(response: InferResponse) -> list[Buffer]:
    parts: list[Buffer] = [response.message.SerializeToString()]
    for contents in response.raw:
        parts += (head(_RAW_OUTPUT, len(contents)), contents)
    return parts


RAW_VIEWS = Codec(parse, serialize, serialize_for_stream)
