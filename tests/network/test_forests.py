# SPDX-License-Identifier: Apache-2.0
"""Models that are deep or large end no process: trees, and changes of shape behind each other."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.onnx_import import ImportOptions, import_onnx
from nnpa_network.importing.onnx_plan import OnnxPlan
from nnpa_network.program import HostStep, ModelRefused
from nnpa_network.running import host
from nnpa_network.trees import MAX_DEPTH, fault_of_trees, tree_nodes
from nnpa_server.network import Pools, make_pools
from nnpa_server.network.worker_plan import WorkerPlan
from nnpa_server.network.workers import make_workers
from nnpa_server.sandbox import confinement
from onnx import ModelProto, NodeProto, TensorProto, helper

from tests.network import small_models

GUEST = find_machine("telum2")
ROW = np.array([[0.5, 2.5, 7.5]], np.float32)


def by_id(depth: int, trees: int = 1, *, knot: bool = False) -> NodeProto:
    """Return trees that are chains: the node i goes on to i + 1, or to a leaf.

    A `knot` leads from the last inner node to the first.
    """
    inner, count = np.arange(depth), 2 * depth + 1
    leaf = np.ones(count, bool)
    leaf[:depth] = False
    deeper = np.where(inner == depth - 1, 0 if knot else depth, inner + 1)
    flat = np.zeros(count, np.int64)
    true, false = flat.copy(), flat.copy()
    true[:depth], false[:depth] = deeper, depth + 1 + inner
    values = np.where(leaf, 0, np.arange(count) % 9).astype(np.float32)
    numbers, leaves = np.tile(np.arange(count), trees), np.tile(np.flatnonzero(leaf), trees)
    return helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], name="forest", domain="ai.onnx.ml", n_targets=1,
        nodes_nodeids=numbers.tolist(), nodes_treeids=np.repeat(np.arange(trees), count).tolist(),
        nodes_featureids=(numbers % 3).tolist(), nodes_values=np.tile(values, trees).tolist(),
        nodes_modes=["LEAF" if each else "BRANCH_LEQ" for each in np.tile(leaf, trees)],
        nodes_truenodeids=np.tile(true, trees).tolist(),
        nodes_falsenodeids=np.tile(false, trees).tolist(),
        target_nodeids=leaves.tolist(), target_ids=[0] * len(leaves),
        target_treeids=np.repeat(np.arange(trees), depth + 1).tolist(),
        target_weights=(leaves % 7 + 0.5).tolist(),
    )  # fmt: skip


def by_index(depth: int) -> NodeProto:
    """Return one tree as `by_id` does, in the operator of ai.onnx.ml 5."""
    inner = np.arange(depth)
    modes = helper.make_tensor("modes", TensorProto.UINT8, [depth], [0] * depth)
    splits = helper.make_tensor("splits", TensorProto.FLOAT, [depth], (inner % 9).tolist())
    weights = helper.make_tensor("w", TensorProto.FLOAT, [depth + 1], [1.5] * (depth + 1))
    return helper.make_node(
        "TreeEnsemble", ["x"], ["y"], name="forest", domain="ai.onnx.ml", n_targets=1,
        tree_roots=[0], nodes_featureids=(inner % 3).tolist(), nodes_modes=modes,
        nodes_splits=splits,
        nodes_truenodeids=[*range(1, depth), depth], nodes_trueleafs=[*[0] * (depth - 1), 1],
        nodes_falsenodeids=inner.tolist(), nodes_falseleafs=[1] * depth,
        leaf_targetids=[0] * (depth + 1), leaf_weights=weights,
    )  # fmt: skip


def forest(node: NodeProto, version: int = 3) -> bytes:
    """Return a model of one forest."""
    data = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
    scores = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])
    graph = helper.make_graph([node], "forest", [data], [scores])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return model


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools]:
    """Workers of the module."""
    workers = make_pools("auto") if confinement.is_linux() else None
    if workers is None:
        pytest.skip("workers are Linux processes")
    yield workers
    workers.close()


DEEP = {
    "by id": forest(by_id(30_000)),
    "many trees": forest(by_id(MAX_DEPTH, 3)),
    "by index": forest(by_index(30_000), 5),
    "knot": forest(by_id(50, knot=True)),
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_forests_are_refused_by_their_node(name: str, pools: Pools) -> None:
    """A tree whose depth ends ONNX Runtime's process, or in a circle, is refused by its name."""
    with pytest.raises(ModelRefused) as refused:
        WorkerPlan(DEEP[name], Guest(GUEST), ImportOptions(), make_workers(pools)).executor({})
    assert refused.value.node == "forest"
    reason = "goes in a circle" if name == "knot" else f"more than {MAX_DEPTH} nodes deep"
    assert reason in refused.value.reason


@pytest.mark.parametrize(
    "model",
    [forest(by_id(MAX_DEPTH - 1)), forest(by_id(40, 30)), forest(by_index(MAX_DEPTH - 1), 5)],
    ids=["deepest", "many trees", "by index"],
)
def test_forests_run_as_in_onnx_runtime(model: bytes, pools: Pools) -> None:
    """A forest of the greatest depth has the scores of ONNX Runtime, here and in a worker."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": ROW})
    remote = WorkerPlan(model, Guest(GUEST), ImportOptions(), make_workers(pools))
    for plan in (OnnxPlan(model, Guest(GUEST)), remote):
        got = plan.executor({"x": ROW.shape}).run({"x": ROW}).outputs["y"]
        assert got.tobytes() == np.asarray(expected).tobytes()


def test_branches_that_meet_again_are_no_circle() -> None:
    """Nodes with the same child, as converters write tests of membership, count once."""
    node = by_id(40)
    (true,) = (part for part in node.attribute if part.name == "nodes_truenodeids")
    true.ints[0] = 39
    assert not fault_of_trees(node)


def test_a_large_forest_is_refused_before_it_takes_memory() -> None:
    """The refusal names the node, how many nodes its trees have, and the limit."""
    model = forest(by_id(100, 30))
    count, most = 30 * 201, 1 << 20
    assert tree_nodes(ModelProto.FromString(model).graph.node[0]) == count
    with pytest.raises(ModelRefused) as refused:
        import_onnx(model, Guest(GUEST), ImportOptions(max_bytes=most))
    assert refused.value.node == "forest"
    assert f"have {count} nodes" in refused.value.reason
    assert f"at most {most}" in refused.value.reason


def test_lists_of_different_lengths_are_refused() -> None:
    """A forest whose lists do not fit is refused, whatever is missing."""
    for part in by_id(3).attribute:
        node = by_id(3)
        (kept,) = (field for field in node.attribute if field.name == part.name)
        if kept.ints or kept.strings:
            del kept.ints[:1], kept.strings[:1]
            assert fault_of_trees(node) == "" or part.name == "nodes_truenodeids"
            with pytest.raises(ModelRefused):
                OnnxPlan(forest(node), Guest(GUEST)).executor({})


def test_a_deep_tree_of_a_program_is_refused() -> None:
    """A program that was compiled elsewhere is held to the same depth."""
    step = HostStep(0, by_id(30_000).SerializeToString(), (1,), (2,), 3)
    with pytest.raises(host.HostError, match="nodes deep"):
        host.prepare(step.onnx, step.opset, (np.dtype(np.float32),))


CHANGES: dict[str, dict[str, Any]] = {
    "Transpose": {"perm": [1, 0]},
    "Flatten": {},
    "Identity": {},
    "Reshape": {},
    "Unsqueeze": {},
}


@pytest.mark.heavy
@pytest.mark.parametrize("op_type", CHANGES)
def test_changes_of_shape_may_follow_each_other(op_type: str) -> None:
    """A thousand nodes that move nothing, one behind the other, are hosted."""
    count, nodes = 1000, [helper.make_node("Relu", ["x"], ["v0"])]
    more = {"Reshape": ["shape"], "Unsqueeze": ["axis"]}.get(op_type, [])
    for at in range(count):
        kind = "Squeeze" if op_type == "Unsqueeze" and at % 2 else op_type
        inputs, output = [f"v{at}", *more], f"v{at + 1}"
        nodes.append(helper.make_node(kind, inputs, [output], **CHANGES[op_type]))
    nodes.append(helper.make_node("Sin", [f"v{count}"], ["y"]))
    constants = {"shape": np.array([4, 4]), "axis": np.array([0])}
    used = {name: array for name, array in constants.items() if name in more}
    ends = ("x", np.float32, (4, 4)), ("y", np.float32, (4, 4))
    model = small_models.model(nodes, [ends[0]], [ends[1]], used)
    feed = np.arange(16, dtype=np.float32).reshape(4, 4) / 16
    result = OnnxPlan(model.SerializeToString(), Guest(GUEST)).executor({}).run({"x": feed})
    np.testing.assert_allclose(result.outputs["y"], np.sin(feed), rtol=0.01)
