# SPDX-License-Identifier: Apache-2.0
"""The container files fit each other and the server: what their schemas do not see."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from nnpa_server.__main__ import main
from nnpa_server.config import Config, Limits

DEPLOY = Path(__file__).parents[2] / "deploy"
GIB = 1 << 30
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": GIB}


def documents() -> dict[str, Any]:
    """Return the manifest's objects by kind."""
    text = (DEPLOY / "kubernetes/nnpa.yaml").read_text(encoding="utf-8")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def container() -> dict[str, Any]:
    """Return the one container of the Deployment."""
    (only,) = documents()["Deployment"]["spec"]["template"]["spec"]["containers"]
    container: dict[str, Any] = only
    return container


def quantity(text: str) -> int:
    """Return the bytes of a Kubernetes quantity."""
    match = re.fullmatch(r"(\d+)(Ki|Mi|Gi)", text)
    assert match is not None, text
    return int(match[1]) * UNITS[match[2]]


def flags(words: list[str]) -> set[str]:
    """Return the flags among a command's words."""
    return {word for word in words if word.startswith("--")}


def test_labels_match() -> None:
    """The Service finds the pods that the Deployment makes."""
    deployment, service = documents()["Deployment"]["spec"], documents()["Service"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    assert service["selector"].items() <= labels.items()


def test_ports_match() -> None:
    """The Service's port, the probes and the container's port are where the server listens."""
    (port,) = container()["ports"]
    (served,) = documents()["Service"]["spec"]["ports"]
    assert served["targetPort"] == port["name"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container()[probe]["grpc"]["port"] == port["containerPort"]
    listen = container()["args"][container()["args"].index("--listen") + 1]
    assert listen.endswith(f":{port['containerPort']}")


def test_memory_holds_a_full_session() -> None:
    """The memory limit is above what one session may hold, and requests are within limits."""
    resources = container()["resources"]
    limit = quantity(resources["limits"]["memory"])
    assert limit > Limits().max_session_bytes
    assert quantity(resources["requests"]["memory"]) <= limit


def test_the_pod_has_time_to_drain() -> None:
    """Kubernetes and compose wait longer than the server drains."""
    drain = Config().drain_timeout
    grace = documents()["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > drain
    assert int(compose()["services"]["server"]["stop_grace_period"].rstrip("s")) > drain


def compose() -> dict[str, Any]:
    """Return the compose file."""
    parsed: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return parsed


def test_compose_shares_a_socket_and_memory() -> None:
    """The program reaches the server by the socket in their volume, in one space of memory."""
    services = compose()["services"]
    server, program = services["server"], services["program"]
    assert server["volumes"] == program["volumes"]
    place = server["volumes"][0].partition(":")[2]
    assert program["environment"]["ZDNN_SERVER"].startswith(f"unix:{place}/")
    assert program["environment"]["ZDNN_SERVER"] in server["command"]
    assert program["ipc"] == "service:server"
    assert server["ipc"] == "shareable"
    assert "--shared-memory" in server["command"]


def test_ports_are_published_on_loopback_only() -> None:
    """Nothing that starts without TLS is reachable from other machines by default."""
    for service in compose()["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


@pytest.mark.parametrize("where", ["Dockerfile", "compose", "kubernetes"])
def test_every_flag_exists(where: str) -> None:
    """Commands use flags that nnpa-server has."""
    options = {option for parameter in main.params for option in parameter.opts}
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    words = {
        "Dockerfile": re.findall(r'"(--[a-z-]+)"', dockerfile.partition("ENTRYPOINT")[2]),
        "compose": compose()["services"]["server"]["command"],
        "kubernetes": container()["args"],
    }
    assert flags(words[where])
    assert flags(words[where]) <= options


def test_both_stages_are_for_the_same_processors() -> None:
    """Kernels are looked for by the processor that they were compiled for."""
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for name in ("CPU", "CPU_FEATURES"):
        assert len(set(re.findall(rf"^ARG {name}=.*$", dockerfile, re.M))) == 1
        assert len(re.findall(rf"^ARG {name}=", dockerfile, re.M)) == 2


def test_nobody_runs_as_root() -> None:
    """Image and pod run as the same unprivileged user, on a read-only root."""
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    pod = documents()["Deployment"]["spec"]["template"]["spec"]["securityContext"]
    assert re.findall(r"^USER (.*)$", dockerfile, re.M) == [
        f"{pod['runAsUser']}:{pod['runAsGroup']}"
    ]
    assert container()["securityContext"]["readOnlyRootFilesystem"] is True
    assert all(service["read_only"] for service in compose()["services"].values())
