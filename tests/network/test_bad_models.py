# SPDX-License-Identifier: Apache-2.0
"""Models that no server should host: each is refused with node and reason."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from nnpa_network.program import ModelRefused
from onnx import TensorProto, helper, numpy_helper

from tests.network import real_models as models
from tests.network.hosting import load, normal, text_model
from tests.network.small_models import dense


def _model(graph: onnx.GraphProto, opset: int = 20, domain: str = "") -> bytes:
    imports = [helper.make_opsetid(domain, opset)]
    if domain:
        imports.append(helper.make_opsetid("", 20))
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    return bytes(model.SerializeToString())


def _graph(*nodes: onnx.NodeProto, initializers: Any = ()) -> onnx.GraphProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])
    return helper.make_graph(list(nodes), "bad", [x], [y], list(initializers))


def _external(location: str) -> bytes:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 2])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    node = helper.make_node("Add", ["x", "w"], ["y"], name="adder")
    return _model(_graph(node, initializers=[tensor]))


def _external_in_node() -> bytes:
    tensor = TensorProto(name="c", data_type=TensorProto.FLOAT, dims=[2, 2])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    constant = helper.make_node("Constant", [], ["w"], name="hidden", value=tensor)
    return _model(_graph(constant, helper.make_node("Add", ["x", "w"], ["y"])))


def _empty_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w"):
        pass
    return buffer.getvalue()


def _cyclic() -> bytes:
    first = helper.make_node("Add", ["x", "b"], ["a"], name="first")
    second = helper.make_node("Relu", ["a"], ["b"], name="second")
    last = helper.make_node("Relu", ["b"], ["y"], name="last")
    return _model(_graph(first, second, last))


def _maps() -> bytes:
    """Return a model of which an output is a map that no ZipMap makes."""
    zipped = helper.make_node(
        "ZipMap", ["x"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]
    )
    first = helper.make_node("SequenceAt", ["z", "at"], ["y"])
    graph = _graph(zipped, first, initializers=[numpy_helper.from_array(np.array(0), "at")])
    graph.output[0].Clear()
    graph.output[0].name = "y"
    table = graph.output[0].type.map_type
    table.key_type = TensorProto.INT64
    table.value_type.tensor_type.elem_type = TensorProto.FLOAT
    return _model(graph, 1, "ai.onnx.ml")


def _sequence() -> bytes:
    graph = _graph(helper.make_node("SplitToSequence", ["x"], ["y"], axis=0))
    graph.output[0].CopyFrom(helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None))
    return _model(graph)


def _huge_dims() -> bytes:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 20, 1 << 20, 1 << 10])
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return _model(_graph(node, initializers=[tensor]))


def _huge_expand() -> bytes:
    shape = numpy_helper.from_array(np.array([1 << 20, 1 << 20, 2, 2], np.int64), "s")
    node = helper.make_node("Expand", ["x", "s"], ["y"], name="blow")
    return _model(_graph(node, initializers=[shape]))


def _huge_fill() -> bytes:
    shape = numpy_helper.from_array(np.array([1 << 30, 1 << 10], np.int64), "s")
    fill = helper.make_node("ConstantOfShape", ["s"], ["w"], name="fill")
    return _model(_graph(fill, helper.make_node("Add", ["x", "w"], ["y"]), initializers=[shape]))


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "hold no ONNX graph"),
    "garbage": (lambda: bytes(range(256)) * 8, "not an ONNX model"),
    "text": (lambda: b"not a model at all, only words", "not an ONNX model"),
    "a zip of nothing": (_empty_zip, "not an ONNX model|hold no ONNX graph"),
    "truncated": (lambda: models.tagger()[:5000], "not an ONNX model"),
    "cyclic": (_cyclic, "node first: the graph goes in a circle"),
    "opset of the future": (
        lambda: _model(_graph(helper.make_node("Relu", ["x"], ["y"])), 99),
        "opset is 99, must be 7 to",
    ),
    "opset of the past": (
        lambda: _model(
            _graph(helper.make_node("Upsample", ["x"], ["y"], height_scale=2.0, width_scale=2.0)),
            1,
        ),
        "opset is 1, must be 7 or newer, and onnx's version converter does not take it to 7",
    ),
    "a domain of its own": (
        lambda: _model(
            _graph(helper.make_node("Magic", ["x"], ["y"], name="wand", domain="com.evil")),
            1,
            "com.evil",
        ),
        "node wand: domain com.evil is not hosted: ONNX Runtime .* never loaded",
    ),
    "an operator that ONNX Runtime lacks": (
        lambda: _model(
            _graph(helper.make_node("Magic", ["x"], ["y"], name="wand", domain="com.microsoft")),
            1,
            "com.microsoft",
        ),
        "node wand: ONNX Runtime .* knows no operator Magic of domain com.microsoft",
    ),
    "a compiled model elsewhere": (
        lambda: _model(
            _graph(
                helper.make_node(
                    "EPContext",
                    ["x"],
                    ["y"],
                    "context",
                    domain="com.microsoft",
                    embed_mode=0,
                    ep_cache_context="/etc/passwd",
                )
            ),
            1,
            "com.microsoft",
        ),
        "node context: EPContext",
    ),
    "maps": (_maps, "output y is not a tensor .* but a map: make the tensors"),
    "a sequence": (_sequence, "output y is not a tensor .* but a sequence: .* ConcatFromSequence"),
    "an operator that is none": (
        lambda: _model(_graph(helper.make_node("Rellu", ["x"], ["y"], name="typo"))),
        "not valid.*Rellu",
    ),
    "external data beside it": (lambda: _external("weights.bin"), "external data is refused"),
    "external data above it": (lambda: _external("../../etc/shadow"), "external data is refused"),
    "external data in a node": (_external_in_node, "node hidden: .*external data is refused"),
    "dims without data": (_huge_dims, "no data for them"),
    "an expansion without bound": (_huge_expand, "node blow: .* takes .* bytes, must be at most"),
    "a fill without bound": (_huge_fill, "node fill: .* takes .* bytes, must be at most"),
    "an output made by nobody": (
        lambda: _model(_graph(helper.make_node("Relu", ["x"], ["z"]))),
        "not valid|made by no node",
    ),
    "shapes that contradict": (
        lambda: text_model("g (float[2,3] x) => (float[2,2] y) { y = MatMul(x, x) }"),
        "contradict|Incompatible",
    ),
    "a rank that nobody knows": (
        lambda: _model(
            helper.make_graph(
                [helper.make_node("Relu", ["x"], ["y"])],
                "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            )
        ),
        "input x has no shape, not even a rank: add its type and shape",
    ),
    "a loop without end": (
        lambda: text_model(
            "g (bool c, float[2] x) => (float[2] y) {"
            " y = Loop <body = b (int64 i, bool k, float[2] s) => (bool k2, float[2] t)"
            " { k2 = Identity(k) t = Add(s, s) }> (, c, x) }"
        ),
        "a Loop needs a trip count, its first input, which is left out: give the largest",
    ),
    "a loop of too many trips": (
        lambda: text_model(
            "g (bool c, float[2] x) => (float[2] y) <int64 n = {10001}> {"
            " y = Loop <body = b (int64 i, bool k, float[2] s) => (bool k2, float[2] t)"
            " { k2 = Identity(k) t = Add(s, s) }> (n, c, x) }"
        ),
        "a Loop needs a trip count of at most 10000, this is .*10001",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_models_are_refused(kind: str) -> None:
    """A bad model is refused before anything is allocated, and the reason says what is wrong."""
    make, reason = BAD[kind]
    with pytest.raises(ModelRefused, match=reason):
        load(make()).specialise()


def test_initializers_beyond_the_limit() -> None:
    """Initializers beyond the limit are refused before they are unpacked."""
    with pytest.raises(ModelRefused, match="initializers take more than 1000 bytes"):
        load(models.tagger(), max_bytes=1000)


def test_refusal_is_one_line() -> None:
    """A refusal is one line, however much a library has to say."""
    for make, _ in BAD.values():
        with pytest.raises(ModelRefused) as caught:
            load(make()).specialise()
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600


def test_no_file_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that points at a file that exists is refused all the same."""
    (tmp_path / "weights.bin").write_bytes(normal(2, 2).tobytes())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelRefused, match="external data is refused"):
        load(_external("weights.bin"))


def test_truncated_everywhere() -> None:
    """Wherever a model is cut, it is refused or runs; nothing else comes out."""
    whole = text_model("g (float[2,2] x) => (float[2,2] y) { z = Exp(x) y = Tanh(z) }")
    for length in range(len(whole)):
        try:
            load(whole[:length]).run({"x": normal(2, 2)})
        except ModelRefused:
            continue


@pytest.mark.parametrize(
    "call",
    [
        "Conv(x, w)",
        "AveragePool <kernel_shape = [5,5]> (x)",
        "MaxPool <kernel_shape = [5,2]> (x)",
        "ConvTranspose <pads = [4,4,4,4]> (x, w)",
        "Pad(x, p)",
    ],
)
def test_a_window_larger_than_its_image(call: str) -> None:
    """An output of less than nothing is refused by the node, with the shape that it would have."""
    body = (
        "g (float[1,1,3,3] x) => (float[a,b,c,d] z)"
        f" <int64[8] p = {{0,0,-4,0,0,0,0,0}}> {{ w = Expand(one, size) y = {call} z = Relu(y) }}"
    ).replace("}> {", "}, float one = {1}, int64[4] size = {1,1,5,5}> {")
    with pytest.raises(ModelRefused, match=rf"^node {call.split('(')[0].split(' ')[0]}.*: larger"):
        load(text_model(body)).specialise()


@pytest.mark.parametrize(
    ("feeds", "reason"),
    [
        ({}, "input x is missing"),
        ({"x": normal(3, 2)}, r"got shape \[3, 2\], expected \[2, 2\]"),
        ({"x": normal(2)}, r"got shape \[2\], expected \[2, 2\]"),
        ({"x": np.zeros((2, 2))}, r"got float64 \[2, 2\], expected float32 \[2, 2\]"),
    ],
)
def test_wrong_feeds(feeds: dict[str, Any], reason: str) -> None:
    """A wrong input is refused in one sentence: missing, or its shape and type and the expected."""
    model = load(text_model("g (float[2,2] x) => (float[2,2] y) { y = Relu(x) }"))
    with pytest.raises(ModelRefused, match=reason):
        model.run(feeds)


def test_damaged_files() -> None:
    """A file with damaged bytes, in names, shapes, types or versions, is refused or runs."""
    rng, refused = np.random.default_rng(8), 0
    whole = dense().SerializeToString()
    for _ in range(1500):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(damaged), 3):
            damaged[place] = rng.integers(0, 256)
        try:
            model = load(bytes(damaged))
            model.executor({p.name: tuple(abs(dim) for dim in p.shape) for p in model.inputs})
        except ModelRefused:
            refused += 1
    assert refused > 500
