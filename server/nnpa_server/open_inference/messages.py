# SPDX-License-Identifier: Apache-2.0
"""Codecs of ModelInferRequest and ModelInferResponse that keep raw contents apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from google.protobuf.message import DecodeError
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_wire.fields import fields

from nnpa_server.open_inference.tensors import Buffer

MAX_FIELDS = 1 << 14
"""The most fields that a request may have."""
MIN_FIELD_BYTES = 2
"""The size of the smallest field: a tag and a value."""


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A request; `head` is the serialised message without id and raw contents, `id` is UTF-8."""

    head: bytes
    id: bytes
    raw: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class InferResponse:
    """A response: the message without raw contents, and the raw contents."""

    message: pb.ModelInferResponse
    raw: Sequence[Buffer]


StreamResponse: TypeAlias = InferResponse | pb.ModelStreamInferResponse
"""A message of a stream: an answer, or the error of one request."""


def parse(data: bytes) -> InferRequest:
    """Parse a ModelInferRequest; raise DecodeError, also for more than MAX_FIELDS fields.

    Fields are bounded because each takes more memory and time than its bytes suggest.
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
    """Return the serialised ModelInferResponse."""
    return _whole(response).SerializeToString()


def serialize_for_stream(response: StreamResponse) -> bytes:
    """Return the serialised ModelStreamInferResponse of an answer or an error."""
    if isinstance(response, InferResponse):
        response = pb.ModelStreamInferResponse(infer_response=_whole(response))
    return response.SerializeToString()


def _whole(response: InferResponse) -> pb.ModelInferResponse:
    message = pb.ModelInferResponse()
    message.CopyFrom(response.message)
    message.raw_output_contents.extend(map(bytes, response.raw))
    return message
