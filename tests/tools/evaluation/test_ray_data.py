# SPDX-License-Identifier: Apache-2.0
"""Evaluation as a callable class: batches in any order give the report of one process."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from nnpa_network.program import Array, ModelRefused
from nnpa_network.reporting.accuracy import as_json
from nnpa_network.reporting.measuring import Settings
from nnpa_tools.evaluation.ray_data import MeasureBatch, report
from onnx import helper

from tests.deploy.fleet import free_port
from tests.network.small_models import dense, dense_reference, model
from tests.tools.evaluation.nodes import cluster
from tests.tools.evaluation.requests import evaluate_rows, evaluation

MANUAL = Path(__file__).parents[3] / "deploy/docs/tools/accuracy.md"
HAS_RAY_DATA = find_spec("ray") is not None and find_spec("pandas") is not None
ROWS, BATCH = 500, 32
X = np.random.default_rng(21).standard_normal((ROWS, 4)).astype(np.float32)
Y = dense_reference(X).argmax(1)


def columns(rows: Array) -> dict[str, Array]:
    """Return rows as Ray Data gives them: a column of each number, of labels, of row numbers."""
    return {**{f"x.{i}": X[rows, i] for i in range(4)}, "y": Y[rows], "row": rows}


def measured(batches: list[Array]) -> Iterator[dict[str, Any]]:
    """Yield what a worker gives for batches of rows, row by row."""
    settings = Settings(batch_rows=BATCH, int8=True)
    worker = MeasureBatch(dense().SerializeToString(), labels="y", settings=settings)
    for rows in batches:
        for part in worker(columns(rows))["measured"]:
            yield {"measured": part}


def report_of(batches: list[Array]) -> dict[str, Any]:
    """Return the report of batches without the data's name."""
    document: dict[str, Any] = json.loads(as_json(report(measured(batches))))
    return document


@pytest.mark.heavy
def test_whole_batches_in_any_order_give_the_report_of_one_process(tmp_path: Path) -> None:
    """Batches and rows in any order give the same measurements, bit for bit."""
    (tmp_path / "dense.onnx").write_bytes(dense().SerializeToString())
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    changes = {"labels": "y", "batch": BATCH, "about": {}}
    job = evaluation(tmp_path / "dense.onnx", tmp_path / "data.npz", **changes)
    expected = evaluate_rows(job).report
    numbers = np.arange(ROWS)
    batches = [numbers[first : first + BATCH][::-1] for first in range(0, ROWS, BATCH)]
    document = report_of(batches[::-1])
    differ = {key for key in expected if document[key] != expected[key]}
    assert differ <= {"about"}


def test_a_path_with_external_data(tmp_path: Path) -> None:
    """A worker reads the external data beside the path of a model."""
    path = tmp_path / "dense.onnx"
    onnx.save(dense(), path, save_as_external_data=True, location="w", size_threshold=0)
    rows = columns(np.arange(4))
    models = str(path), dense().SerializeToString()
    parts = [MeasureBatch(model, labels="y")(rows)["measured"] for model in models]
    rows_of = [[{"measured": measurement} for measurement in part] for part in parts]
    apart, whole = (as_json(report(rows)) for rows in rows_of)
    assert apart == whole


@pytest.mark.heavy
def test_cut_batches_have_the_same_rows() -> None:
    """Batches cut anywhere, with gaps, count the same answers; sums are equal to 12 digits."""
    numbers = np.arange(ROWS)
    whole = report_of([numbers[first : first + BATCH] for first in range(0, ROWS, BATCH)])
    cut = report_of([numbers[::2], numbers[1:301:2], numbers[301::2]])
    assert cut["samples"] == whole["samples"] == ROWS
    for ours, theirs in zip(cut["runs"], whole["runs"], strict=True):
        for key, number in ours.items():
            if isinstance(number, int | float):
                assert number == pytest.approx(theirs[key], rel=1e-12), key


def test_a_batch_that_is_measured_twice_is_refused() -> None:
    """A report has each row once: a repeated row is an error, not a second count."""
    rows = np.arange(BATCH)
    with pytest.raises(ModelRefused):
        report_of([rows, rows])


def test_rows_without_a_number_are_told() -> None:
    """A table that does not number its rows is refused with the columns that it has."""
    worker = MeasureBatch(dense().SerializeToString(), row="index")
    with pytest.raises(ValueError, match=r"column 'index' is missing, .*: there are row, x\.0,"):
        worker(columns(np.arange(3)))


@pytest.mark.heavy
@pytest.mark.skipif(not HAS_RAY_DATA, reason="there is no Ray Data: pip install 'ray[data]'")
def test_the_example_runs(tmp_path: Path) -> None:
    """The manual's pipelines over Parquet and over a folder of images print whole reports."""
    pillow = pytest.importorskip("PIL.Image", reason="Pillow comes with the extra `data`")
    parquet = pytest.importorskip("pyarrow.parquet", reason="it comes with the extra `data`")
    arrow = pytest.importorskip("pyarrow", reason="it comes with the extra `data`")
    parquet.write_table(arrow.table(columns(np.arange(ROWS))), tmp_path / "rows.parquet")
    (tmp_path / "dense.onnx").write_bytes(dense().SerializeToString())
    shape: list[int | str] = ["N", 3, 4, 6]
    ends = [("x", np.float32, shape)], [("y", np.float32, shape)]
    sigmoid = model([helper.make_node("Sigmoid", ["x"], ["y"], "act")], *ends)
    (tmp_path / "pixels.onnx").write_bytes(sigmoid.SerializeToString())
    (tmp_path / "images").mkdir()
    for number in range(20):
        pillow.new("RGB", (6, 4), (number, 2, 3)).save(tmp_path / f"images/{number:02}.png")
    blocks = re.findall(r"```python\n(.*?)```", MANUAL.read_text("utf-8"), re.DOTALL)
    (example,) = (block for block in blocks if "import ray\n" in block)
    with cluster(free_port(), free_port()) as ray_cluster:
        ray_cluster.start(4)  # two actors, and what reads for them
        code = example.replace("127.0.0.1:6379", ray_cluster.address)
        ended = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
    assert ended.returncode == 0, ended.stderr
    assert ": 500 runs beside FP32" in ended.stdout
    assert ": 20 runs beside FP32" in ended.stdout
