# SPDX-License-Identifier: Apache-2.0
"""`--ray` of `faults sweep`, `trace replay` and `conformance run`: the reports of one local job.

Needs Ray (the extra `ray`), which .ci/full installs.
"""

import json
import os
import socket
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest
from click.testing import CliRunner, Result
from nnpa_client import connect, zdnn
from nnpa_client.libzdnn import NOT_INSTALLED
from nnpa_tools.cli import main
from nnpa_tools.conformance import testee
from nnpa_wire.installation import pip_install

from tests.deploy.fleet import free_port
from tests.libzdnn import toolchain
from tests.server.process import PATIENCE, wait_until
from tests.tools.evaluation.nodes import HAS_RAY, Cluster, needs_ray, python_without_nnpa
from tests.vector_runner import VECTORS

pytestmark = pytest.mark.heavy
PROGRAM = """\
import os, signal, sys
import numpy as np
from nnpa_client import ZdnnError, connect, zdnn
with connect() as session:
    a = session.ztensor(np.ones(4, np.float32))
    try:
        zdnn.add(a, a)
        if "MORE_CALLS" in os.environ:
            zdnn.sub(a, a)
    except ZdnnError:
        if "KILL_PARENT" in os.environ:
            os.kill(os.getppid(), signal.SIGKILL)
        print("add failed")
"""
STATUS = "ZDNN_EXCEEDS_MDIS"
FUNCTIONS = ("meanreduce2d", "init_ztensor", "relu")


@pytest.fixture
def sweep(tmp_path: Path) -> list[str]:
    """A sweep of a small program in Python."""
    (tmp_path / "program.py").write_text(PROGRAM)
    options = ["--status", STATUS, "--timeout", "60"]
    return ["faults", "sweep", *options, "--", sys.executable, str(tmp_path / "program.py")]


@pytest.fixture
def replay(tmp_path: Path) -> list[str]:
    """A replay of three traces, whose statuses on the named machine differ from the recorded."""
    files = [tmp_path / f"{number}.nnpa" for number in range(3)]
    with connect(machine="telum2") as session:
        for number, file in enumerate(files, 1):
            with session.trace(file, contents=True):
                a = session.ztensor(np.full((number, 3), number, np.float32))
                zdnn.add(a, a).numpy()
    return ["trace", "replay", *map(str, files), "--machine", "z15"]


@pytest.fixture
def vectors(tmp_path: Path) -> list[str]:
    """A run of small files of vectors."""
    files = [str(VECTORS / f"{function}.jsonl") for function in FUNCTIONS]
    return ["conformance", "run", *files, "--out", str(tmp_path / "answers")]


def nnpa(words: list[str], *options: str) -> Result:
    """Run a command, with more options behind the names of its subcommand."""
    return CliRunner().invoke(main, [*words[:2], *options, *words[2:]])


@contextmanager
def a_worker_killed(cluster: Cluster) -> Generator[None]:
    """Kill the first worker of a cluster that has a server, while it has a piece of work."""
    killed: list[psutil.Process] = []

    def kill() -> bool:
        for process in cluster.processes():
            if any(map(_is_server, _children(process))):
                process.kill()
                killed.append(process)
                return True
        return False

    thread = threading.Thread(target=wait_until, args=(kill, 2 * PATIENCE))
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert killed


def no_servers(cluster: Cluster) -> bool:
    """Wait until no process of a cluster is a server of nnpa."""
    wait_until(lambda: not any(map(_is_server, cluster.processes())))
    return True


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []


def _is_server(process: psutil.Process) -> bool:
    try:
        return "nnpa_server" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


@needs_ray
def test_a_sweep_has_the_verdicts_of_one_job(sweep: list[str], ray_cluster: Cluster) -> None:
    """Any number of workers, also with one killed, gives the bytes and exit code of one job."""
    alone = nnpa(sweep)
    assert alone.exit_code == 0, alone.output
    assert "handled" in alone.stdout
    ray_cluster.start(2)
    by_one = nnpa(sweep, "--ray", ray_cluster.address, "--jobs", "1")
    assert no_servers(ray_cluster)
    with a_worker_killed(ray_cluster):
        by_two = nnpa(sweep, "--ray", ray_cluster.client)
    for answer in (by_one, by_two):
        assert (answer.exit_code, answer.stdout) == (0, alone.stdout), answer.output
    assert no_servers(ray_cluster)


@needs_ray
def test_replays_have_the_report_of_one_job(
    replay: list[str], ray_cluster: Cluster, tmp_path: Path
) -> None:
    """Text and JSON are the same bytes, and `--output` keeps a trace that a node has recorded."""
    alone, as_json = nnpa(replay), nnpa(replay, "--json")
    assert alone.exit_code == as_json.exit_code == 1, alone.output
    ray_cluster.start(2)
    with a_worker_killed(ray_cluster):
        text = nnpa(replay, "--ray", ray_cluster.address)
    by_three = nnpa(replay, "--ray", ray_cluster.address, "--jobs", "3", "--json")
    assert (text.exit_code, text.stdout) == (1, alone.stdout), text.output
    assert (by_three.exit_code, by_three.stdout) == (1, as_json.stdout), by_three.output
    kept = tmp_path / "kept.nnpa"
    same = [*replay[:3], "--output", str(kept)]
    assert nnpa(same, "--ray", ray_cluster.address).exit_code == 0
    assert nnpa(["trace", "diff", replay[2], str(kept)]).exit_code == 0
    assert no_servers(ray_cluster)


@needs_ray
def test_vectors_have_the_answers_of_one_job(
    vectors: list[str],
    ray_cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files of vectors, sent to nodes with libzdnn, give the same lines in the same order."""
    prefix = toolchain.installed().path
    wheel = f"import pathlib\nPREFIX = pathlib.Path({str(prefix)!r})\n"
    (tmp_path / "nnpa_libzdnn.py").write_text(wheel)
    monkeypatch.setattr(testee, "prefix", lambda: prefix)
    assert nnpa(vectors, "--jobs", "1").exit_code == 0
    alone = (tmp_path / "answers").read_bytes()
    assert len({json.loads(line)["file"] for line in alone.splitlines()}) == len(FUNCTIONS)
    search_path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    ray_cluster.start(2, environment={"PYTHONPATH": search_path})
    (tmp_path / "answers").unlink()
    with a_worker_killed(ray_cluster):
        answer = nnpa(vectors, "--ray", ray_cluster.address)
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "answers").read_bytes() == alone
    assert no_servers(ray_cluster)


@needs_ray
def test_a_run_that_kills_its_workers_is_named(sweep: list[str], ray_cluster: Cluster) -> None:
    """The report names the run and has all other runs; the exit code is 1."""
    ray_cluster.start(1, environment={"KILL_PARENT": "1"})
    answer = nnpa(sweep, "--ray", ray_cluster.address, "--json")
    assert answer.exit_code == 1, answer.output
    named = f"add, {STATUS}: it ended 2 workers, the last by WorkerCrashedError."
    assert named in answer.stderr
    report = json.loads(answer.stdout)
    calls = {site["call"] for site in report["calls"]}
    (lost,) = (site["call"] for site in report["calls"] if site["operation"] == "add")
    assert {run["call"] for run in report["runs"]} == calls - {lost}


@needs_ray
def test_a_missing_program_or_library_of_a_node_is_named(
    sweep: list[str], vectors: list[str], ray_cluster: Cluster, tmp_path: Path
) -> None:
    """A program that a node lacks or that differs there, and a missing libzdnn: exit code 2."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "swept").write_text(f"#!{sys.executable}\n{PROGRAM}")
    (folder / "swept").chmod(0o755)
    ray_cluster.start(1, environment={"MORE_CALLS": "1"})
    place, address = f"node {socket.gethostname()}: ", ("--ray", ray_cluster.address)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        absent = nnpa(["faults", "sweep", "--", "swept"], *address)
    changed = nnpa(sweep, *address)
    lacking = nnpa(vectors, *address)
    for answer, message in (
        (absent, "No such file or directory: 'swept': every node needs the program"),
        (changed, "without faults the program makes other calls than where the sweep began"),
        (lacking, f"{NOT_INSTALLED}: every node needs it"),
    ):
        assert answer.exit_code == 2, answer.output
        assert place + message in answer.output.replace("[Errno 2] ", "")


@needs_ray
def test_a_refusal_on_a_node_has_the_local_message(replay: list[str], ray_cluster: Cluster) -> None:
    """An unknown machine has the exit code and the message of one local job."""
    ray_cluster.start(1)
    words = [*replay[:-1], "nosuch"]
    alone, on_ray = nnpa(words), nnpa(words, "--ray", ray_cluster.address)
    assert alone.exit_code == 3
    assert (on_ray.exit_code, on_ray.output) == (3, alone.output)


@needs_ray
def test_nodes_without_the_package_are_told(
    sweep: list[str], replay: list[str], vectors: list[str], ray_cluster: Cluster, tmp_path: Path
) -> None:
    """Workers that cannot import nnpa are named, with what to install; exit code 2."""
    ray_cluster.start(0)
    ray_cluster.start(1, python=python_without_nnpa(tmp_path / "python"))
    for words in (sweep, replay, vectors):
        answer = nnpa(words, "--ray", ray_cluster.address)
        assert answer.exit_code == 2, answer.output
        assert f"a node of the cluster lacks nnpa_tools: {pip_install('ray')}" in answer.output


@needs_ray
def test_a_wrong_address_is_told(sweep: list[str], replay: list[str], vectors: list[str]) -> None:
    """No listener, and words that are no address, end with exit code 2 and name the address."""
    for words, address, message in (
        (sweep, "10.0.0.1", "'10.0.0.1': expected host:port or ray://host:port"),
        (replay, f"127.0.0.1:{free_port()}", "no Ray cluster can be used there: [Errno 111]"),
        (vectors, "10.0.0.1:0", "'10.0.0.1:0': expected host:port or ray://host:port"),
    ):
        answer = nnpa(words, "--ray", address)
        assert answer.exit_code == 2, answer.output
        assert f"--ray {address}" in answer.output.replace("'", "")
        assert message in answer.output


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed here")
def test_without_ray_its_extra_is_named(
    sweep: list[str], replay: list[str], vectors: list[str]
) -> None:
    """Without Ray each command ends with exit code 2 and says how to install Ray."""
    for words in (sweep, replay, vectors):
        answer = nnpa(words, "--ray", "127.0.0.1:6379")
        assert answer.exit_code == 2, answer.output
        assert f"--ray needs Ray: {pip_install('ray')}" in answer.output


def test_whose_server_it_is_is_said_once(replay: list[str], vectors: list[str]) -> None:
    """`--ray` beside `--target` is refused: each worker has a server of its own."""
    for words in (replay, vectors):
        answer = nnpa(words, "--ray", "127.0.0.1:6379", "--target", "unix:/x")
        assert answer.exit_code == 2
        refusal = "--ray: each worker has its own server, --target names one server"
        assert refusal in answer.output
