# SPDX-License-Identifier: Apache-2.0
"""Tensors as they travel: raw contents, cuts, unknown fields, garbage."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_server.open_inference.messages import parse
from nnpa_server.open_inference.tensors import DATATYPES, datatype_of, raw_of, raw_size, read_raw

from tests.server.onnx_models import (
    Caller,
    offering,
    refusal,
)
from tests.server.open_inference.offered_models import MODELS, ONES, texts


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    """A client of a server that has the models."""
    with offering(MODELS) as (_, client):
        yield client


@pytest.mark.heavy
@given(
    name=texts,
    identifier=texts,
    names=st.lists(texts, max_size=3),
    raw=st.lists(st.binary(max_size=200), max_size=3),
)
def test_cutting_loses_nothing(
    name: str, identifier: str, names: list[str], raw: list[bytes]
) -> None:
    """A request cut open holds what the message holds: contents, id, and the rest."""
    message = pb.ModelInferRequest(model_name=name, id=identifier, raw_input_contents=raw)
    for input_name in names:
        message.inputs.add(name=input_name, shape=[1])
    parsed = parse(message.SerializeToString())
    assert [bytes(contents) for contents in parsed.raw] == raw
    assert parsed.id.decode() == identifier
    message.ClearField("raw_input_contents")
    message.ClearField("id")
    assert pb.ModelInferRequest.FromString(parsed.head) == message


@pytest.mark.parametrize(
    "unknown", [b"\x48\x96\x01", b"\xfa\x3e\x02ab", b"\x4d1234", b"\x4912345678", b"\x7a\x00"]
)
def test_unknown_fields_are_kept(unknown: bytes) -> None:
    """Fields of newer clients, of any wire type, stay in the head wherever they stand."""
    raw, identifier = b"\x3a\x02xy", b"\x1a\x01i"
    parsed = parse(unknown + raw + unknown + identifier + b"\x0a\x01m" + unknown)
    assert [bytes(contents) for contents in parsed.raw] == [b"xy"]
    assert parsed.id == b"i"
    assert parsed.head == b"\x0a\x01m" + 3 * unknown


def _same(data: bytes) -> bytes:
    return data


def test_garbage_is_refusal(caller: Caller) -> None:
    """Bytes that are no message are refused, and the server goes on."""
    call: Any = caller.channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer", _same, _same
    )
    for raw in (b"\xff", b"\x0a\x05a", b"\x3a\xff\xff\xff\xff\x0f", b"\x1a\x01\xff", b"\x0b"):
        refusal("FIELD_INVALID", call, raw)
    assert np.array_equal(caller.infer("add", x=ONES, y=ONES)["z"], 2 * ONES)


@pytest.mark.parametrize("name", DATATYPES)
def test_types_have_one_name(name: str) -> None:
    """A type's NumPy type leads back to it."""
    assert datatype_of(DATATYPES[name].dtype) == DATATYPES[name]


def test_raw_contents_are_views_where_they_are_aligned() -> None:
    """Aligned contents are not copied; others are, so that kernels meet aligned arrays only."""
    memory = memoryview(np.arange(9, dtype=np.uint64).view(np.uint8).tobytes())
    aligned = read_raw(DATATYPES["INT64"], (8,), memory[8:], "x")
    shifted = read_raw(DATATYPES["INT64"], (8,), memory[1:65], "x")
    assert np.shares_memory(aligned, np.frombuffer(memory, np.uint8))
    assert aligned.flags.aligned
    assert shifted.flags.aligned
    assert shifted.tobytes() == bytes(memory[1:65])


def test_big_endian_and_strided_arrays_become_raw_contents() -> None:
    """Whatever the array's order in memory, contents are little-endian and row-major."""
    array = np.arange(6, dtype=">i4").reshape(2, 3)
    assert bytes(raw_of(array.T)) == array.T.astype("<i4").tobytes()
    assert raw_size(array.T) == 24
    texts_ = np.array(["a", b"bc"], object)
    assert bytes(raw_of(texts_)) == b"\x01\0\0\0a\x02\0\0\0bc"
    assert raw_size(texts_) == 11
