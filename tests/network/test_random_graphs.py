# SPDX-License-Identifier: Apache-2.0
"""Random graphs beside ONNX Runtime: equal where it runs them, else refused by a node's name.

NNPA_RANDOM_GRAPHS is how many graphs (60), NNPA_RANDOM_GRAPHS_SEED the first one's number. Each
node is compared on its own, over the operands that the hosted graph has: bit for bit on the host,
within the error of DLFLOAT16 on the accelerator.
"""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import grpc
import numpy as np
import onnx
import onnxruntime
import pytest
from nnpa.network.v1 import network_pb2 as pb
from nnpa_network.program import ModelRefused, Node
from nnpa_network.running.results import StepFailed
from nnpa_server.config import Limits
from onnx import NodeProto, numpy_helper
from packaging.version import Version

from tests.network.hosting import Array, load
from tests.network.random_graphs import REJECTIONS, RandomGraph, random_graph, run_model, run_one
from tests.network.random_sketch import DRAWS
from tests.server.conftest import CONFIG, Running
from tests.server.network.service_client import Client
from tests.server.wire import read_error

pytestmark = pytest.mark.skipif(
    Version(onnxruntime.__version__).release[:2] <= (1, 21),
    reason="ONNX Runtime 1.21 ends its process on some of these graphs",
)
COUNT = int(os.environ.get("NNPA_RANDOM_GRAPHS", "60"))
SEED = int(os.environ.get("NNPA_RANDOM_GRAPHS_SEED", "1"))
BATCH = 20
Machine: TypeAlias = tuple[str, str]
MACHINES: tuple[Machine, ...] = (
    ("telum2", "all"),
    ("telum1", "compiler"),
    ("telum2", "compiler"),
    ("telum1", "all"),
)
RELATIVE, ABSOLUTE = 0.02, 0.008
"""Errors of one node on the accelerator, over the product of its operands' largest elements."""
LARGEST = 1e4
"""Beyond this the error of operands, which DLFLOAT16 rounds, is no longer that of a node."""
OWN = ("Conv", "HardSigmoid", "HardSwish")
"""What operators of our own compute in FP32 on the host, in another order than ONNX Runtime."""


def hosted(
    graph: RandomGraph, *, all_values: bool, machine: Machine | None = None
) -> tuple[Mapping[str, Array], list[Node]] | str:
    """Run a graph, by default on a machine by its number.

    Return values and nodes, or why it is refused.
    """
    name, placement = machine or MACHINES[graph.number % len(MACHINES)]
    proto = graph.telling_all() if all_values else graph.proto
    try:
        model = load(proto.SerializeToString(), name, placement=placement)
        result = model.run(graph.feeds)
    except (ModelRefused, StepFailed) as refused:
        return str(refused)
    shapes = {name: array.shape for name, array in graph.feeds.items()}
    return result.outputs, list(model.specialise(shapes).nodes)


def compare(graph: RandomGraph) -> Counter[str]:
    """Compare a graph and each of its nodes; return the comparisons by operator."""
    try:
        expected = run_model(graph.data, graph.feeds)
    except REJECTIONS:
        for all_values in (False, True):
            refusal = hosted(graph, all_values=all_values)
            assert isinstance(refusal, str), "ONNX Runtime refuses it"
            assert any(node.name in refusal for node in graph.proto.graph.node), refusal
        return Counter(["refused"])
    alone, reported = (hosted(graph, all_values=all_values) for all_values in (False, True))
    assert not isinstance(alone, str), alone
    assert not isinstance(reported, str), reported
    for info, array in zip(graph.proto.graph.output, expected, strict=True):
        got = alone[0][info.name]
        assert (got.dtype, got.shape) == (array.dtype, array.shape), info.name
    return _compare_nodes(graph, *reported)


def _compare_nodes(
    graph: RandomGraph, outputs: Mapping[str, Array], nodes: list[Node]
) -> Counter[str]:
    compared: Counter[str] = Counter()
    weights = graph.proto.graph.initializer
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in weights}
    values |= {**graph.feeds, **outputs}
    for proto, node in zip(graph.proto.graph.node, nodes, strict=True):
        operands = {name: values[name] for name in proto.input if name}
        names = [name for name in proto.output if name]
        results = run_one(graph.opset, proto, operands)
        for name, expected in zip(names, results, strict=True):
            got = outputs[name]
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
            compared[f"{proto.op_type} {node.device}"] += _compare(
                proto, node, (got, expected), list(operands.values())
            )
    return compared


def _compare(
    proto: NodeProto, node: Node, pair: tuple[Array, Array], operands: list[Array]
) -> bool:
    """Assert that an output is as expected; return whether its elements were compared."""
    got, expected = pair
    if node.device != "accelerator" and proto.op_type not in OWN:
        np.testing.assert_array_equal(got, expected, proto.name)
        return True
    if proto.op_type in ("ArgMax", "ArgMin"):
        return True  # whose positions tie where DLFLOAT16 has one number for two
    floats = [array.astype(np.float64) for array in operands if array.dtype.kind == "f"]
    largest = [float(np.max(np.abs(array), initial=1)) for array in (*floats, expected)]
    if not np.isfinite(largest).all() or max(largest) > LARGEST:
        return False
    scale = float(np.prod(largest[:-1])) if node.device == "accelerator" else 1e-3
    if proto.op_type == "LayerNormalization":  # which enlarges what differs in a row, and its error
        scale *= 8
    error = np.abs(got.astype(np.float64) - expected)
    limit = RELATIVE * np.abs(expected.astype(np.float64)) + ABSOLUTE * scale
    assert np.all(error <= limit), f"{proto.name}: {float(np.max(error - limit))} above the limit"
    return True


def report(graph: RandomGraph, error: AssertionError) -> str:
    """Return a graph that differs as text, with its number."""
    text = onnx.printer.to_text(graph.proto)
    return f"graph {graph.number}, {MACHINES[graph.number % len(MACHINES)]}: {error}\n{text}"


@pytest.mark.parametrize("first", range(SEED, SEED + COUNT, BATCH))
def test_random_graphs(first: int) -> None:
    """Random graphs agree with ONNX Runtime node by node; a node that it refuses fails by name."""
    compared: Counter[str] = Counter()
    for number in range(first, min(first + BATCH, SEED + COUNT)):
        graph = random_graph(number)
        try:
            compared += compare(graph)
        except AssertionError as error:
            pytest.fail(report(graph, error))
    assert sum(compared.values()) > BATCH or COUNT < BATCH
    print(first, dict(compared))


SERVED = max(10, COUNT // 3) if COUNT < 1000 else COUNT
ROOM = Limits(max_sessions=12, max_session_bytes=1 << 30, max_session_tensors=50)
REFUSED = ("MODEL_INVALID", "NETWORK_FAILED", "FIELD_INVALID")


@pytest.mark.heavy
@pytest.mark.parametrize("sandbox", ["off", "auto"])
def test_a_server_answers_alike(sandbox: str) -> None:
    """In the sandbox and without, a graph is answered as here, or refused; no worker breaks."""
    running, answered = Running(replace(CONFIG, sandbox=sandbox, limits=ROOM)), 0
    client = Client(running.channel)
    for number in range(SEED, SEED + SERVED):
        graph = random_graph(number)
        alone = hosted(graph, all_values=False, machine=("telum2", "compiler"))
        outputs = _answer(client, graph)
        title = f"graph {number}: {alone}, {outputs}"
        if isinstance(outputs, grpc.RpcError):
            assert isinstance(alone, str), title
            assert read_error(outputs).reason in REFUSED, title
            assert "worker" not in str(outputs), title
            continue
        assert not isinstance(alone, str), title
        for name, array in alone[0].items():
            assert outputs[name] == array.tobytes(), f"{title}, {name}"
        answered += 1
    client.close()
    running.stop()
    assert answered > SERVED // 2


def _answer(client: Client, graph: RandomGraph) -> dict[str, bytes] | grpc.RpcError:
    """Return the outputs of a graph as a server has them, or its error."""
    shapes = [pb.InputShape(name=name, shape=feed.shape) for name, feed in graph.feeds.items()]
    try:
        created = client.create(graph.proto, options=pb.CreateOptions(shapes=shapes))
    except grpc.RpcError as error:
        return error
    assert not created.HasField("error"), created.error
    handle = created.network.name
    try:
        assert client.init(handle, size=client.info(handle).activations.channels)
        outputs = client.infer(handle, **graph.feeds).outputs
    except grpc.RpcError as error:
        return error
    finally:
        client.destroy(handle)
    return {output.name: output.data for output in outputs}


@pytest.mark.heavy
@pytest.mark.parametrize("op_type", sorted(DRAWS))
def test_each_operator(op_type: str) -> None:
    """Graphs of one operator alone: every operator is compared at least once."""
    compared: Counter[str] = Counter()
    for number in range(max(4, COUNT // len(DRAWS))):
        graph = random_graph(1_000_000 + number, [op_type])
        try:
            compared += compare(graph)
        except AssertionError as error:
            pytest.fail(report(graph, error))
    del compared["refused"]
    assert compared
