# SPDX-License-Identifier: Apache-2.0
"""The page's guard, against real processes with requests over sockets."""

import hashlib
import re
import resource
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from importlib import resources
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from nnpa_client import connect
from nnpa_page import MAX_VIEWERS, Guard, Page, Query, Visitor, open_page
from nnpa_server.__main__ import main

from tests.server.page.serving import PageServer, serving_page
from tests.server.process import PATIENCE, wait_until

ASSETS = sorted(file.name for file in (resources.files("nnpa_page") / "assets").iterdir())
MAX_ASSETS = 1_000_000  # bytes of all files of the page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """A server's page, shared by the tests."""
    with serving_page(tmp_path_factory.mktemp("page")) as server:
        yield server


def test_serves_files_without_a_token_or_inline_script(page: PageServer) -> None:
    """Each file is served under a policy that allows no inline script."""
    total = 0
    for name in ASSETS:
        answer = page.get(f"/{name}")
        assert (answer.status, answer.headers["X-Content-Type-Options"]) == (200, "nosniff")
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'" in policy
        assert "unsafe" not in policy
        total += len(answer.body)
    assert total < MAX_ASSETS
    html = page.get("/").body.decode()
    assert re.findall(r"<script[^>]*>", html) == ['<script type="module" src="page.js">']
    assert not re.search(r"\son\w+=|style=|https?://", html)


@pytest.mark.parametrize("path", ["/data/views", "/data/machines", "/data/sticks", "/data/no"])
def test_refuses_data_without_the_token(page: PageServer, path: str) -> None:
    """Data are refused without a token, and with a wrong or shortened one."""
    assert page.get(path).status == 401
    assert page.get(path, "").status == 401
    assert page.get(path, page.token[:-1]).status == 401
    assert page.get(path, page.token + "A").status == 401
    assert page.get(path, "\xe9").status == 401
    assert page.get("/data/views", page.token).data[:2] == ["machines", "sticks"]


def test_refuses_a_token_in_the_path(page: PageServer) -> None:
    """A token counts only in its header, which no log or referrer contains."""
    assert page.get(f"/data/views?token={page.token}").status == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "["])
def test_refuses_another_host(page: PageServer, host: str) -> None:
    """A request with a rebound host name is refused, for files and data."""
    for path in ("/", "/data/views"):
        answer = page.get(path, page.token, Host=host)
        assert answer.status == 403
        assert answer.data["error"].startswith(f"Host is {host}, must be one of 127.0.0.1")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://{host}", "http://localhost:1"]
)
def test_refuses_another_origin(page: PageServer, origin: str) -> None:
    """A request from another site's script is refused, for files and data."""
    shown = origin.format(host=page.host)
    for path in ("/", "/data/views"):
        answer = page.get(path, page.token, Origin=shown)
        assert answer.status == 403
        assert answer.data["error"] == f"Origin is {shown}, must be http://{page.host}"
    assert page.get("/data/views", page.token, Origin=f"http://{page.host}").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_refuses_methods_but_get(page: PageServer, method: str) -> None:
    """Each method but GET is refused."""
    headers = {"Authorization": f"Bearer {page.token}"}
    assert page.send(method, "/data/machines", headers).status == 501


@pytest.mark.parametrize("path", ["/../page.py", "/%2e%2e/page.py", "/data/../page.css"])
def test_serves_no_other_files(page: PageServer, path: str) -> None:
    """A path outside the page's files is not found, even with the token."""
    assert page.get(path, page.token).status == 404


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise the limit of open files to its maximum."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@pytest.mark.heavy
@pytest.mark.usefixtures("many_files")
def test_survives_a_thousand_connections(page: PageServer) -> None:
    """A thousand silent connections leave few threads, and page and server still answer."""
    host, port = page.host.split(":")
    process = psutil.Process(page.pid)
    before = process.num_threads()
    with ExitStack() as opened:
        for _ in range(1000):
            opened.enter_context(socket.create_connection((host, int(port)), timeout=60))
        assert page.get("/data/views", page.token).status == 200
        wait_until(lambda: process.num_threads() <= before + 4 * MAX_VIEWERS)
        with connect(page.grpc) as session:
            assert session.ztensor([[1.0]]).numpy() == [[1.0]]


@contextmanager
def waiting_view() -> Generator[tuple[str, Callable[[str], socket.socket], threading.Event]]:
    """Serve a view that waits; yield its address, a function that requests it, and its end.

    A token is the name of its holder.
    """
    ended, arrived = threading.Event(), threading.Semaphore(0)

    def view(_visitor: Visitor, _query: Query) -> object:
        arrived.release()
        return ended.wait(PATIENCE)

    guard = Guard("127.0.0.1", "http", lambda header: header.split()[1])
    endpoint = open_page("127.0.0.1", 0, Page(guard, {"wait": view}))
    with ExitStack() as opened:
        opened.callback(endpoint.close)
        opened.callback(ended.set)

        def ask(token: str) -> socket.socket:
            host = ("127.0.0.1", endpoint.server_port)
            connection = opened.enter_context(socket.create_connection(host, PATIENCE))
            head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
            connection.sendall(f"GET /data/wait HTTP/1.0\r\n{head}".encode())
            assert arrived.acquire(timeout=PATIENCE)
            return connection

        yield endpoint.address, ask, ended


def test_keeps_a_visitor_among_silent_connections() -> None:
    """A visitor with a token gets the answer while many silent connections are open."""
    with waiting_view() as (address, ask, ended), ExitStack() as opened:
        host, port = address.split(":")
        modest = ask("bob")
        for _ in range(4 * MAX_VIEWERS):
            opened.enter_context(socket.create_connection((host, int(port)), PATIENCE))
        ask("carol")  # all before were accepted
        ended.set()
        assert modest.recv(64).startswith(b"HTTP/1.0 200")


def test_closes_connections_of_the_greediest_visitor() -> None:
    """A visitor with too many requests loses the oldest; another visitor loses none."""
    with waiting_view() as (_address, ask, ended):
        modest = ask("bob")
        greedy = [ask("alice") for _ in range(2 * MAX_VIEWERS)]
        ended.set()
        assert modest.recv(64).startswith(b"HTTP/1.0 200")
        assert greedy[-1].recv(64).startswith(b"HTTP/1.0 200")
        assert greedy[0].recv(64) == b""


def test_admits_holders_of_valid_tokens(tmp_path: Path) -> None:
    """A valid token of --tokens is admitted; an expired or unknown one is refused."""
    tokens = tmp_path / "tokens.toml"
    table = '[tokens.{0}]\nsha256 = "{1}"\nexpires = {2}-01-01T00:00:00Z\n'
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("alice", "late")}
    tokens.write_text(
        table.format("alice", digests["alice"], 2999) + table.format("late", digests["late"], 2001)
    )
    with serving_page(tmp_path, "--tokens", str(tokens)) as page:
        assert page.get("/data/views", "alice").status == 200
        assert page.get("/data/views", page.token).status == 200
        assert page.get("/data/views", "late").data == {"error": "the token has expired"}
        assert page.get("/data/views", "mallory").status == 401


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--page", "0.0.0.0:0"], "--page 0.0.0.0:0 would carry tokens in plain text"),
        (["--page", "0.0.0.0:0", "--insecure"], "would carry tokens in plain text"),
        (["--page", "unix:/tmp/page"], "must be host:port"),
        (["--page", "127.0.0.1:0", "--processes", "2"], "--page and --processes 2 do not go"),
        (["--page-all"], "--page-all needs --page"),
    ],
)
def test_refuses_unsafe_flags(flags: list[str], text: str) -> None:
    """The page is not served in plain text to other hosts, on a socket, or by several processes."""
    outcome = CliRunner().invoke(main, flags)
    assert outcome.exit_code == 2
    assert text in " ".join(outcome.output.replace("│", "").split())
