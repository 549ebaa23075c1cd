# SPDX-License-Identifier: Apache-2.0
"""Serve the page over HTTP: its files to everybody on this host, its data to holders of a token.

    /, /page.css, /*.js, /icon.svg   the files of `assets`, as they are
    /data/views                      names of the views that are served
    /data/NAME?FIELD=TEXT            the answer of a view, as JSON

GET is the only method. Errors are `{"error": "a sentence"}`.
"""

import json
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from functools import cache, partial
from http.server import BaseHTTPRequestHandler
from importlib import resources
from typing import TypeAlias
from urllib.parse import parse_qsl, urlsplit

from nnpa_page.endpoint import TIMEOUT, Endpoint
from nnpa_page.guard import Guard, Refusal, Visitor

MAX_VIEWERS = 16  # clients at a time, each of which keeps a thread; a browser opens six
_MAX_FIELDS = 16  # of a query
_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_log = logging.getLogger("nnpa.page")

Query: TypeAlias = Mapping[str, str]
"""The fields of a request."""
View: TypeAlias = Callable[[Visitor, Query], object]
"""A function that returns a view's data for JSON, and raises `Refusal` for invalid fields."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: HTTP's status code, the file suffix of the body's type, the body."""

    code: int
    kind: str
    body: bytes


@cache
def _assets() -> Mapping[str, Answer]:
    """Return the files of the page by path."""
    folder = resources.files("nnpa_page") / "assets"
    files = {
        f"/{file.name}": Answer(200, file.name.rpartition(".")[2], file.read_bytes())
        for file in folder.iterdir()
    }
    return {"/": files["/index.html"], **files}


class Page:
    """Answers requests for files and views."""

    def __init__(self, guard: Guard, views: Mapping[str, View]) -> None:
        self._guard = guard
        self._views = views

    def answer(self, target: str, headers: Message, know: Callable[[str], object]) -> Answer:
        """Answer a request for a path with its query; call `know` with the name of its visitor."""
        try:
            self._guard.require_same_site(headers)
            address = urlsplit(target)
            if address.path in _assets():
                return _assets()[address.path]
            visitor = self._guard.admit(headers)
            know(visitor.name)
            return self._data(address.path, address.query, visitor)
        except Refusal as refusal:
            return error(refusal.code, refusal.text)
        except Exception:
            _log.exception("a view could not be answered")
            return error(500, "the view could not be answered: see the server's log")

    def _data(self, path: str, query: str, visitor: Visitor) -> Answer:
        if path == "/data/views":
            return _json(list(self._views))
        view = self._views.get(path.removeprefix("/data/"))
        if view is None or not path.startswith("/data/"):
            raise Refusal(f"path is {path[:80]}, which does not exist", 404)
        try:
            fields = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_FIELDS))
        except ValueError:
            raise Refusal(f"the query has more than {_MAX_FIELDS} fields", 400) from None
        return _json(view(visitor, fields))


def _json(data: object, code: int = 200) -> Answer:
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Answer(code, "json", text.encode())


def error(code: int, text: str) -> Answer:
    """Return the answer to a refused request."""
    return _json({"error": text}, code)


class _Handler(BaseHTTPRequestHandler):
    """Sends the page's answers; a connection has one request."""

    page: Page
    timeout = TIMEOUT
    server_version, sys_version = "nnpa", ""

    def do_GET(self) -> None:
        assert isinstance(self.server, Endpoint)
        know = partial(self.server.know, self.connection)
        self._send(self.page.answer(self.path, self.headers, know))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse requests other than GET, and bytes that are no HTTP."""
        del explain
        self._send(error(code, message or "the request cannot be answered"))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Log no requests."""

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.code)
        for name, text in _HEADERS.items():
            self.send_header(name, text)
        self.send_header("Content-Type", _KINDS[answer.kind])
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)


def open_page(
    host: str,
    port: int,
    page: Page,
    tls: ssl.SSLContext | None = None,
    tick: Callable[[], object] = int,
) -> Endpoint:
    """Serve a page; port 0 picks a free one. Raise OSError if the address cannot be bound."""
    handler = type("Handler", (_Handler,), {"page": page})
    endpoint = Endpoint(host, port, handler, MAX_VIEWERS, tls, tick)
    endpoint.start("page")
    return endpoint
