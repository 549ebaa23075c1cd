# SPDX-License-Identifier: Apache-2.0
"""A worker that was taken over: whatever it sends, the server gets bytes that were checked."""

import pickle
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa_server.sandbox import confinement
from nnpa_server.sandbox.failures import Why, WorkerFailed
from nnpa_server.sandbox.frames import (
    HEADER,
    Malformed,
    Message,
    Slot,
    decode_body,
    decode_header,
    encode_body,
    plan_slots,
)
from nnpa_server.sandbox.process import JobLimits, WorkerProcess

from tests.server.sandbox.forked import Forked
from tests.server.sandbox.sandbox_jobs import ANSWERS
from tests.server.sandbox.test_sandbox import is_gone

LIMITS = JobLimits(memory=64 << 20, seconds=2, cpu_seconds=20)
LINUX = pytest.mark.skipif(not confinement.is_linux(), reason="workers are Linux processes")
PROTOCOL = [
    "garbage", "pickle", "long", "longest", "kind", "ready-again", "job", "no-room", "no-table",
    "many-arrays", "type", "dims", "beside", "wide", "crooked",
]  # fmt: skip
BODY = encode_body(
    [Slot(np.dtype("float32"), (3, 4), 64), Slot(np.dtype("int8"), (7,), 0)], b"text"
)


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    """A worker that is about to be taken over."""
    worker = Forked("tests.server.sandbox.sandbox_jobs:start")
    yield worker
    worker.end()


def answer(worker: WorkerProcess, name: str) -> Message:
    """Ask for an answer of the list, with an arena of a page."""
    return worker.run(Message(f"answer {name}".encode(), (np.zeros(4096, np.uint8),)), LIMITS)


@LINUX
@pytest.mark.parametrize("name", PROTOCOL)
def test_answers_that_are_none_end_the_worker(worker: WorkerProcess, name: str) -> None:
    """Wrong lengths, types, shapes, places, kinds, and pickles: refused at once."""
    began = time.monotonic()
    with pytest.raises(WorkerFailed) as failed:
        answer(worker, name)
    assert failed.value.why == Why.PROTOCOL
    assert time.monotonic() - began < 1.5
    assert is_gone(worker.pid)


@LINUX
@pytest.mark.parametrize("name", ["silence", pytest.param("short", marks=pytest.mark.heavy)])
def test_silence_ends_at_the_deadline(worker: WorkerProcess, name: str) -> None:
    """An answer that does not come, or stops in its middle, is not waited for."""
    with pytest.raises(WorkerFailed) as failed:
        answer(worker, name)
    assert failed.value.why == Why.TIME
    assert is_gone(worker.pid)


@pytest.mark.heavy
@LINUX
def test_drops_do_not_move_the_deadline(worker: WorkerProcess) -> None:
    """A worker that sends byte after byte has no more time than one that sends none."""
    began = time.monotonic()
    with pytest.raises(WorkerFailed) as failed:
        answer(worker, "drops")
    assert failed.value.why == Why.TIME
    assert time.monotonic() - began < 4


@LINUX
def test_a_huge_arena_is_refused(worker: WorkerProcess) -> None:
    """A worker gets no more shared memory than its job may take."""
    with pytest.raises(WorkerFailed) as failed:
        answer(worker, "room")
    assert failed.value.why == Why.MEMORY


@LINUX
def test_an_array_does_not_change_after_it_was_checked(worker: WorkerProcess) -> None:
    """The server's array is a copy: later writes of the worker do not reach it."""
    (array,) = answer(worker, "later").arrays
    before = array.copy()
    time.sleep(0.2)
    assert np.array_equal(array, before)
    assert array.flags.owndata or array.base is not None
    array[:] = 3
    assert np.all(array == 3)


@LINUX
def test_a_pickle_is_bytes(worker: WorkerProcess) -> None:
    """No answer of a worker is unpickled: a pickle as text stays text."""
    marker = Path(tempfile.gettempdir()) / "nnpa-unpickled"
    text = answer(worker, "pickle-text").text
    assert text.startswith(b"\x80")
    assert b"nnpa-unpickled" in text
    assert not marker.exists()
    with pytest.raises(Malformed):
        decode_header(pickle.dumps(list(range(100)))[: HEADER.size])


def test_every_answer_is_tried() -> None:
    """Each entry of the program's list is in a test."""
    files = [Path(__file__).with_name(f"test_{name}.py") for name in ("sandbox", "pool")]
    text = "".join(file.read_text() for file in (Path(__file__), *files))
    assert all(f'"{name}"' in text or f"answer {name}" in text for name in ANSWERS)


@given(st.binary(max_size=200), st.integers(0, 1 << 20))
def test_no_bytes_break_the_table_of_arrays(body: bytes, arena: int) -> None:
    """Bytes are a table of arrays within the arena, or `Malformed`."""
    _decode(body, arena)


@given(st.integers(0, len(BODY) - 1), st.integers(0, 255), st.integers(0, 1 << 12))
def test_no_changed_byte_breaks_the_table_of_arrays(place: int, byte: int, arena: int) -> None:
    """A table with one other byte is within the arena, or `Malformed`."""
    _decode(BODY[:place] + bytes([byte]) + BODY[place + 1 :], arena)


def _decode(body: bytes, arena: int) -> None:
    try:
        slots, _ = decode_body(body, arena)
    except Malformed:
        return
    assert all(slot.offset + slot.nbytes <= arena for slot in slots)
    assert sum(slot.nbytes for slot in slots) <= arena


@given(st.binary(min_size=HEADER.size, max_size=HEADER.size))
def test_no_bytes_break_the_header(header: bytes) -> None:
    """Bytes are a header with a bounded length, or `Malformed`."""
    try:
        _, length, _ = decode_header(header)
    except Malformed:
        return
    assert length <= 64 << 20


def test_objects_do_not_travel() -> None:
    """Arrays of Python objects have no form on the way."""
    slots, _ = plan_slots([np.array([object()])], 0)
    with pytest.raises(Malformed):
        encode_body(slots, b"")
