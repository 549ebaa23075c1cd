# SPDX-License-Identifier: Apache-2.0
"""`nnpa network validate --ray`: a real cluster on loopback gives the report of one process.

Needs Ray (the extra `ray`), which .ci/full installs.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from nnpa_tools.cli import main
from nnpa_tools.evaluation.datasets import Preprocessing
from nnpa_tools.evaluation.results import Accuracy
from nnpa_wire.installation import pip_install
from onnx import helper

from tests.deploy.fleet import free_port
from tests.network.small_models import model
from tests.server.process import PATIENCE, wait_until
from tests.tools.evaluation.nodes import HAS_RAY, Cluster, Node, needs_ray, python_without_nnpa
from tests.tools.evaluation.pipes import Action, Gate, readers
from tests.tools.evaluation.requests import evaluate_rows, evaluation

pytestmark = pytest.mark.heavy
IMAGES, BATCH, SIZE = 60, 4, (6, 4)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An evaluation of a small model over a folder of images."""
    pillow = pytest.importorskip("PIL.Image", reason="Pillow comes with the extra `data`")
    folder = tmp_path_factory.mktemp("cluster")
    shape: list[int | str] = ["N", 3, *reversed(SIZE)]
    ends = [("x", np.float32, shape)], [("y", np.float32, shape)]
    sigmoid = model([helper.make_node("Sigmoid", ["x"], ["y"], "act")], *ends)
    (folder / "sigmoid.onnx").write_bytes(sigmoid.SerializeToString())
    (folder / "images").mkdir()
    for number in range(IMAGES):
        picture = pillow.new("RGB", SIZE, (number, 2 * number, 3 * number))
        picture.save(folder / "images" / f"{number:02}.png")
    pixels = Preprocessing(layout="NCHW", scale=1 / 255)
    more = {"preprocessing": pixels, "batch": BATCH, "html": True}
    return evaluation(folder / "sigmoid.onnx", folder / "images", **more)


@pytest.fixture(scope="module")
def expected(job: dict[str, Any]) -> Accuracy:
    """Return the measurements of one process of this machine."""
    return evaluate_rows(job)


def ignore(_done: int, _rows: int) -> None:
    """Take no notice of progress."""


def gated(job: dict[str, Any], act: Action, progress: Callable[[int, int], None] = ignore) -> Any:
    """Evaluate while an image is a pipe, whose first reader waits until `act` has ended."""
    gate = Gate(image_of(job), [act])
    try:
        return evaluate_rows(job, progress)
    finally:
        gate.close()
        assert gate.acted == 1


def image_of(job: dict[str, Any]) -> Path:
    """Return the second image: each reader opens the first one for the size."""
    folder: Path = job["data"]
    return folder / "01.png"


@needs_ray
def test_a_killed_worker_does_not_change_the_report(
    job: dict[str, Any], expected: Accuracy, ray_cluster: Cluster
) -> None:
    """A worker dies by SIGKILL with a batch in its hands, and every byte is the same."""
    head = ray_cluster.start(2)
    killed: list[int] = []

    def kill() -> None:
        (worker,) = readers(image_of(job), head.processes())
        worker.kill()
        worker.wait()
        killed.append(worker.pid)

    assert gated(job | {"ray": ray_cluster.address, "jobs": None}, kill) == expected
    assert killed


@needs_ray
def test_reports_are_equal_for_any_workers(
    job: dict[str, Any], expected: Accuracy, ray_cluster: Cluster
) -> None:
    """One, two and three workers, and a driver that is no node give the same bytes."""
    ray_cluster.start(3)
    here, elsewhere = ray_cluster.address, ray_cluster.client
    for address, jobs in ((here, 1), (here, 2), (elsewhere, 3)):
        assert evaluate_rows(job | {"ray": address, "jobs": jobs}) == expected


@needs_ray
def test_a_node_may_be_lost(
    job: dict[str, Any], expected: Accuracy, ray_cluster: Cluster, tmp_path: Path
) -> None:
    """A node is killed with a batch in its hands: the other node measures it, the bytes agree.

    Nodes without compiled kernels use those that are sent, and keep none of their own.
    """
    ray_cluster.start(0)
    nodes = [ray_cluster.start(1, environment={"XDG_CACHE_HOME": str(tmp_path)}) for _ in range(2)]
    killed = list[Node]()

    def kill() -> None:
        (node,) = (node for node in nodes if readers(image_of(job), node.processes()))
        node.kill()
        killed.append(node)

    assert gated(job | {"ray": ray_cluster.address, "jobs": None}, kill) == expected
    assert len(killed) == 1
    assert not list(tmp_path.rglob("*.nbi"))


@needs_ray
def test_workers_that_differ_are_named(
    job: dict[str, Any], expected: Accuracy, ray_cluster: Cluster, tmp_path: Path
) -> None:
    """The report names a node with another version of a library; figures are the same."""
    package = tmp_path / "onnxruntime-0.0.1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime\nVersion: 0.0.1\n")
    ray_cluster.start(1)
    ray_cluster.start(1, environment={"PYTHONPATH": str(tmp_path)})
    all_but_one_batch = [False]

    def progress(done: int, rows: int) -> None:
        all_but_one_batch[0] = done >= rows - BATCH

    def wait() -> None:
        wait_until(lambda: all_but_one_batch[0], 4 * PATIENCE)

    evaluated: Accuracy = gated(job | {"ray": ray_cluster.address, "jobs": None}, wait, progress)
    report, single = dict(evaluated.report), dict(expected.report)
    first, second = sorted(kind["versions"] for kind in report.pop("workers"))
    (alone,) = single.pop("workers")
    assert {first, second} > {alone["versions"]}
    assert "onnxruntime 0.0.1 " in first + second
    assert report["runs"] == single["runs"]
    assert evaluated.text.count("workers differ") == 2
    assert f"({socket.gethostname()})" in evaluated.text


@needs_ray
def test_a_node_without_the_package_is_told(
    job: dict[str, Any], ray_cluster: Cluster, tmp_path: Path
) -> None:
    """Workers that cannot import nnpa are named, with what to install; exit code 2."""
    ray_cluster.start(0)
    ray_cluster.start(1, python=python_without_nnpa(tmp_path))
    answer = run(job, ray_cluster.address)
    assert answer.exit_code == 2, answer.output
    assert f"a node of the cluster lacks nnpa_tools: {pip_install('ray')}" in answer.output


@needs_ray
def test_a_wrong_address_is_told_in_time(job: dict[str, Any]) -> None:
    """No listener, a silent listener, or words that are no address end with exit code 2."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for address, message in (
            ("10.0.0.1", "'10.0.0.1': expected host:port or ray://host:port"),
            (f"127.0.0.1:{free_port()}", "no Ray cluster can be used there: [Errno 111]"),
            (f"127.0.0.1:{port}", "what listens there is no head node of Ray"),
            (f"ray://127.0.0.1:{port}", "no Ray cluster can be used there: ray client connection"),
            ("127.0.0.1:99999", "expected host:port or ray://host:port, a port of 1 to 65535"),
        ):
            answer = run(job, address)
            assert answer.exit_code == 2, answer.output
            assert f"--ray {address}" in answer.output.replace("'", "")
            assert message in answer.output


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed here")
def test_without_ray_its_extra_is_named(job: dict[str, Any]) -> None:
    """Without Ray the command ends with exit code 2 and says how to install Ray."""
    answer = run(job, "127.0.0.1:6379")
    assert answer.exit_code == 2
    assert f"--ray needs Ray: {pip_install('ray')}" in answer.output


def test_ray_reports_no_usage() -> None:
    """The process that connects to a cluster has Ray send no statistics."""
    code = (
        "import contextlib, os\n"
        "from nnpa_tools.evaluation.cluster import ClusterError, RayCluster\n"
        "with contextlib.suppress(ClusterError):\n"
        "    RayCluster('127.0.0.1:1', None, list, len)\n"
        "print(os.environ['RAY_USAGE_STATS_ENABLED'])\n"
    )
    variables = {**os.environ, "RAY_USAGE_STATS_ENABLED": "1"}
    assert subprocess.check_output([sys.executable, "-c", code], env=variables) == b"0\n"


def test_one_who_measures_is_given(job: dict[str, Any]) -> None:
    """`--ray` beside `--target` is refused: the server there measures by itself."""
    answer = run(job, "127.0.0.1:6379", "--target", "unix:/x")
    assert answer.exit_code == 2
    assert "--ray: the server at --target measures by itself" in answer.output


def run(job: dict[str, Any], address: str, *options: str) -> Result:
    """Run the command on a cluster."""
    words = [str(job["model"]), "--data", str(job["data"]), "--layout", "NCHW", "--scale", "1"]
    return CliRunner().invoke(main, ["network", "validate", *words, "--ray", address, *options])
