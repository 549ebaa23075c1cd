# SPDX-License-Identifier: Apache-2.0
"""The models of a start: each fails alone, and the server is ready when all have been loaded."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_client import connect
from nnpa_network.program import ModelRefused
from nnpa_server import open_inference
from nnpa_server.network.pools import PLACES
from nnpa_server.open_inference import loading, sources
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.pool import Pool
from nnpa_server.sandbox.process import JobLimits, WorkerProcess
from onnx import TensorProto

from tests.server.conftest import Running
from tests.server.onnx_models import (
    FLOAT,
    TYPES,
    Caller,
    binary,
    dense,
    gather,
    model,
    offering,
    refusal,
    request,
)
from tests.server.process import serving, wait_until

ROW = np.array([[8, 2, -2, 0.5]], np.float32)
NAMES = ("a", "b", "c")
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
ERRORS = [
    RuntimeError("secret"),
    MemoryError(),
    RecursionError(),
    OSError(5, "Input/output error"),
    AssertionError(),
    StopIteration(),
    ModelRefused("no shape fits"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "secret"),
]
# Where a load may fail: functions that get the model's name, or what has it.
SEAMS: list[tuple[ModuleType, str]] = [
    (sources, "from_folder"),
    (sources, "read"),
    (loading, "fix_dims"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of three models; that in the middle has a configuration with its name."""
    for name in NAMES:
        versions = tmp_path / name / "1"
        versions.mkdir(parents=True)
        (versions / "model.onnx").write_bytes(binary("Add", ("n", 4)))
        (versions.parent / "config.pbtxt").write_text(f'name: "{name}"')
    return tmp_path


def _is_ready(caller: Caller) -> bool:
    return caller.stub.ServerReady(pb.ServerReadyRequest()).ready


def _has_readiness(caller: Caller, expected: bool) -> bool:
    return _is_ready(caller) == expected


def _health(server: Running, service: str) -> int:
    stub = health_pb2_grpc.HealthStub(server.channel)
    return int(stub.Check(health_pb2.HealthCheckRequest(service=service)).status)


def _require_only_b_failed(caller: Caller) -> str:
    """Check that the server is ready and has all models but b; return why it has not b."""
    wait_until(lambda: _is_ready(caller))
    assert caller.states() == {"a": "READY", "b": "UNAVAILABLE", "c": "READY"}
    for name in "ac":
        assert np.array_equal(caller.infer(name, x=ROW, y=ROW)["z"], 2 * ROW)
    return refusal("MODEL_UNAVAILABLE", caller.stub.ModelInfer, request("b", x=ROW, y=ROW))


def _break(monkeypatch: pytest.MonkeyPatch, seam: tuple[ModuleType, str], error: Exception) -> None:
    """Have a function raise for the model b."""
    module, name = seam
    function = getattr(module, name)

    def fail(*arguments: Any) -> Any:
        if any("b" in (argument, getattr(argument, "name", "")) for argument in arguments):
            raise error
        return function(*arguments)

    monkeypatch.setattr(module, name, fail)


@pytest.mark.parametrize("error", ERRORS, ids=[type(error).__name__ for error in ERRORS])
@pytest.mark.parametrize("seam", SEAMS, ids=[name for _, name in SEAMS])
def test_a_models_failure_is_that_models(
    folder: Path, seam: tuple[ModuleType, str], error: Exception, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """After any exception of a load the other models load; index and log name the failed one."""
    _break(monkeypatch, seam, error)
    caplog.set_level(logging.INFO, "nnpa")
    with offering(folder=folder, sandbox="off") as (_, caller):
        why = _require_only_b_failed(caller)
        assert "secret" not in why
        assert "model b is not loaded: " in caplog.text
        assert "ready: 2 of 3 models" in caplog.text


def test_a_file_that_cannot_be_read_is_one_model(folder: Path) -> None:
    """A file whose reading fails is said to be so, and loads by name say the same."""
    (folder / "b/1/model.onnx").unlink()
    (folder / "b/1/model.onnx").symlink_to("/proc/self/mem")  # its first bytes are no memory
    with offering(folder=folder, sandbox="off") as (_, caller):
        assert "model b cannot be read: Input/output error" in _require_only_b_failed(caller)
        load = pb.RepositoryModelLoadRequest(model_name="b")
        text = refusal("MODEL_UNAVAILABLE", caller.stub.RepositoryModelLoad, load)
        assert text == "model b cannot be read: Input/output error"


def test_a_folder_that_cannot_be_read_is_one_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model's folder that may not be listed is a model that is not loaded."""
    listing = Path.iterdir

    def refuse(path: Path) -> Iterator[Path]:
        if path == folder / "b":
            raise PermissionError(13, "Permission denied")
        return listing(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with offering(folder=folder, sandbox="off") as (_, caller):
        assert "model b cannot be read: Permission denied" in _require_only_b_failed(caller)


@pytest.mark.heavy
@pytest.mark.parametrize("error", ERRORS, ids=[type(error).__name__ for error in ERRORS])
def test_a_saved_models_failure_is_that_models(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the load of a saved model raises, the other saved models are loaded."""
    data = binary("Add", ("n", 4))
    with offering(dict.fromkeys(NAMES, data), state=tmp_path, sandbox="off"):
        pass
    _break(monkeypatch, (sources, "from_saved"), error)
    with offering(state=tmp_path, sandbox="off") as (_, caller):
        _require_only_b_failed(caller)


def test_a_server_that_cannot_load_is_not_ready(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the folder itself cannot be read, ServerReady, health and log say: not ready."""

    def refuse(_folder: Path, _only: str = "") -> dict[str, Path]:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(sources, "scan", refuse)
    with offering(folder=folder, sandbox="off") as (server, caller):
        wait_until(lambda: "not ready: " in caplog.text)
        assert not _is_ready(caller)
        assert _health(server, open_inference.SERVICE) == NOT_SERVING
        assert _health(server, "") == SERVING


def test_ready_is_one_state_for_all_who_ask(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server listens, is ready with its models, and drains: health and ServerReady agree."""
    may_load, reading = threading.Event(), sources.read

    def wait(*arguments: Any) -> bytes:
        assert may_load.wait(60)
        return reading(*arguments)

    monkeypatch.setattr(sources, "read", wait)
    with offering(folder=folder, sandbox="off") as (server, caller):
        for expected in (False, True):
            wait_until(partial(_has_readiness, caller, expected))
            status = SERVING if expected else NOT_SERVING
            assert _health(server, open_inference.SERVICE) == status
            assert _health(server, "") == SERVING
            may_load.set()
        server.server.readiness.drain()
        assert not _is_ready(caller)
        for service in ("", open_inference.SERVICE):
            assert _health(server, service) == NOT_SERVING


def test_models_that_load_while_a_server_drains_do_not_make_it_ready(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draining is for good: the end of a load does not send newcomers to a server that ends."""
    may_load, reading = threading.Event(), sources.read

    def wait(*arguments: Any) -> bytes:
        assert may_load.wait(60)
        return reading(*arguments)

    monkeypatch.setattr(sources, "read", wait)
    with offering(folder=folder, sandbox="off") as (server, caller):
        server.server.readiness.drain()
        may_load.set()
        wait_until(lambda: caller.states() == dict.fromkeys(NAMES, "READY"))
        assert not _is_ready(caller)
        assert _health(server, open_inference.SERVICE) == NOT_SERVING


def _unique(size: int) -> bytes:
    """Return a model whose output has a size that only its run shows: it runs in a worker."""
    nodes = [("Unique", ["x"], ["u"]), ("Exp", ["u"], ["y"])]
    return model(nodes, {"x": (FLOAT, ("n", size))}, {"y": (FLOAT, ("k",))})


def _write_many(folder: Path, count: int, make: Callable[[int], bytes]) -> list[str]:
    for number in range(count):
        (folder / f"m{number:03}.onnx").write_bytes(make(number))
    return [f"m{number:03}" for number in range(count)]


@pytest.fixture
def leased(monkeypatch: pytest.MonkeyPatch) -> list[WorkerProcess]:
    """The workers that were leased so far, of all pools."""
    workers, lease = list[WorkerProcess](), Pool.lease

    def note(*arguments: Any, **named: Any) -> WorkerProcess:
        workers.append(lease(*arguments, **named))
        return workers[-1]

    monkeypatch.setattr(Pool, "lease", note)
    return workers


@pytest.mark.heavy
def test_many_models_share_workers_while_they_are_loaded(
    tmp_path: Path, leased: list[WorkerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of many models takes one worker that compiles and one that runs; then each its own.

    One of these that ends in between is replaced, and no model misses it.
    """
    run = WorkerProcess.run

    def run_and_end(worker: WorkerProcess, job: Message, limits: JobLimits) -> Message:
        answer = run(worker, job, limits)
        if worker is leased[0] and len(leased) == 2:
            worker.close()
        return answer

    monkeypatch.setattr(WorkerProcess, "run", run_and_end)
    names = _write_many(tmp_path, PLACES + 4, lambda number: _unique(4 + number))
    with offering(folder=tmp_path, sandbox="auto") as (_, caller):
        wait_until(lambda: _is_ready(caller))
        assert caller.states() == dict.fromkeys(names, "READY")
        assert len(leased) == 3
        wait_until(lambda: not any(worker.is_alive for worker in leased))
        for number, name in enumerate(names[:3]):
            x = np.zeros((1, 4 + number), np.float32)
            assert caller.infer(name, x=x)["y"].tolist() == [1.0]
        assert len({worker.pid for worker in leased[3:] if worker.is_alive}) == 3


@pytest.mark.heavy
def test_few_models_keep_their_workers(tmp_path: Path, leased: list[WorkerProcess]) -> None:
    """First requests to models of a small folder wait for no worker."""
    names = _write_many(tmp_path, 2, lambda number: _unique(4 + number))
    with offering(folder=tmp_path, sandbox="auto") as (_, caller):
        wait_until(lambda: _is_ready(caller))
        before = len(leased)
        for number, name in enumerate(names):
            x = np.zeros((1, 4 + number), np.float32)
            assert caller.infer(name, x=x)["y"].tolist() == [1.0]
        assert len(leased) == before


def _tiny(number: int) -> bytes:
    """Return one of models of five kinds, on the accelerator, on the host, and in workers."""
    port = (FLOAT, ("n", 4 + number))
    match number % 5:
        case 0:
            return dense(4 + number)
        case 1:
            return _unique(4 + number)
        case 2:
            return model(
                [("Sin", ["x"], ["s"]), ("Add", ["s", "s"], ["y"])], {"x": port}, {"y": port}
            )
        case 3:
            nodes = [("Softmax", ["x"], ["s"]), ("ArgMax", ["s"], ["y"])]
            output = (TensorProto.INT64, (1, 4 + number))
            return model(nodes, {"x": port}, {"y": output})
        case _:
            return gather(list(TYPES)[number % 9])


def _processor_seconds(process: int) -> float:
    """Return the processor time of a process, its children, and those that have ended."""
    parent = psutil.Process(process)
    times = [each.cpu_times() for each in (parent, *parent.children(recursive=True))]
    return sum(sum(part[:4]) for part in times)


def _seconds_of_folder(tmp_path: Path, folder: Path, count: int) -> tuple[float, float]:
    """Return the processor time, and the time, from listening until a folder is ready."""
    flags = ("--listen", "127.0.0.1:0", "--models", str(folder), "--max-models", str(count))
    with serving(tmp_path, *flags) as server:
        began, caller = time.monotonic(), Caller(server.address)
        wait_until(lambda: _is_ready(caller), 600)
        seconds = time.monotonic() - began
        assert caller.states() == dict.fromkeys(caller.states(), "READY")
        assert len(caller.states()) == count
        caller.channel.close()
        return _processor_seconds(server.process.pid), seconds


def _seconds_of_session(tmp_path: Path, folder: Path) -> tuple[float, float]:
    """Return the processor time of a server, and the time, of one session that runs a folder."""
    with serving(tmp_path, "--listen", "127.0.0.1:0") as server:
        began, before = time.monotonic(), None
        with connect(server.address) as session:
            for path in sorted(folder.iterdir()):
                net = session.load(path)
                net(*(np.ones([abs(dim) for dim in port.shape], port.dtype) for port in net.inputs))
                if before is not None:
                    before.close()
                before = net
        return _processor_seconds(server.process.pid), time.monotonic() - began


@pytest.mark.heavy
def test_many_models_are_ready_as_soon_as_a_session_has_run_them(tmp_path: Path) -> None:
    """151 tiny models take --models at most 1.5 times what one session takes to load and run them.

    It is processor time that is compared, which other programs of the machine do not change much.
    """
    folder = tmp_path / "models"
    folder.mkdir()
    _write_many(folder, 151, _tiny)
    session, session_time = _seconds_of_session(tmp_path, folder)
    started, start_time = _seconds_of_folder(tmp_path, folder, 151)
    print(
        f"session {session:.1f} s in {session_time:.1f} s; folder {started:.1f} in {start_time:.1f}"
    )
    assert started <= 1.5 * session
