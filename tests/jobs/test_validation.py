# SPDX-License-Identifier: Apache-2.0
"""`nnpa network validate` on all cores: the same report however it was spread, and who died."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from nnpa_client import TransportError
from nnpa_tools.cli import main
from nnpa_tools.jobs import Evaluated, evaluate_rows
from onnx import helper

from tests.jobs.pipes import readers
from tests.jobs.requests import evaluation
from tests.network.small_models import dense, dense_reference, model

RNG = np.random.default_rng(20)
X = RNG.standard_normal((500, 4)).astype(np.float32)
BATCH = 32


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    """An evaluation of the dense model over 500 rows with labels."""
    (tmp_path / "dense.onnx").write_bytes(dense().SerializeToString())
    np.savez(tmp_path / "data.npz", x=X, y=dense_reference(X).argmax(1))
    labels = {"labels": "y", "max_drop": 0.01, "html": True, "batch": BATCH}
    return evaluation(tmp_path / "dense.onnx", tmp_path / "data.npz", **labels)


def evaluations() -> list[psutil.Process]:
    """Return the evaluations that this process has begun; other tests' servers are none."""
    return [child for child in psutil.Process().children() if _is_evaluation(child)]


def _is_evaluation(process: psutil.Process) -> bool:
    try:
        return "nnpa_tools.evaluation" in process.cmdline()
    except psutil.NoSuchProcess:  # a zombie's words are gone
        return False


def workers() -> list[psutil.Process]:
    """Return the workers of the evaluations that this process has begun."""
    return [
        child for job in evaluations() for server in job.children() for child in server.children()
    ]


def ignore(_done: int, _rows: int) -> None:
    """Take no notice of progress."""


@pytest.mark.heavy
def test_reports_are_equal_byte_for_byte(job: dict[str, Any]) -> None:
    """JSON, text and page are the same for 1, 2 and 3 workers, 7 parts, and after a SIGKILL."""
    killed: list[int] = []

    def kill(_done: int, _rows: int) -> None:
        if not killed:
            victim = workers()[0]
            victim.send_signal(signal.SIGKILL)
            killed.append(victim.pid)

    expected = evaluate_rows(job, ignore)
    assert json.loads(expected.json)["samples"] == len(X)
    for changes in ({"jobs": 2}, {"jobs": 3, "parts": 7}):
        assert evaluate_rows(job | changes, ignore) == expected
    assert evaluate_rows(job | {"jobs": 2, "parts": 7}, kill) == expected
    assert killed
    assert not expected.incomplete


class Trap:
    """A pipe in place of an image: who reads it is killed."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path, self.deaths, self._over = path, 0, False
        self._thread = threading.Thread(target=self._kill_readers)
        self._thread.start()

    def _kill_readers(self) -> None:
        while True:
            with self._path.open("wb"):  # waits for a reader
                if self._over:
                    return
                for worker in readers(self._path, workers()):
                    worker.kill()
                    worker.wait()
                    self.deaths += 1

    def close(self) -> None:
        """Set nobody on fire any more."""
        self._over = True
        with self._path.open("rb"):
            self._thread.join()


def test_a_row_that_kills_every_worker_is_named(tmp_path: Path) -> None:
    """The report has all other rows, says which is missing and why, and the exit code is 1."""
    pillow = pytest.importorskip("PIL.Image", reason="Pillow comes with the extra `data`")
    shape: list[int | str] = ["N", 3, 4, 6]
    relu = model(
        [helper.make_node("Relu", ["x"], ["y"], "act")],
        [("x", np.float32, shape)],
        [("y", np.float32, shape)],
    )
    (tmp_path / "relu.onnx").write_bytes(relu.SerializeToString())
    folder = tmp_path / "images"
    folder.mkdir()
    for number in (*range(5), *range(6, 10)):
        pillow.new("RGB", (6, 4), (number, 2, 3)).save(folder / f"{number}.png")
    trap = Trap(folder / "5.png")
    try:
        words = ["network", "validate", str(tmp_path / "relu.onnx"), "--data", str(folder)]
        options = ["--layout", "NCHW", "--scale", "1", "--batch", "4", "--jobs", "2", "--json"]
        result = CliRunner().invoke(main, [*words, *options])
    finally:
        trap.close()
    assert result.exit_code == 1, result.output
    assert "Row 5 ended every worker (SIGKILL)" in result.stderr
    report = json.loads(result.stdout)
    assert report["unmeasured"] == [{"first": 5, "last": 5, "why": "SIGKILL"}]
    assert report["samples"] == 9
    assert "incomplete: row 5 ended every worker (SIGKILL)" in report["verdict"]
    rows = sorted(worst["row"] for worst in report["runs"][0]["worst"])
    assert rows == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert trap.deaths >= 6  # of the batch, of its half, of the row


def test_bad_input_is_refused_as_by_a_server(job: dict[str, Any], tmp_path: Path) -> None:
    """Data, options and models that do not fit have the sentences, and exit codes 2 and 4."""
    np.save(tmp_path / "wide.npy", np.ones((3, 5), np.float32))
    (tmp_path / "garbage.onnx").write_bytes(b"no model")
    dense_model, garbage = job["model"], tmp_path / "garbage.onnx"
    cases: list[tuple[list[object], int, str]] = [
        ([dense_model, "--data", tmp_path / "wide.npy"], 2, "input x is [3, 5], expected rows"),
        ([dense_model, "--data", tmp_path / "none.npz"], 2, "none.npz: there is no such file"),
        ([dense_model, "--machine", "z99"], 2, "`nnpa info` lists the machines"),
        ([dense_model, "--jobs", "0"], 2, "'0', expected auto or 1 to 1024"),
        ([dense_model, "--jobs", "2", "--target", "unix:/x"], 2, "--jobs: the server at --target"),
        ([garbage], 4, "MODEL_INVALID: the model cannot be hosted"),
    ]
    for words, code, message in cases:
        result = CliRunner().invoke(main, ["network", "validate", *map(str, words)])
        assert result.exit_code == code, result.output
        assert message in result.output


def test_a_child_that_is_killed_is_told(job: dict[str, Any]) -> None:
    """An evaluation whose process ends early is an error, and leaves no worker behind."""
    left: list[psutil.Process] = []

    def kill(_done: int, _rows: int) -> None:
        left.extend(workers())
        for child in evaluations():
            child.kill()

    with pytest.raises(TransportError, match="ended early"):
        evaluate_rows(job | {"jobs": 2}, kill)
    assert left
    _gone, alive = psutil.wait_procs(left, 10)
    assert not alive


def test_the_worst_rows_are_saved(job: dict[str, Any], tmp_path: Path) -> None:
    """`worst` writes inputs, row numbers and labels of the rows that the report lists."""
    worst = tmp_path / "worst.npz"
    made: Evaluated = evaluate_rows(job | {"worst": str(worst)}, ignore)
    runs = json.loads(made.json)["runs"]
    with np.load(worst) as saved:
        np.testing.assert_array_equal(saved["x"], X[saved["row"]])
        assert {row["row"] for row in runs[0]["worst"]} <= set(saved["row"].tolist())
        assert len(saved["label"]) == len(saved["row"])
