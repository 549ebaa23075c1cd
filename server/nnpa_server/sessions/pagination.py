# SPDX-License-Identifier: Apache-2.0
"""Pages of listings. A token holds the number of a page's last item and a seal of this process.

Source of the scheme: AIP-158 (https://google.aip.dev/158).
"""

import hmac
import secrets

from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallRefused, invalid

MAX_PAGE = 1000
_DEFAULT_PAGE = 100
_KEY = secrets.token_bytes(16)


def page_size(size: int) -> int:
    """Return the number of items on a page, for the size that a client asks for."""
    if size < 0:
        raise invalid("page_size", size, f"0 to {MAX_PAGE}")
    return min(size or _DEFAULT_PAGE, MAX_PAGE)


def _seal(listing: str, last: int) -> str:
    return hmac.new(_KEY, f"{listing}\0{last}".encode(), "sha256").hexdigest()[:16]


def make_token(listing: str, last: int) -> str:
    """Return the token of the page after item number `last` of a listing."""
    return f"{last}.{_seal(listing, last)}"


def read_token(listing: str, token: str) -> int:
    """Return the number of the previous page's last item, -1 for the first page."""
    if not token:
        return -1
    number, _, seal = token.partition(".")
    if number.isascii() and number.isdecimal() and len(number) <= 20:
        last = int(number)
        if hmac.compare_digest(seal.encode(), _seal(listing, last).encode()):
            return last
    raise CallRefused(
        wire.ERROR_REASON_PAGE_TOKEN_INVALID,
        "page_token is not from this listing: start again without one",
        field="page_token",
        value=token[:64],
    )
