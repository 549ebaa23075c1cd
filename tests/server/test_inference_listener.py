# SPDX-License-Identifier: Apache-2.0
"""The listener for the Open Inference Protocol alone: where calls run, and that they end.

What its methods answer is tested in test_open_inference*.py, on both kinds of listener.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_server.open_inference.inference import Inference

from tests.server.conftest import CONFIG, LIMITS, Running
from tests.server.onnx_models import Caller, dense, offering, outputs_of, request
from tests.server.process import PATIENCE, serving
from tests.server.wire import refused

CODE = grpc.StatusCode
X = np.ones((3, 4), np.float32)
LISTEN = ("--listen", "127.0.0.1:0", "--inference-listen")


@pytest.fixture
def caller() -> Iterator[Caller]:
    """A client of the listener, with a model."""
    with offering({"dense": dense()}, listener="--inference-listen") as (_, one):
        yield one


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that ran requests, as they come."""
    names: list[str] = []
    real: Callable[..., Any] = Inference.infer

    def infer(self: Inference, *arguments: Any) -> Any:
        names.append(threading.current_thread().name)
        return real(self, *arguments)

    monkeypatch.setattr(Inference, "infer", infer)
    return names


def test_quick_requests_run_on_the_loop(
    caller: Caller, threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of a kind runs in a thread, the next ones, which then are known, on the loop."""
    monkeypatch.setattr("nnpa_server.open_inference.request_cache.QUICK_NS", 60_000_000_000)
    answers = [caller.infer("dense", x=X)["y"] for _ in range(20)]
    assert all(np.array_equal(one, answers[0]) for one in answers)
    assert threads[0].startswith("call")
    assert threads[-1] == "inference"


def test_slow_requests_run_in_threads(
    caller: Caller, threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What took as long as others should not wait never runs on the loop."""
    monkeypatch.setattr("nnpa_server.open_inference.request_cache.QUICK_NS", 0)
    for _ in range(5):
        caller.infer("dense", x=X)
    assert all(one.startswith("call") for one in threads)


def test_others_do_not_wait_for_a_slow_one(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a request runs in its thread, others are answered."""
    begun, finish = threading.Event(), threading.Event()
    real: Callable[..., Any] = Inference.infer

    def infer(self: Inference, message: Any, context: Any) -> Any:
        if message.id == b"slow":
            begun.set()
            finish.wait(PATIENCE)
        return real(self, message, context)

    monkeypatch.setattr(Inference, "infer", infer)
    slow = request("dense", x=np.ones((5, 4), np.float32))
    slow.id = "slow"
    answer = caller.stub.ModelInfer.future(slow)
    assert begun.wait(PATIENCE)
    for _ in range(5):
        caller.infer("dense", x=X)
    assert not answer.done()
    finish.set()
    assert outputs_of(answer.result(PATIENCE))["y"].shape == (5, 2)


def test_error_has_its_details(caller: Caller) -> None:
    """An error has reason, fields and request id, from the loop as from a thread."""
    for _ in range(3):
        caller.infer("dense", x=X)
    bad = request("dense", x=X)
    bad.raw_input_contents[0] = b"short"
    for _ in range(2):
        with refused(CODE.INVALID_ARGUMENT, "DATA_SIZE_MISMATCH"):
            caller.stub.ModelInfer(bad)
    with pytest.raises(grpc.RpcError) as caught:
        caller.stub.ModelInfer(bad, metadata=(("x-request-id", "mine"),))
    error: Any = caught.value
    assert ("x-request-id", "mine") in [tuple(one) for one in error.trailing_metadata()]


def test_garbage_is_refused(caller: Caller) -> None:
    """Bytes that are no message get the documented error."""
    method = "/inference.GRPCInferenceService/ModelInfer"
    send: Any = caller.channel.unary_unary(method, bytes, bytes)
    with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID", field="request"):
        send(b"\xff\xff\xff\xff")


def test_cancelled_stream_leaves_nothing(caller: Caller) -> None:
    """Streams that their clients cut off give their threads back: more than there are can come."""
    deadline, opened = time.monotonic() + PATIENCE, 0
    while opened < CONFIG.workers + 1:
        stop = threading.Event()

        def requests(stop: threading.Event = stop) -> Iterator[pb.ModelInferRequest]:
            yield request("dense", x=X)
            stop.wait(PATIENCE)

        stream: Any = caller.stub.ModelStreamInfer(requests())
        try:
            assert not next(stream).error_message
            opened += 1
        except grpc.RpcError:  # those cut off before have not all ended
            assert time.monotonic() < deadline
            time.sleep(0.05)
        stream.cancel()
        stop.set()


def test_idle_stream_is_cut_off() -> None:
    """A stream that says nothing for as long as a session may be idle ends."""
    limits = replace(LIMITS, idle_timeout=0.4)
    running = Running(replace(CONFIG, limits=limits, inference_listen="127.0.0.1:0"))
    caller, stop = Caller(running.server.inference_address), threading.Event()

    def requests() -> Iterator[pb.ModelInferRequest]:
        stop.wait(PATIENCE)
        yield from ()

    try:
        with pytest.raises(grpc.RpcError) as caught:
            next(iter(caller.stub.ModelStreamInfer(requests(), timeout=PATIENCE)))
        error: Any = caught.value
        assert error.code() is CODE.CANCELLED
    finally:
        stop.set()
        caller.channel.close()
        running.stop()


def models(tmp_path: Path) -> str:
    """Return a folder with a model."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "dense.onnx").write_bytes(dense())
    return str(folder)


def wait_ready(caller: Caller, **options: Any) -> None:
    """Wait until the server has loaded its models."""
    deadline = time.monotonic() + PATIENCE
    while not caller.stub.ServerReady(pb.ServerReadyRequest(), **options).ready:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_process(tmp_path: Path) -> None:
    """The process tells the address, logs calls as on any listener, ends with 0, and cleans up."""
    socket = tmp_path / "inference.sock"
    flags = (*LISTEN, f"unix:{socket}", "--models", models(tmp_path))
    with serving(tmp_path, *flags, listeners=2) as server:
        assert server.addresses[1] == f"unix:{socket}"
        caller = Caller(server.addresses[1])
        wait_ready(caller)
        for _ in range(3):
            caller.infer("dense", x=X)
        with pytest.raises(grpc.RpcError):
            caller.infer("nobody", x=X)
        assert server.stop() == 0
        assert server.log_text().count("method=ModelInfer session=- operations=0 status=OK") == 3
        assert "status=MODEL_NOT_FOUND" in server.log_text()
        assert "all calls finished" in server.log_text()
    assert not socket.exists()


def test_tokens_count_here_too(tmp_path: Path) -> None:
    """Who has no token is refused on the loop as well; who has another machine's is too."""
    alice, bob = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    (tmp_path / "tokens.toml").write_text(
        f'[tokens.alice]\nsha256 = "{hashlib.sha256(alice.encode()).hexdigest()}"\n'
        f'[tokens.bob]\nsha256 = "{hashlib.sha256(bob.encode()).hexdigest()}"\nmachines = ["z16"]\n'
    )
    flags = ("--tokens", f"{tmp_path}/tokens.toml", "--models", models(tmp_path))
    with serving(tmp_path, *LISTEN, "127.0.0.1:0", *flags, listeners=2) as server:
        caller = Caller(server.addresses[1])
        holds: Any = {"metadata": (("authorization", f"Bearer {alice}"),)}
        wait_ready(caller, **holds)
        message = request("dense", x=X)
        for _ in range(3):
            assert caller.stub.ModelInfer(message, **holds).raw_output_contents
            with refused(CODE.UNAUTHENTICATED, "TOKEN_INVALID"):
                caller.stub.ModelInfer(message)
            with refused(CODE.PERMISSION_DENIED, "MACHINE_NOT_ALLOWED"):
                other = (("authorization", f"Bearer {bob}"),)
                caller.stub.ModelInfer(message, metadata=other)
