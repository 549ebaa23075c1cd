# SPDX-License-Identifier: Apache-2.0
"""The part of Docker's Engine API that starts one container, with a process in its place.

Source: Docker Engine API v1.44. The process is the `nnpa-server` of this interpreter with the
container's command, on a port of the loopback interface. It is not isolated as a container is.
"""

import json
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

ID = "c0ffee" + "0" * 58


class Engine:
    """One container: the request that created it, and the process that stands for it."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.images: list[str] = []
        self.removed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._line = b""

    def start(self) -> None:
        """Run the command, on a free port instead of the container's own."""
        flags = [
            re.sub(r"^0\.0\.0\.0:\d+$", "127.0.0.1:0", argument) for argument in self.asked["Cmd"]
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "nnpa_server", "--exit-with-parent", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self._line = self._process.stdout.readline()

    def state(self) -> dict[str, Any]:
        """Return the answer to an inspection of the container."""
        ports: dict[str, Any] = {}
        if self._line:
            port = self._line.decode().strip().rpartition(":")[2]
            exposed = next(iter(self.asked["ExposedPorts"]))
            ports = {exposed: [{"HostIp": "127.0.0.1", "HostPort": port}]}
        status = {"Status": "running" if self._line else "created"}
        settings = {"Ports": ports, "Networks": {}}
        config = {"Tty": False, "Image": self.asked["Image"]}
        return {"Id": ID, "State": status, "Config": config, "NetworkSettings": settings}

    def listed(self) -> dict[str, Any]:
        """Return the container's entry in the list of containers."""
        settings = {"Networks": {"bridge": {"Gateway": "127.0.0.1", "IPAddress": "127.0.0.1"}}}
        return {"Id": ID, "HostConfig": {"NetworkMode": "bridge"}, "NetworkSettings": settings}

    def log(self) -> bytes:
        """Return standard output in the frames of the attach stream: type, size, bytes."""
        return struct.pack(">BxxxL", 1, len(self._line)) + self._line

    def remove(self) -> None:
        """End the process."""
        self.removed = True
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=30)


class _Handler(BaseHTTPRequestHandler):
    engine: Engine
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or "null")
        status, content = self._result(re.sub(r"^/v[\d.]+|\?.*", "", self.path), body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the names that http.server calls

    def _result(self, path: str, body: Any) -> tuple[int, bytes]:
        match self.command, path.strip("/").split("/"):
            case "GET", ["version"]:
                return 200, b'{"ApiVersion": "1.44", "Version": "25.0"}'
            case "GET", ["images", *name, "json"]:
                self.engine.images.append("/".join(name))
                return 200, b'{"Id": "sha256:0"}'
            case "POST", ["containers", "create"]:
                self.engine.asked = body
                return 201, json.dumps({"Id": ID, "Warnings": []}).encode()
            case "POST", ["containers", _, "start"]:
                self.engine.start()
                return 204, b""
            case "GET", ["containers", "json"]:
                return 200, json.dumps([self.engine.listed()]).encode()
            case "GET", ["containers", _, "json"]:
                return 200, json.dumps(self.engine.state()).encode()
            case "GET", ["containers", _, "logs"]:
                return 200, self.engine.log()
            case "DELETE", ["containers", _]:
                self.engine.remove()
                return 204, b""
            case _:
                return 404, json.dumps({"message": f"{self.command} {path}"}).encode()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Keep quiet."""


@contextmanager
def running(socket: Path) -> Generator[Engine]:
    """Serve the API on a Unix socket."""
    engine = Engine()
    handler = type("Handler", (_Handler,), {"engine": engine})
    with ThreadingUnixStreamServer(str(socket), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield engine
        server.shutdown()
        thread.join()
