# SPDX-License-Identifier: Apache-2.0
"""The view Models: answers about models and reports, and refusals of `nnpa view`."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnpa_tools.models.accuracy import read_accuracy
from onnx import helper

from tests.network.small_models import dense, model
from tests.server.page.serving import PageServer
from tests.tools.views.viewing import HOSTILE, refused, viewing, write_model_and_report

NEWER = (
    "runs[0].nodes is missing: no report of `nnpa network validate --json` of this version: "
    "nnpa 99.1 wrote it"
)
NODES = ["product", "sum", "act"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and its accuracy report."""
    place = tmp_path_factory.mktemp("models")
    write_model_and_report(place)
    return place


@pytest.fixture(scope="module")
def page(folder: Path) -> Iterator[PageServer]:
    """The page with model and report."""
    with viewing(folder / "dense.onnx", folder / "report.json") as server:
        yield server


def shown(page: PageServer) -> dict[str, Any]:
    """Return the answer of the view."""
    answer: dict[str, Any] = page.get("/data/models", page.token).data
    return answer


@pytest.mark.heavy
def test_a_model_is_shown_on_both_machines(page: PageServer, folder: Path) -> None:
    """Nodes have device, functions, shapes, sources and rank, on z16 and on z17."""
    answer = shown(page)
    assert answer["model"] == str(folder / "dense.onnx")
    assert [machine["machine"] for machine in answer["machines"]] == ["telum2", "telum1"]
    for machine in answer["machines"]:
        assert [node["name"] for node in machine["nodes"]] == NODES
        assert [node["device"] for node in machine["nodes"]] == ["accelerator"] * 3
        assert [node["sources"] for node in machine["nodes"]] == [[], [0], [1]]
        assert [node["rank"] for node in machine["nodes"]] == [0, 1, 2]
        assert machine["nodes"][2]["shapes"] == ["32 x 3"]
        assert machine["placed"].startswith("compiler: 3 nodes on the accelerator")


def test_shows_the_estimate_of_each_machine(page: PageServer) -> None:
    """The total time and the times of functions and nodes are intervals with a grade."""
    for machine in shown(page)["machines"]:
        estimate = machine["estimate"]
        assert " to " in estimate["total"]
        assert "grade" in estimate["total"]
        assert {line["function"] for line in estimate["lines"]} >= {"stickify", "unstickify"}
        assert estimate["dominant"].endswith(".")
        assert any("grade" in node["time"] for node in machine["nodes"])


def test_shows_errors_at_their_nodes(page: PageServer) -> None:
    """A node has the report's errors of its own values on its own machine."""
    answer = shown(page)
    for machine in answer["machines"]:
        errors = machine["nodes"][2]["errors"]
        run = next(run for run in answer["report"]["runs"] if run["machine"] == machine["machine"])
        assert errors == [entry for entry in run["nodes"] if entry["value"] == "y"]
        assert 0 < errors[0]["l2r"] < 0.01


def test_shows_the_whole_report(page: PageServer, folder: Path) -> None:
    """The view has the verdict, outputs and nodes of the report's file."""
    report = json.loads((folder / "report.json").read_text("utf-8"))
    inside = shown(page)["report"]
    assert inside["verdict"] == report["verdict"]
    assert [run["outputs"][0]["l2r"] for run in inside["runs"]] == [
        run["outputs"][0]["l2r"] for run in report["runs"]
    ]
    assert inside["about"]["model"] == "dense.onnx"


def test_shows_a_report_without_its_model(folder: Path) -> None:
    """A report without a model is shown, with no machine."""
    with viewing(folder / "report.json") as page:
        assert page.get("/data/views", page.token).data == ["models"]
        answer = shown(page)
    assert (answer["model"], answer["machines"]) == ("", [])
    assert [node["op_type"] for node in answer["report"]["runs"][0]["nodes"]]


@pytest.mark.heavy
def test_a_node_on_the_host_says_why(tmp_path: Path) -> None:
    """A node that stays on the host has the reason, and is left out of the estimate by name."""
    nodes = [helper.make_node("Erf", ["x"], ["e"], "erf"),
             helper.make_node("Relu", ["e"], ["y"], "relu")]  # fmt: skip
    shape = [32, 64]
    proto = model(nodes, [("x", np.float32, shape)], [("y", np.float32, shape)])
    (tmp_path / "host.onnx").write_bytes(proto.SerializeToString())
    with viewing("--machine", "z17", tmp_path / "host.onnx") as page:
        (machine,) = shown(page)["machines"]
    erf = machine["nodes"][0]
    assert erf["device"] == "host"
    assert erf["reason"]
    assert any("1 of the model's nodes" in text for text in machine["estimate"]["missing"])


@pytest.mark.heavy
def test_bad_models_are_refused(tmp_path: Path) -> None:
    """A model that is cut, of a newer version, or none is refused by what is wrong with it."""
    whole = dense(32)
    cut, newer, text = tmp_path / "cut.onnx", tmp_path / "newer.onnx", tmp_path / "text.onnx"
    data = whole.SerializeToString()
    cut.write_bytes(data[: len(data) // 2])
    whole.opset_import[0].version = 999
    newer.write_bytes(whole.SerializeToString())
    text.write_bytes(b"no model at all")
    for path, word in ((cut, "MODEL_INVALID"), (newer, "999"), (text, "MODEL_INVALID")):
        result = refused(path)
        assert result.exit_code == 4, result.output
        assert word in result.output, result.output


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("empty", b"", "empty, must be a trace, an ONNX model or an accuracy report"),
        ("page.html", b"<!DOCTYPE html>", "a page by itself: open it in a browser"),
        ("cut.json", b'{"verdict": "Keeps', "not JSON, or cut: Unterminated string"),
        ("deep.json", b"[" * 100_000, "not JSON, or cut: "),
        ("nan.json", b'{"verdict": NaN}', "not JSON, or cut: NaN is no number of JSON"),
        ("list.json", b"[]", "the file is '[]', must be an object"),
        ("other.json", b"{}", "verdict is missing: no report of `nnpa network validate --json`"),
    ],
)
def test_refuses_other_files(tmp_path: Path, name: str, content: bytes, text: str) -> None:
    """A file of another kind is refused, and the refusal says what is wrong with it."""
    (tmp_path / name).write_bytes(content)
    result = refused(tmp_path / name)
    assert result.exit_code == 2
    assert f"{name}: " in result.output
    assert text in result.output


def _newer(report: dict[str, Any]) -> None:
    report["about"]["versions"] = "nnpa 99.1, Python 3.99"
    del report["runs"][0]["nodes"]


def _hostile(report: dict[str, Any]) -> None:
    report["about"]["versions"] = "nnpa \x1b[2J, Python 3.99"
    report["runs"] = "\x1b[2J"


def _wrong_kind(report: dict[str, Any]) -> None:
    report["runs"][1]["outputs"][0]["l2r"] = "much"


def _infinite(report: dict[str, Any]) -> None:
    report["runs"][0]["nodes"][0]["alone"] = "1e999"


def _not_whole(report: dict[str, Any]) -> None:
    report["samples"] = 1.5


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_newer, NEWER),
        (_hostile, r"runs is '\x1b[2J', must be a list: no report of"),
        (_wrong_kind, "runs[1].outputs[0].l2r is 'much', must be a number or null"),
        (_infinite, "runs[0].nodes[0].alone is 'inf', must be a number or null"),
        (_not_whole, "samples is '1.5', must be a whole number"),
    ],
)
def test_refuses_reports_of_another_form(
    folder: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None], text: str
) -> None:
    """A report with other fields is refused by field, value and version."""
    report = copy.deepcopy(json.loads((folder / "report.json").read_text("utf-8")))
    change(report)
    written = json.dumps(report).replace('"1e999"', "1e999")
    (tmp_path / "bad.json").write_text(written, encoding="utf-8")
    with pytest.raises(ValueError, match=r"bad\.json: ") as caught:
        read_accuracy(tmp_path / "bad.json")
    assert text in str(caught.value)
    assert str(caught.value).isprintable()


def test_reads_hostile_names_as_text(folder: Path, tmp_path: Path) -> None:
    """Markup in the names of a report is read as text."""
    report = json.loads((folder / "report.json").read_text("utf-8"))
    report["runs"][0]["nodes"][0]["node"] = HOSTILE
    (tmp_path / "names.json").write_text(json.dumps(report), encoding="utf-8")
    assert read_accuracy(tmp_path / "names.json").runs[0].nodes[0]["node"] == HOSTILE


def test_refuses_two_models_or_two_reports(folder: Path) -> None:
    """A second model or report is refused by number and limit."""
    for name, kind in (("dense.onnx", "models"), ("report.json", "reports")):
        result = refused(folder / name, folder / name)
        assert result.exit_code == 2
        assert f"FILES: 2 {kind}, at most 1" in result.output
