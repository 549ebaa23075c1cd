# SPDX-License-Identifier: Apache-2.0
"""Host nodes alone and in groups give equal bits; constants of host nodes are initializers."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from nnpa_emulator import Guest, find_machine
from nnpa_network.importing.onnx_import import ImportOptions, import_onnx
from nnpa_network.program import ABSENT, HostStep
from nnpa_network.running import host
from nnpa_network.running.executor import Executor
from nnpa_network.running.host_groups import find_groups
from nnpa_network.running.host_models import Nodes
from nnpa_network.running.loading import LoadedProgram
from nnpa_network.running.results import StepFailed
from nnpa_network.shortcuts import SHORTCUTS
from onnx import helper

from tests.network.acceptance.listing import Listed, models
from tests.network.acceptance.trial import draw, model_bytes, on_one_thread
from tests.network.hosting import Array, load, normal, text_model

OPSET = 20
FP32 = np.dtype(np.float32)


def _node(op_type: str, inputs: int, **attributes: Any) -> onnx.NodeProto:
    names = ["x", "w", "b", "c", "d", "e"][:inputs]
    return helper.make_node(op_type, names, ["y"], **attributes)


def _integers(*shape: int) -> Array:
    return np.random.default_rng(3).integers(0, 255, shape).astype(np.uint8)


_FUSED = {"domain": "com.microsoft"}
_ZERO, _SCALE = np.array(7, np.uint8), np.array(0.25, np.float32)
PRODUCTS: Mapping[str, tuple[onnx.NodeProto, Array, tuple[Array, ...]]] = {
    "MatMul": (_node("MatMul", 2), normal(9, 300), (normal(300, 70),)),
    "Gemm": (_node("Gemm", 3), normal(9, 300), (normal(300, 70), normal(70))),
    "Gemm, turned": (_node("Gemm", 2, transB=1), normal(9, 300), (normal(70, 300),)),
    "Conv": (_node("Conv", 3), normal(9, 30, 7, 7), (normal(20, 30, 3, 3), normal(20))),
    "ConvTranspose": (_node("ConvTranspose", 2), normal(9, 30, 7, 7), (normal(30, 20, 3, 3),)),
    "FusedMatMul": (
        _node("FusedMatMul", 2, alpha=0.5, **_FUSED), normal(9, 300), (normal(300, 70),),
    ),
    "FusedGemm": (
        _node("FusedGemm", 3, activation="Relu", **_FUSED),
        normal(9, 300), (normal(300, 70), normal(70)),
    ),
    "QLinearMatMul": (
        helper.make_node("QLinearMatMul", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"]),
        _integers(9, 300),
        (_SCALE, _ZERO, _integers(300, 70), _SCALE, _ZERO, np.array(300, np.float32), _ZERO),
    ),
}  # fmt: skip
"""A node whose inputs but the first are constants, and rows of that."""


def _compiled(node: onnx.NodeProto, arrays: tuple[Array, ...]) -> host.Kernel:
    dtypes = tuple(array.dtype for array in arrays)
    constants = [None, *arrays[1:]]
    opset = 1 if node.domain else OPSET
    return host.prepare(node.SerializeToString(), opset, dtypes, constants)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_row_alone_is_the_row_among_others(name: str) -> None:
    """Products by constants give a row the same bits in a batch of one and of nine."""
    node, rows, constants = PRODUCTS[name]
    kernel = _compiled(node, (rows, *constants))
    (among,) = kernel([rows, *constants])
    for index in range(len(rows)):
        (alone,) = kernel([rows[index : index + 1], *constants])
        assert alone.tobytes() == among[index : index + 1].tobytes()


@pytest.mark.parametrize("op_type", ["LSTM", "GRU"])
def test_a_sequence_alone_is_the_sequence_among_others(op_type: str) -> None:
    """Recurrent layers by constant weights give a sequence the same bits in any batch."""
    gates = {"LSTM": 4, "GRU": 3}[op_type]
    arrays = normal(5, 9, 40), normal(1, gates * 24, 40), normal(1, gates * 24, 24)
    kernel = _compiled(_node(op_type, 3, hidden_size=24), arrays)
    (among,) = kernel(arrays)
    for index in range(9):
        (alone,) = kernel([arrays[0][:, index : index + 1], *arrays[1:]])
        assert alone.tobytes() == among[:, :, index : index + 1].tobytes()


def test_large_constants_lie_outside_of_the_model() -> None:
    """A session reads a large constant where it lies: its model holds a name and dims."""
    weights = normal(500, 500)
    model = Nodes([_node("MatMul", 2)], {"": OPSET}, {"x": FP32}, ["y"], {}, {"w": weights}).model()
    assert model.ByteSize() < 1000
    node, x = _node("Mul", 2), normal(500, 500, seed=1)
    (product,) = _compiled(node, (x, weights))([x, weights])
    np.testing.assert_array_equal(product, x * weights)


_WEIGHTS = ", ".join(str((7 * number) % 11 / 10) for number in range(36))
NEIGHBOURS = (
    "g (float[n,6] x, int64[n,6] i) => (float[m,k] y, float[n,6] z)"
    f" <float[6,6] w = {{{_WEIGHTS}}}, int64[2] shape = {{6, -1}}, float one = {{1}}> "
    """{
  a = Cos(x)
  b = Atan(a)
  c = GatherElements<axis=1>(b, i)
  d = Reshape(c, shape)
  e = Sin(d)
  y = Reshape(e, shape)
  first = Less(a, one)
  every = Cast<to=6>(first)
  all = ReduceMin<keepdims=0>(every)
  low = Cast<to=9>(all)
  z = If(low) <then_branch = yes () => (float[n,6] t) { t = Sin(c) },
               else_branch = no () => (float[n,6] f) { f = MatMul(c, w) }>
}"""
)


def _executors(model: bytes, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Executor, Executor]:
    """Return executors of a program with and without groups."""
    loaded = load(model)
    executor = loaded.executor(shapes)
    return executor, Executor(executor.program, loaded.guest, SHORTCUTS - {"host-groups"})


def _bits(executor: Executor, feeds: Mapping[str, Array]) -> dict[str, tuple[object, ...]]:
    result = executor.run(feeds)
    return {
        name: (
            array.dtype,
            array.shape,
            array.tolist() if array.dtype == object else array.tobytes(),
        )
        for name, array in result.outputs.items()
    }


@pytest.mark.parametrize("opset", [15, 17, 20])
def test_neighbours_give_the_bits_of_single_nodes(opset: int) -> None:
    """Nodes, moves between them and branches in one session change no bit."""
    feeds: dict[str, Array] = {"x": normal(4, 6), "i": np.arange(24).reshape(4, 6) % 6}
    grouped, single = _executors(text_model(NEIGHBOURS, opset), {"x": (4, 6), "i": (4, 6)})
    groups = find_groups(vars(grouped)["_loaded"])
    assert len(groups) == 1
    assert groups[0].last - groups[0].first >= 7
    for scale in (1.0, 30.0, -30.0, np.nan):
        scaled = {**feeds, "x": (feeds["x"] * scale).astype(np.float32)}
        assert _bits(grouped, scaled) == _bits(single, scaled)


def test_the_failing_node_of_a_group_is_named() -> None:
    """A node that fails in a group is named, as it is without groups; the next run is well."""
    grouped, single = _executors(text_model(NEIGHBOURS), {"x": (4, 6), "i": (4, 6)})
    feeds: dict[str, Array] = {"x": normal(4, 6), "i": np.full((4, 6), 6)}
    failures: list[tuple[object, ...]] = []
    for executor in (grouped, single):
        with pytest.raises(StepFailed) as failed:
            executor.run(feeds)
        failures.append((failed.value.node, failed.value.verb, failed.value.reason))
    assert failures[0] == failures[1]
    assert "GatherElements" in str(failures[0])
    well = {**feeds, "i": np.zeros((4, 6), np.int64)}
    assert _bits(grouped, well) == _bits(single, well)


def test_observers_read_values_within_a_group() -> None:
    """An observed run goes node by node, and gives values that a group hands on unseen."""
    grouped, _ = _executors(text_model(NEIGHBOURS), {"x": (4, 6), "i": (4, 6)})
    values: list[Array | None] = []
    feeds: dict[str, Array] = {"x": normal(4, 6), "i": np.zeros((4, 6), np.int64)}
    grouped.run(feeds, lambda event: values.append(event.read("a")))
    seen = next(value for value in values if value is not None)
    np.testing.assert_allclose(seen, np.cos(feeds["x"]), rtol=1e-6)


def test_steps_that_are_not_their_nodes_stay_single() -> None:
    """A program from elsewhere that leaves out an output of a node fails as without groups."""
    body = "g (float[4] x) => (float[4] y, int64[4] z) { a = Sin(x) y, z = Unique(a) }"
    grouped, _ = _executors(text_model(body), {"x": (4,)})
    program, guest = grouped.program, vars(grouped)["guest"]
    assert len(find_groups(LoadedProgram(program, guest))) == 1
    first, last = program.steps
    assert isinstance(last, HostStep)
    wrong = replace(program, steps=(first, replace(last, outputs=(*last.outputs[:1], ABSENT))))
    assert find_groups(LoadedProgram(wrong, guest)) == []


def _half() -> bytes:
    body = "g (float16[4] x) => (float16[4] y) { a = Sin(x) b = Cos(a) y = Sin(b) }"
    return text_model(body)


def _int8() -> bytes:
    weights = ", ".join(str(number % 255 - 127) for number in range(64))
    body = f"""g (uint8[4,16] x) => (float[4,4] y) <int8[16,4] w = {{{weights}}}> {{
      a = MatMulInteger(x, w) b = Cast<to=1>(a) y = Sin(b) }}"""
    return text_model(body)


@pytest.mark.parametrize(("model", "steps"), [(_half, 0), (_int8, 2)])
def test_groups_are_without_nodes_that_change_among_others(
    model: Callable[[], bytes], steps: int
) -> None:
    """FP16, computed in FP32, and products of INT8, rewritten to be exact, stay single nodes."""
    loaded = load(model())
    shapes = {port.name: port.shape for port in loaded.inputs}
    groups = find_groups(vars(loaded.executor(shapes))["_loaded"])
    assert sum(group.last - group.first + 1 for group in groups) == steps


LISTED = [
    pytest.param(listed, id=name, marks=() if listed.always else pytest.mark.heavy)
    for name, listed in models().items()
    if "/" not in listed.source
]


@pytest.mark.parametrize("listed", LISTED)
def test_models_of_the_list_give_the_bits_of_single_nodes(listed: Listed) -> None:
    """Groups change no bit of a model of the list, over two inputs."""
    file = model_bytes(listed)
    options = ImportOptions(placement=listed.placement)
    model = import_onnx(file, Guest(find_machine("telum2")), options)
    for number in range(2):
        feeds = draw(on_one_thread(file), listed, number)
        grouped = model.executor({name: array.shape for name, array in feeds.items()})
        single = Executor(grouped.program, model.guest, SHORTCUTS - {"host-groups"})
        assert _bits(grouped, feeds) == _bits(single, feeds)
