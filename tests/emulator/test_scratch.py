# SPDX-License-Identifier: Apache-2.0
"""Scratch: blocks belong to one call, are no more than concurrent calls, and can be released."""

import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from nnpa_emulator.scratch import (
    LINE,
    MAX_ARRAYS,
    MAX_BYTES,
    borrow,
    give_back,
    release,
    scratch,
)

COUNT = 1000
THREADS = 4


@pytest.fixture(autouse=True)
def nothing_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without blocks of other tests, whose sizes differ."""
    monkeypatch.setattr("nnpa_emulator.scratch._free", [])


def test_calls_at_once_have_blocks_of_their_own() -> None:
    """Blocks that are lent at the same time are apart, on cache lines, and large enough."""
    first, second = borrow(COUNT), borrow(COUNT)
    assert first.size == second.size == COUNT
    assert not np.may_share_memory(first, second)
    assert first.ctypes.data % LINE == second.ctypes.data % LINE == 0


def test_a_block_is_lent_again() -> None:
    """A block that was given back is lent again, to any thread."""
    first, addresses = borrow(COUNT), set[int]()
    give_back(first)

    def call() -> None:
        block = borrow(COUNT)
        addresses.add(block.ctypes.data)
        give_back(block)

    for _ in range(20):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert addresses == {first.ctypes.data}


def test_roles_are_apart() -> None:
    """Two roles of a thread do not share memory; a role has the same memory again."""
    array, two = scratch("one", (8,), np.float32), scratch("two", (8,), np.float32)
    assert not np.may_share_memory(array, two)
    assert scratch("one", (4,), np.float32).ctypes.data == array.ctypes.data


def test_a_role_that_grows_has_all_of_its_arrays_in_the_larger_block() -> None:
    """After a role grows, its earlier arrays lie in the new block, at every later request."""
    small = scratch("grown", (3,), np.float32)
    assert scratch("grown", (3,), np.float32) is small
    large = scratch("grown", (1 << 16,), np.float32)
    repeated = scratch("grown", (3,), np.float32)
    assert np.may_share_memory(large, repeated)
    assert not np.may_share_memory(small, repeated)
    bits = scratch("grown", (3,), np.uint32)
    assert bits.dtype == np.uint32
    assert np.may_share_memory(large, bits)
    for count in range(1, 2 * MAX_ARRAYS):
        assert scratch("grown", (count,), np.float32).shape == (count,)


def test_release_reaches_all_threads() -> None:
    """`release` frees blocks of idle threads; a running call keeps its array until it ends."""
    release()
    kept, ended = threading.Barrier(THREADS + 1), threading.Event()

    def keep(number: int) -> int:
        array = scratch("test", (MAX_BYTES,), np.uint8)
        array[:] = number
        kept.wait()
        ended.wait()
        return int(array.min())

    tracemalloc.start()
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            running = [pool.submit(keep, number) for number in range(THREADS)]
            kept.wait()
            release()
            assert tracemalloc.get_traced_memory()[0] > THREADS * MAX_BYTES
            ended.set()
            assert [each.result() for each in running] == list(range(THREADS))
            del running
            assert tracemalloc.get_traced_memory()[0] < MAX_BYTES
    finally:
        tracemalloc.stop()


def test_scratch_is_used_again_after_a_release() -> None:
    """A role keeps its block until `release`, and gets a new one after it."""
    first = scratch("test", (8,), np.float32)
    assert scratch("test", (8,), np.float32) is first
    release()
    assert scratch("test", (8,), np.float32) is not first
