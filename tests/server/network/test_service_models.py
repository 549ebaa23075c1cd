# SPDX-License-Identifier: Apache-2.0
"""Models over a socket: measured, probed, published, placed, and shaped at create."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import grpc
import numpy as np
import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from nnpa.network.v1 import network_pb2 as pb
from nnpa.network.v1 import program_pb2 as pb2
from nnpa.zdnn.v1.accelerator_pb2 import (
    MachineModel,
    MachineSpec,
    Session,
    UpdateSessionRequest,
)
from nnpa_server.sessions.store import Counts
from onnx import ModelProto, helper

from tests.network.small_models import (
    dense,
    dense_reference,
    image,
    model,
)
from tests.server.conftest import CONFIG, Running
from tests.server.network.service_client import Client
from tests.server.network.test_service import exported
from tests.server.onnx_models import binary
from tests.server.wire import refused

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


def test_accuracy_on_both_machines(client: Client) -> None:
    """A network is measured beside FP32 on both machines, over given or made-up data."""
    handle = client.ready(dense())
    request = pb.MeasureAccuracyRequest(
        session=client.session, network=handle, made_up=3, html=True
    )
    answer = client.stub.MeasureAccuracy(request)
    measured = json.loads(answer.json)
    assert measured["samples"] == 3
    assert {run["machine"] for run in measured["runs"]} == {"telum1", "telum2"}
    assert all(0 < run["outputs"][0]["mae"] < 0.01 for run in measured["runs"])
    assert answer.html.startswith("<!DOCTYPE html>")
    assert "telum1" in answer.text
    array = pb.NamedArray(name="x", dtype="float32", shape=[1, 4], data=X[:1].tobytes())
    inputs = pb.MeasureAccuracyRequest(
        session=client.session,
        network=handle,
        samples=[pb.Sample(inputs=[array])],
        machines=["z16"],
    )
    runs = json.loads(client.stub.MeasureAccuracy(inputs).json)["runs"]
    assert {run["machine"] for run in runs} == {"telum1"}


def test_probe_of_sizes_and_machines(client: Client) -> None:
    """A model is probed at the sizes and on the machines that are named."""
    handle = client.ready(dense())
    request = pb.ProbeNetworkRequest(
        session=client.session, network=handle, sizes=[1, 65], machines=["telum2"]
    )
    rows = json.loads(client.stub.ProbeNetwork(request).json)
    assert {(row["machine"], row["sizes"]["N"]) for row in rows} == {("telum2", 1), ("telum2", 65)}
    assert not any(row["nans"] for row in rows if row["inputs"] == "zeros")


@pytest.mark.parametrize("machine", ["z15", "pdp11"])
def test_machines_that_cannot_be_measured(client: Client, machine: str) -> None:
    """A machine without NNPA, or none at all, is refused."""
    handle = client.ready(dense())
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", field="machines"):
        client.stub.ProbeNetwork(
            pb.ProbeNetworkRequest(session=client.session, network=handle, machines=[machine])
        )


def test_a_program_has_no_reference(client: Client) -> None:
    """A network that was made from a program cannot be measured, and says why."""
    data = exported(client, client.ready(dense()))
    header = client.header(program_bytes=len(data), c_name="again")
    chunk = pb.CreateNetworkRequest(chunk=data)
    handle = client.stub.CreateNetwork(iter([header, chunk])).network.name
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "NETWORK_NOT_READY"):
        client.stub.MeasureAccuracy(
            pb.MeasureAccuracyRequest(session=client.session, network=handle)
        )


def test_a_published_model_outlives_its_session(client: Client, running: Running) -> None:
    """All clients can run a published model; its name is taken once; it outlives its session."""
    repository = running.server.repository
    try:
        assert client.create(dense(), publish_as="shared").network.name
        with refused(grpc.StatusCode.ALREADY_EXISTS, "MODEL_EXISTS", model="shared"):
            client.create(image(), c_name="other", publish_as="shared")
        second = Client(running.channel)
        request = pb.ListNetworksRequest(session=second.session)
        assert list(second.stub.ListNetworks(request).published) == ["shared"]
        header = second.header(published="shared", c_name="mine")
        handle = second.stub.CreateNetwork(iter([header])).network.name
        assert second.init(handle)
        np.testing.assert_allclose(
            np.frombuffer(second.infer(handle, x=X).outputs[0].data, np.float32).reshape(2, 3),
            dense_reference(X),
            rtol=0.01,
        )
        second.close()
        assert repository.versions("shared") == ("1",)
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID"):
            client.create(dense(), c_name="third", publish_as="no/name")
    finally:
        repository.withdraw("shared")


def test_a_model_is_published_on_its_sessions_machine(client: Client, running: Running) -> None:
    """A model published from a session on a z16 runs on a z16, customised ones included."""
    repository = running.server.repository
    smaller = MachineSpec(model=MachineModel.MACHINE_MODEL_TELUM1, max_dim1=64)
    chosen = Session(name=client.session, machine_spec=smaller)
    mask = FieldMask(paths=["machine_spec"])
    client.accelerator.UpdateSession(UpdateSessionRequest(session=chosen, update_mask=mask))
    try:
        client.create(dense(), publish_as="shared")
        assert repository.find("shared").properties["machine"] == "telum1"
    finally:
        repository.withdraw("shared")


def test_of_two_that_publish_at_once_one_is_refused(client: Client, running: Running) -> None:
    """A name is given once, however many ask for it at the same time."""

    def publish(number: int) -> grpc.StatusCode:
        try:
            client.create(dense(), c_name=f"n{number}", publish_as="wanted")
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
        return grpc.StatusCode.OK

    try:
        with ThreadPoolExecutor(4) as pool:
            codes = sorted(pool.map(publish, range(4)), key=str)
        assert codes == [grpc.StatusCode.ALREADY_EXISTS] * 3 + [grpc.StatusCode.OK]
    finally:
        running.server.repository.withdraw("wanted")


def test_a_run_of_a_published_model_is_in_its_sessions_quota(
    client: Client, running: Running
) -> None:
    """The sticks of a run of a published model count in the caller's quota."""
    try:
        client.create(ModelProto.FromString(binary("Add", ("n", "m"))), publish_as="sum")
        second = Client(running.channel)
        header = second.header(published="sum", c_name="mine")
        handle = second.stub.CreateNetwork(iter([header])).network.name
        assert second.init(handle)
        few = np.ones((1, 64), np.float32)
        second.infer(handle, x=few, y=few)
        many = np.ones((4096, 1), np.float32)  # three tensors of 128 bytes a row
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED"):
            second.infer(handle, x=many, y=many)
        second.close()
    finally:
        running.server.repository.withdraw("sum")


def test_the_server_starts_without_onnx() -> None:
    """Nothing imports the packages of the extra `onnx` before the first network comes."""
    loaded = "{'onnx', 'onnxruntime'} & sys.modules.keys()"
    code = f"import sys, nnpa_server.app; sys.exit(bool({loaded}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_free_dims_without_a_size(client: Client) -> None:
    """A network that fits no size of free dims that is tried is compiled when sizes come."""
    node = helper.make_node("Split", ["x", "sizes"], ["a", "b"], "cut", axis=1)
    outputs: list[Any] = [("a", np.float32, ["N", 5]), ("b", np.float32, ["N", 7])]
    cut = model([node], [("x", np.float32, ["N", "M"])], outputs, {"sizes": np.array([5, 7])})
    handle = client.ready(cut, c_name="open")
    x = np.arange(24, dtype=np.float32).reshape(2, 12)
    left, right = (output.data for output in client.infer(handle, x=x).outputs)
    assert (left, right) == (x[:, :5].tobytes(), x[:, 5:].tobytes())
    options = pb.CreateOptions(shapes=[pb.InputShape(name="x", shape=[1, 12])])
    assert client.info(client.ready(cut, c_name="sized", options=options)).inputs[0].channels == 12


def test_free_dims_that_cannot_be_one(client: Client) -> None:
    """A network that halves a free dim and doubles it again has 32 of it, and one row."""
    halved = helper.make_node("Slice", ["x", "begin", "end", "axis", "step"], ["half"], "halve")
    twice = helper.make_node("Concat", ["half", "half"], ["whole"], "twice", axis=1)
    both = helper.make_node("Concat", ["x", "whole"], ["y"], "both", axis=0)
    constants = {"begin": [0], "end": [2**31], "axis": [1], "step": [2]}
    even = model(
        [halved, twice, both],
        [("x", np.float32, ["N", "L"])],
        [("y", np.float32, ["M", "L"])],
        {name: np.array(numbers) for name, numbers in constants.items()},
    )
    handle = client.ready(even)
    assert client.info(handle).inputs[0].channels == 32
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (output,) = client.infer(handle, x=x).outputs
    expected = np.concatenate([x, x[:, [0, 2, 0, 2]]])
    assert np.frombuffer(output.data, np.float32).tolist() == expected.reshape(-1).tolist()


@pytest.mark.parametrize("kernel", [33, 65])
@pytest.mark.parametrize("stride", [1, 11])
def test_a_window_over_a_free_length(client: Client, kernel: int, stride: int) -> None:
    """A Conv over a free length is hosted though its kernel is wider than the guessed lengths."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], "wide", strides=[stride])
    ends = [("x", np.float32, (1, 1, "L"))], [("y", np.float32, (1, 1, "M"))]
    handle = client.ready(model([node], *ends, {"w": np.ones((1, 1, kernel), np.float32)}))
    x = np.ones((1, 1, kernel + stride), np.float32)
    (output,) = client.infer(handle, x=x).outputs
    assert np.frombuffer(output.data, np.float32).tolist() == [kernel, kernel]


def test_static_dims_of_zero(client: Client) -> None:
    """An input without elements is an input; Concat with it leaves the other values as they are."""
    node = helper.make_node("Concat", ["none", "x"], ["y"], "join", axis=0)
    inputs: list[Any] = [("none", np.float32, [0, 4]), ("x", np.float32, [2, 4])]
    handle = client.ready(model([node], inputs, [("y", np.float32, [2, 4])]))
    feeds = {"none": np.zeros((0, 4), np.float32), "x": np.ones((2, 4), np.float32)}
    (output,) = client.infer(handle, **feeds).outputs
    assert (list(output.shape), output.data) == ([2, 4], feeds["x"].tobytes())


def test_strict_placement(client: Client) -> None:
    """A strict model with a node that only the host runs is refused by that node's name."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "wide")
    weight = {"w": np.ones((3, 2))}
    wide = model([node], [("x", np.float64, ["N", 3])], [("y", np.float64, ["N", 2])], weight)
    assert client.create(wide).network.name
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "MODEL_INVALID", node="wide"):
        client.create(wide, c_name="strict", options=pb.CreateOptions(strict_placement=True))


@pytest.mark.parametrize(
    ("placement", "device", "stands_for"),
    [
        (pb2.PLACEMENT_UNSPECIFIED, "host", pb2.PLACEMENT_COMPILER),
        (pb2.PLACEMENT_COMPILER, "host", pb2.PLACEMENT_COMPILER),
        (pb2.PLACEMENT_ALL, "accelerator", pb2.PLACEMENT_ALL),
    ],
)
def test_placement(client: Client, placement: Any, device: str, stands_for: int) -> None:
    """The report names the placement of a network, also for an exported program."""
    node = helper.make_node("HardSwish", ["x"], ["y"], "swish")
    ends = [("x", np.float32, [2, 4])], [("y", np.float32, [2, 4])]
    handle = client.ready(model([node], *ends), options=pb.CreateOptions(placement=placement))
    report = client.info(handle)
    assert (report.nodes[0].device, report.placement) == (device, stands_for)
    request = pb.ExportProgramRequest(session=client.session, network=handle)
    _, *chunks = client.stub.ExportProgram(request)
    program = pb2.Program.FromString(b"".join(answer.chunk for answer in chunks))
    assert program.placement == stands_for


def test_a_placement_that_is_none(client: Client) -> None:
    """A number that is no placement is refused with its field."""
    node = helper.make_node("HardSwish", ["x"], ["y"], "swish")
    swish = model([node], [("x", np.float32, [2, 4])], [("y", np.float32, [2, 4])])
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", field="options.placement"):
        client.create(swish, options=pb.CreateOptions(placement=cast(Any, 9)))


def test_free_dims_take_shapes(client: Client) -> None:
    """Shapes of free dims are chosen at create for create, init, run; infer takes any."""
    node = helper.make_node("Relu", ["x"], ["y"], "act")
    free = model([node], [("x", np.float32, ["N", "L"])], [("y", np.float32, ["N", "L"])])
    shapes = [pb.InputShape(name="x", shape=[1, 9])]
    handle = client.ready(free, options=pb.CreateOptions(shapes=shapes))
    assert client.info(handle).inputs[0].channels == 9
    assert client.infer(handle, x=np.ones((3, 130), np.float32)).outputs[0].shape == [3, 130]
