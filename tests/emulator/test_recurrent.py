# SPDX-License-Identifier: Apache-2.0
"""LSTM and GRU against the oracle: directions, final or all timesteps, layers, NINF, blocks."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import FUNCTIONS, MACHINES, Guest, Status, run
from nnpa_emulator.engines import recurrent as engine
from nnpa_emulator.ztensor import DataLayouts, DataTypes, TensorDesc, generate_transformed_desc

from tests.emulator.operands import Codes, blank, cells, guest, tensor
from tests.emulator.recurrent_nets import (
    BIDIR,
    BWD,
    FWD,
    GATES,
    Net,
    Shape,
    call,
    concatenated,
    net,
    padded,
)
from tests.oracle import recurrent as oracle
from tests.oracle.rounding import decoded, rounded

# Timesteps, batch, features, hidden size: ones, odd sizes, edges of sticks and pages.
SHAPES = [
    (1, 1, 1, 1), (2, 1, 1, 64), (3, 33, 5, 3), (2, 31, 65, 63), (3, 2, 64, 65), (1, 32, 129, 128),
    (5, 3, 7, 129), (2, 65, 3, 66),
]  # fmt: skip


def units(got: Codes, want: Codes) -> float:
    """Return the largest error in units of the last place of numbers of 1 and above.

    Another rounding of one gate sum, which FP32 sums of random data bring, is many units of a small
    state.
    """
    precise = decoded(want)
    exponent = np.floor(np.log2(np.maximum(np.abs(precise), 1)))
    return float(np.max(np.abs(decoded(got) - precise) / np.exp2(exponent - 9)))


def compare(net: Net, every: bool, program: Guest | None = None) -> float:
    """Run a layer; return the error of all its outputs, in units of the last place of 1."""
    outcome, outputs = call(net, every, program)
    assert outcome.status == Status.ZDNN_OK, outcome.refusal
    assert all(output.is_transformed for output in outputs.values())
    expected = net.expected_outputs(every)
    return max(units(cells(outputs[name]), expected[name]) for name in outputs)


@pytest.mark.parametrize("every", [True, False], ids=["all", "final"])
@pytest.mark.parametrize(
    "direction",
    [*(pytest.param(direction, marks=pytest.mark.heavy) for direction in (FWD, BWD)), BIDIR],
)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", GATES)
def test_layers_in_double_precision(name: str, shape: Shape, direction: int, every: bool) -> None:
    """With float64 sums every output equals extended precision, and halves are padded with zero."""
    program = Guest(MACHINES["telum1"], precheck=True, accumulate="fp64")
    assert compare(net(name, shape, direction), every, program) == 0


@pytest.mark.parametrize("direction", [FWD, BWD, BIDIR])
@pytest.mark.parametrize("name", GATES)
def test_layers_are_within_one_unit(name: str, direction: int) -> None:
    """With FP32 sums outputs are within one unit of the last place of 1/8."""
    for shape in SHAPES:
        assert compare(net(name, shape, direction), True) <= 1, shape


def summed_in_order(a: Codes, b: Codes, c: Codes, _op: int) -> Codes:
    """Multiply matrices (1,1,m,n) with one FP32 addition after the other, c last."""
    left, right, operand = (decoded(ztensor).astype(np.float32) for ztensor in (a, b, c))
    sums = np.zeros((*a.shape[:3], b.shape[3]), np.float32)
    for k in range(a.shape[3]):
        sums += left[..., k : k + 1] * right[:, :, k : k + 1, :]
    return rounded(sums + operand)


@pytest.mark.parametrize("direction", [FWD, BWD, BIDIR])
@pytest.mark.parametrize("name", GATES)
def test_gates_are_summed_in_order(
    monkeypatch: pytest.MonkeyPatch, name: str, direction: int
) -> None:
    """FP32 sums add one product after the other, in first and in later calls."""
    monkeypatch.setattr(oracle, "matmul", summed_in_order)
    program = guest()
    for shape in [*SHAPES, (4, 13, 70, 200)]:
        layer = net(name, shape, direction)
        for every in (True, False, True):
            assert compare(layer, every, program) == 0, shape


@pytest.mark.parametrize("name", GATES)
def test_what_is_between_gates_does_not_count(name: str) -> None:
    """Numbers between gates that cannot violate the range change nothing, in weights or biases."""
    layer = net(name, (3, 7, 33, 70), BIDIR)
    want = {key: cells(ztensor).tolist() for key, ztensor in call(layer, True)[1].items()}
    names = "weights", "biases", "hidden_weights", "hidden_biases"
    for scale in (1.0, 1e6, 1e9):
        changed: dict[str, Any] = {key: getattr(layer, key).copy() for key in names}
        for codes in changed.values():
            codes.reshape(*codes.shape[:3], -1, 128)[..., 70:] = rounded(scale)
        outcome, outputs = call(replace(layer, **changed), True)
        if scale < 1e9:
            assert outcome.status == Status.ZDNN_OK
            assert {key: cells(ztensor).tolist() for key, ztensor in outputs.items()} == want
        else:
            assert outcome.status == Status.ZDNN_ELEMENT_RANGE_VIOLATION


@pytest.mark.parametrize("name", GATES)
def test_states_may_be_updated_in_place(name: str) -> None:
    """Outputs in the memory of the initial states hold the same bits as outputs elsewhere."""
    layer = net(name, (3, 35, 9, 70))
    want = layer.expected_outputs(False)
    program = Guest(MACHINES["telum2"])
    for _ in range(2):
        names = "h0", "c0", "weights", "biases", "hidden_weights", "hidden_biases"
        arguments: dict[str, Any] = {"input": tensor(layer.source), "direction": FWD}
        arguments |= {key: tensor(getattr(layer, key)) for key in names}
        pairs = {"hn_output": "h0", "cf_output": "c0"} if name == "lstm" else {"hn_output": "h0"}
        for output, state in pairs.items():
            arguments[output] = blank((1, 1, 35, 70))
            arguments[output].buffer = arguments[state].buffer
        if name == "gru":
            del arguments["c0"]
        assert run(program, name, arguments).valid
        assert max(units(cells(arguments[key]), want[key]) for key in pairs) <= 1


@pytest.mark.heavy
@pytest.mark.parametrize("shape", [(16, 64, 256, 256), (7, 1, 64, 200), (28, 8, 28, 128)])
@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
def test_real_layers(name: str, shape: Shape, accumulate: Any) -> None:
    """Long sequences stay within four units of extended precision, and equal it in float64."""
    program = Guest(MACHINES["telum2"], accumulate=accumulate)
    worst = compare(net(name, shape, BIDIR), True, program)
    print(f"{name} {shape} BIDIR {accumulate}: {worst} ulp")
    assert worst <= (4 if accumulate == "fp32" else 0)


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("shape", [(3, 2, 5, 3), (2, 33, 7, 66)])
def test_bidirectional_layers_chain(name: str, shape: Shape) -> None:
    """Outputs of a bidirectional layer feed the next one as they are; padded rows meet zeros."""
    timesteps, batch, _, hidden = shape
    first = net(name, shape, BIDIR)
    program = Guest(MACHINES["telum2"], precheck=True, accumulate="fp64")
    _, outputs = call(first, True, program)
    width = padded(hidden)
    second = net(name, (timesteps, batch, 2 * hidden, hidden), BIDIR, 1)
    weights = np.zeros((2, 1, 2 * width, second.weights.shape[3]), np.uint16)
    weights[:, :, :hidden] = second.weights[:, :, :hidden]
    weights[:, :, width : width + hidden] = second.weights[:, :, hidden:]
    plain = cells(outputs["hn_output"])
    assert plain.shape == (timesteps, 1, batch, 2 * width)
    chained = replace(second, source=plain, weights=weights)
    dense = np.concatenate((plain[..., :hidden], plain[..., width : width + hidden]), 3)
    assert compare(chained, True, program) == 0
    want = replace(second, source=dense).expected_outputs(True)
    assert chained.expected_outputs(True)["hn_output"].tolist() == want["hn_output"].tolist()


def test_rounding_happens_where_the_library_rounds() -> None:
    """A sum that only exists unrounded would change h: 1 + 2**-11 + -1 is nothing."""
    tiny, first = 2.0**-11, 1.0
    weights = concatenated(np.full((4, 1, 2, 1), 1, np.longdouble), 4)
    zero = concatenated(np.zeros((4, 1, 1, 1), np.longdouble), 4)
    minus = concatenated(np.full((4, 1, 1, 1), -first, np.longdouble), 4)
    state = rounded(np.zeros((1, 1, 1, 1)))
    source = rounded([[[[first, tiny]]]])
    layer = Net("lstm", FWD, source, state, state, weights, zero, zero[:, :, :1], minus)
    _, outputs = call(layer, True)
    assert cells(outputs["hn_output"]).item() == 0
    assert cells(outputs["cf_output"]).item() == 0


@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
@pytest.mark.parametrize("name", GATES)
def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch, name: str, accumulate: Any) -> None:
    """Gates and weights that are computed in pieces give the bits of the whole."""
    layer = net(name, (5, 70, 65, 66), BIDIR)
    program = Guest(MACHINES["telum2"], accumulate=accumulate)
    whole = {key: cells(ztensor) for key, ztensor in call(layer, True, program)[1].items()}
    for gates in (1 << 14, 1 << 9):
        monkeypatch.setattr(engine, "GATES", gates)
        monkeypatch.setattr(engine, "WEIGHTS", 1 << 13)
        outcome, outputs = call(layer, True, program)
        assert outcome.status == Status.ZDNN_OK
        worst = max(units(cells(outputs[key]), whole[key]) for key in whole)
        assert worst <= (0 if accumulate == "fp64" else 1)


@pytest.mark.parametrize("name", GATES)
def test_onnxruntime_agrees(name: str) -> None:
    """ONNX Runtime's FP32 LSTM, and GRU with linear_before_reset, agree within tolerance."""
    helper = pytest.importorskip("onnx.helper", reason="the peer is in the extras test and bench")
    runtime = pytest.importorskip("onnxruntime", reason="the peer is in the extras test and bench")
    layer = net(name, (7, 3, 20, 30), BIDIR)
    # ONNX orders gates I, O, F, C and Z, R, H; biases are input's, then the hidden ones.
    order = (1, 3, 0, 2) if name == "lstm" else (0, 1, 2)

    def gates(codes: Codes) -> Any:
        parts = np.split(decoded(codes)[:, 0].astype(np.float32), GATES[name], 2)
        return np.concatenate([parts[k][:, :, : layer.hidden].swapaxes(1, 2) for k in order], 1)

    feeds: dict[str, Any] = {
        "X": decoded(layer.source)[:, 0].astype(np.float32),
        "W": gates(layer.weights),
        "R": gates(layer.hidden_weights),
        "B": np.concatenate((gates(layer.biases), gates(layer.hidden_biases)), 1)[..., 0],
        "H": decoded(layer.h0)[:, 0].astype(np.float32),
    }
    if name == "lstm":
        feeds["C"] = decoded(layer.c0)[:, 0].astype(np.float32)
    names = ["X", "W", "R", "B", "", *list(feeds)[4:]]
    options = {} if name == "lstm" else {"linear_before_reset": 1}
    node = helper.make_node(
        name.upper(), names, ["Y"], hidden_size=layer.hidden, direction="bidirectional", **options
    )
    inputs = [helper.make_tensor_value_info(item, 1, None) for item in feeds]
    output = [helper.make_tensor_value_info("Y", 1, None)]
    graph = helper.make_graph([node], name, inputs, output)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = runtime.InferenceSession(model.SerializeToString())
    (want,) = session.run(None, feeds)
    got = decoded(cells(call(layer, True)[1]["hn_output"])).astype(np.float64)
    width = padded(layer.hidden)
    for half in (0, 1):
        mine = got[:, 0, :, half * width : half * width + layer.hidden]
        np.testing.assert_allclose(mine, want[:, half], rtol=0.05, atol=0.01)


def test_results_are_described() -> None:
    """hn_output and cf_output left to the emulator are 4DS, of all timesteps if asked."""
    layer = net("lstm", (5, 3, 7, 66), BIDIR)
    operands = {"input": tensor(layer.source), "h0": tensor(layer.h0)}
    for direction, directions in ((FWD, 1), (BIDIR, 2)):
        for every, timesteps in ((False, 1), (True, 5)):
            for name, count in (("lstm", 2), ("gru", 1)):
                infer = FUNCTIONS[name].infer
                assert infer is not None
                result = infer(**operands, direction=direction, all_timesteps=every)
                kind, layout = DataTypes.FP32, DataLayouts.ZDNN_4DS
                hn = TensorDesc(layout, 0, kind, timesteps, directions, 3, 66)
                cf = TensorDesc(layout, 0, kind, 1, directions, 3, 66)
                want = [(item, generate_transformed_desc(item)) for item in (hn, cf)]
                assert list(result) == want[:count]
