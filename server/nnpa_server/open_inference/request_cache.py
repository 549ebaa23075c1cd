# SPDX-License-Identifier: Apache-2.0
"""Shortcut request-cache: what a request says beside its contents is read and checked once.

Clients say the same again and again; the bytes of a request without id and contents are the key.
"""

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from nnpa_server.open_inference.messages import InferRequest
from nnpa_server.open_inference.repository import State

if TYPE_CHECKING:
    from nnpa_server.open_inference.reading import CheckedRequest, ReadRequest

_MAX_REQUESTS, _MAX_HEAD_BYTES = 256, 4096


class RequestCache:
    """Wraps what reads a request; keeps those whose contents are all raw or in shared memory."""

    def __init__(self, read: "ReadRequest") -> None:
        self._read = read
        self._requests: OrderedDict[tuple[bytes, bool], CheckedRequest] = OrderedDict()
        self._lock = Lock()

    def read(self, request: InferRequest) -> "CheckedRequest":
        """Return a request that was read before, or read it."""
        key = (request.head, bool(request.raw))
        with self._lock:
            checked = self._requests.get(key)
            if checked is not None and checked.model.state == State.READY:
                self._requests.move_to_end(key)
                return checked
        checked = self._read(request)
        if len(request.head) <= _MAX_HEAD_BYTES and not checked.has_typed_contents:
            with self._lock:
                self._requests[key] = checked
                self._drop_old()
        return checked

    def _drop_old(self) -> None:
        """Drop the oldest, and those of withdrawn models, whose networks would be kept alive."""
        for key, kept in list(self._requests.items()):
            if kept.model.state != State.READY:
                del self._requests[key]
        while len(self._requests) > _MAX_REQUESTS:
            self._requests.popitem(last=False)
