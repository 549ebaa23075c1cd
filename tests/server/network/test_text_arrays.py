# SPDX-License-Identifier: Apache-2.0
"""Text as input and output of a session's networks: arrays of `str`, as ONNX Runtime has them."""

import struct
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from nnpa.network.v1 import network_pb2 as pb
from nnpa_client import connect
from nnpa_client.network import Buffer, Format, get_error, run
from nnpa_client.session import Session
from onnx import ModelProto, helper

from tests.network.small_models import model
from tests.server.conftest import CONFIG, Running
from tests.server.network.service_client import Client
from tests.server.wire import refused

TEXT = np.dtype(object)
WORDS = ["", "red", "größer", "赤", "a\0b", "two words"]


def translated() -> ModelProto:
    """Return a model that gives a text for each text, and passes numbers on the accelerator."""
    encoder = helper.make_node(
        "LabelEncoder",
        ["word"],
        ["other"],
        "translate",
        domain="ai.onnx.ml",
        keys_strings=["red", "größer"],
        values_strings=["rot", "赤"],
        default_string="?",
    )
    produced = model(
        [encoder, helper.make_node("Relu", ["x"], ["y"], "relu")],
        [("word", TEXT, ("N",)), ("x", np.float32, (1, 4))],
        [("other", TEXT, ("N",)), ("y", np.float32, (1, 4))],
    )
    produced.opset_import.append(helper.make_opsetid("ai.onnx.ml", 2))
    return produced


def same() -> ModelProto:
    """Return a model that gives its text back."""
    node = helper.make_node("Identity", ["word"], ["same"])
    return model([node], [("word", TEXT, ("N",))], [("same", TEXT, ("N",))])


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A server in this process, on a free port."""
    server = Running(CONFIG)
    yield server
    server.stop()


@pytest.fixture
def session(running: Running) -> Iterator[Session]:
    """A session of the Python client."""
    with connect(running.address) as opened:
        yield opened


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    """A session as the wire has it."""
    connected = Client(running.channel)
    yield connected
    connected.close()


@pytest.mark.parametrize(
    "texts", [WORDS, np.array(WORDS, TEXT), np.array([], TEXT)], ids=["list", "array", "none"]
)
def test_text_comes_back(session: Session, texts: Any) -> None:
    """Lists and arrays of text travel both ways, any character, empty ones and none at all."""
    network = session.load(same())
    array = network(texts)
    assert array.dtype == TEXT
    assert array.tolist() == list(texts)


def test_fixed_width(session: Session) -> None:
    """NumPy's arrays of fixed width are text too."""
    assert session.load(same())(np.array(["red", "green"])).tolist() == ["red", "green"]


def test_text_beside_numbers(session: Session) -> None:
    """A model may have both; ports and report name them."""
    network = session.load(translated())
    x = np.array([[-1, 0, 1, 2]], np.float32)
    second, y = network(["red", "none", "größer"], x)
    assert second.tolist() == ["rot", "?", "赤"]
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    assert [port.dtype for port in network.inputs] == ["object", "float32"]
    assert {node.op_type: node.device for node in network.report().nodes} == {
        "LabelEncoder": "host",
        "Relu": "accelerator",
    }


def test_program_with_text(session: Session) -> None:
    """An exported program takes and gives text as its model does."""
    shapes = {"word": [2], "x": [1, 4]}
    program = session.load(translated()).export_program(shapes)
    second, _ = session.load(program=program)(["red", "blue"], np.zeros((1, 4), np.float32))
    assert second.tolist() == ["rot", "?"]


def test_no_text(session: Session) -> None:
    """Elements that are no text, and arrays of another type, are TypeErrors."""
    network = session.load(same())
    with pytest.raises(TypeError, match="an element of text is int, expected str"):
        network(np.array(["a", 1], TEXT))
    with pytest.raises(TypeError, match="input word: float32 array, expected object"):
        network(np.ones(2, np.float32))


def test_client_api_refuses_text(session: Session) -> None:
    """ai_run has no format for text, and says what has."""
    network = session.load(translated())
    inputs = [Buffer(Format.NONE, data=b""), Buffer(Format.FLOAT, channels=4, data=bytes(16))]
    assert run(network.handle, inputs, []) == -1
    error = str(get_error(network.handle))
    assert "AI_ERROR_CODE_INVALID_FORMAT" in error
    assert "word is text, which has no format; infer takes it" in error


THREE = struct.pack("<I", 3)
RED = THREE + b"red"


@pytest.mark.parametrize(
    "data",
    [
        RED + THREE + b"ab",
        RED,
        RED + RED + RED,
        RED + THREE + b"\xff\xfe\xfd",
        RED + b"\xff\xff\xff\xff" + b"abc",
    ],
    ids=["ends early", "too few", "too many", "not UTF-8", "longer than it is"],
)
def test_bytes_that_are_no_text(client: Client, data: bytes) -> None:
    """Lengths that do not add up, and bytes that are not UTF-8, are refused by name."""
    handle = client.ready(same())
    array = pb.NamedArray(name="word", dtype="object", shape=[2], data=data)
    request = pb.InferNetworkRequest(session=client.session, network=handle, inputs=[array])
    limit = "2 texts, before each its length in 4 bytes, in UTF-8"
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", limit=limit):
        client.stub.InferNetwork(request)


def test_text_counts(client: Client) -> None:
    """Texts count in the session's quota before they are read."""
    handle = client.ready(same())
    count = 1 << 20
    array = pb.NamedArray(name="word", dtype="object", shape=[count], data=bytes(4 * count))
    request = pb.InferNetworkRequest(session=client.session, network=handle, inputs=[array])
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED"):
        client.stub.InferNetwork(request)
