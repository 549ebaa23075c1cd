# SPDX-License-Identifier: Apache-2.0
"""Guard the page's data: every request needs a token, this host's name, and no other origin.

Every local user can connect to a loopback port: the token keeps them out. So can scripts of a web
site whose name resolves to 127.0.0.1 (DNS rebinding): they send the site's name as Host.
Sources: RFC 6750, 2.1 (Authorization); RFC 9110, 7.2 (Host); RFC 6454, 7 (Origin).
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from urllib.parse import urlsplit

_TOKEN_BYTES = 24  # 192 random bits
_SCHEME = "bearer "
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MAX_SHOWN = 80  # characters of a header in an error


class Refusal(Exception):
    """The refusal of a request: the reason as a sentence, and HTTP's status code.

    The code is 200 if a view refuses the fields of a valid request: a browser reports other codes
    as failures of the page.
    """

    def __init__(self, text: str, code: int = 200) -> None:
        self.code, self.text = code, text
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request: the holder of a token, or of the page's own (`is_operator`)."""

    holder: str = ""
    is_operator: bool = False

    @property
    def name(self) -> str:
        """The name of the visitor, which no address can have."""
        return "the operator" if self.is_operator else f"token {self.holder}"


def _nobody(_authorization: str) -> str:
    raise Refusal("the token is not the page's: open the URL that was printed at its start", 401)


class Guard:
    """Admits visitors by their tokens; `token` is the page's own, drawn at each start.

    `host` is the page's address, `scheme` "http" or "https". `find_holder` returns the holder of
    another token in the header Authorization, and raises `Refusal` for an unknown token.
    """

    def __init__(
        self, host: str, scheme: str = "http", find_holder: Callable[[str], str] = _nobody
    ) -> None:
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._digest = hashlib.sha256(self.token.encode()).digest()
        self._scheme, self._find_holder = scheme, find_holder
        self._hosts = {host.strip("[]"), *_LOOPBACK}

    def require_same_site(self, headers: Message) -> None:
        """Refuse a request for another host name, or from another site's page."""
        hosts = headers.get_all("Host", [])
        if len(hosts) != 1 or _hostname(hosts[0]) not in self._hosts:
            shown = ", ".join(hosts)[:_MAX_SHOWN] or "missing"
            names = ", ".join(sorted(self._hosts))
            raise Refusal(f"Host is {shown}, must be one of {names}", 403)
        own = f"{self._scheme}://{hosts[0]}"
        for origin in headers.get_all("Origin", []):
            if origin.lower() != own.lower():
                raise Refusal(f"Origin is {origin[:_MAX_SHOWN]}, must be {own}", 403)

    def admit(self, headers: Message) -> Visitor:
        """Return the sender of a request; refuse it without a valid token.

        The page's token is compared by its hash, in constant time.
        """
        values = headers.get_all("Authorization", [])
        if len(values) != 1 or values[0][: len(_SCHEME)].lower() != _SCHEME:
            raise Refusal("the request has no token, must have Authorization: Bearer TOKEN", 401)
        presented = values[0][len(_SCHEME) :].strip()
        digest = hashlib.sha256(presented.encode()).digest()
        if hmac.compare_digest(digest, self._digest):
            return Visitor(is_operator=True)
        return Visitor(self._find_holder(values[0]))


def _hostname(host: str) -> str | None:
    """Return the name in a header Host without its port; None for an invalid header."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
