# SPDX-License-Identifier: Apache-2.0
"""How a ModelInferRequest lies in its bytes: what its head is, and where id and raw contents are.

Clients send requests of one form again and again. The forms of small requests are remembered: where
all bytes but those of id and contents are the same, so is everything that can be read from them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock

from nnpa.oip import open_inference_grpc_pb2 as pb

from nnpa_server.rpc.wire_fields import part

ID = pb.ModelInferRequest.ID_FIELD_NUMBER
RAW = pb.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
SMALL = 1 << 16
"""Bytes of a request whose contents are rather copied, which aligns them, than viewed."""
_APART = frozenset((ID, RAW))
_MOST_SIZES, _MOST_OF_A_SIZE = 64, 4  # forms remembered, of so many sizes each so many
_MOST_FIXED, _MOST_PIECES = 4096, 64  # bytes of one beside id and contents, and their pieces


@dataclass(frozen=True, slots=True)
class Framing:
    """One form of requests of one size.

    `fixed` are the bytes of the head and around id and contents, `starts` where they begin; `head`
    is the message without id and contents. `id` and `raw` are where those begin and end.
    """

    head: bytes
    fixed: tuple[bytes, ...]
    starts: tuple[int, ...]
    id: tuple[int, int]
    raw: tuple[tuple[int, int], ...]

    def fits(self, data: bytes) -> bool:
        """Tell whether a request of this size has this form."""
        return all(map(data.startswith, self.fixed, self.starts))


class Framings:
    """The forms of requests that came before, by size, from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._by_size: dict[int, tuple[Framing, ...]] = {}

    def find(self, data: bytes) -> Framing:
        """Return the form of a request; raise DecodeError as `part` does."""
        for one in self._by_size.get(len(data), ()):
            if one.fits(data):
                return one
        made = framing(data)
        if len(data) <= SMALL and len(made.fixed) <= _MOST_PIECES:
            self._keep(len(data), made)
        return made

    def _keep(self, size: int, made: Framing) -> None:
        if sum(map(len, made.fixed)) > _MOST_FIXED:
            return
        with self._lock:
            known = self._by_size.pop(size, ())
            self._by_size[size] = (made, *known[: _MOST_OF_A_SIZE - 1])
            if len(self._by_size) > _MOST_SIZES:
                del self._by_size[next(iter(self._by_size))]


def framing(data: bytes) -> Framing:
    """Return the form of a request; raise DecodeError as `part` does."""
    found = part(data, _APART)
    raw = tuple((one.value, one.end) for one in found if one.number == RAW)
    ids = [(one.value, one.end) for one in found if one.number == ID]
    head, _ = _between(data, ((one.start, one.end) for one in found))
    fixed, starts = _between(data, ((one.value, one.end) for one in found))
    return Framing(b"".join(head), tuple(fixed), tuple(starts), ids[-1] if ids else (0, 0), raw)


def _between(data: bytes, gaps: Iterable[tuple[int, int]]) -> tuple[list[bytes], list[int]]:
    """Return what is not in gaps, in pieces, and where they begin."""
    pieces, starts, since = list[bytes](), list[int](), 0
    for start, end in (*gaps, (len(data), len(data))):
        if since < start:
            pieces.append(data[since:start])
            starts.append(since)
        since = end
    return pieces, starts
