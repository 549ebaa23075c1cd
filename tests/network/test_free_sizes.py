# SPDX-License-Identifier: Apache-2.0
"""Detectors of free height and width: hosted, and compiled for the sizes of each inference."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from nnpa.network.v1 import network_pb2 as pb
from nnpa_client import connect
from nnpa_client.errors import TransportError
from nnpa_tools.cli import main
from onnx import numpy_helper

from tests.network.hosting import Array, load, normal, reference, text_model
from tests.server.conftest import CONFIG, Running
from tests.server.network.service_client import Client
from tests.server.wire import refused

DETECTOR = """detector (float[1,3,H,W] images) => (float[1,P,12] boxes) <
        float[4] doubled = {1, 1, 2, 2}, int64[2] halves = {16, 16}, int64[3] flat = {0, 12, -1},
        int64[1] zero = {0}, int64[1] one = {1}, int64[1] channels = {12},
        int64[3] parts = {2, 2, 8}
    > {
        c1 = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (images, w1)
        s1 = Sigmoid (c1)
        a1 = Mul (c1, s1)
        c2 = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (a1, w2)
        fine = Relu (c2)
        pooled = MaxPool <kernel_shape = [5, 5], pads = [2, 2, 2, 2]> (fine)
        coarse = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (pooled)
        back = Resize <mode = "nearest", nearest_mode = "floor",
            coordinate_transformation_mode = "asymmetric"> (coarse, , doubled)
        both = Concat <axis = 1> (back, fine)
        left, right = Split <axis = 1> (both, halves)
        head = Conv (left, w3)
        sizes = Shape (head)
        two = Constant <value_int = 2> ()
        three = Constant <value_int = 3> ()
        height = Gather (sizes, two)
        width = Gather (sizes, three)
        pixels = Mul (height, width)
        count = Unsqueeze (pixels, zero)
        batch = Slice (sizes, zero, one)
        shape = Concat <axis = 0> (batch, channels, count)
        first = Reshape (head, shape)
        tail = Conv (right, w3)
        second = Reshape (tail, flat)
        rows = Concat <axis = 2> (first, second)
        turned = Transpose <perm = [0, 2, 1]> (rows)
        xy, wh, classes = Split <axis = 2> (turned, parts)
        centre = Sigmoid (xy)
        score = Sigmoid (classes)
        boxes = Concat <axis = 2> (centre, wh, score)
    }"""


def detector(*, anchors: int = 0) -> bytes:
    """Return a detector of free sizes, or one whose anchors fit images of 64 x 96 alone."""
    proto = onnx.ModelProto.FromString(text_model(DETECTOR, opset=17))
    weights = {"w1": (8, 3, 3, 3), "w2": (16, 8, 3, 3), "w3": (12, 16, 1, 1)}
    for seed, (name, shape) in enumerate(weights.items()):
        tensor = numpy_helper.from_array(normal(*shape, seed=seed) / 8, name)
        proto.graph.initializer.append(tensor)
    if anchors:
        tensor = numpy_helper.from_array(normal(1, anchors, 2), "anchors")
        proto.graph.initializer.append(tensor)
        at = next(at for at, node in enumerate(proto.graph.node) if "centre" in node.output)
        proto.graph.node[at].output[0] = "offset"
        proto.graph.node.append(onnx.helper.make_node("Add", ["offset", "anchors"], ["centre"]))
    return bytes(proto.SerializeToString())


ANCHORED = detector(anchors=2 * 16 * 24)


def images(height: int, width: int) -> Array:
    """Return an image."""
    return normal(1, 3, height, width, seed=9)


def close(got: Array, model: bytes, data: Array) -> None:
    """Assert that a result agrees with ONNX Runtime's, within the tolerances."""
    (expected,) = reference(model, {"images": data})
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0.05, atol=0.02)


@pytest.fixture(scope="module", params=["off", "auto"])
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A server with the sandbox, and one without."""
    limits = replace(CONFIG.limits, max_session_bytes=64 << 20)
    server = Running(replace(CONFIG, sandbox=request.param, limits=limits))
    yield server
    server.stop()


@pytest.fixture
def client(running: Running) -> Iterator[Client]:
    """A session of its own."""
    connected = Client(running.channel)
    yield connected
    connected.close()


def _ready(client: Client, model: bytes) -> str:
    """Return a network with enough activations for images of 32 x 32."""
    handle = client.create(onnx.ModelProto.FromString(model)).network.name
    assert client.init(handle, 1 << 20)
    return handle


def _infer(client: Client, handle: str, data: Array) -> Array:
    (output,) = client.infer(handle, images=data).outputs
    return np.frombuffer(output.data, np.float32).reshape(list(output.shape))


@pytest.mark.parametrize("size", [(32, 32), (64, 96), (8, 40)])
def test_a_detector_of_any_size(size: tuple[int, int], client: Client) -> None:
    """Sizes that a model computes from an image's sizes follow each request."""
    model, data = detector(), images(*size)
    close(load(model).run({"images": data}).outputs["boxes"], model, data)
    handle = _ready(client, model)
    close(_infer(client, handle, data), model, data)


def test_sizes_that_no_guess_fits(client: Client) -> None:
    """A session hosts a model whose sizes no guess fits, and compiles it when they come."""
    handle = _ready(client, ANCHORED)
    assert client.info(handle).n_nodes == 0
    data = images(64, 96)
    close(_infer(client, handle, data), ANCHORED, data)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "MODEL_INVALID"):
        client.infer(handle, images=images(32, 32))
    close(_infer(client, handle, data), ANCHORED, data)


def test_what_needs_a_size_says_so(client: Client) -> None:
    """Buffers, programs and random samples need sizes, and name the option that sets them."""
    handle = _ready(client, ANCHORED)
    text = "free dims of images were taken as 1, 32, 256: options.shapes, --shape"
    assert client.run(handle, [], []).n_batches == -1
    request = pb.GetNetworkErrorRequest(session=client.session, network=handle)
    assert text in client.stub.GetNetworkError(request).error.text
    export = pb.ExportProgramRequest(session=client.session, network=handle)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "MODEL_INVALID"):
        list(client.stub.ExportProgram(export))
    export.shapes.add(name="images", shape=[1, 3, 64, 96])
    assert list(client.stub.ExportProgram(export))
    measure = pb.MeasureAccuracyRequest(session=client.session, network=handle, made_up=1)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "MODEL_INVALID"):
        client.stub.MeasureAccuracy(measure)
    sample = measure.samples.add()
    data = images(64, 96)
    sample.inputs.add(name="images", dtype="float32", shape=data.shape, data=data.tobytes())
    assert client.stub.MeasureAccuracy(measure).json


@pytest.mark.heavy
def test_the_client_loads_it() -> None:
    """`load` takes a detector with sizes and without; a call uses the sizes of its arrays."""
    data = images(64, 96)
    with connect() as session, session.load(ANCHORED) as net:
        close(net(data), ANCHORED, data)
        with pytest.raises(TransportError, match="--shape"):
            net.export_program()
        assert net.export_program({"images": data.shape})


@pytest.mark.heavy
@pytest.mark.parametrize("command", ["analyze", "generate"])
def test_commands_name_the_option(command: str, tmp_path: Path) -> None:
    """Commands that tell of one program ask for the sizes, and take them."""
    (tmp_path / "m.onnx").write_bytes(ANCHORED)
    words = ["network", command, str(tmp_path / "m.onnx")]
    words += ["--output", str(tmp_path / "out")] if command == "generate" else []
    without = CliRunner().invoke(main, words)
    assert without.exit_code != 0
    assert "--shape" in without.output
    sized = CliRunner().invoke(main, [*words, "--shape", "images=1,3,64,96"])
    assert sized.exit_code == 0, sized.output
