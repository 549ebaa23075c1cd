# SPDX-License-Identifier: Apache-2.0
"""Published models over restarts, kills and damage, and who may change them: real servers."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import pytest
from nnpa.network.v1 import network_pb2, network_pb2_grpc
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa.zdnn.v1 import accelerator_pb2
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa_server.open_inference.saved_models import SavedModel, SavedModels

from tests.server.onnx_models import Caller, binary, code_of, refusal, request
from tests.server.process import ServerProcess, serving, wait_until

CODE = grpc.StatusCode
MIB = 1 << 20
ANY_PORT = ("--listen", "127.0.0.1:0")
ROW = np.array([[8, 2, -2, 0.5]], np.float32)
RESULTS = {
    "Add": ROW + ROW,
    "Sub": ROW - ROW,
    "Mul": ROW * ROW,
    "Div": np.ones_like(ROW),
}
"""What models of an operator answer for ROW and ROW."""
MODELS = {op: binary(op, ("n", 4)) for op in RESULTS}
ALL = '{"version_policy": {"all": {}}}'


def wait_ready(caller: Caller) -> None:
    """Wait until a server has loaded its models."""
    wait_until(lambda: caller.stub.ServerReady(pb.ServerReadyRequest()).ready)


@contextmanager
def keeping(tmp_path: Path, *flags: str) -> Generator[tuple[ServerProcess, Caller]]:
    """Run a server that keeps models in a folder, once it is ready; it is asked to end."""
    with serving(tmp_path, *ANY_PORT, "--state", f"{tmp_path}/state", *flags) as server:
        caller = Caller(server.address)
        wait_ready(caller)
        yield server, caller
        caller.channel.close()
        if server.process.poll() is None:
            assert server.stop() == 0


def load_message(name: str, config: str = "{}", **files: bytes) -> pb.RepositoryModelLoadRequest:
    """Return the request that brings a model; `files` by version, as v1."""
    message = pb.RepositoryModelLoadRequest(model_name=name)
    message.parameters["config"].string_param = config
    for version, data in files.items():
        message.parameters[f"file:{version[1:]}/model.onnx"].bytes_param = data
    return message


def unload(caller: Caller, name: str) -> None:
    """Unload a model."""
    caller.stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name=name))


def operator_of(caller: Caller, name: str) -> str | None:
    """Return the operator of a model, judged by its answer; None if it is not offered."""
    if caller.states().get(name, "UNAVAILABLE") == "UNAVAILABLE":
        with pytest.raises(grpc.RpcError) as caught:
            caller.infer(name, x=ROW, y=ROW)
        assert code_of(caught.value) in (CODE.NOT_FOUND, CODE.UNAVAILABLE)
        return None
    result = caller.infer(name, x=ROW, y=ROW)["z"]
    (operator,) = (op for op, expected in RESULTS.items() if np.array_equal(result, expected))
    return operator


def publish_as(server: ServerProcess, name: str, data: bytes) -> None:
    """Publish a model from a session of NetworkService."""
    channel = grpc.insecure_channel(server.address)
    session = AcceleratorServiceStub(channel).CreateSession(accelerator_pb2.CreateSessionRequest())
    header = network_pb2.CreateNetworkHeader(
        session=session.name, onnx_bytes=len(data), publish_as=name
    )
    parts = (
        network_pb2.CreateNetworkRequest(header=header),
        network_pb2.CreateNetworkRequest(chunk=data),
    )
    answer = network_pb2_grpc.NetworkServiceStub(channel).CreateNetwork(iter(parts))
    assert answer.network
    channel.close()


@pytest.mark.heavy
def test_published_models_outlive_the_server(tmp_path: Path) -> None:
    """Models, their versions and configurations are the same after a restart; unloaded are gone."""
    with keeping(tmp_path) as (server, caller):
        message = load_message("ops", ALL, v1=MODELS["Add"], v7=MODELS["Mul"])
        message.parameters["config"].string_param = json.dumps(
            {**json.loads(ALL), "parameters": {"machine": {"string_value": "z16"}}}
        )
        caller.stub.RepositoryModelLoad(message)
        caller.load("gone", MODELS["Add"])
        caller.load("replaced", MODELS["Add"])
        caller.load("replaced", MODELS["Sub"])
        publish_as(server, "shared", MODELS["Div"])
        unload(caller, "gone")
    with keeping(tmp_path) as (_, caller):
        assert caller.states() == {"ops": "READY", "replaced": "READY", "shared": "READY"}
        metadata = caller.stub.ModelMetadata(pb.ModelMetadataRequest(name="ops"))
        assert list(metadata.versions) == ["1", "7"]
        assert caller.facts("ops")["machine"] == "telum1"
        for version, op in (("1", "Add"), ("7", "Mul")):
            inference = request("ops", x=ROW, y=ROW)
            inference.model_version = version
            answer = caller.stub.ModelInfer(inference)
            assert answer.raw_output_contents[0] == RESULTS[op].tobytes()
        assert [operator_of(caller, name) for name in ("replaced", "shared", "gone")] == [
            "Sub", "Div", None,
        ]  # fmt: skip
        unload(caller, "ops")
        assert caller.states()["ops"] == "UNAVAILABLE"
    with keeping(tmp_path) as (_, caller):
        assert caller.states() == {"replaced": "READY", "shared": "READY"}


@pytest.mark.heavy
def test_without_state_nothing_stays(tmp_path: Path) -> None:
    """A server without --state writes nothing, and forgets."""
    for _ in range(2):
        with serving(tmp_path, *ANY_PORT) as server:
            caller = Caller(server.address)
            assert caller.states() == {}
            caller.load("mine", MODELS["Add"])
            assert server.stop() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["server.log"]


class Publisher:
    """Publishes and unloads models of its own names until its server is killed.

    `allowed` has the operators that each name may run after the kill: the last acknowledged one, or
    the one under way.
    """

    def __init__(self, names: list[str], seed: int) -> None:
        self.allowed: dict[str, set[str | None]] = {name: {None} for name in names}
        self._random = random.Random(seed)
        self.acknowledged = 0

    def run(self, address: str) -> None:
        """Change models until a call fails."""
        caller = Caller(address)
        with suppress(grpc.RpcError):
            while True:
                name = self._random.choice(sorted(self.allowed))
                op = self._random.choice([*RESULTS, None])
                self.allowed[name] |= {op}
                if op is None:
                    if self.allowed[name] != {None}:
                        unload(caller, name)
                else:
                    caller.load(name, MODELS[op])
                self.allowed[name] = {op}
                self.acknowledged += 1
        caller.channel.close()


def kill_while_publishing(tmp_path: Path, kills: int, seed: int) -> int:
    """Kill servers that publish, check the models after each; count acknowledged changes."""
    publishers = [Publisher([f"p{n}a", f"p{n}b"], seed + n) for n in range(2)]
    names = [name for publisher in publishers for name in publisher.allowed]
    delays = random.Random(seed)
    for _ in range(kills + 1):
        flags = (*ANY_PORT, "--state", f"{tmp_path}/state", "--sandbox", "off")  # many changes
        with serving(tmp_path, *flags) as server:
            caller = Caller(server.address)
            wait_ready(caller)
            for publisher in publishers:
                for name, allowed in publisher.allowed.items():
                    operator = operator_of(caller, name)
                    assert operator in allowed, (name, operator, allowed, server.log_text())
                    publisher.allowed[name] = {operator}
            assert set(caller.states()) <= set(names)
            assert "damaged" not in server.log_text()
            assert not list((tmp_path / "state").glob("*.part"))
            threads = [
                threading.Thread(target=publisher.run, args=(server.address,))
                for publisher in publishers
            ]
            enough = count_acknowledged(publishers) + delays.randrange(10)
            for thread in threads:
                thread.start()
            wait_until(partial(_has_acknowledged, publishers, enough))
            time.sleep(delays.uniform(0.0, 0.1))
            server.process.kill()
            server.wait()
            for thread in threads:
                thread.join(60)
            caller.channel.close()
    return count_acknowledged(publishers)


def count_acknowledged(publishers: list[Publisher]) -> int:
    """Return how many changes were acknowledged."""
    return sum(publisher.acknowledged for publisher in publishers)


def _has_acknowledged(publishers: list[Publisher], changes: int) -> bool:
    return count_acknowledged(publishers) >= changes


@pytest.mark.heavy
def test_killed_servers_lose_nothing(tmp_path: Path) -> None:
    """After kill -9 amid publishing every acknowledged change is there, and none half."""
    assert kill_while_publishing(tmp_path, 3, seed=1) > 10


@pytest.mark.heavy
def test_many_killed_servers_lose_nothing(tmp_path: Path) -> None:
    """The same, many times: NNPA_STATE_KILLS, else 20."""
    kills = int(os.environ.get("NNPA_STATE_KILLS", "20"))
    acknowledged = kill_while_publishing(tmp_path, kills, seed=2)
    print(f"{kills} kills, {acknowledged} acknowledged changes")
    assert acknowledged > kills


def put(tmp_path: Path, *saved: SavedModel) -> list[Path]:
    """Save models as a server would; return their files in order."""
    folder = SavedModels(tmp_path / "state", 64 * MIB)
    files: list[Path] = []
    for model in saved:
        before = set((tmp_path / "state").glob("*.model"))
        folder.save(model)
        files += set((tmp_path / "state").glob("*.model")) - before
    folder.close()
    return files


@pytest.mark.heavy
def test_bytes_on_disk_have_a_limit(tmp_path: Path) -> None:
    """A model beyond --max-state-bytes is refused before it is compiled; unloading helps."""
    (file,) = put(tmp_path / "sample", SavedModel("a", "", "{}", {"1": MODELS["Add"]}))
    limit = 2 * file.stat().st_size + 10
    with keeping(tmp_path, "--max-state-bytes", f"{limit}") as (_, caller):
        for name in "ab":
            caller.load(name, MODELS["Add"])
        message = load_message("c", v1=MODELS["Add"])
        text = refusal("MODEL_QUOTA_EXCEEDED", caller.stub.RepositoryModelLoad, message)
        assert f"max_state_bytes is {limit}" in text
        garbage = load_message("c", v1=bytes(limit))
        refusal("MODEL_QUOTA_EXCEEDED", caller.stub.RepositoryModelLoad, garbage)
        assert caller.states() == {"a": "READY", "b": "READY"}
        caller.load("a", MODELS["Mul"])
        unload(caller, "b")
        caller.stub.RepositoryModelLoad(message)
        files = list((tmp_path / "state").glob("*.model"))
        assert sum(path.stat().st_size for path in files) <= limit


def start_fails(*flags: str) -> str:
    """Start a server that cannot start; return its message."""
    command = [sys.executable, "-m", "nnpa_server", *ANY_PORT, *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1, ended
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.heavy
def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    """Two servers never share a folder; one that cannot be made ends the start, and is named."""
    with keeping(tmp_path):
        state = f"{tmp_path}/state"
        assert f"--state {state}: another server has it" in start_fails("--state", state)
    (tmp_path / "file").write_text("")
    assert "Not a directory" in start_fails("--state", f"{tmp_path}/file/state")


@pytest.mark.heavy
def test_the_operators_name_wins(tmp_path: Path) -> None:
    """A saved model whose name the folder of --models has is told and left out."""
    put(tmp_path, SavedModel("div", "", "{}", {"1": MODELS["Add"]}))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "div.onnx").write_bytes(MODELS["Div"])
    with keeping(tmp_path, "--models", f"{tmp_path}/models") as (server, caller):
        assert operator_of(caller, "div") == "Div"
        assert "saved model div is left out" in server.log_text()
    (tmp_path / "models" / "div.onnx").unlink()
    with keeping(tmp_path, "--models", f"{tmp_path}/models") as (_, caller):
        assert operator_of(caller, "div") == "Add"
        (tmp_path / "models" / "div.onnx").write_bytes(MODELS["Div"])
        caller.stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="div"))
        assert operator_of(caller, "div") == "Div"
        assert not list((tmp_path / "state").glob("*.model"))
