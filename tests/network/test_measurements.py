# SPDX-License-Identifier: Apache-2.0
"""Measurements of batches: exact sums in any order, nodes alone, turned answers, INT8, refusals."""

import json
from itertools import permutations

import numpy as np
import pytest
from nnpa_network.program import Array, ModelRefused
from nnpa_network.reporting.accuracy import Report, as_json, node_rows, verdict
from nnpa_network.reporting.accuracy_page import as_html
from nnpa_network.reporting.accuracy_text import as_text
from nnpa_network.reporting.batches import row_errors
from nnpa_network.reporting.int8 import with_int8_products
from nnpa_network.reporting.machine_runs import judge_rows
from nnpa_network.reporting.measurements import MAX_WORST, Measurements, Run, from_bytes
from nnpa_network.reporting.measuring import Measurer, Settings
from nnpa_network.reporting.metrics import Agreement, Decided, Exponents, Tally, decisions
from onnx import ModelProto, helper

from tests.network.small_models import WEIGHT, dense, model

ROWS, BATCH = 150, 64
RNG = np.random.default_rng(11)
X = RNG.standard_normal((ROWS, 4)).astype(np.float32)
Y = RNG.integers(0, 3, ROWS)


def measured(file: ModelProto, settings: Settings, x: Array, y: Array | None) -> list[Measurements]:
    """Return the measurements of each batch, as they travel."""
    measurer = Measurer(file.SerializeToString(), settings=settings)
    size = settings.batch_rows
    return [
        from_bytes(
            measurer.measure(
                first,
                {"x": x[first : first + size]},
                None if y is None else y[first : first + size],
            ).to_bytes()
        )
        for first in range(0, len(x), size)
    ]


def total(parts: list[Measurements]) -> Measurements:
    """Return the sum of copies of measurements."""
    sum_, *rest = [from_bytes(part.to_bytes()) for part in parts]
    for part in rest:
        sum_.merge(part)
    return sum_


def test_any_order_gives_the_same_report() -> None:
    """Batches in any order, and sums of sums, are equal byte for byte: JSON, text and page."""
    parts = measured(dense(), Settings(BATCH, 70, int8=True), X, Y)
    whole = total(parts)
    report = Report(whole)
    for order in permutations(parts):
        repeated = total([order[0], total(list(order[1:]))])
        assert repeated.to_bytes() == whole.to_bytes()
        for form in (as_json, as_text, as_html):
            assert form(Report(repeated)) == form(report)
    assert (whole.rows, whole.node_rows, whole.batches) == (ROWS, 70, [0, 1, 2])
    assert whole.labels.count == ROWS


def test_sums_are_exact_where_floats_are_not() -> None:
    """Sums of batches lose nothing: 1e16 and many ones, which floats would swallow."""
    tally, big = Tally(), np.array([1e16])
    for error in (big, *[np.ones(1)] * 64, -big):
        part = Tally()
        part.add(error, np.zeros(1))
        tally.merge(part)
    assert tally.mean * tally.numbers == 64
    assert float(np.sum([1e16, *[1.0] * 64, -1e16])) != 64


def test_figures_of_fp32_equal_figures_of_float64() -> None:
    """Kernels for FP32 count as NumPy counts the same numbers in float64, to the bit."""
    expected = RNG.standard_normal((600, 64)).astype(np.float32)
    got = expected * RNG.normal(1, 0.01, expected.shape).astype(np.float32)
    got[7, 3], got[8], expected[9, 1], expected[10] = np.nan, 0, np.inf, 0
    singles, doubles = (got, expected), (got.astype(np.float64), expected.astype(np.float64))
    tallies = Tally(), Tally()
    tallies[0].add(*singles)
    tallies[1].add(*doubles)
    assert tallies[0] == tallies[1]
    assert tallies[0].bad == 2
    for array, wide in zip(singles, doubles, strict=True):
        assert np.array_equal(decisions(array), decisions(wide))
    assert row_errors(*singles).tobytes() == row_errors(*doubles).tobytes()


def test_labels_give_accuracy_top_5_and_confusion() -> None:
    """Figures equal NumPy's; of equal values the first class is the larger."""
    scores = RNG.integers(0, 3, (200, 9)).astype(np.float32)
    labels = RNG.integers(0, 9, 200)
    agreement = Agreement()
    agreement.add_decisions(scores, labels)
    order = np.argsort(-scores, axis=1, kind="stable")
    assert agreement.same == int((order[:, 0] == labels).sum())
    assert agreement.top == int((order[:, :5] == labels[:, None]).any(1).sum())
    matrix = np.zeros((9, 9), int)
    np.add.at(matrix, (labels, scores.argmax(1)), 1)
    assert agreement.confusion == matrix.tolist()


def test_exponents_of_values() -> None:
    """Zeros, values beyond the range, values that become zero, and the rest by their exponent."""
    exponents = Exponents()
    exponents.add(np.array([0, 1.5, -2, 9e9, np.inf, 2.0**-42, 3e38], np.float32))
    assert (exponents.count, exponents.zeros, exponents.beyond, exponents.lost) == (7, 1, 3, 1)
    assert exponents.histogram[45] == exponents.histogram[46] == 1  # 2^0 and 2^1
    assert sum(exponents.histogram) == 5  # infinity has no exponent, zero neither


def chain() -> ModelProto:
    """Return y = sigmoid(exp(x) * 0.001 + (x @ w)), whose exp loses the most."""
    nodes = [
        helper.make_node("Exp", ["x"], ["e"], "grow"),
        helper.make_node("Mul", ["e", "small"], ["m"], "shrink"),
        helper.make_node("MatMul", ["m", "w"], ["p"], "product"),
        helper.make_node("Sigmoid", ["p"], ["y"], "squash"),
    ]
    constants = {"small": np.array(0.001, np.float32), "w": WEIGHT}
    return model(nodes, [("x", np.float32, ["N", 4])], [("y", np.float32, ["N", 3])], constants)


def test_nodes_alone_take_what_fp32_gives() -> None:
    """The error of a node alone is the error of a model of this node over FP32's values."""
    (part,) = measured(chain(), Settings(BATCH, BATCH), X[:BATCH], None)
    rows = {row.node.name: row for row in node_rows(Report(part), part.runs[0])}
    assert set(rows) == {"grow", "shrink", "product", "squash"}
    single = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], "product")],
        [("x", np.float32, ["N", 4])], [("y", np.float32, ["N", 3])], {"w": WEIGHT},
    )  # fmt: skip
    inputs = np.exp(X[:BATCH]) * np.float32(0.001)
    (by_itself,) = measured(single, Settings(BATCH, BATCH), inputs, None)
    alone = rows["product"].value.alone.l2r
    assert alone == pytest.approx(by_itself.runs[0].outputs["y"].tally.l2r, rel=0.02)
    assert rows["product"].entering == rows["shrink"].value.tally.l2r
    assert rows["grow"].entering == 0
    assert 0 < rows["grow"].value.alone.l2r == rows["grow"].value.tally.l2r
    assert alone < rows["product"].value.tally.l2r


def test_the_node_where_an_answer_turned() -> None:
    """A sum that DLFLOAT16 rounds turns the answer at its node, and the report names it."""
    nodes = [
        helper.make_node("Add", ["x", "big"], ["far"], "away"),
        helper.make_node("Sub", ["far", "big"], ["back"], "back"),
        helper.make_node("Relu", ["back"], ["y"], "last"),
    ]
    constants = {"big": np.full(4, 1000, np.float32)}
    file = model(nodes, [("x", np.float32, ["N", 4])], [("y", np.float32, ["N", 4])], constants)
    x = np.array([[0.1, 0.2, 0.3, 0.0], [1, 2, 3, 90]], np.float32)  # row 0 becomes all zeros
    (part,) = measured(file, Settings(BATCH, 2), x, None)
    for run in part.runs:
        if run.saturate:
            assert run.changed == 1
            assert [(turn.row, run.nodes[turn.node].name) for turn in run.turns] == [(0, "away")]
    report = Report(part, max_drop=0.1)
    assert verdict(report).startswith("Answers turn beside FP32, over 2 rows: 1 (50.00%)")
    assert "above the limit of 0.1 (10.00%)" in verdict(report)
    assert "row 0: at away (Add)" in as_text(report)
    assert json.loads(as_json(report))["runs"][0]["turned"] == [{"row": 0, "node": "away"}]


def test_int8_products_are_close_and_counted() -> None:
    """Products by constant matrices run as quantized_matmul_op, on Telum II, beside the rest."""
    gemm = helper.make_node("Gemm", ["x", "w", "b"], ["y"], "gemm", transB=1)
    constants = {"w": np.ascontiguousarray(WEIGHT.T), "b": np.ones(3, np.float32)}
    file = model([gemm], [("x", np.float32, ["N", 4])], [("y", np.float32, ["N", 3])], constants)
    (part,) = measured(file, Settings(BATCH, 0, int8=True), X[:BATCH], None)
    run = part.runs[-1]
    assert (run.machine, run.numbers, part.products, run.rows) == ("telum2", "int8", 1, BATCH)
    assert any("quantized_matmul_op" in node.functions for node in run.nodes)
    assert part.runs[0].outputs["y"].tally.l2r < run.outputs["y"].tally.l2r < 0.03
    scaled = helper.make_node("Gemm", ["x", "w", "b"], ["y"], "gemm", transB=1, alpha=2.0)
    second = model(
        [scaled], [("x", np.float32, ["N", 4])], [("y", np.float32, ["N", 3])], constants
    )
    assert with_int8_products(second.SerializeToString())[1] == 0


def test_rows_that_are_runs_of_their_own() -> None:
    """With one axis more each row is a run: the same figures as rows together."""
    together = measured(dense(), Settings(BATCH, 4), X[:20], Y[:20])[0]
    apart = measured(dense(), Settings(BATCH, 4), X[:20, None], Y[:20])[0]
    for item, second in zip(together.runs, apart.runs, strict=True):
        assert item.rows == second.rows
        assert item.outputs["y"].tally.count == second.outputs["y"].tally.count
        assert item.outputs["y"].tally.l2r == pytest.approx(second.outputs["y"].tally.l2r, rel=0.01)
    assert together.labels == apart.labels


@pytest.mark.parametrize(
    ("first", "arrays", "labels", "message"),
    [
        (0, {}, None, "input x is missing"),
        (0, {"x": X[0, 0]}, None, "input x: got [], expected [-1, 4]"),
        (0, {"x": X[:2, :3]}, None, "expected [-1, 4]"),
        (0, {"x": X[:2].astype(np.float64)}, None, "input x: got float64 [2, 4]"),
        (0, {"x": X[:65]}, None, "65 rows from 0 on are no batch"),
        (5, {"x": X[:2]}, None, "begin at multiples of it"),
        (0, {"x": X[:2]}, Y[:3], "labels are 3, must be 2, one for each row"),
        (0, {"x": X[:2]}, Y[:4].reshape(2, 2), "labels: 2 for each row; answers for each row: y 1"),
        (0, {"x": X[:2]}, np.ones(2), "labels are float64, must be integers"),
    ],
)  # fmt: skip
def test_rows_that_do_not_fit(
    first: int, arrays: dict[str, Array], labels: Array | None, message: str
) -> None:
    """Rows that are no batch, no input or lack labels are refused with what was expected."""
    measurer = Measurer(dense().SerializeToString(), settings=Settings(BATCH))
    with pytest.raises(ModelRefused) as refused:
        measurer.measure(first, arrays, labels)
    assert message in str(refused.value)


def test_values_that_a_node_does_not_take() -> None:
    """An index beyond a table is refused with node and rows, in words of this package."""
    node = helper.make_node("Gather", ["table", "x"], ["y"], "lookup")
    table = {"table": np.ones((3, 2), np.float32)}
    file = model([node], [("x", np.int64, ["N"])], [("y", np.float32, ["N", 2])], table)
    measurer = Measurer(file.SerializeToString(), settings=Settings(BATCH))
    with pytest.raises(ModelRefused) as refused:
        measurer.measure(0, {"x": np.array([0, 7])})
    assert str(refused.value).startswith("node lookup cannot run over rows 0 to 1, not in FP32")


def test_an_output_that_is_no_batch() -> None:
    """A model whose output has no row for each row says so, and what to do."""
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], "all", keepdims=1)
    axes = {"axes": np.array([0], np.int64)}
    file = model([node], [("x", np.float32, ["N", 4])], [("y", np.float32, ["M", 4])], axes)
    measurer = Measurer(file.SerializeToString(), settings=Settings(BATCH))
    with pytest.raises(ModelRefused, match=r"output y is \[1, 4\] for 5 rows.*one axis more"):
        measurer.measure(0, {"x": X[:5]})


def test_measurements_of_strangers() -> None:
    """Bytes that are no measurements, of another model, or a batch twice, are refused."""
    part = measured(dense(), Settings(BATCH, 1), X[:BATCH], None)[0]
    data = part.to_bytes()
    for bad in (b"", b"{}", b"[1]", data[:-1], data.replace(b'"rows":64', b'"rows":"64"'),
                data.replace(b'"rows":64', b'"rows":1e999'), b"[" * 100_000):  # fmt: skip
        with pytest.raises(ModelRefused, match="not what MeasureAccuracy returned"):
            from_bytes(bad)
    with pytest.raises(ModelRefused, match="batch 0 was counted twice"):
        part.merge(from_bytes(data))
    second = measured(chain(), Settings(BATCH, 1), X[:BATCH], None)[0]
    with pytest.raises(ModelRefused, match="another model"):
        part.merge(second)


@pytest.mark.parametrize("turned", [0, 5, 60])
def test_the_worst_rows_are_the_first_of_all_sorted(turned: int) -> None:
    """Of a large batch the worst are turned rows, then large errors; of equal ones the first."""
    rng, run = np.random.default_rng(turned), Run("telum2", False, "dlfloat16", [])
    expected = np.tile(np.array([1, 2, 4], np.float32), (500, 1))
    hosted = expected + (rng.integers(0, 9, (500, 1)) / 16).astype(
        np.float32
    )  # many errors are equal
    hosted[rng.choice(500, turned, replace=False), 0] = 8
    judge_rows(run, 1000, {"y": Decided(hosted)}, {"y": Decided(expected)}, "y", None)
    errors, changed = row_errors(hosted, expected), hosted.argmax(1) != 2
    rows = sorted(range(500), key=lambda row: (not changed[row], -errors[row], row))
    assert [worst.row for worst in run.worst] == [1000 + row for row in rows[:MAX_WORST]]
    assert run.changed == turned
