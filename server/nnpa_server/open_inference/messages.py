# SPDX-License-Identifier: Apache-2.0
"""ModelInferRequest and ModelInferResponse with their raw contents beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from google.protobuf.message import DecodeError
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_wire.fields import fields

from nnpa_server.open_inference.tensors import Buffer

MAX_FIELDS = 1 << 14
"""Most fields of a request."""
MIN_FIELD_BYTES = 2
"""A tag and a value."""


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A request: `head` is the message without id and raw contents, in bytes; `id` is UTF-8."""

    head: bytes
    id: bytes
    raw: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class InferResponse:
    """A response: the message without raw contents, and these."""

    message: pb.ModelInferResponse
    raw: Sequence[Buffer]


StreamResponse: TypeAlias = InferResponse | pb.ModelStreamInferResponse
"""An answer, or the error that ends one request of a stream."""


def parse(data: bytes) -> InferRequest:
    """Read a serialised ModelInferRequest; raise DecodeError, for more fields than any has too.

    Each field takes more memory and time here than it has bytes.
    """
    if len(data) > MAX_FIELDS * MIN_FIELD_BYTES:
        counted = islice(fields(memoryview(data)), MAX_FIELDS + 1)
        if sum(1 for _ in counted) > MAX_FIELDS:
            raise DecodeError(f"more than {MAX_FIELDS} fields")
    message = pb.ModelInferRequest.FromString(data)
    raw, identifier = list(message.raw_input_contents), message.id.encode()
    message.ClearField("raw_input_contents")
    message.ClearField("id")
    return InferRequest(message.SerializeToString(), identifier, raw)


def serialize(response: InferResponse) -> bytes:
    """Return a serialised ModelInferResponse."""
    return _whole(response).SerializeToString()


def serialize_for_stream(response: StreamResponse) -> bytes:
    """Return a serialised ModelStreamInferResponse, of an answer or of an error."""
    if isinstance(response, InferResponse):
        response = pb.ModelStreamInferResponse(infer_response=_whole(response))
    return response.SerializeToString()


def _whole(response: InferResponse) -> pb.ModelInferResponse:
    message = pb.ModelInferResponse()
    message.CopyFrom(response.message)
    message.raw_output_contents.extend(map(bytes, response.raw))
    return message
