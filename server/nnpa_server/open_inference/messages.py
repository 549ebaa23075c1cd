# SPDX-License-Identifier: Apache-2.0
"""ModelInferRequest and ModelInferResponse with their raw contents beside them, parsed plainly."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nnpa.oip import open_inference_grpc_pb2 as pb

from nnpa_server.open_inference.tensors import Buffer


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


@dataclass(frozen=True, slots=True)
class Codec:
    """How requests are read from bytes, and responses and those of streams are written.

    `parse` raises DecodeError.
    """

    parse: Callable[[bytes], InferRequest]
    serialize: Callable[[InferResponse], bytes]
    serialize_for_stream: Callable[[StreamResponse], bytes]


def parse(data: bytes) -> InferRequest:
    """Read a serialised ModelInferRequest; raise DecodeError."""
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


PLAIN = Codec(parse, serialize, serialize_for_stream)
