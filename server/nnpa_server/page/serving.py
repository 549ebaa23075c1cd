# SPDX-License-Identifier: Apache-2.0
"""Serve the page beside gRPC: its address, its URL, and the holders of tokens."""

from functools import partial

from nnpa_page import Guard, Page, Refusal, View, open_page

from nnpa_server.config import Config, split_address
from nnpa_server.errors import CallRefused
from nnpa_server.page.machines import machines
from nnpa_server.page.sessions import Sessions
from nnpa_server.page.sticks import sticks
from nnpa_server.page.watching import Watches
from nnpa_server.rpc.listening import serving_over_http, tls_context
from nnpa_server.sessions.store import Store
from nnpa_server.sessions.tokens import Tokens


class SessionPage:
    """The open page of a server; `url` has the page's own token in its fragment.

    With `tokens` their holders may read it, too. Raises `CannotListen`.
    """

    def __init__(self, config: Config, store: Store, tokens: Tokens | None) -> None:
        host, port = split_address(config.page)
        with serving_over_http("the page", config.page):
            tls = tls_context(config.page, config)
            scheme = "http" if tls is None else "https"
            holders = [] if tokens is None else [partial(_find_holder, tokens)]
            guard = Guard(host, scheme, *holders)
            watches = Watches(config.shortcuts)
            live = Sessions(store, watches, config.page_all)
            views: dict[str, View] = {
                "machines": machines, "sticks": sticks, "sessions": live.sessions,
                "session": live.session, "tensor": live.tensor,
            }  # fmt: skip
            self._endpoint = open_page(host, port, Page(guard, views), tls, watches.leave)
        self.url = f"{scheme}://{self._endpoint.address}/#token={guard.token}"

    def close(self) -> None:
        """Stop serving."""
        self._endpoint.close()


def _find_holder(tokens: Tokens, authorization: str) -> str:
    """Return the holder of the token in a header."""
    try:
        return tokens.find((("authorization", authorization),)).name
    except CallRefused as refused:
        raise Refusal(refused.message, 401) from None
