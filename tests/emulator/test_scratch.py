# SPDX-License-Identifier: Apache-2.0
"""Scratch: what a call has is its own, and there is no more of it than calls at once."""

import threading

import numpy as np
import pytest
from nnpa_emulator.scratch import LINE, MAX_ARRAYS, borrow, give_back, scratch

COUNT = 1000


@pytest.fixture(autouse=True)
def nothing_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without blocks of other tests, whose size is another."""
    monkeypatch.setattr("nnpa_emulator.scratch._free", [])


def test_calls_at_once_have_blocks_of_their_own() -> None:
    """Blocks that are lent at the same time are apart, on cache lines, and large enough."""
    first, second = borrow(COUNT), borrow(COUNT)
    assert first.size == second.size == COUNT
    assert not np.may_share_memory(first, second)
    assert first.ctypes.data % LINE == second.ctypes.data % LINE == 0


def test_a_block_is_lent_again() -> None:
    """What came back is lent again, to whatever thread."""
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
    one, two = scratch("one", (8,), np.float32), scratch("two", (8,), np.float32)
    assert not np.may_share_memory(one, two)
    assert scratch("one", (4,), np.float32).ctypes.data == one.ctypes.data


def test_a_role_that_grows_has_all_of_its_arrays_in_the_larger_block() -> None:
    """What was asked for before comes of the new block too, and as often as it is asked for."""
    small = scratch("grown", (3,), np.float32)
    assert scratch("grown", (3,), np.float32) is small
    large = scratch("grown", (1 << 16,), np.float32)
    again = scratch("grown", (3,), np.float32)
    assert np.may_share_memory(large, again)
    assert not np.may_share_memory(small, again)
    bits = scratch("grown", (3,), np.uint32)
    assert bits.dtype == np.uint32
    assert np.may_share_memory(large, bits)
    for count in range(1, 2 * MAX_ARRAYS):
        assert scratch("grown", (count,), np.float32).shape == (count,)
