# SPDX-License-Identifier: Apache-2.0
"""Saved models at the server's start: damaged ones, slow ones, and who waits for them."""

import threading
from pathlib import Path
from typing import Any

import pytest
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_server.network import worker_plan
from nnpa_server.open_inference import loading
from nnpa_server.open_inference.saved_models import SavedModel
from nnpa_server.sandbox import confinement

from tests.server.onnx_models import chain, offering, refusal, request
from tests.server.open_inference.test_state import (
    MODELS,
    ROW,
    keeping,
    operator_of,
    put,
    unload,
    wait_ready,
)
from tests.server.process import wait_until


@pytest.mark.heavy
def test_damaged_and_unusable_models_are_told_and_skipped(tmp_path: Path) -> None:
    """Of damaged files, and of models that cannot be loaded, the log tells; all others load."""
    header, contents, _, _ = put(
        tmp_path,
        SavedModel("header", "", "{}", {"1": MODELS["Add"]}),
        SavedModel("contents", "", "{}", {"1": MODELS["Add"]}),
        SavedModel("no_model", "", "{}", {"1": b"no model"}),
        SavedModel("good", "", "{}", {"1": MODELS["Mul"]}),
    )
    header.write_bytes(b"x" + header.read_bytes()[1:])
    contents.write_bytes(contents.read_bytes()[:-1] + b"x")
    with keeping(tmp_path) as (server, caller):
        assert caller.states() == {
            "contents": "UNAVAILABLE",
            "good": "READY",
            "no_model": "UNAVAILABLE",
        }
        assert operator_of(caller, "good") == "Mul"
        log = server.log_text()
        assert f"{header.name} is damaged and ignored: it does not begin as a model" in log
        assert "contents is not loaded" in log
        assert "no_model is not loaded: model no_model: 8 bytes are not an ONNX model" in log
        assert "Traceback" not in log
        message = request("contents", x=ROW, y=ROW)
        assert "damaged" in refusal("MODEL_UNAVAILABLE", caller.stub.ModelInfer, message)
        reload = pb.RepositoryModelLoadRequest(model_name="contents")
        assert "damaged" in refusal("MODEL_UNAVAILABLE", caller.stub.RepositoryModelLoad, reload)
        caller.load("contents", MODELS["Sub"])
        caller.load("header", MODELS["Sub"])
        unload(caller, "no_model")
    with keeping(tmp_path) as (server, caller):
        assert caller.states() == {"contents": "READY", "good": "READY", "header": "READY"}
        assert "damaged" not in server.log_text()


@pytest.mark.heavy
def test_the_start_waits_for_no_model_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A saved model that takes too long is told; the server is ready, and it comes later."""
    go_on, compile_model = threading.Event(), worker_plan.compile_published
    put(
        tmp_path,
        SavedModel("a_slow", "", "{}", {"1": MODELS["Add"]}),
        SavedModel("b_quick", "", "{}", {"1": MODELS["Mul"]}),
    )

    def compile_slowly(pools: Any, data: bytes, *options: Any) -> Any:
        if data == MODELS["Add"]:
            assert go_on.wait(60)
        return compile_model(pools, data, *options)

    monkeypatch.setattr(worker_plan, "compile_published", compile_slowly)
    monkeypatch.setattr(loading, "SAVED_LOAD_TIMEOUT", 0.5)
    with offering(state=tmp_path / "state", sandbox="off") as (_, caller):
        wait_ready(caller)
        wait_until(lambda: caller.states() == {"a_slow": "LOADING", "b_quick": "READY"})
        assert "saved model a_slow still loads after 0.5 s" in caplog.text
        caller.load("other", MODELS["Sub"])
        go_on.set()
        wait_until(lambda: caller.states()["a_slow"] == "READY")
        assert operator_of(caller, "a_slow") == "Add"


@pytest.mark.heavy
def test_the_start_waits_for_all_models_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However many saved models take long, the server is ready in time, and they come later."""
    go_on, compile_model = threading.Event(), worker_plan.compile_published
    put(tmp_path, *(SavedModel(name, "", "{}", {"1": MODELS["Add"]}) for name in "abc"))

    def compile_slowly(*arguments: Any) -> Any:
        assert go_on.wait(60)
        return compile_model(*arguments)

    monkeypatch.setattr(worker_plan, "compile_published", compile_slowly)
    monkeypatch.setattr(loading, "SAVED_LOADS_TIMEOUT", 0.5)
    with offering(state=tmp_path / "state", sandbox="off") as (_, caller):
        wait_ready(caller)
        assert "saved models still load after 0.5 s" in caplog.text
        assert caller.states() == {"a": "LOADING"}
        go_on.set()
        wait_until(lambda: caller.states() == dict.fromkeys("abc", "READY"))


@pytest.mark.heavy
@pytest.mark.skipif(not confinement.is_linux(), reason="workers are Linux processes")
def test_a_saved_model_ends_with_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saved model that its worker compiles for too long is left out; the next one loads."""
    put(
        tmp_path,
        SavedModel("a_slow", "", "{}", {"1": chain("Add", 30_000)}),
        SavedModel("b_quick", "", "{}", {"1": MODELS["Mul"]}),
    )
    require_time = vars(loading)["_require_time"]

    def require_less_time(name: str, deadline: float) -> None:
        require_time(name, deadline - (298.0 if name == "a_slow" else 0.0))

    monkeypatch.setattr(loading, "_require_time", require_less_time)
    with offering(state=tmp_path / "state") as (_, caller):
        wait_ready(caller)
        assert caller.states() == {"a_slow": "UNAVAILABLE", "b_quick": "READY"}
        message = request("a_slow", x=ROW)
        text = refusal("MODEL_UNAVAILABLE", caller.stub.ModelInfer, message)
        assert "to load it takes more than 300 s" in text


@pytest.mark.heavy
@pytest.mark.parametrize("change", ["load", "unload"])
def test_a_client_need_not_wait_for_a_saved_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A client's change of a model that still loads counts: the saved one never comes back."""
    loads, go_on, compile_model = (
        threading.Event(),
        threading.Event(),
        worker_plan.compile_published,
    )
    put(tmp_path, SavedModel("mine", "", "{}", {"1": MODELS["Add"]}))

    def compile_slowly(pools: Any, data: bytes, *options: Any) -> Any:
        if data == MODELS["Add"]:
            loads.set()
            assert go_on.wait(60)
        return compile_model(pools, data, *options)

    monkeypatch.setattr(worker_plan, "compile_published", compile_slowly)
    with offering(state=tmp_path / "state", sandbox="off") as (_, caller):
        assert loads.wait(60)
        if change == "load":
            caller.load("mine", MODELS["Mul"])
        else:
            unload(caller, "mine")
        go_on.set()
        wait_ready(caller)
        expected = {"load": "Mul", "unload": None}[change]
        assert operator_of(caller, "mine") == expected
    with offering(state=tmp_path / "state") as (_, caller):
        wait_ready(caller)
        assert operator_of(caller, "mine") == expected
