# SPDX-License-Identifier: Apache-2.0
"""The request cache: a list that comes again byte for byte is not decoded again."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nnpa_server.accelerator.decode import Request, Step
from nnpa_server.accelerator.seams import CallPath, Decode
from nnpa_server.rpc.codec import WireRequest
from nnpa_server.sessions.store import Session

_MAX_STEPS = 4096  # of all lists of a session; a step is up to 2 KiB


def wrap(path: CallPath, session: Session) -> None:
    """Cache the steps of lists, except for a sanitizer, which needs each step's message."""
    if not session.options.sanitize:
        path.decode = RequestCache(path.decode)


def _needs_ids_alone(step: Step) -> bool:
    return step.spec.compute and not step.inline and not step.new_ids


class _Entry(NamedTuple):
    """A decoded list: its steps, and the ids of the tensors that they need."""

    steps: Sequence[Step]
    ids: frozenset[int]


@dataclass(slots=True)
class RequestCache:
    """Steps of lists by wire form; all are dropped when there are too many.

    Cached steps stay valid: the functions of a library do not change while a session lives.
    """

    plain: Decode
    _entries: dict[bytes, _Entry] = field(default_factory=dict[bytes, _Entry])
    _steps: int = 0

    def __call__(self, session: Session, request: Request) -> Sequence[Step]:
        """Return the steps of a list from the cache, or decode it."""
        raw = request.raw if isinstance(request, WireRequest) else b""
        entry = self._entries.get(raw)
        if entry is not None and entry.ids <= session.tensors.keys():
            return entry.steps
        steps = self.plain(session, request)
        if raw and all(map(_needs_ids_alone, steps)):
            self._keep(raw, [step._replace(origin=None) for step in steps])
        return steps

    def _keep(self, raw: bytes, steps: Sequence[Step]) -> None:
        """Cache the steps of a list, unless it is too long."""
        if len(steps) > _MAX_STEPS or raw in self._entries:
            return
        if self._steps + len(steps) > _MAX_STEPS:
            self._entries.clear()
            self._steps = 0
        ids = frozenset(number for step in steps for number in step.ids.values())
        self._entries[raw] = _Entry(steps, ids)
        self._steps += len(steps)
