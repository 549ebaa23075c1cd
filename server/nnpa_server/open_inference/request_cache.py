# SPDX-License-Identifier: Apache-2.0
"""The shortcut request-cache: requests that differ in their contents alone are checked once.

The key is the serialised request without its id and raw contents, which clients repeat.
"""

from collections import OrderedDict
from threading import Lock

from nnpa_server.open_inference.messages import InferRequest
from nnpa_server.open_inference.reading import CheckedRequest, ReadRequest
from nnpa_server.open_inference.repository import State

_MAX_REQUESTS, _MAX_HEAD_BYTES = 256, 4096


class RequestCache:
    """Wraps a reader; caches requests whose contents are all raw or in shared memory."""

    def __init__(self, read: ReadRequest) -> None:
        self._read = read
        self._requests: OrderedDict[tuple[bytes, bool], CheckedRequest] = OrderedDict()
        self._lock = Lock()

    def read(self, request: InferRequest) -> CheckedRequest:
        """Return the checked request from the cache, or read it."""
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
        """Drop requests of withdrawn models, which would keep networks alive, and the oldest."""
        for key, kept in list(self._requests.items()):
            if kept.model.state != State.READY:
                del self._requests[key]
        while len(self._requests) > _MAX_REQUESTS:
            self._requests.popitem(last=False)
