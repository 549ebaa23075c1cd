# SPDX-License-Identifier: Apache-2.0
"""A network beside FP32: figures against their definitions, the page, and the probe."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest
from nnpa_emulator import Guest, find_machine
from nnpa_emulator.reference.comparison import ulps
from nnpa_network.importing.onnx_import import ImportOptions, import_onnx
from nnpa_network.program import ModelRefused
from nnpa_network.reporting.accuracy import as_json, measure, node_rows
from nnpa_network.reporting.accuracy_page import as_html
from nnpa_network.reporting.accuracy_text import as_text
from nnpa_network.reporting.metrics import ULP_LABELS, Agreement, Tally
from nnpa_network.reporting.probe import probe

from tests.network import real_models
from tests.network.hosting import Array, normal, text_model

MASKED = (
    "g (float[2,N] x) => (float[2,N] y) <float low = {-3.4e38}, float one = {1}> {"
    " off = Sub(one, x) m = Mul(off, low) s = Add(x, m) y = Softmax(s) }"
)


def test_figures_are_their_definitions() -> None:
    """RMSE, MAE, L2R, MEAN, STD, NSE and COS are what their names say, over several batches."""
    expected, got = normal(4, 50), normal(4, 50) + normal(4, 50, seed=1) / 100
    tally = Tally()
    for actual, exact in zip(got, expected, strict=True):
        tally.add(actual, exact)
    a, b = got.astype(np.float64), expected.astype(np.float64)
    error = a - b
    assert tally.rmse == pytest.approx(np.sqrt((error**2).mean()))
    assert tally.mae == pytest.approx(np.abs(error).mean())
    assert tally.largest == pytest.approx(np.abs(error).max())
    assert tally.l2r == pytest.approx(np.linalg.norm(error) / np.linalg.norm(b))
    assert tally.mean == pytest.approx(error.mean())
    assert tally.std == pytest.approx(error.std())
    assert tally.nse == pytest.approx(1 - (error**2).sum() / ((b - b.mean()) ** 2).sum())
    assert tally.cosine == pytest.approx((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))
    assert sum(tally.histogram) == 200


def test_ulps_are_dlfloats() -> None:
    """One unit of the last place is 2^-9 of the power of two below, 2^-40 at the least."""
    expected = np.array([1.0, 1.999, 2.0, -3.0, 0.0])
    distance = ulps(expected + np.array([2**-9, 2**-9, 2**-8, -(2**-8), 2**-40]), expected)
    np.testing.assert_allclose(distance, 1, rtol=1e-6)


def test_what_is_no_number_counts_apart() -> None:
    """NaN and infinities enter no figure; without any number the figures are NaN."""
    tally = Tally()
    tally.add(np.array([1.0, np.nan, np.inf]), np.array([1.0, 1.0, 1.0]))
    assert (tally.bad, tally.numbers, tally.mae, tally.histogram[-1]) == (2, 1, 0.0, 2)
    tally = Tally()
    tally.add(np.array([np.nan]), np.array([1.0]))
    assert all(np.isnan(measure) for measure in (tally.mae, tally.l2r, tally.nse, tally.cosine))


def test_agreement_counts_classes() -> None:
    """ACC is the share of equal decisions, CM has the reference down and the network across."""
    agreement = Agreement()
    agreement.add(np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([[0.3, 0.7], [0.4, 0.6]]))
    assert agreement.accuracy == 0.5
    assert agreement.confusion == [[0, 0], [1, 1]]


def test_report_of_the_tagger() -> None:
    """Both machines with and without saturation, every node of the accelerator, three forms."""
    report = measure(real_models.tagger(), [real_models.words(4), real_models.words(4)])
    runs = [(run.machine, run.saturate) for run in report.measured.runs]
    assert runs == [("telum1", True), ("telum1", False), ("telum2", True), ("telum2", False)]
    for run in report.measured.runs:
        (output,) = run.outputs.values()
        assert output.tally.count == 2 * 24 * 4 * 9
        assert 0 < output.tally.rmse < 0.01
        assert output.agreement.accuracy > 0.97
        assert run.first is None
        assert "LSTM" in {row.node.op_type for row in node_rows(report, run)}
    content = json.loads(as_json(report))
    assert content["samples"] == 2
    assert set(content["runs"][0]["outputs"][0]["ulps"]) == set(ULP_LABELS)
    assert "telum2, node by node" in as_text(report)


def test_saturation_column() -> None:
    """Without saturation a mask of the least FP32 number is the first violation, with its elements.

    With saturation all is well.
    """
    feeds: dict[str, Array] = {"x": np.array([[1, 1, 0, 0]] * 2, np.float32)}
    report = measure(text_model(MASKED), [feeds], machines=("telum2",))
    saturating, plain = report.measured.runs
    assert saturating.first is None
    assert saturating.outputs["y"].nans == 0
    assert saturating.outputs["y"].agreement.accuracy == 1
    assert plain.outputs["y"].nans > 0
    assert plain.first is not None
    assert (plain.first.op_type, plain.first.function) == ("Mul", "mul")
    assert "[0, 0, 0, 0] is not numeric" in plain.first.elements[0]
    assert "first range violation at Mul_1" in as_text(report)
    assert (saturating.rows, plain.rows) == (1, 1)


class _Loads(HTMLParser):
    """Collects what a page would load, and checks that tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note links and open tags."""
        self.loaded.extend(value or "" for name, value in attrs if name in ("src", "href"))
        if tag not in ("meta", "circle", "line", "rect", "polyline", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close a tag."""
        if tag in self.open:
            assert self.open.pop() == tag


def test_page_is_self_contained() -> None:
    """The page loads nothing, closes its tags, and escapes names."""
    body = MASKED.replace("g (", "net (", 1)
    feeds: dict[str, Array] = {"x": np.array([[1, 1, 0, 0]] * 2, np.float32)}
    evil = text_model(body).replace(b"net", b"<b>")
    page = as_html(measure(evil, [feeds]))
    parser = _Loads()
    parser.feed(page)
    assert parser.loaded == []
    assert parser.open == []
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
    assert "<script" not in page


def test_probe_finds_the_size() -> None:
    """A network whose softmax overflows from some size on is caught at that size, not before."""
    body = (
        "g (float[1,N] x) => (float[1,N] y) <float big = {7e8}> {"
        " s = Add(x, big) r = ReduceSum <keepdims = 1> (s) e = Add(r, x) y = Softmax(e) }"
    )
    options = ImportOptions(saturate=False)
    rows = probe(text_model(body), machines=("telum2",), options=options)
    first = {
        kind: min(row.sizes["N"] for row in rows if row.inputs == kind and row.nans)
        for kind in ("zeros", "extremes")
    }
    assert first == {"zeros": 31, "extremes": 1}
    assert {row.first for row in rows if row.nans} <= {"Add_0", "Add_2"}


def test_probe_reports_limits() -> None:
    """A size that a model cannot have is a limit in its row, not the end of the probe."""
    body = "g (float[N] x) => (float[64] y) <float[64] w> { y = Add(x, w) }"
    model = text_model(body.replace("<float[64] w>", f"<float[64] w = {{{','.join('0' * 64)}}}>"))
    rows = probe(model, machines=("telum1",))
    fine = {row.sizes["N"] for row in rows if not row.limit}
    assert fine == {1, 64}
    assert all("Add" in row.limit for row in rows if row.limit)


def test_measuring_without_data_is_refused() -> None:
    """Measuring nothing, or with inputs that do not fit, is refused."""
    model = text_model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    with pytest.raises(ModelRefused, match="no data"):
        measure(model, [])
    with pytest.raises(ModelRefused, match=r"reference|expected"):
        measure(model, [{"x": normal(3)}])


def test_violations_name_their_elements() -> None:
    """A range violation of a run names node, function and the operands of the first elements."""
    model = text_model("g (float[4] x) => (float[4] y) { e = Exp(x) y = Relu(e) }")
    hosted = import_onnx(model, Guest(find_machine("telum2")))
    result = hosted.run({"x": np.array([0, 100, 1, 200], np.float32)})
    first = result.violations[0]
    assert (first.node, first.verb) == (0, "exp")
    assert first.violation is not None
    (operand,) = first.violation.operands
    assert [element.index[-1] for element in operand.elements] == [1, 3]
    assert result.nans == {"y": 2}
