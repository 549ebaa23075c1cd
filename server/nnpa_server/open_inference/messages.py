# SPDX-License-Identifier: Apache-2.0
"""ModelInferRequest and ModelInferResponse with their raw contents left where they are.

A protocol buffer copies bytes at every turn, and tensors are bytes. So a request is cut open at its
top level: raw contents become views of what came over the wire, small ones copies, which are
aligned, and only the rest is parsed. A response is put together from its head and the outputs' own
memory, in one copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from nnpa.oip import open_inference_grpc_pb2 as pb

from nnpa_server.open_inference.framing import SMALL, Framings
from nnpa_server.open_inference.tensors import Buffer
from nnpa_server.rpc.wire_fields import head

_framings = Framings()
_RESPONSE_ID = pb.ModelInferResponse.ID_FIELD_NUMBER
_RAW_OUTPUT = pb.ModelInferResponse.RAW_OUTPUT_CONTENTS_FIELD_NUMBER
_INFER_RESPONSE = pb.ModelStreamInferResponse.INFER_RESPONSE_FIELD_NUMBER


@dataclass(frozen=True, slots=True)
class InferRequest:
    """A request cut open: `head` is the message without id and raw contents, still in bytes.

    `id` is UTF-8.
    """

    head: bytes
    id: bytes
    raw: Sequence[Buffer]


@dataclass(frozen=True, slots=True)
class InferResponse:
    """A response: `head` is the message without id and raw contents, in bytes."""

    head: bytes
    id: bytes
    raw: Sequence[Buffer]

    @property
    def size(self) -> int:
        """Bytes of the message, but for a few of its framing."""
        return len(self.head) + len(self.id) + sum(map(len, self.raw))


def cut(data: bytes) -> InferRequest:
    """Cut a serialised ModelInferRequest open; DecodeError when it cannot be one."""
    form = _framings.find(data)
    start, end = form.id
    identifier = data[start:end]
    if not identifier.isascii():
        _require_text(identifier)
    whole: Buffer = data if len(data) <= SMALL else memoryview(data)
    return InferRequest(form.head, identifier, [whole[start:end] for start, end in form.raw])


def _require_text(identifier: bytes) -> None:
    try:
        identifier.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("id is not UTF-8") from error


def joined(response: InferResponse) -> bytes:
    """Return the serialised ModelInferResponse."""
    return b"".join(_parts(response))


def joined_for_stream(response: InferResponse | pb.ModelStreamInferResponse) -> bytes:
    """Return the serialised ModelStreamInferResponse, of an answer or of an error."""
    if isinstance(response, pb.ModelStreamInferResponse):
        return response.SerializeToString()
    parts = _parts(response)
    return b"".join((head(_INFER_RESPONSE, sum(map(len, parts))), *parts))


def _parts(response: InferResponse) -> list[Buffer]:
    parts: list[Buffer] = [response.head]
    if response.id:
        parts += (head(_RESPONSE_ID, len(response.id)), response.id)
    for one in response.raw:
        parts += (head(_RAW_OUTPUT, len(one)), one)
    return parts
