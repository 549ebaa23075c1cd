# SPDX-License-Identifier: Apache-2.0
"""`nnpa network validate` on all cores: the same report however it was spread, and who died."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from nnpa_tools.cli import main
from onnx import helper

from tests.network.small_models import dense, dense_reference, model
from tests.server.process import PATIENCE, wait_until
from tests.tools.evaluation.pipes import readers
from tests.tools.evaluation.requests import evaluate_rows, evaluation

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


def workers(process: psutil.Process | None = None) -> list[psutil.Process]:
    """Return the worker processes of the pools that a process, else this one, has begun."""
    servers = filter(_is_fork_server, (process or psutil.Process()).children())
    return [worker for server in servers for worker in server.children()]


def _is_fork_server(process: psutil.Process) -> bool:
    try:
        return any("forkserver" in word for word in process.cmdline())
    except psutil.NoSuchProcess:  # a zombie's words are gone
        return False


@pytest.mark.heavy
def test_reports_are_equal_byte_for_byte(job: dict[str, Any]) -> None:
    """JSON, text and page are the same for this process, for workers, and after a SIGKILL."""
    killed: list[int] = []

    def kill(_done: int, _rows: int) -> None:
        if not killed:
            victim = workers()[0]
            victim.send_signal(signal.SIGKILL)
            killed.append(victim.pid)

    expected = evaluate_rows(job)
    assert expected.report["samples"] == len(X)
    for jobs in (2, 3):
        assert evaluate_rows(job | {"jobs": jobs}) == expected
    assert evaluate_rows(job | {"jobs": 2}, kill) == expected
    assert killed
    assert not expected.report["unmeasured"]


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


@pytest.mark.heavy
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


@pytest.mark.heavy
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


@pytest.mark.heavy
def test_a_command_that_is_killed_leaves_no_worker(tmp_path: Path, job: dict[str, Any]) -> None:
    """Workers end with the command, however it ends."""
    np.save(tmp_path / "many.npy", np.resize(X, (200_000, 4)))
    words = ["network", "validate", str(job["model"]), "--data", str(tmp_path / "many.npy")]
    command = [sys.executable, "-m", "nnpa_tools", *words, "--batch", "1", "--jobs", "2"]
    ran = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    left: list[psutil.Process] = []

    def has_workers() -> bool:
        assert ran.poll() is None
        left[:] = workers(psutil.Process(ran.pid))
        return len(left) == 2

    try:
        wait_until(has_workers, 4 * PATIENCE)
    finally:
        ran.kill()
        ran.wait()
    _gone, alive = psutil.wait_procs(left, PATIENCE)
    assert not alive


COUNTED = """
import sys
counted = []

def count(event, arguments):
    if event in ("os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen"):
        counted.append(event)
    elif event == "open" and str(arguments[0]) == sys.argv[-1]:
        counted.append("open")

sys.addaudithook(count)
from nnpa_tools.cli import main
main(sys.argv[1:], standalone_mode=False)
print(counted, file=sys.stderr)
"""


@pytest.mark.heavy
def test_one_job_opens_rows_once_and_has_no_child(tmp_path: Path, job: dict[str, Any]) -> None:
    """`--jobs 1` measures in the command's own process, which reads the data once."""
    lines = "\n".join(",".join(map(str, row)) for row in X[:20].tolist())
    (tmp_path / "rows.csv").write_text(lines)
    words = ["network", "validate", str(job["model"]), "--jobs", "1"]
    command = [sys.executable, "-c", COUNTED, *words, "--data", str(tmp_path / "rows.csv")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "small, placement compiler: 20 runs beside FP32" in ended.stdout
    assert ended.stderr.splitlines()[-1] == "['open']"


STACKED = """
import sys
from pathlib import Path

kernels = "/nnpa_emulator/kernels/"

def look(frame, event, _argument):
    if event != "call" or kernels not in frame.f_code.co_filename:
        return
    files = []
    while frame is not None:
        files.append(frame.f_code.co_filename)
        frame = frame.f_back
    modules = [file for file in dict.fromkeys(files) if "/nnpa_" in file]
    if any(file.endswith("reporting/machine_runs.py") for file in modules):
        sys.setprofile(None)
        print(*modules, sep="\\n", file=sys.stderr)

from nnpa_tools.cli import main
sys.setprofile(look)
main(sys.argv[1:], standalone_mode=False)
"""


@pytest.mark.heavy
@pytest.mark.shortcut
def test_few_modules_lie_between_the_command_and_the_first_kernel(job: dict[str, Any]) -> None:
    """The way from `validate` to the first kernel of a row has at most 16 modules, both counted."""
    words = ["network", "validate", str(job["model"]), "--jobs", "1", "--samples", "2"]
    command = [sys.executable, "-c", STACKED, *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = ended.stderr.splitlines()
    names = ["/".join(Path(module).parts[-2:]) for module in modules]
    way = names[: names.index("commands/validate.py") + 1]
    assert "nnpa_emulator/kernels" in modules[0]
    assert 3 < len(way) <= 16, way


@pytest.mark.heavy
def test_the_worst_rows_are_saved(job: dict[str, Any], tmp_path: Path) -> None:
    """`--worst` writes inputs, row numbers and labels of the rows that the report lists."""
    worst = tmp_path / "worst.npz"
    words = ["network", "validate", job["model"], "--data", job["data"], "--labels", "y"]
    options = ["--jobs", 1, "--batch", BATCH, "--worst", worst, "--json"]
    result = CliRunner().invoke(main, list(map(str, [*words, *options])))
    assert result.exit_code == 0, result.output
    runs = json.loads(result.stdout)["runs"]
    with np.load(worst) as saved:
        np.testing.assert_array_equal(saved["x"], X[saved["row"]])
        assert {row["row"] for row in runs[0]["worst"]} <= set(saved["row"].tolist())
        assert len(saved["label"]) == len(saved["row"])
