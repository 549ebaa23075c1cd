# SPDX-License-Identifier: Apache-2.0
"""Conversions prepared for one tensor give the bits of those that look everything up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa_emulator import DataFormats, DataLayouts, DataTypes, TensorDesc, prepared, stick
from nnpa_emulator.dlfloat import Flags
from nnpa_emulator.ztensor import getsize_ztensor

from tests.emulator.operands import combine

pytestmark = pytest.mark.shortcut

numbers = st.floats(width=32) | st.sampled_from(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 8573157376.0, 8.6e9, 1e10, 3e38, 1e-30]
)
sizes = st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 34), st.integers(1, 66))


def _desc(dims: tuple[int, int, int, int]) -> TensorDesc:
    form = DataFormats.ZDNN_FORMAT_4DFEATURE
    return TensorDesc(DataLayouts.ZDNN_NHWC, form, DataTypes.ZDNN_DLFLOAT16, *dims)


@given(
    dims=sizes,
    seed=st.integers(0, 99),
    some=st.lists(numbers, min_size=1, max_size=4),
    saturate=st.booleans(),
    nchw=st.booleans(),
)
def test_prepared_conversions_agree(
    dims: tuple[int, int, int, int], seed: int, some: list[float], saturate: bool, nchw: bool
) -> None:
    """Sticks, what is numeric, and the way back are the same, also in a buffer used before."""
    desc, rng = _desc(dims), np.random.default_rng(seed)
    values = rng.normal(size=dims).astype(np.float32)
    buffer, used = (np.zeros(getsize_ztensor(desc), np.uint8) for _ in range(2))
    write = prepared.prepare_stickify(desc, used, saturate=saturate, nchw=nchw)
    read = prepared.prepare_unstickify(desc, used, nchw=nchw)
    assert write(values)
    values.reshape(-1)[rng.integers(values.size, size=len(some))] = some
    met = stick.stickify(values, desc, buffer, saturate=saturate, nchw=nchw)
    numeric = not met.any_ninf and not met.flags & (Flags.INVALID | Flags.OVERFLOW)
    assert write(values) == numeric
    assert used.tobytes() == buffer.tobytes()
    array, back = stick.unstickify(buffer, desc, DataTypes.FP32, nchw=nchw)
    line = read()
    assert (line is None) == back.any_ninf
    assert line is None or line.tobytes() == array.tobytes()


def test_a_line_of_another_length_is_refused() -> None:
    """Nothing is read beyond an array that is too short."""
    desc = _desc((1, 1, 2, 3))
    buffer = np.zeros(getsize_ztensor(desc), np.uint8)
    write = prepared.prepare_stickify(desc, buffer, saturate=False, nchw=False)
    with pytest.raises(ValueError, match="array: 5 elements, dims"):
        write(np.ones(5, np.float32))


@given(dims=sizes, seed=st.integers(0, 99), operation=st.integers(0, 5), zero=st.booleans())
def test_prepared_operations_agree(
    dims: tuple[int, int, int, int], seed: int, operation: int, zero: bool
) -> None:
    """Sums, products and the others have the same cells and the same word on NINF, each time."""
    desc, rng = _desc(dims), np.random.default_rng(seed)
    a, b, out, wanted = (np.zeros(getsize_ztensor(desc), np.uint8) for _ in range(4))
    prepared_call = prepared.prepare_binary(operation, a, b, out, desc)
    for again in range(2):
        for buffer in (a, b):
            values = rng.normal(size=dims).astype(np.float32)
            values.reshape(-1)[0] *= np.float32(not (zero and again))
            stick.stickify(values, desc, buffer)
        assert prepared_call() == combine(operation, a, b, wanted, desc)
        assert out.tobytes() == wanted.tobytes()
