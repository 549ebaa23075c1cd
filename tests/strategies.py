# SPDX-License-Identifier: Apache-2.0
"""Strategies of Hypothesis: codes, shapes around sticks and pages, tensors, arrays of users."""

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

Codes = npt.NDArray[np.uint16]
Dims = tuple[int, int, int, int]

# Codes with an edge nearby: zeros, ones, largest, smallest, NINF, both signs.
EDGES = tuple(
    sign | code
    for sign in (0, 0x8000)
    for code in (0, 1, 2, 0x1FFF, 0x3DFF, 0x3E00, 0x3E01, 0x4000, 0x5DFF, 0x7FFD, 0x7FFE, 0x7FFF)
)

any_code = st.sampled_from(EDGES) | st.integers(0, 0xFFFF)
finite_code = any_code.filter(lambda code: code & 0x7FFF != 0x7FFF)
_short = st.integers(1, 3)
_rows = st.sampled_from((1, 2, 31, 32, 33, 65))
_columns = st.sampled_from((1, 2, 3, 63, 64, 65, 129))
dims = st.tuples(_short, _short, _rows, _columns)


@st.composite
def codes(draw: st.DrawFn, shape: Dims | None = None, *, finite: bool = False) -> Codes:
    """Draw codes of one shape: a few codes, repeated over the whole tensor."""
    drawn = draw(dims) if shape is None else shape
    code = finite_code if finite else any_code
    few = draw(st.lists(code, min_size=1, max_size=24))
    return np.resize(np.array(few, np.uint16), drawn)


@st.composite
def pairs(draw: st.DrawFn, *, finite: bool = False) -> tuple[Codes, Codes]:
    """Draw two tensors of one shape."""
    shape = draw(dims)
    return draw(codes(shape, finite=finite)), draw(codes(shape, finite=finite))


def floats(shape: Dims) -> st.SearchStrategy[npt.NDArray[np.float32]]:
    """Draw finite FP32 values within the range of DLFLOAT16."""
    element = st.floats(-8e9, 8e9, width=32, allow_nan=False)
    return hnp.arrays(np.float32, shape, elements=element, fill=st.just(1.0))
