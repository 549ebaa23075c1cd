# SPDX-License-Identifier: Apache-2.0
"""NnpaContainer, by the clients of Testcontainers and Docker, on an engine without containers."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from nnpa_client import zdnn

from tests.client import docker_engine
from tests.client.docker_engine import Engine

pytest.importorskip("testcontainers", reason="testcontainers is in the extra of that name")


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine at DOCKER_HOST."""
    socket = tmp_path / "docker.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{socket}")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr("testcontainers.core.config.testcontainers_config.ryuk_disabled", True)
    with docker_engine.running(socket) as running:
        yield running


def test_container_serves_and_goes(engine: Engine) -> None:
    """A container is created without privileges, is ready when started, and is removed."""
    from nnpa_client.testcontainers import NnpaContainer

    with NnpaContainer("example/nnpa:1", "--max-sessions", "3") as container:
        assert container.environment() == {"ZDNN_SERVER": container.target}
        with container.connect(machine="telum1") as session:
            assert session.machine.name == "machines/telum1"
            a = session.ztensor(np.array([1, 2], np.float32))
            assert zdnn.add(a, a).numpy().tolist() == [2, 4]
    assert engine.removed
    assert engine.images[0] == "example/nnpa:1"
    command = ["--listen", "0.0.0.0:50051", "--insecure", "--max-sessions", "3"]
    assert engine.asked["Cmd"] == command
    host = engine.asked["HostConfig"]
    assert (host["ReadonlyRootfs"], host["CapDrop"]) == (True, ["ALL"])
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert list(engine.asked["ExposedPorts"]) == ["50051/tcp"]


def test_an_engine_that_is_not_there_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an engine the error is a sentence with the remedy, without the client's traceback."""
    from docker.errors import DockerException
    from nnpa_client.testcontainers import NnpaContainer

    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with pytest.raises(
        DockerException, match=r"^no Docker engine answers: .* Start Docker"
    ) as caught:
        NnpaContainer()
    assert caught.value.__suppress_context__


def test_options_are_the_containers(engine: Engine) -> None:
    """Options of DockerContainer pass through, and win over NnpaContainer's own."""
    from nnpa_client.testcontainers import NnpaContainer

    with NnpaContainer(env={"ZDNN_X": "1"}, read_only=False):
        pass
    assert engine.images[0] == "nnpa"
    assert engine.asked["Env"] == ["ZDNN_X=1"]
    assert not engine.asked["HostConfig"].get("ReadonlyRootfs")
