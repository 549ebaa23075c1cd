# SPDX-License-Identifier: Apache-2.0
"""The models of a start: each fails alone, and the server is ready when all have been loaded."""

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_network.program import ModelRefused
from nnpa_server import open_inference
from nnpa_server.open_inference import loading, sources

from tests.server.conftest import Running
from tests.server.onnx_models import Caller, binary, offering, refusal, request
from tests.server.process import wait_until

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
# Where a load may fail: the object, its function, and whether it gets the model's name.
SEAMS: list[tuple[object, str, Callable[..., bool]]] = [
    (sources, "from_folder", lambda _folder, name, *_: name == "b"),
    (sources, "read", lambda _path, _limit, name: name == "b"),
    (loading, "fix_dims", lambda config, _inputs: config.name == "b"),
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


def _break(monkeypatch: pytest.MonkeyPatch, seam: Any, error: Exception) -> None:
    """Have a function raise for the model b."""
    module, name, is_b = seam
    function = getattr(module, name)

    def fail(*arguments: Any) -> Any:
        if is_b(*arguments):
            raise error
        return function(*arguments)

    monkeypatch.setattr(module, name, fail)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: seam[1])
def test_a_models_failure_is_that_models(
    folder: Path, seam: Any, error: Exception, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Whatever a load raises, the other models are loaded, and index and log say which was not."""
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


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_saved_models_failure_is_that_models(
    tmp_path: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the load of a saved model raises, the other saved models are loaded."""
    data = binary("Add", ("n", 4))
    with offering(dict.fromkeys(NAMES, data), state=tmp_path, sandbox="off"):
        pass
    seam = (sources, "from_saved", lambda model, _override: model.name == "b")
    _break(monkeypatch, seam, error)
    with offering(state=tmp_path, sandbox="off") as (_, caller):
        _require_only_b_failed(caller)


def test_a_server_that_cannot_load_is_not_ready(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the folder itself cannot be read, ServerReady, health and log say: not ready."""

    def refuse(_folder: Path) -> dict[str, Path]:
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
