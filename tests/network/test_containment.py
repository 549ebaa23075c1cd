# SPDX-License-Identifier: Apache-2.0
"""Hostile parts deep inside of models and programs are refused before they do anything."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.onnx_import import ImportOptions, import_onnx
from nnpa_network.program import ArrayInfo, HostStep, ModelRefused, Port, Program
from nnpa_network.running import host
from nnpa_network.running.executor import Executor
from onnx import TensorProto, helper, numpy_helper

FLOATS = np.dtype(np.float32)
MADE = helper.make_tensor_value_info("o", TensorProto.FLOAT, None)


def _outside() -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="secret.bin")
    return tensor


def _constant() -> onnx.NodeProto:
    return helper.make_node("Constant", [], ["y"], value=_outside())


def _branch() -> onnx.NodeProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["o"])], "body", [], [MADE], [_outside()]
    )
    return helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)


def _sparse() -> onnx.NodeProto:
    indices = numpy_helper.from_array(np.array([1], np.int64))
    values = numpy_helper.from_array(np.ones(1, np.float32))
    sparse = onnx.SparseTensorProto(values=values, indices=indices, dims=[1 << 40])
    return helper.make_node("Constant", [], ["y"], sparse_value=sparse)


def _foreign() -> onnx.NodeProto:
    gelu = helper.make_node("Gelu", ["x"], ["o"], domain="com.evil")
    body = helper.make_graph([gelu], "body", [], [MADE])
    return helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)


NODES: dict[str, tuple[Callable[[], onnx.NodeProto], str]] = {
    "a file as a constant": (_constant, "external data is refused"),
    "a file in a branch": (_branch, "external data is refused"),
    "a sparse constant": (_sparse, "sparse tensors are not hosted in single nodes"),
    "foreign code in a branch": (_foreign, "domain com.evil is not hosted"),
}


@pytest.mark.parametrize("kind", NODES)
def test_node_for_the_host(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No single node reaches ONNX Runtime with data elsewhere or code that is not ONNX's."""
    (tmp_path / "secret.bin").write_bytes(np.ones(2, np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    make, reason = NODES[kind]
    node = make()
    with pytest.raises(host.HostError, match=reason):
        host.prepare(node.SerializeToString(), 17, tuple(np.dtype(bool) for _ in node.input))


def _looping(trips: int) -> Program:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Add", ["v", "v"], ["o"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [1]),
        ],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), MADE],
    )
    node = helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)
    step = HostStep(0, node.SerializeToString(), (2, 0, 1), (3,), 17)
    port = Port("x", FLOATS, (1,))
    arrays = {1: ArrayInfo(FLOATS, (1,)), 3: ArrayInfo(FLOATS, (1,))}
    constants = {2: np.array(trips, np.int64)}
    arrays |= {2: ArrayInfo(np.dtype(np.int64), ())}
    output = Port("y", FLOATS, (1,))
    return Program("p", "telum1", (port,), (output,), (1,), (3,), arrays, {}, constants, (step,))


def test_loop_of_a_program() -> None:
    """A program's Loop runs as often as its constant says, if that is not too often."""
    guest = Guest(find_machine("telum1"))
    array = Executor(_looping(3), guest).run({"x": np.ones(1, np.float32)}).outputs["y"]
    assert array.tolist() == [8.0]
    with pytest.raises(ModelRefused, match="trip count of at most 10000"):
        Executor(_looping(1 << 62), guest)


def _functions(levels: int, wide: int, last: str) -> bytes:
    functions: list[onnx.FunctionProto] = []
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    for level in range(levels):
        called = f"g{level + 1}" if level < levels - 1 else last
        domain = "" if called == "Relu" else "f"
        names = ["x", *(f"t{index}" for index in range(wide - 1)), "y"]
        nodes = [
            helper.make_node(called, [names[at]], [names[at + 1]], domain=domain)
            for at in range(wide)
        ]
        functions.append(helper.make_function("f", f"g{level}", ["x"], ["y"], nodes, imports))
    source, target = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    first = helper.make_node("g0", ["x"], ["y"], domain="f")
    graph = helper.make_graph([first], "b", [source], [target])
    model = helper.make_model(graph, functions=functions, opset_imports=imports, ir_version=9)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("levels", "wide", "last", "reason"),
    [(30, 10, "Relu", "more than 100000 nodes"), (2, 2, "g0", "leads to itself")],
)
def test_exploding_functions_are_refused(levels: int, wide: int, last: str, reason: str) -> None:
    """Functions that call functions many times over, or themselves, are refused by counting."""
    with pytest.raises(ModelRefused, match=reason):
        import_onnx(_functions(levels, wide, last), Guest(find_machine("telum1")))


def test_small_nested_functions_are_inlined() -> None:
    """Functions of functions are inlined as long as that gives a model of a usual size."""
    model = import_onnx(_functions(2, 3, "Relu"), Guest(find_machine("telum1")))
    assert len(model.proto.graph.node) == 9


def test_sticks_that_follow_from_shapes_are_let_go() -> None:
    """Constants go with the last program that uses them."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy"]
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["c"]),
        helper.make_node("Add", ["x", "c"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "shapes", ends[:1], ends[1:])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = ImportOptions(max_programs=2)
    model = import_onnx(data.SerializeToString(), Guest(find_machine("telum1")), options)
    for size in range(1, 9):
        model.executor({"x": (size, 4)})
    kept = 2 + 3  # of the last programs, and of those that lead to further sizes
    assert len(getattr(model, "_stickified")) == kept  # noqa: B009 - what is kept


def test_large_nodes_are_not_kept_compiled() -> None:
    """A node of many bytes ends with the network that has it; small ones are shared."""
    for size, same in ((8, True), (1 << 16, False)):
        value = numpy_helper.from_array(np.ones(size, np.float32))
        node = helper.make_node("Constant", [], ["y"], value=value).SerializeToString()
        assert (host.prepare(node, 17, ()) is host.prepare(node, 17, ())) == same


def test_weights_are_held_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the checker, nor shape inference, nor the model that is kept has a large weight."""
    weights = np.random.default_rng(5).standard_normal((512, 256), np.float32)
    rows = numpy_helper.from_array(np.array([-1, 256], np.int64), "rows")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "m"]) for name in "xy"]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Reshape", ["product", "rows"], ["y"]),
    ]
    weight = numpy_helper.from_array(weights, "w")
    for inputs in (ends[:1], [ends[0], helper.make_tensor_value_info("w", 1, weights.shape)]):
        graph = helper.make_graph(nodes, "weights", inputs, ends[1:], [weight, rows])
        data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        seen: list[int] = []
        for where, name in ((onnx.checker, "check_model"), (onnx.shape_inference, "infer_shapes")):
            _note_size(monkeypatch, where, name, seen)
        model = import_onnx(data.SerializeToString(), Guest(find_machine("telum1")))
        assert len(seen) == 2
        assert max(*seen, model.proto.ByteSize()) < 1024
        assert [port.name for port in model.inputs] == ["x"]
        assert list(model.initializers) == ["w", "rows"]
        x = np.ones((3, 512), np.float32)
        np.testing.assert_allclose(model.run({"x": x}).outputs["y"], x @ weights, 0.05, 1.0)
        monkeypatch.undo()


def _note_size(monkeypatch: pytest.MonkeyPatch, where: object, name: str, seen: list[int]) -> None:
    """Have a function of ONNX note the bytes of the model that it is given."""
    original = getattr(where, name)

    def noting(proto: onnx.ModelProto, *words: Any, **options: Any) -> object:
        seen.append(proto.ByteSize())
        return original(proto, *words, **options)

    monkeypatch.setattr(where, name, noting)
