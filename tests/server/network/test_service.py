# SPDX-License-Identifier: Apache-2.0
"""nnpa.network.v1.NetworkService over a socket, as the comments of its contract promise."""

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from nnpa.network.v1 import network_pb2 as pb
from nnpa.network.v1 import program_pb2
from nnpa_server.sessions.store import Counts

from tests.network.small_models import (
    BIAS,
    WEIGHT,
    dense,
    dense_reference,
    image,
    quantised,
    two_ends,
)
from tests.server.conftest import CONFIG, Running
from tests.server.network.service_client import Client, filled, room
from tests.server.wire import read_error, refused

X = np.array([[1, 2, 3, 4], [-1, 0.5, 2, -3]], np.float32)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A server with small limits."""
    server = Running(CONFIG)
    yield server
    server.stop()


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    """A session of its own; the store is empty afterwards."""
    connected = Client(running.channel)
    yield connected
    connected.close()
    assert running.server.store.counts() == Counts()


def floats(buffer: pb.Buffer) -> Any:
    """Return the floats of a buffer."""
    return np.frombuffer(buffer.data, np.float32)


def test_a_network_from_create_to_destroy(client: Client, running: Running) -> None:
    """Create, init, run over batches, get_info, destroy."""
    network = client.create(dense()).network
    assert (network.c_name, network.state, network.machine) == (
        "network",
        pb.STATE_CREATED,
        "telum2",
    )
    assert client.init(network.name)
    report = client.info(network.name)
    result = client.run(network.name, [filled(report.inputs[0], X)], [room(report.outputs[0], 2)])
    assert result.n_batches == 2
    produced = floats(result.outputs[0]).reshape(2, 3)
    np.testing.assert_allclose(produced, dense_reference(X), rtol=0.01)
    assert running.server.store.counts().stored_bytes == network.stored_bytes > 0
    assert client.destroy(network.name).network == ""
    assert running.server.store.counts().stored_bytes == 0
    assert client.destroy(network.name).network == network.name


def test_unknown_handles(client: Client) -> None:
    """An unknown handle gets the client API's answers, and INVALID_HANDLE when asked."""
    gone = "networks/none"
    assert not client.init(gone)
    assert client.run(gone, [], []).n_batches == 0
    assert client.error(gone) == (0x10, 0x10)
    assert not client.info(gone).model_name
    assert client.destroy(gone).error.type == pb.AI_ERROR_INVALID_HANDLE
    request = pb.GetNodeInfoRequest(session=client.session, network=gone)
    assert not client.stub.GetNodeInfo(request).ok
    with refused(grpc.StatusCode.NOT_FOUND, "NETWORK_NOT_FOUND", network=gone):
        client.infer(gone, x=X)


def test_a_handle_in_another_session(client: Client, running: Running) -> None:
    """A handle means nothing in another session."""
    handle = client.ready(dense())
    second = Client(running.channel)
    assert second.error(handle) == (0x10, 0x10)
    second.close()
    assert client.infer(handle, x=X).outputs[0].shape == [2, 3]


def test_unknown_session(client: Client) -> None:
    """Every method needs a session that exists."""
    name = "sessions/none"
    with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
        client.stub.ListNetworks(pb.ListNetworksRequest(session=name))
    header = pb.CreateNetworkHeader(session=name, onnx_bytes=1)
    with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
        client.stub.CreateNetwork(iter([pb.CreateNetworkRequest(header=header)]))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tools_api_version": pb.Version(major=1, minor=5)}, (0x01, 0x10)),
        ({"type_sizes": b"\x01"}, (0x02, 0x10)),
        ({"options": pb.CreateOptions(device_gate_closed=True)}, (0x33, 0x10)),
        ({"published": "nobody"}, (0x14, 0x10)),
    ],
)
def test_create_answers_errors(
    client: Client, fields: dict[str, Any], expected: tuple[int, int]
) -> None:
    """A refusal of the client API at create is in the answer, whose gRPC status is OK."""
    answer = client.create(dense(), **fields)
    assert (answer.error.type, answer.error.code) == expected
    assert not answer.HasField("network")


def test_create_twice(client: Client) -> None:
    """A C name is used once; without `strict` its second create gets the same handle."""
    first = client.ready(dense())
    error = client.create(dense()).error
    assert (error.type, error.code) == (0x33, 0x40)
    relaxed = pb.CreateOptions(strict=False)
    assert client.create(dense(), options=relaxed).network.name == first
    assert client.create(image(), options=relaxed).error.code == 0x40
    assert client.create(dense(), c_name="other").network.name != first


def test_too_many_networks(client: Client) -> None:
    """The 65th network of a session is ALLOCATION_FAILED / NETWORK."""
    data = image().SerializeToString()
    for number in range(64):
        assert client.stub.CreateNetwork(client.upload(data, c_name=f"n{number}")).network.name
    error = client.stub.CreateNetwork(client.upload(data, c_name="n64")).error
    assert (error.type, error.code) == (0x31, 0x10)
    page = client.stub.ListNetworks(pb.ListNetworksRequest(session=client.session, page_size=60))
    token = page.next_page_token
    rest = client.stub.ListNetworks(
        pb.ListNetworksRequest(session=client.session, page_token=token)
    )
    names = [network.c_name for network in (*page.networks, *rest.networks)]
    assert names == sorted(f"n{number}" for number in range(64))
    assert not rest.next_page_token
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID"):
        request = pb.ListNetworksRequest(session=client.session, page_token="1.x")
        client.stub.ListNetworks(request)


@pytest.mark.parametrize("name", ["9lives", "a-b", "a" * 65, "ä"])
def test_c_names_are_c_identifiers(client: Client, name: str) -> None:
    """A C name is a C identifier."""
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", field="header.c_name"):
        client.create(dense(), c_name=name)


def test_errors_are_read_once(client: Client) -> None:
    """The first error stays until it is read; a sequence number gives the same answer again."""
    handle = client.create(dense()).network.name
    client.run(handle, [], [])
    assert not client.init(handle, size=4)
    assert client.error(handle, 5) == (0x11, 0x30)
    assert client.error(handle, 5) == (0x11, 0x30)
    assert client.error(handle, 6) == (0, 0)


def test_init_is_checked(client: Client) -> None:
    """Sizes of weights and activations, and the signature, are checked at init."""
    handle = client.create(dense()).network.name
    assert not client.init(handle, params=None)
    assert client.error(handle) == (0x30, 0x11)
    assert not client.init(handle, size=1)
    assert client.error(handle) == (0x30, 0x13)
    assert not client.init(handle, model_signature="f" * 32)
    assert client.error(handle) == (0x15, 0x10)
    report = client.info(handle)
    assert [(weight.name, weight.offset, weight.nbytes) for weight in report.weights] == [
        ("w", 0, WEIGHT.nbytes),
        ("b", WEIGHT.nbytes, BIAS.nbytes),
    ]
    assert client.init(handle, size=report.activations.channels)


def test_weights_sent_with_init(client: Client) -> None:
    """Weights sent with init replace the model's."""
    handle = client.create(dense()).network.name
    blob = np.concatenate([WEIGHT.reshape(-1), BIAS + 1]).tobytes()
    params = pb.NetworkParams(
        params=pb.Buffer(channels=len(blob), data=blob),
        activations=pb.Buffer(channels=1 << 16, data=b""),
    )
    assert client.init(handle, params=params)
    result = np.frombuffer(client.infer(handle, x=X).outputs[0].data, np.float32).reshape(2, 3)
    np.testing.assert_allclose(result, np.maximum(X @ WEIGHT + BIAS + 1, 0), rtol=0.01)


def test_shared_activations(client: Client) -> None:
    """Networks share activations by name; they count once in the quota."""
    name = client.create(dense(), c_name="one").network.name
    two = client.create(image(), c_name="two").network.name
    assert client.init(name, size=1 << 16, shared_activations="both")
    assert client.init(two, size=1, shared_activations="both")
    values = np.ones((1, 3, 4, 2), np.float32)
    report = client.info(two)
    result = client.run(two, [filled(report.inputs[0], values)], [room(report.outputs[0])])
    assert result.n_batches == 1
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED", field="max_bytes"):
        client.init(name, size=1 << 31, shared_activations="too large")


def test_places_in_activations(client: Client) -> None:
    """Inputs and outputs inside activations are written with a run and kept for the next."""
    options = pb.CreateOptions(allocate_inputs=True, allocate_outputs=True)
    handle = client.ready(two_ends(), options=options)
    report = client.info(handle)
    assert [buffer.activations_offset for buffer in (*report.inputs, *report.outputs)] == [
        0,
        24,
        48,
        72,
    ]
    a, b = np.full((1, 6), 2, np.float32), np.arange(6, dtype=np.float32).reshape(1, 6)
    inputs = [filled(buffer, value) for buffer, value in zip(report.inputs, (a, b), strict=True)]
    first = client.run(handle, inputs, [])
    assert floats(first.outputs[0]).tolist() == (a + b)[0].tolist()
    kept = [pb.Buffer.FromString(buffer.SerializeToString()) for buffer in report.inputs]
    for buffer in kept:
        buffer.ClearField("data")
    assert client.run(handle, kept, []).outputs == first.outputs


def test_infer_reports_calls_and_violations(client: Client) -> None:
    """An inference answers outputs in the model's terms, calls, NaN and range violations."""
    handle = client.ready(two_ends(), options=pb.CreateOptions(overflow=pb.OVERFLOW_NINF))
    big = np.full((1, 2, 3), 1e30, np.float32)
    answer = client.infer(handle, a=big, b=big)
    assert [output.name for output in answer.outputs] == ["total", "most"]
    assert answer.calls["add"] == answer.calls["max"] == 1
    assert answer.nans["total"] == 6
    assert {violation.function for violation in answer.violations} >= {"add", "max"}
    fine = client.infer(handle, a=np.ones((4, 2, 3), np.float32), b=np.ones((4, 2, 3), np.float32))
    assert fine.outputs[0].shape == [4, 2, 3]
    assert (len(fine.violations), fine.nans["total"]) == (0, 0)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, "input x is missing"),
        ({"x": X.astype(np.float64)}, "expected float32"),
        ({"x": X[:, :3]}, "expected"),
        ({"x": X, "z": X}, "'z'"),
    ],
)
def test_infer_refuses_inputs(client: Client, arrays: dict[str, Any], words: str) -> None:
    """A missing, unknown or misshapen input is FIELD_INVALID in one sentence."""
    handle = client.ready(dense())
    with pytest.raises(grpc.RpcError) as caught:
        client.infer(handle, **arrays)
    error = read_error(caught.value)
    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert words in str(caught.value)


def test_infer_before_init(client: Client) -> None:
    """An inference needs a network that is ready."""
    handle = client.create(dense()).network.name
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "NETWORK_NOT_READY"):
        client.infer(handle, x=X)


def test_a_failing_layer(client: Client) -> None:
    """A node that is created to fail makes run fail with INVALID_STATE / LAYER."""
    handle = client.ready(dense(), options=pb.CreateOptions(failing_node=2))
    report = client.info(handle)
    answer = client.run(handle, [filled(report.inputs[0], X)], [room(report.outputs[0], 2)])
    assert answer.n_batches == -1
    assert client.error(handle) == (0x11, 0x14)


def test_quantised_model(client: Client) -> None:
    """Scales of an int8 model are in the report."""
    report = client.info(client.ready(quantised()))
    assert (report.inputs[0].meta_info.scale, report.inputs[0].meta_info.zero_point) == (0.5, 3)
    assert report.inputs[0].format == 0x00840440


def test_observed_events_come_in_order(client: Client) -> None:
    """Events of a run come in order over the stream, with tensors, until it is cancelled."""
    handle = client.ready(dense())
    request = pb.ObserveNetworkRequest(
        session=client.session, network=handle, tensors=True, block=True
    )
    stream: Any = client.stub.ObserveNetwork(request)
    assert next(stream).registered.ok
    second = client.stub.ObserveNetwork(request)
    assert [event.registered.ok for event in second] == [False]
    assert client.error(handle) == (0x11, 0x40)
    report = client.info(handle)
    args = [filled(report.inputs[0], X[:1])], [room(report.outputs[0])]
    thread = threading.Thread(target=lambda: client.run(handle, *args))
    thread.start()
    events = [next(stream).event for _ in range(6)]
    thread.join()
    assert [(event.flags, event.node.c_idx) for event in events] == [
        (0x102, 0), (0x104, 0), (0x2, 1), (0x4, 1), (0x202, 2), (0x204, 2),
    ]  # fmt: skip
    assert [event.name for event in events[0].tensors] == ["x"]
    assert events[0].time_ns <= events[-1].time_ns
    assert {event.dropped for event in events} == {0}
    stream.cancel()


def test_an_unknown_network_cannot_be_observed(client: Client) -> None:
    """Observing an unknown network answers that it is not registered."""
    request = pb.ObserveNetworkRequest(session=client.session, network="networks/none")
    assert [event.registered.ok for event in client.stub.ObserveNetwork(request)] == [False]


def test_destroy_ends_observing(client: Client) -> None:
    """The stream of an observer ends when its network is destroyed."""
    handle = client.ready(dense())
    stream: Any = client.stub.ObserveNetwork(
        pb.ObserveNetworkRequest(session=client.session, network=handle)
    )
    assert next(stream).registered.ok
    client.destroy(handle)
    assert list(stream) == []


def test_nodes_end_with_out_of_range(client: Client) -> None:
    """Nodes are enumerated until c_idx is OUT_OF_RANGE."""
    handle = client.ready(dense())

    def ask(c_idx: int) -> pb.GetNodeInfoResponse:
        request = pb.GetNodeInfoRequest(session=client.session, network=handle, c_idx=c_idx)
        return client.stub.GetNodeInfo(request)

    assert [ask(c_idx).node.op_type for c_idx in range(3)] == ["MatMul", "Add", "Relu"]
    assert not ask(3).ok
    assert client.error(handle) == (0x14, 0x20)


def exported(client: Client, handle: str, without_contents: bool = False) -> bytes:
    """Read a network as a program."""
    request = pb.ExportProgramRequest(
        session=client.session, network=handle, without_contents=without_contents
    )
    header, *chunks = client.stub.ExportProgram(request)
    data = b"".join(chunk.chunk for chunk in chunks)
    assert header.total_bytes == len(data)
    return data


def test_program_without_contents(client: Client) -> None:
    """It has the steps for the asked or the network's shapes, and cannot be loaded."""
    options = pb.CreateOptions(shapes=[pb.InputShape(name="x", shape=[40, 4])])
    handle = client.ready(dense(), options=options)
    whole, bare = (
        program_pb2.Program.FromString(exported(client, handle, without_contents=without))
        for without in (False, True)
    )
    assert list(bare.inputs[0].shape) == [40, 4]
    assert any(constant.ztensor.sticks for constant in whole.constants.values())
    for constant in whole.constants.values():
        if constant.HasField("ztensor"):
            constant.ztensor.ClearField("sticks")
        else:
            constant.array.ClearField("data")
    assert bare == whole
    data = bare.SerializeToString()
    header = client.header(program_bytes=len(data), c_name="bare")
    chunk = pb.CreateNetworkRequest(chunk=data)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID"):
        client.stub.CreateNetwork(iter([header, chunk]))


@pytest.mark.parametrize("make", [dense, two_ends, image, quantised])
def test_program_round_trip(client: Client, make: Any) -> None:
    """A network made from an exported program gives the same bits, and exports the same bytes."""
    handle = client.ready(make())
    data = exported(client, handle)
    chunk = pb.CreateNetworkRequest(chunk=data)
    header = client.header(program_bytes=len(data), c_name="again")
    copy = client.stub.CreateNetwork(iter([header, chunk])).network.name
    assert client.init(copy)
    assert exported(client, copy) == data
    rng = np.random.default_rng(1)
    feeds = {
        port.name: (rng.random(list(port.shape)) * 100 - 50).astype(port.dtype)
        for port in program_pb2.Program.FromString(data).inputs
    }
    assert client.infer(handle, **feeds).outputs == client.infer(copy, **feeds).outputs
    assert client.info(copy).n_macc == client.info(handle).n_macc
