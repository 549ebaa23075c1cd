# SPDX-License-Identifier: Apache-2.0
"""Requests and responses whose raw contents pass beside them are those of protobuf."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_server.open_inference import messages, raw_views
from nnpa_server.open_inference.messages import InferRequest, InferResponse
from nnpa_server.open_inference.raw_views import MAX_COPIED_BYTES, parse_views

pytestmark = pytest.mark.shortcut
texts = st.text(st.characters(codec="utf-8"), max_size=40)
contents = st.lists(st.binary(max_size=200), max_size=3)


def _message(name: str, identifier: str, raw: list[bytes]) -> bytes:
    message = pb.ModelInferRequest(model_name=name, id=identifier, raw_input_contents=raw)
    for number in range(len(raw)):
        message.inputs.add(name=f"x{number}", datatype="UINT8", shape=[len(raw[number])])
    return message.SerializeToString()


def _facts(request: InferRequest) -> object:
    """Return all that is read of a request."""
    head = pb.ModelInferRequest.FromString(request.head)
    return head, request.id, [bytes(each) for each in request.raw]


@given(name=texts, identifier=texts, raw=contents)
def test_views_say_what_protobuf_says(name: str, identifier: str, raw: list[bytes]) -> None:
    """A request is the same with contents copied and with contents viewed."""
    data = _message(name, identifier, raw)
    assert (
        _facts(parse_views(data)) == _facts(messages.parse(data)) == _facts(raw_views.parse(data))
    )


@given(
    raw=st.lists(st.binary(min_size=3, max_size=200), max_size=3),
    identifier=st.text(st.characters(codec="ascii"), max_size=5),
    where=st.integers(0, 1 << 16),
    byte=st.integers(0, 255),
)
def test_one_byte_makes_the_same_difference(
    raw: list[bytes], identifier: str, where: int, byte: int
) -> None:
    """What protobuf reads of changed bytes, views read too."""
    changed = bytearray(_message("m", identifier, raw))
    changed[where % len(changed)] = byte
    try:
        expected = _facts(messages.parse(bytes(changed)))
    except DecodeError:
        return
    assert _facts(parse_views(bytes(changed))) == expected


@given(name=texts, identifier=texts, raw=contents)
def test_a_joined_response_is_the_message(name: str, identifier: str, raw: list[bytes]) -> None:
    """A response joined from its parts is the message that protobuf makes."""
    message = pb.ModelInferResponse(model_name=name, id=identifier)
    response = InferResponse(message, raw)
    read, stream = pb.ModelInferResponse.FromString, pb.ModelStreamInferResponse.FromString
    whole = pb.ModelInferResponse(model_name=name, id=identifier, raw_output_contents=raw)
    assert read(messages.serialize(response)) == read(raw_views.serialize(response)) == whole
    plain = stream(messages.serialize_for_stream(response))
    assert plain == stream(raw_views.serialize_for_stream(response))
    assert plain.infer_response == whole


def test_an_id_is_text() -> None:
    """An id that is no UTF-8 is refused."""
    for identifier in (b"\x1a\x02ab", "\x1a\x02ß".encode()):
        assert parse_views(identifier + b"\x0a\x01m").id == identifier[2:]
    with pytest.raises(DecodeError, match="id is not UTF-8"):
        parse_views(b"\x1a\x02a\xff\x0a\x01m")


def test_the_last_id_counts() -> None:
    """A request with two ids has the second, as protocol buffers say."""
    for identifier in (b"b", b"c"):
        assert parse_views(b"\x1a\x01a\x1a\x01" + identifier).id == identifier


def test_large_requests_are_viewed() -> None:
    """Contents of large requests are not copied; those of small ones are, which aligns them."""
    (raw,) = raw_views.parse(_message("m", "", [bytes(MAX_COPIED_BYTES)])).raw
    assert isinstance(raw, memoryview)
    (small,) = raw_views.parse(_message("m", "", [bytes(9)])).raw
    assert isinstance(small, bytes)
