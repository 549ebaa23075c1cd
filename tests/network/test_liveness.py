# SPDX-License-Identifier: Apache-2.0
"""Values that live at once never overlap, in a memory that is hardly larger than they are."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from nnpa_network.running.liveness import Lifetime, extent, plan

PAGE = 4096


def _life(born: int, length: int, pages: int) -> Lifetime:
    return Lifetime(born, born + length, PAGE * pages)


moments = st.integers(0, 30)
lives = st.builds(_life, moments, st.integers(0, 8), st.integers(1, 20))
programs = st.lists(lives, max_size=40).map(lambda produced: dict(enumerate(produced, 1)))


@given(programs)
def test_values_that_live_at_once_do_not_overlap(values: dict[int, Lifetime]) -> None:
    """Two values share bytes only if one is dead before the other is born."""
    offsets = plan(values)
    assert offsets.keys() == values.keys()
    for (a, first), (b, second) in combinations(values.items(), 2):
        apart_in_time = first.last < second.born or second.last < first.born
        ends = offsets[a] + first.size, offsets[b] + second.size
        assert apart_in_time or ends[0] <= offsets[b] or ends[1] <= offsets[a]


@given(programs)
def test_the_memory_is_no_smaller_than_the_peak_and_no_larger_than_all(
    values: dict[int, Lifetime],
) -> None:
    """Sharing never costs memory, and saves at most the memory of dead values."""
    size = extent(values, plan(values))
    live = [
        sum(life.size for life in values.values() if life.born <= moment <= life.last)
        for moment in range(60)
    ]
    assert max(live) <= size <= sum(life.size for life in values.values())


@given(programs)
def test_pages_stay_pages(values: dict[int, Lifetime]) -> None:
    """Values of whole pages begin at pages."""
    assert all(offset % PAGE == 0 <= offset for offset in plan(values).values())


@given(st.lists(st.tuples(moments, st.integers(0, 8)), min_size=1, max_size=40))
def test_values_of_one_size_take_what_lives_at_once(spans: list[tuple[int, int]]) -> None:
    """Between values of one size no byte is lost."""
    values = {
        number: Lifetime(born, born + length, PAGE) for number, (born, length) in enumerate(spans)
    }
    live = [
        sum(life.born <= moment <= life.last for life in values.values()) for moment in range(60)
    ]
    assert extent(values, plan(values)) == PAGE * max(live)
