# SPDX-License-Identifier: Apache-2.0
"""Forms of requests that are remembered: what is read by them is what reading every byte gives."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_server.open_inference.framing import SMALL, Framings, framing
from nnpa_server.open_inference.messages import cut


def _message(name: str, identifier: str, raw: list[bytes]) -> bytes:
    message = pb.ModelInferRequest(model_name=name, id=identifier, raw_input_contents=raw)
    for number in range(len(raw)):
        message.inputs.add(name=f"x{number}", datatype="UINT8", shape=[len(raw[number])])
    return message.SerializeToString()


def _read(framings: Framings, data: bytes) -> object:
    """Return all that is read of a request, or that it is none."""
    try:
        form = framings.find(data)
    except DecodeError:
        return None
    return form.head, data[slice(*form.id)], [data[slice(*one)] for one in form.raw]


@given(
    first=st.lists(st.binary(min_size=3, max_size=200), max_size=3),
    identifier=st.text(st.characters(codec="ascii"), max_size=5),
    where=st.integers(0, 1 << 16),
    byte=st.integers(0, 255),
)
def test_one_byte_makes_a_difference_or_none(
    first: list[bytes], identifier: str, where: int, byte: int
) -> None:
    """A request of a known size, of whatever form, is read as if none had come before."""
    data, known = _message("m", identifier, first), Framings()
    known.find(data)
    changed = bytearray(data)
    changed[where % len(changed)] = byte
    assert _read(known, bytes(changed)) == _read(Framings(), bytes(changed))


def test_a_form_is_found_again() -> None:
    """Other contents and another id of the same lengths are of the same form, not a new one."""
    known = Framings()
    form = known.find(_message("add", "one", [b"abcd", b"efgh"]))
    data = _message("add", "two", [b"\x3a\x02xy", b"\x1a\x01\xff\x00"])
    assert known.find(data) is form
    assert form == framing(data)
    assert _read(known, data) == (form.head, b"two", [b"\x3a\x02xy", b"\x1a\x01\xff\x00"])
    assert known.find(_message("sub", "two", [b"abcd", b"efgh"])) is not form


def test_an_id_of_a_known_form_is_text() -> None:
    """An id that is no UTF-8 is refused, also where the form of its request is known."""
    for identifier in (b"\x1a\x02ab", "\x1a\x02ß".encode()):
        assert cut(identifier + b"\x0a\x01m").id == identifier[2:]
    with pytest.raises(DecodeError, match="id is not UTF-8"):
        cut(b"\x1a\x02a\xff\x0a\x01m")


def test_the_last_id_counts() -> None:
    """A request with two ids has the second, as protocol buffers say."""
    for identifier in (b"b", b"c"):
        assert cut(b"\x1a\x01\xff\x1a\x01" + identifier).id == identifier


def test_large_requests_are_viewed_and_not_remembered() -> None:
    """Contents of large requests are not copied, and their forms take no memory."""
    data, known = _message("m", "", [bytes(SMALL)]), Framings()
    assert known.find(data) is not known.find(data)
    (raw,) = cut(data).raw
    assert isinstance(raw, memoryview)
    (small,) = cut(_message("m", "", [bytes(9)])).raw
    assert isinstance(small, bytes)


def test_what_is_remembered_is_bounded() -> None:
    """The oldest forms are forgotten, and those with much beside their contents never kept."""
    known = Framings()
    forms = [known.find(_message("m", "", [bytes(size)])) for size in range(1, 100)]
    assert known.find(_message("m", "", [bytes(1)])) is not forms[0]
    assert known.find(_message("m", "", [bytes(99)])) is forms[-1]
    names = [known.find(_message(name, "", [b"a"])) for name in "abcde"]
    assert known.find(_message("e", "", [b"a"])) is names[-1]
    assert known.find(_message("a", "", [b"a"])) is not names[0]
    for data in (_message("m" * 5000, "", [b"a"]), b"\x3a\x00" * 100):
        assert known.find(data) is not known.find(data)
