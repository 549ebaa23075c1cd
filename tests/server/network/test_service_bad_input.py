# SPDX-License-Identifier: Apache-2.0
"""Bad input of strangers: documented refusals, a server that serves on, nothing left behind."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from nnpa.network.v1 import network_pb2 as pb
from nnpa.network.v1 import program_pb2
from nnpa_server.sessions.store import Counts
from onnx import TensorProto, helper

from tests.network.small_models import dense, dense_reference, image, model
from tests.server.conftest import CONFIG, LIMITS, Running
from tests.server.network.service_client import Client
from tests.server.network.test_service import exported
from tests.server.wire import read_error, refused

INVALID = grpc.StatusCode.INVALID_ARGUMENT
X = np.array([[1, 2, 3, 4]], np.float32)
DATA = dense().SerializeToString()
Requests = Iterator[pb.CreateNetworkRequest]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A server with small limits."""
    server = Running(CONFIG)
    yield server
    server.stop()


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    """A session that must still work after the test, and leaves nothing."""
    connected = Client(running.channel)
    yield connected
    counts = running.server.store.counts()
    assert (counts.stored_bytes, counts.staged_bytes) == (0, 0)
    with_model = connected.ready(dense(), c_name="alive")
    result = np.frombuffer(connected.infer(with_model, x=X).outputs[0].data, np.float32)
    np.testing.assert_allclose(result.reshape(1, 3), dense_reference(X), rtol=0.01)
    connected.close()
    assert running.server.store.counts() == Counts()


def chunk(data: bytes) -> pb.CreateNetworkRequest:
    """Return a chunk."""
    return pb.CreateNetworkRequest(chunk=data)


STREAMS: dict[str, tuple[Callable[[Client], list[pb.CreateNetworkRequest]], str]] = {
    "nothing": (lambda _: [], "STREAM_ORDER"),
    "no header": (lambda _: [chunk(DATA)], "STREAM_ORDER"),
    "two headers": (lambda c: [c.header(DATA), c.header(DATA)], "STREAM_ORDER"),
    "empty message": (lambda c: [c.header(DATA), pb.CreateNetworkRequest()], "STREAM_ORDER"),
    "truncated": (lambda c: [c.header(DATA), chunk(DATA[:-1])], "DATA_SIZE_MISMATCH"),
    "no chunk": (lambda c: [c.header(DATA)], "DATA_SIZE_MISMATCH"),
    "one byte more": (lambda c: [c.header(DATA), chunk(DATA + b"\0")], "DATA_SIZE_MISMATCH"),
    "empty chunk": (lambda c: [c.header(DATA), chunk(b"")], "FIELD_INVALID"),
    "no bytes": (lambda c: [c.header(b"")], "FIELD_INVALID"),
    "garbage": (lambda c: [c.header(b"\xff" * 9), chunk(b"\xff" * 9)], "MODEL_INVALID"),
    "half a model": (lambda c: [c.header(DATA[:99]), chunk(DATA[:99])], "MODEL_INVALID"),
    "a zip of nothing": (
        lambda c: [c.header(b"PK\5\6" + b"\0" * 18), chunk(b"PK\5\6" + b"\0" * 18)],
        "MODEL_INVALID",
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_bad_uploads(client: Client, name: str) -> None:
    """A stream that is not a header and the announced bytes of a model is refused."""
    make, reason = STREAMS[name]
    with refused(INVALID, reason):
        client.stub.CreateNetwork(iter(make(client)))


def test_chunk_too_large(client: Client) -> None:
    """A chunk above 4 MiB is refused, if the session could have it at all."""
    header = client.header(b"\0" * (1 << 19))
    big = chunk(b"\0" * ((4 << 20) + 1))
    with refused(INVALID, "MESSAGE_TOO_LARGE", field="chunk"):
        client.stub.CreateNetwork(iter([header, big]))


@pytest.mark.parametrize("size", [LIMITS.max_session_bytes + 1, (1 << 64) - 1])
def test_oversize_is_refused_before_a_byte_is_read(client: Client, size: int) -> None:
    """An announced size beyond the quota is refused by the header alone."""
    sizes: list[int] = []

    def requests() -> Requests:
        header = pb.CreateNetworkHeader(session=client.session, onnx_bytes=size)
        yield pb.CreateNetworkRequest(header=header)
        for number in range(1000):
            sizes.append(number)
            time.sleep(0.01)
            yield chunk(b"\0" * 1024)

    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED", field="max_bytes"):
        client.stub.CreateNetwork(requests())
    assert len(sizes) < 1000


def test_client_vanishes_during_the_upload(client: Client, running: Running) -> None:
    """A client that goes away in the middle of an upload returns its share of the quota."""
    store = running.server.store
    began = False

    def requests() -> Requests:
        nonlocal began
        yield client.header(b"\0" * 100_000)
        yield chunk(b"\0" * 50_000)
        began = True
        time.sleep(30)

    call: Any = client.stub.CreateNetwork.future(requests())
    deadline = time.monotonic() + 10
    while store.counts().staged_bytes != 100_000 or not began:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    call.cancel()
    while store.counts().staged_bytes:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.usefixtures("client")
def test_session_deleted_during_the_upload(running: Running) -> None:
    """A session that is deleted in the middle of an upload ends it, and nothing stays."""
    second = Client(running.channel)

    def requests() -> Requests:
        yield second.header(DATA)
        yield chunk(DATA[:10])
        second.close()
        yield chunk(DATA[10:])

    with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
        second.stub.CreateNetwork(requests())


@pytest.mark.usefixtures("client")
def test_a_network_beyond_the_quota(running: Running) -> None:
    """A model whose constants exceed the quota is refused, and its bytes are given back."""
    second = Client(running.channel)
    big = np.zeros((400, 400), np.float32)
    many = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        [("x", np.float32, ["N", 400])],
        [("y", np.float32, ["N", 400])],
        {"w": big},
    )
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED"):
        second.create(many)
    assert running.server.store.counts().stored_bytes == 0
    second.close()


def outcome(client: Client, header: pb.CreateNetworkRequest, data: bytes) -> str:
    """Create a network and use it; return why that is refused, "" if not. INTERNAL is a defect."""
    try:
        create_and_use(client, header, data)
    except grpc.RpcError as error:
        reason = read_error(error)
        assert reason.reason != "INTERNAL", reason
        return reason.reason
    return ""


def create_and_use(client: Client, header: pb.CreateNetworkRequest, data: bytes) -> None:
    """Create a network, run it, and destroy it."""
    answer = client.stub.CreateNetwork(iter([header, chunk(data)]))
    handle = answer.network.name
    try:
        client.init(handle)
        ports = answer.network.inputs
        feeds = {p.name: np.ones([max(1, d) for d in p.shape], p.dtype) for p in ports}
        client.infer(handle, **feeds)
    finally:
        client.destroy(handle)


def test_damaged_models(client: Client) -> None:
    """ONNX files with damaged bytes are refused for a documented reason, or run."""
    rng = np.random.default_rng(3)
    seen: set[str] = set()
    for _ in range(60):
        data = bytearray(DATA)
        for place in rng.integers(0, len(data), 3):
            data[place] = rng.integers(0, 256)
        damaged = bytes(data)
        seen.add(outcome(client, client.header(damaged), damaged))
    assert "MODEL_INVALID" in seen


def damaged(program: program_pb2.Program, rng: np.random.Generator) -> program_pb2.Program:
    """Return a program with one thing wrong."""
    produced = program_pb2.Program()
    produced.CopyFrom(program)
    step = produced.steps[rng.integers(len(produced.steps))]
    number = int(rng.integers(0, 12))
    match int(rng.integers(8)):
        case 0:
            produced.machine = "telum1"
        case 1:
            produced.output_ids[0] = number
        case 2:
            produced.input_ids[0] = number
        case 3:
            step.result = number
        case 4:
            step.operation.relu.input.id = number
        case 5:
            step.operation.free_ztensor_buffer.ztensor.id = number
        case 6:
            produced.arrays[number].shape.extend([1 << 40, 1 << 20])
        case _:
            del produced.steps[int(rng.integers(len(produced.steps)))]
    return produced


def test_damaged_programs(client: Client) -> None:
    """Programs that do not fit together are refused for a documented reason, or run."""
    handle = client.ready(dense())
    whole = program_pb2.Program.FromString(exported(client, handle))
    client.destroy(handle)
    rng = np.random.default_rng(4)
    seen: set[str] = set()
    for _ in range(80):
        data = damaged(whole, rng).SerializeToString()
        header = client.header(program_bytes=len(data))
        seen.add(outcome(client, header, data))
    assert seen >= {"FIELD_INVALID", "MODEL_INVALID"}


def test_damaged_program_bytes(client: Client) -> None:
    """Serialised programs with damaged bytes are refused for a documented reason, or run."""
    handle = client.ready(image())
    whole = exported(client, handle)
    client.destroy(handle)
    rng = np.random.default_rng(5)
    for _ in range(80):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 2):
            data[place] = rng.integers(0, 256)
        damaged = bytes(data)
        header = client.header(program_bytes=len(damaged))
        outcome(client, header, damaged)


def test_made_up_samples_count(client: Client) -> None:
    """Samples that are made up are counted before they are made."""
    options = pb.CreateOptions(shapes=[pb.InputShape(name="x", shape=[2000, 4])])
    created = client.create(dense(), c_name="measured", options=options)
    assert not created.HasField("error"), created.error
    request = pb.MeasureAccuracyRequest(
        session=client.session, network=created.network.name, made_up=1000
    )
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED", field="max_bytes"):
        client.stub.MeasureAccuracy(request)
    client.stub.DestroyNetwork(
        pb.DestroyNetworkRequest(session=client.session, network=created.network.name)
    )


def test_samples_have_the_models_inputs(client: Client) -> None:
    """A sample that lacks an input, or names another, is refused with the inputs' names."""
    handle = client.ready(dense())
    x = pb.NamedArray(name="x", dtype="float32", shape=[1, 4], data=X.tobytes())
    y = pb.NamedArray(name="y", dtype="float32", shape=[1, 4], data=X.tobytes())
    for arrays in ((), (y,), (x, y)):
        request = pb.MeasureAccuracyRequest(
            session=client.session,
            network=handle,
            samples=[pb.Sample(inputs=[x]), pb.Sample(inputs=arrays)],
        )
        with refused(INVALID, "FIELD_INVALID", field="samples[1].inputs"):
            client.stub.MeasureAccuracy(request)
    client.destroy(handle)


def test_initializers_of_text_are_no_weights(client: Client) -> None:
    """A model may hold text: it is no part of the weights, which are bytes."""
    with_text = dense()
    count = len(with_text.graph.initializer)
    text = TensorProto(
        name="words", data_type=TensorProto.STRING, dims=[2], string_data=[b"a", b"b"]
    )
    with_text.graph.initializer.append(text)
    handle = client.ready(with_text)
    weights = client.info(handle).weights
    assert len(weights) == count
    assert "words" not in {weight.name for weight in weights}
    result = np.frombuffer(client.infer(handle, x=X).outputs[0].data, np.float32)
    np.testing.assert_allclose(result.reshape(1, 3), dense_reference(X), rtol=0.01)
    client.destroy(handle)
