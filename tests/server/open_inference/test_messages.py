# SPDX-License-Identifier: Apache-2.0
"""Requests and responses whose raw contents lie beside them have protobuf's bytes."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_server.open_inference.messages import (
    InferResponse,
    parse,
    serialize,
    serialize_for_stream,
)

texts = st.text(st.characters(codec="utf-8"), max_size=40)
contents = st.lists(st.binary(max_size=200), max_size=3)


@given(name=texts, identifier=texts, raw=contents)
def test_a_joined_response_is_the_message(name: str, identifier: str, raw: list[bytes]) -> None:
    """A response joined from its parts is the message that protobuf makes."""
    message = pb.ModelInferResponse(model_name=name, id=identifier)
    response = InferResponse(message, raw)
    read, stream = pb.ModelInferResponse.FromString, pb.ModelStreamInferResponse.FromString
    whole = pb.ModelInferResponse(model_name=name, id=identifier, raw_output_contents=raw)
    assert read(serialize(response)) == whole
    assert stream(serialize_for_stream(response)).infer_response == whole


def test_an_id_is_text() -> None:
    """An id that is no UTF-8 is refused."""
    for identifier in (b"\x1a\x02ab", "\x1a\x02ß".encode()):
        assert parse(identifier + b"\x0a\x01m").id == identifier[2:]
    with pytest.raises(DecodeError):
        parse(b"\x1a\x02a\xff\x0a\x01m")


def test_the_last_id_counts() -> None:
    """A request with two ids has the second, as protocol buffers say."""
    for identifier in (b"b", b"c"):
        assert parse(b"\x1a\x01a\x1a\x01" + identifier).id == identifier
