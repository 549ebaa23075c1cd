# SPDX-License-Identifier: Apache-2.0
"""Classifiers whose probabilities are a map are hosted with a tensor in its place."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from nnpa_network.lowering.placement import placement_report
from nnpa_network.reporting.measuring import Measurer
from onnx import TensorProto, helper

from tests.network.hosting import load, normal

ML = "ai.onnx.ml"
LABELS: dict[str, list[Any]] = {"ints": [3, 5, 9], "strings": ["ham", "eggs", "spam"]}
FEEDS = {"x": normal(4, 2)}


def classifier(kind: str, imports: dict[str, int]) -> onnx.ModelProto:
    """Return a linear classifier of three labels as converters write it, with a ZipMap."""
    labels: dict[str, Any] = {f"classlabels_{kind}": LABELS[kind]}
    zipped = "int64s" if kind == "ints" else "strings"
    columns: dict[str, Any] = {f"classlabels_{zipped}": LABELS[kind]}
    nodes = [
        helper.make_node(
            "LinearClassifier",
            ["x"],
            ["label", "shares"],
            "linear",
            domain=ML,
            coefficients=[0.5, -1.0, 0.25, 1.5, -0.75, 0.5],
            intercepts=[0.1, 0.2, 0.3],
            post_transform="SOFTMAX",
            **labels,
        ),
        helper.make_node(
            "ZipMap",
            ["shares"],
            ["probabilities"],
            "zip",
            domain=ML,
            **columns,
        ),
    ]
    label = TensorProto.INT64 if kind == "ints" else TensorProto.STRING
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])],
        [helper.make_tensor_value_info("label", label, ["N"])],
    )
    key = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(label, key))
    graph.output.append(helper.make_value_info("probabilities", maps))
    opsets = [helper.make_opsetid(domain, version) for domain, version in imports.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("imports", [{"": 15, ML: 1}, {ML: 1}], ids=["both", "own"])
def test_a_zip_map_at_an_output_is_cut(kind: str, imports: dict[str, int]) -> None:
    """The output is a tensor of the values in the map's rows; the report names its columns."""
    proto = classifier(kind, imports)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    answer: Any = session.run(None, FEEDS)
    labels, rows = answer
    hosted = load(proto.SerializeToString(), placement="all")
    assert [port.name for port in hosted.outputs] == ["label", "probabilities"]
    result = hosted.run(FEEDS).outputs
    assert result["label"].tolist() == np.asarray(labels).tolist()
    expected = np.array([[row[label] for label in LABELS[kind]] for row in rows], np.float32)
    np.testing.assert_allclose(result["probabilities"], expected, atol=0.01)
    (row,) = [row for row in placement_report(hosted.specialise()).rows if row.node == "zip"]
    assert row.reason.startswith("a ZipMap that is cut")
    assert row.reason.endswith(", ".join(map(str, LABELS[kind])))


def test_probabilities_are_measured() -> None:
    """A measurement compares the tensor in place of the map with ONNX Runtime's."""
    measurer = Measurer(classifier("ints", {"": 15, ML: 1}).SerializeToString())
    measured = measurer.measure(0, {"x": normal(4, 2)})
    outputs = measured.runs[0].outputs
    assert set(outputs) == {"label", "probabilities"}
    assert outputs["probabilities"].tally.numbers == 12
    assert outputs["probabilities"].tally.largest < 0.01
