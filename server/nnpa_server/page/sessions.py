# SPDX-License-Identifier: Apache-2.0
"""The views of sessions: a live list, one session with its tensors and last calls, one tensor.

A session is shown by the hash of its name, since the name is its credential. To view a session is
no use of it: it expires while the page shows it.
"""

import time
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np
from nnpa_emulator import Guest, Refused, dlfloat
from nnpa_emulator.checks import require_transformed_desc
from nnpa_emulator.machine import DEFAULT_MACHINE, MACHINES
from nnpa_emulator.ztensor import PAGE, DataLayouts, DataTypes, TensorDesc, Ztensor, stick_bytes
from nnpa_page import Query, Refusal, Visitor, number

from nnpa_server.accelerator.observers.recent_calls import RecentCalls, status_text
from nnpa_server.errors import CallCancelled, CallRefused
from nnpa_server.page.sticks import describe_pages, page_number
from nnpa_server.page.watching import Watches
from nnpa_server.sessions.store import Session, Store, session_tag

_MAX_TENSORS = 500  # of a session, that are listed
_MAX_ID = (1 << 63) - 1
_WAIT_SECONDS = 1.0  # for a call to end, before a tensor's cells are read
_CELLS: Mapping[int, np.dtype[Any]] = {
    DataTypes.ZDNN_DLFLOAT16: np.dtype(np.uint16),
    DataTypes.ZDNN_BINARY_INT8: np.dtype(np.int8),
    DataTypes.ZDNN_BINARY_INT32: np.dtype(np.int32),
}


class Sessions:
    """The sessions of a store that a visitor may see: its token's, or `all`."""

    def __init__(self, store: Store, watches: Watches, show_all: bool) -> None:
        self._store, self._watches, self._show_all = store, watches, show_all

    def sessions(self, visitor: Visitor, _query: Query) -> list[Mapping[str, object]]:
        """Return a row for each session, the oldest first, and observe it from now on."""
        return [self._line(session) for session in self._visible(visitor)]

    def session(self, visitor: Visitor, query: Query) -> Mapping[str, object]:
        """Return the row of a session, its tensors, and its last calls, newest first."""
        session = self._find(visitor, query)
        tensors = list(islice(session.tensors.copy().items(), _MAX_TENSORS))
        recent = self._watches.look(session)
        return {
            **self._line(session),
            "tensors": [_describe_tensor(*numbered) for numbered in tensors],
            "tensor_count": len(session.tensors),
            "recent": [] if recent is None else list(_describe_calls(recent)),
        }

    def tensor(self, visitor: Visitor, query: Query) -> Mapping[str, object]:
        """Return the layout of tensor `id` of a session, and the cells of its page `page`.

        Cells are DLFLOAT16 codes or integers in memory order; `values` are the numbers of codes,
        null for 7FFF.
        """
        session = self._find(visitor, query)
        tensor_id = number("id", query.get("id", ""), 0, _MAX_ID)
        try:
            with session.running(_WAIT_SECONDS):
                tensor = session.tensors.get(tensor_id)
                if tensor is None:
                    raise Refusal(f"tensor {tensor_id} does not exist any more")
                return {**_cells_of(tensor, query), "id": tensor_id}
        except CallCancelled:
            raise Refusal("the session runs an operation: ask again when it has ended") from None
        except CallRefused as refused:
            raise Refusal(refused.message) from None

    def _visible(self, visitor: Visitor) -> Iterable[Session]:
        sees_all = visitor.is_operator and self._show_all
        return (
            session
            for session in self._store.sessions()
            if sees_all or session.trail.token == visitor.holder
        )

    def _find(self, visitor: Visitor, query: Query) -> Session:
        tag = query.get("session", "")
        for session in self._visible(visitor):
            if session_tag(session.name) == tag:
                return session
        raise Refusal(f"session {tag[:16]!r} does not exist, or has ended")

    def _line(self, session: Session) -> Mapping[str, object]:
        recent, trail = self._watches.look(session), session.trail
        return {
            "session": session_tag(session.name),
            "holder": trail.token,
            "machine": session.guest.machine.name,
            "age": round(time.time() - session.created, 1),
            "idle": 0 if session.calls else round(time.monotonic() - session.last_used, 1),
            "calls": trail.calls,
            "operations": trail.operations,
            "tensors": len(session.tensors),
            "bytes": session.stored_bytes + session.staged_bytes + session.contents.held,
            "running": "" if recent is None else recent.running,
            "statuses": {} if recent is None else recent.counts(),
        }


def _describe_tensor(tensor_id: int, tensor: Ztensor) -> Mapping[str, object]:
    pre, transformed = tensor.pre_transformed_desc, tensor.transformed_desc
    return {
        "id": tensor_id,
        "user": _describe(pre, pre.layout_dims),
        "sticks": _describe(transformed, transformed.dims),
        "bytes": tensor.buffer_size,
        "transformed": tensor.is_transformed,
    }


def _describe(desc: TensorDesc, dims: Iterable[int]) -> str:
    """Return the fields of a descriptor, with zDNN's names for numbers that have one."""
    layouts = {int(layout): layout.name for layout in DataLayouts}
    types = {int(kind): kind.name for kind in DataTypes}
    sizes = " x ".join(map(str, dims))
    layout, kind = layouts.get(desc.layout, desc.layout), types.get(desc.type, desc.type)
    return f"{sizes} {layout} {kind}".strip()


def _describe_calls(recent: RecentCalls) -> Iterable[Mapping[str, object]]:
    now = time.monotonic()
    for name, tensors, status, started, ended in reversed(recent.calls.copy()):
        yield {
            "op": name,
            "tensors": dict(tensors),
            "status": status_text(status),
            "ago": round(now - started, 1),
            "seconds": ended - started,
        }


def _cells_of(tensor: Ztensor, query: Query) -> Mapping[str, object]:
    """Return the cells of a tensor's page; the session must be held."""
    desc = tensor.transformed_desc
    try:
        require_transformed_desc(desc, Guest(MACHINES[DEFAULT_MACHINE]), "")
    except Refused as refused:
        raise Refusal(str(refused)) from None
    if tensor.buffer is None or tensor.buffer.nbytes < stick_bytes(desc):
        raise Refusal("the tensor has no buffer, or a smaller one than its sticks need")
    page = page_number(desc, query)
    cells = tensor.buffer[page * PAGE :][:PAGE].view(_CELLS[desc.type])
    values: list[float | None] = []
    if desc.type == DataTypes.ZDNN_DLFLOAT16:
        wide = dlfloat.to_fp32(cells).tolist()
        values = [None if value != value else value for value in wide]
    return {
        **describe_pages(desc, page),
        "cell_values": cells.tolist(),
        "values": values,
        "is_transformed": tensor.is_transformed,
        "rec_scale": tensor.rec_scale,
        "offset": tensor.offset,
        "user": _describe(tensor.pre_transformed_desc, tensor.pre_transformed_desc.layout_dims),
    }
