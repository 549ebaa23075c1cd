# SPDX-License-Identifier: Apache-2.0
"""A server process with a page for tests, and plain HTTP to it."""

import http.client
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.server.process import PATIENCE, serving

_READY = "nnpa-server page on "


@dataclass(frozen=True)
class Response:
    """An answer of the page."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class PageServer:
    """A server's page at `url`, with the `token` of its fragment; `grpc` is its first listener."""

    url: str
    grpc: str
    pid: int

    @property
    def token(self) -> str:
        """The page's own token."""
        return urlsplit(self.url).fragment.removeprefix("token=")

    @property
    def host(self) -> str:
        """Host and port of the page."""
        return urlsplit(self.url).netloc

    def get(self, path: str, token: str | None = None, **headers: str) -> Response:
        """Get a path, with a token where one is given."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self.send("GET", path, headers)

    def send(self, method: str, path: str, headers: Mapping[str, str]) -> Response:
        """Send a request of any method."""
        connection = http.client.HTTPConnection(self.host, timeout=PATIENCE)
        connection.request(method, path, headers=dict(headers))
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return Response(response.status, dict(response.getheaders()), body)


@contextmanager
def serving_page(folder: Path, *flags: str) -> Generator[PageServer]:
    """Run a server with a page."""
    with serving(folder, "--listen", "127.0.0.1:0", "--page", "127.0.0.1:0", *flags) as server:
        line = server.stdout.readline().decode()
        assert line.startswith(_READY), line
        yield PageServer(line.removeprefix(_READY).strip(), server.address, server.process.pid)
