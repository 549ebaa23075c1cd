# SPDX-License-Identifier: Apache-2.0
"""Random values that the laws of the MLI emulator share."""

import mli_emulator as mli
from hypothesis import settings
from hypothesis import strategies as st
from mli_emulator import Rounding, Tensor

from tests.mli.golden_records import listed

LAW = settings(max_examples=60, deadline=None)
ROUNDINGS = st.sampled_from(list(Rounding))


def integers(bits: int, count: int) -> st.SearchStrategy[list[int]]:
    """Values of a container, its corners and small ones often."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    value = st.one_of(
        st.integers(low, high), st.integers(-8, 8), st.sampled_from([low, low + 1, high - 1, high])
    )
    return st.lists(value, min_size=count, max_size=count)


def values(tensor: Tensor) -> list[int]:
    """The elements as a flat list."""
    return listed(mli.to_array(tensor))
