# SPDX-License-Identifier: Apache-2.0
"""Compose how requests are read: the plain function, then the shortcut that wraps it."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from nnpa_server.open_inference.request_cache import RequestCache

if TYPE_CHECKING:  # the rest of the networks is imported by the first call
    from nnpa_server.open_inference.reading import ReadRequest

SHORTCUTS: frozenset[str] = frozenset(("request-cache",))
"""Names of the shortcuts; those of hosted networks have their own list."""


def compose_reader(read: "ReadRequest", shortcuts: Collection[str]) -> "ReadRequest":
    """Return what reads requests."""
    return RequestCache(read).read if "request-cache" in shortcuts else read
