# SPDX-License-Identifier: Apache-2.0
"""Models that ONNX Runtime loads and ONNX's checker does not, as other tools write them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.onnx_import import ImportOptions
from nnpa_network.program import ModelRefused
from nnpa_network.running.results import StepFailed
from nnpa_server.network import make_pools
from nnpa_server.network.worker_plan import WorkerPlan
from nnpa_server.network.workers import Workers, make_workers
from nnpa_server.sandbox import confinement
from onnx import TensorProto, helper, numpy_helper

from tests.network import real_models, small_models
from tests.network.hosting import Array, load, nodes, normal, reference, text_model

FLOAT = TensorProto.FLOAT
WEIGHT = normal(4, 4, seed=3)
X = normal(2, 4)
make, info = helper.make_node, helper.make_tensor_value_info


def _model(*parts: onnx.NodeProto, **changes: Any) -> bytes:
    """Return a model from x (N, 4) to y (N, 4) with the weight w."""
    graph = helper.make_graph(
        list(parts),
        "others",
        [info("x", FLOAT, ["N", 4]), *changes.get("inputs", [])],
        changes.get("outputs", [info("y", FLOAT, ["N", 4])]),
        [numpy_helper.from_array(WEIGHT, "w"), *changes.get("initializers", [])],
    )
    imports = [helper.make_opsetid("", changes.get("opset", 17))]
    imports += [
        helper.make_opsetid(domain, version) for domain, version in changes.get("domains", ())
    ]
    model = helper.make_model(graph, opset_imports=imports, ir_version=changes.get("ir", 9))
    return bytes(model.SerializeToString())


def _untyped(name: str) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name)


def _fused() -> onnx.NodeProto:
    return make("FusedMatMul", ["x", "w"], ["m"], "fused", domain="com.microsoft", alpha=2.0)


def _scaler() -> onnx.NodeProto:
    offset, scale = [0.0, 0.5, 1.0, 0.0], [1.0, 2.0, 0.5, 1.0]
    return make("Scaler", ["x"], ["m"], "scaler", domain="ai.onnx.ml", offset=offset, scale=scale)


RELU = make("Relu", ["m"], ["y"], "act")
MICROSOFT = {"domains": [("com.microsoft", 1)]}
ACCEPTED: dict[str, bytes] = {
    "a node of ONNX Runtime": _model(_fused(), RELU, **MICROSOFT),
    "its output without a type": _model(_fused(), RELU, outputs=[_untyped("y")], **MICROSOFT),
    "its domain not imported": _model(_fused(), RELU),
    "its operator among ONNX's": _model(
        make("SimplifiedLayerNormalization", ["x", "s"], ["m"], "norm", axis=-1),
        RELU,
        initializers=[numpy_helper.from_array(WEIGHT[0], "s")],
    ),
    "classical before a network": _model(_scaler(), RELU, domains=[("ai.onnx.ml", 3)]),
    "nodes out of order": _model(RELU, make("MatMul", ["x", "w"], ["m"], "product")),
    "an output without a type": _model(
        make("MatMul", ["x", "w"], ["m"], "product"), RELU, outputs=[_untyped("y")]
    ),
}


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """Workers of a server."""
    pools = make_pools("auto")
    assert pools is not None
    yield make_workers(pools)
    pools.close()


@pytest.mark.parametrize("kind", ACCEPTED)
def test_what_runtime_loads_is_hosted(kind: str) -> None:
    """A model that ONNX Runtime loads is hosted, and what follows a foreign node is placed."""
    model, feeds = load(ACCEPTED[kind]), {"x": X}
    _assert_agreement(model.run(feeds).outputs, ACCEPTED[kind], feeds)
    assert model.outputs[0].shape == (-1, 4)
    assert next(node.device for node in nodes(model, feeds) if node.name == "act") == "accelerator"


def _assert_agreement(
    outputs: Mapping[str, Array], model: bytes, feeds: Mapping[str, Array], atol: float = 0.02
) -> None:
    for got, expected in zip(outputs.values(), reference(model, feeds), strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(got, expected, rtol=0.05, atol=atol)


@pytest.mark.skipif(not confinement.is_linux(), reason="workers are Linux processes")
@pytest.mark.parametrize("kind", ACCEPTED)
def test_workers_host_the_same(kind: str, workers: Workers) -> None:
    """A confined worker hosts them too: the same bits."""
    guest = Guest(find_machine("telum2"))
    in_worker = WorkerPlan(ACCEPTED[kind], guest, ImportOptions(), workers)
    here = load(ACCEPTED[kind])
    assert in_worker.outputs == here.outputs
    got, expected = in_worker.executor({"x": X.shape}).run({"x": X}), here.run({"x": X})
    assert got.outputs["y"].tobytes() == expected.outputs["y"].tobytes()


def _optimised(model: bytes, path: Path) -> bytes:
    """Return a model as ONNX Runtime's optimiser writes it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return path.read_bytes()


def _feeds(model: bytes) -> dict[str, Array]:
    shapes = {port: tuple(max(dim, 1) for dim in port.shape) for port in load(model).inputs}
    return {
        port.name: normal(*shape) if port.dtype.kind == "f" else np.ones(shape, port.dtype)
        for port, shape in shapes.items()
    }


@pytest.mark.parametrize("name", ["residual_cnn", "encoder"])
def test_optimised_models(name: str, tmp_path: Path) -> None:
    """A model that ONNX Runtime's optimiser fused is hosted, and agrees."""
    plain: bytes = getattr(real_models, name)()
    fused, feeds = _optimised(plain, tmp_path / "fused.onnx"), _feeds(plain)
    model = load(fused)
    assert any(node.domain == "com.microsoft" for node in nodes(model, feeds))
    assert any(node.device == "accelerator" for node in nodes(model, feeds))
    _assert_agreement(model.run(feeds).outputs, fused, feeds, atol=0.1)


def test_dynamic_quantised_lstm(tmp_path: Path) -> None:
    """A tagger whose LSTM the quantizer made a DynamicQuantizeLSTM is hosted, and agrees."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    (tmp_path / "plain.onnx").write_bytes(real_models.tagger())
    quantization.quantize_dynamic(tmp_path / "plain.onnx", tmp_path / "small.onnx")
    data = (tmp_path / "small.onnx").read_bytes()
    model, feeds = load(data), _feeds(data)
    assert "DynamicQuantizeLSTM" in {node.op_type for node in nodes(model, feeds)}
    _assert_agreement(model.run(feeds).outputs, data, feeds, atol=0.1)


LOOP = """g (int64 n, float[2] x) => (float[2] y) {
    y = Loop <body = b (int64 i, bool k, float[2] s) => (bool k2, float[2] t)
        { k2 = Identity(k) t = Add(s, s) }> (n, , x) }"""


def test_computed_trips() -> None:
    """A Loop whose trip count comes at run time runs that number of trips, up to the limit."""
    model, feeds = load(text_model(LOOP)), {"x": normal(2)}
    result = model.run({**feeds, "n": np.array(3)})
    assert result.outputs["y"].tolist() == (feeds["x"] * 8).tolist()
    with pytest.raises(StepFailed, match=r"Loop: host: .* at most 10000, this is .*10001"):
        model.run({**feeds, "n": np.array(10_001)})


def test_old_opsets() -> None:
    """A model of opset 1 is converted, where onnx's converter can."""
    data = _model(
        make("Relu", ["x"], ["y"], "act", consumed_inputs=[0]),
        opset=1,
        ir=3,
        inputs=[info("w", FLOAT, [4, 4])],
    )
    np.testing.assert_allclose(load(data).run({"x": X}).outputs["y"], np.maximum(X, 0), atol=0.01)


def test_branch_that_is_not_taken() -> None:
    """A branch that contradicts the shapes of a run is no obstacle while it is not taken."""
    squeeze = helper.make_graph(
        [make("Squeeze", ["v"], ["a"])], "rows", [], [info("a", FLOAT, [4])]
    )
    same = helper.make_graph(
        [make("MatMul", ["v", "w"], ["b"])], "whole", [], [info("b", FLOAT, [2, 4])]
    )
    flag = info("flag", TensorProto.BOOL, [])
    data = _model(
        make("If", ["first"], ["v"], "rank", then_branch=_reshaped([1, 1, 8]),
             else_branch=_reshaped([2, 4])),
        make("If", ["flag"], ["m"], "choice", then_branch=squeeze, else_branch=same),
        make("Identity", ["m"], ["y"], "last"),
        inputs=[flag, info("first", TensorProto.BOOL, [])],
        outputs=[info("y", FLOAT, ["R", "C"])],
    )  # fmt: skip
    feeds = {"x": X, "flag": np.array(False), "first": np.array(False)}
    _assert_agreement(load(data).run(feeds).outputs, data, feeds)


def _reshaped(dims: list[int]) -> onnx.GraphProto:
    shape = numpy_helper.from_array(np.array(dims, np.int64), "dims")
    node = make("Reshape", ["x", "dims"], ["o"])
    return helper.make_graph([node], "reshaped", [], [info("o", FLOAT, dims)], [shape])


def test_foreign_refusals_name_the_node() -> None:
    """A node that ONNX Runtime refuses though it has the operator is refused with the reason."""
    data = _model(
        make("FusedMatMul", ["x", "x"], ["m"], "fused", domain="com.microsoft"), RELU, **MICROSOFT
    )
    with pytest.raises(ModelRefused, match="node fused: FusedMatMul: ONNX Runtime does not take"):
        load(data).specialise({"x": (2, 4)})


def test_a_locale_that_is_missing_is_refused_with_the_remedy() -> None:
    """A locale that the system lacks is named, and C.UTF-8, which lowers letters of all words."""
    with pytest.raises(ModelRefused, match=r"locale is xx_YY\.UTF-8, .* must be C\.UTF-8"):
        load(small_models.lowered("xx_YY.UTF-8")).specialise({"x": (2,)})
    words = np.array(["Ärger", "RUHE"], object)
    outputs = load(small_models.lowered("C.UTF-8")).run({"x": words}).outputs
    assert outputs["y"].tolist() == ["ärger", "ruhe"]


def test_weights_in_constants_count() -> None:
    """Weights count the same in Constant nodes as among the initializers."""
    product = make("MatMul", ["x", "c"], ["y"], "product")
    constant = make("Constant", [], ["c"], "c", value=numpy_helper.from_array(WEIGHT, "c"))
    totals = [
        sum(node.weights for node in load(data).specialise().nodes)
        for data in (
            _model(constant, product),
            _model(make("MatMul", ["x", "w"], ["y"], "product")),
        )
    ]
    assert totals == [WEIGHT.nbytes, WEIGHT.nbytes]


def test_work_inside_of_subgraphs_counts() -> None:
    """A Loop counts its body's work for each trip, and the weights in it once."""
    body = helper.make_graph(
        [
            make("Identity", ["on"], ["still"]),
            make("MatMul", ["s", "u"], ["p"]),
            make("Identity", ["p"], ["t"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("on", TensorProto.BOOL, []),
         info("s", FLOAT, ["N", 4])],
        [info("still", TensorProto.BOOL, []), info("t", FLOAT, ["N", 4])],
        [numpy_helper.from_array(WEIGHT, "u")],
    )  # fmt: skip
    data = _model(
        make("Loop", ["trips", "", "x"], ["y"], "loop", body=body),
        initializers=[numpy_helper.from_array(np.array(5), "trips")],
    )
    (node,) = load(data).specialise({"x": (2, 4)}).nodes
    assert node.macc == 5 * (2 * 4 * 4 + 4)
    assert node.weights == WEIGHT.nbytes + 8
