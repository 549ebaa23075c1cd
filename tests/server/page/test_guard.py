# SPDX-License-Identifier: Apache-2.0
"""Whom the page answers: real processes, requests over sockets."""

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


def test_a_page_s_files_need_no_token_and_hold_no_inline_script(page: PageServer) -> None:
    """Every file is served as it is, with a policy that lets no inline script run."""
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
def test_data_need_the_page_s_token(page: PageServer, path: str) -> None:
    """Without a token, with another, and with one of another page there are no data."""
    assert page.get(path).status == 401
    assert page.get(path, "").status == 401
    assert page.get(path, page.token[:-1]).status == 401
    assert page.get(path, page.token + "A").status == 401
    assert page.get(path, "\xe9").status == 401
    assert page.get("/data/views", page.token).data[:2] == ["machines", "sticks"]


def test_a_token_in_the_path_is_none(page: PageServer) -> None:
    """The token counts in its header only, where no log or referrer has it."""
    assert page.get(f"/data/views?token={page.token}").status == 401


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "["])
def test_another_host_is_refused(page: PageServer, host: str) -> None:
    """A name that was rebound to this machine is refused, for files and data."""
    for path in ("/", "/data/views"):
        answer = page.get(path, page.token, Host=host)
        assert answer.status == 403
        assert answer.data["error"].startswith(f"Host is {host}, must be one of 127.0.0.1")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://{host}", "http://localhost:1"]
)
def test_another_origin_is_refused(page: PageServer, origin: str) -> None:
    """A script of another site's page is refused, for files and data."""
    shown = origin.format(host=page.host)
    for path in ("/", "/data/views"):
        answer = page.get(path, page.token, Origin=shown)
        assert answer.status == 403
        assert answer.data["error"] == f"Origin is {shown}, must be http://{page.host}"
    assert page.get("/data/views", page.token, Origin=f"http://{page.host}").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_is_written(page: PageServer, method: str) -> None:
    """There is no method but GET."""
    headers = {"Authorization": f"Bearer {page.token}"}
    assert page.send(method, "/data/machines", headers).status == 501


@pytest.mark.parametrize("path", ["/../page.py", "/%2e%2e/page.py", "/data/../page.css"])
def test_other_files_are_not_served(page: PageServer, path: str) -> None:
    """A path that is no file of the page's is not found, whoever asks."""
    assert page.get(path, page.token).status == 404


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as the system lets this process have."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@pytest.mark.heavy
@pytest.mark.usefixtures("many_files")
def test_a_thousand_connections(page: PageServer) -> None:
    """A thousand connections that say nothing keep few threads, and nobody from page or server."""
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
    """Serve a view that waits; give the address, how to ask by a token, and what ends the wait.

    A token is its holder's name.
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


def test_silent_connections_end_no_visitor_s() -> None:
    """Who has shown a token gets its answer, however many connections say nothing meanwhile."""
    with waiting_view() as (address, ask, ended), ExitStack() as opened:
        host, port = address.split(":")
        modest = ask("bob")
        for _ in range(4 * MAX_VIEWERS):
            opened.enter_context(socket.create_connection((host, int(port)), PATIENCE))
        ask("carol")  # all before were accepted
        ended.set()
        assert modest.recv(64).startswith(b"HTTP/1.0 200")


def test_a_visitor_with_many_connections_ends_its_own() -> None:
    """A token's holder who asks too often ends its own requests, and those of nobody else."""
    with waiting_view() as (_address, ask, ended):
        modest = ask("bob")
        greedy = [ask("alice") for _ in range(2 * MAX_VIEWERS)]
        ended.set()
        assert modest.recv(64).startswith(b"HTTP/1.0 200")
        assert greedy[-1].recv(64).startswith(b"HTTP/1.0 200")
        assert greedy[0].recv(64) == b""


def test_holders_of_tokens_are_let_in(tmp_path: Path) -> None:
    """A token of --tokens is let in, one that has expired and any other is not."""
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
def test_flags_that_are_refused(flags: list[str], text: str) -> None:
    """A page is not served in plain text to others, on a socket, or for several processes."""
    outcome = CliRunner().invoke(main, flags)
    assert outcome.exit_code == 2
    assert text in " ".join(outcome.output.replace("│", "").split())
