# SPDX-License-Identifier: Apache-2.0
"""Compose how requests are read: the plain functions, then the shortcuts that wrap them."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeAlias

from nnpa_server.open_inference.messages import InferRequest
from nnpa_server.open_inference.request_cache import RequestCache

if TYPE_CHECKING:  # the rest of the networks is imported by the first call
    from nnpa_server.open_inference.reading import ReadRequest

SHORTCUTS: frozenset[str] = frozenset(("request-cache",))
"""Names of the shortcuts; those of hosted networks have their own list."""
IsQuick: TypeAlias = Callable[[InferRequest], bool]
"""Tells whether a request is answered so soon that others may wait for it."""


def compose_reader(
    read: "ReadRequest", shortcuts: Collection[str]
) -> "tuple[ReadRequest, IsQuick]":
    """Return what reads requests, and what knows quick ones: none without a cache."""
    if "request-cache" not in shortcuts:
        return read, lambda _request: False
    cache = RequestCache(read)
    return cache.read, cache.is_quick
