# SPDX-License-Identifier: Apache-2.0
"""The page of `nnpa network validate` as HTML shows each fact, and shows it once."""

import json
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from nnpa_network.reporting.accuracy import Report, as_json, measure
from nnpa_network.reporting.accuracy_page import LOSING, STANDING_OUT, as_html
from nnpa_network.reporting.metrics import ULP_LABELS

from tests.network.hosting import Array, normal, text_model
from tests.network.small_models import dense

BOTH = "Telum I and Telum II"
# Sqrt and Gelu run on the accelerator of Telum II only, Exp and Tanh on both.
APART = "g (float[N,32] x) => (float[N,32] y) { a = Tanh(x) b = Exp(a) c = Sqrt(b) y = Gelu(c) }"
FAR = "g (float[N,4] x) => (float[N,4] y) <float k = {1000}> { a = Add(x, k) y = Sub(a, k) }"


def rows_of(x: Array) -> list[Mapping[str, Array]]:
    """Return each row of an array as a sample."""
    return [{"x": row[None]} for row in x]


def measured(body: str, x: Array) -> Report:
    """Return the report of a model over rows, on both Telums."""
    return measure(text_model(body), rows_of(x))


def part(page: str, start: str, end: str) -> str:
    """Return the part of a page from a text to the next text."""
    assert page.count(start) == 1
    return page.partition(start)[2].partition(end)[0]


def table_of(page: str, name: str) -> list[list[str]]:
    """Return the cells of the table with a class, row by row, without their tags."""
    rows = re.findall("<tr>.*?</tr>", part(page, f'<table class="{name}">', "</table>"), re.DOTALL)
    return [[re.sub("<[^>]*>", "", cell) for cell in re.findall("<t[hd].*?</t[hd]>", row)]
            for row in rows]  # fmt: skip


def node_rows_of(page: str) -> list[list[str]]:
    """Return the cells of the table of nodes."""
    return table_of(part(page, '<details class="nodes">', "</details>"), "dense")


def test_shows_equal_machines_once_and_says_so() -> None:
    """Where machines are equal each figure, line, bar and node stands once, under both names."""
    page = as_html(measure(dense().SerializeToString(), rows_of(normal(8, 4))))
    assert f"{BOTH} give equal results" in page
    assert table_of(page, "side")[0] == ["", BOTH]
    assert page.count("<polyline") == 1
    assert len(table_of(page, "bars")) == 1 + len(ULP_LABELS)
    names = [cells[0] for cells in node_rows_of(page)]
    assert names == ["node", "sum", "act"]  # the product is fused into the sum


def test_shows_only_what_differs_for_each_machine() -> None:
    """Nodes that differ have a row for each machine, equal ones a row with both names."""
    report = measured(APART, normal(8, 32))
    page = as_html(report)
    rows = node_rows_of(page)
    names = {(cells[0].partition("_")[0], cells[3]) for cells in rows[1:]}
    assert names == {
        ("Tanh", BOTH), ("Exp", BOTH), ("Sqrt", "Telum I"), ("Sqrt", "Telum II"),
        ("Gelu", "Telum I"), ("Gelu", "Telum II"),
    }  # fmt: skip
    assert len(rows) == 1 + 2 + 2 * 2
    assert f"{BOTH} differ, in 2 of 4 values of nodes" in page
    assert table_of(page, "side")[0] == ["", "Telum I", "Telum II"]
    assert page.count("<polyline") == 2


def test_names_the_nodes_that_lose_most() -> None:
    """The three nodes with the largest errors of their own are first, in falling order."""
    body = (
        "g (float[N,32] x) => (float[N,32] y) <float k = {100}> {"
        " a = Relu(x) b = Add(a, k) c = Sub(b, k) d = Tanh(c) y = Exp(d) }"
    )
    report = measured(body, normal(8, 32))
    nodes = json.loads(as_json(report))["runs"][0]["nodes"]
    expected = sorted(nodes, key=lambda node: -node["alone"])[:LOSING]
    shown = table_of(as_html(report), "losing")[1:]
    assert [cells[:3] for cells in shown] == [
        [str(rank), node["node"], node["op_type"]] for rank, node in enumerate(expected, 1)
    ]
    assert [float(cells[3]) for cells in shown] == [
        float(f"{node['alone']:.3g}") for node in expected
    ]


def test_says_that_no_node_adds_an_error() -> None:
    """A network of exact operations has no node that loses."""
    body = "g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }"
    page = as_html(measured(body, np.ones((4, 4), np.float32)))
    assert "No node adds an error." in page
    assert '<table class="losing">' not in page


def test_lists_no_row_where_none_stands_out() -> None:
    """With every answer kept and errors alike the page says so in place of a table."""
    page = as_html(measure(dense().SerializeToString(), rows_of(np.ones((4, 4), np.float32))))
    assert "none: no answer turned" in part(page, '<p class="worst">', "</p>")
    assert "answer</th>" not in page


@pytest.mark.parametrize("scales", [(100, 100, 100, 1), (100, 1, 100, 1)])
def test_lists_rows_whose_error_stands_out(scales: Sequence[int]) -> None:
    """Small rows beside large ones have a larger relative error, and are the only ones listed."""
    x = np.array([np.arange(1, 5) * (scale + 0.3) for scale in scales], np.float32)
    page = as_html(measured(FAR, x))
    worst = part(page, '<details class="worst" open>', "</details>")
    listed = re.findall(r"<tr><td>(\d+)</td>", worst)
    assert sorted(listed) == [str(row) for row, scale in enumerate(scales) if scale == 1]
    assert f"more than {STANDING_OUT} times" in worst


def test_lists_rows_whose_answer_turned() -> None:
    """Rows whose answer is not FP32's are listed with both answers and the node of the turn."""
    x = np.array([[0.1, 0.2, 0.3, 0.4]] * 2 + [[9.0, 1.0, 2.0, 3.0]], np.float32)
    worst = part(as_html(measured(FAR, x)), '<details class="worst" open>', "</details>")
    rows = re.findall(
        r'<tr><td>(\d+)</td><td class="bad">0</td><td>3</td>.*?>(\w*)</td></tr>', worst
    )
    assert rows == [("0", "Add_0"), ("1", "Add_0")]


def test_shows_the_page_without_measured_nodes() -> None:
    """A report without node by node has the outputs' distances in sight, and no chart of nodes."""
    report = measured(FAR, normal(4, 4))
    for run in report.measured.runs:
        run.values.clear()
    page = as_html(report)
    assert "Nodes that lose most" not in page
    assert "<svg class" not in page
    assert "<details open>\n<summary><strong>Distance of the outputs" in page
