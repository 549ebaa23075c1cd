# SPDX-License-Identifier: Apache-2.0
"""Conversions prepared for one tensor give the bits of those that look everything up."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa_emulator import (
    DataFormats,
    DataLayouts,
    DataTypes,
    Status,
    TensorDesc,
    prepared,
    run,
    stick,
)
from nnpa_emulator.dlfloat import Flags
from nnpa_emulator.table import Row, Table
from nnpa_emulator.ztensor import Ztensor, getsize_ztensor

from tests.emulator.operands import Dims, blank, combine, guest, values

pytestmark = pytest.mark.shortcut

numbers = st.floats(width=32) | st.sampled_from(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 8573157376.0, 8.6e9, 1e10, 3e38, 1e-30]
)
sizes = st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 34), st.integers(1, 66))


def _run(rows: Sequence[Row], values: npt.NDArray[np.float32] | None = None) -> bool:
    """Run rows from Python and as a table; return what both say: whether they came out clean."""
    from_python = all(row.run(values) for row in rows)
    assert (Table([rows]).run(0, 1, values) == 1) == from_python
    return from_python


def _words(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    return values.ravel().view(np.uint32)


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
    """Sticks, reports of non-numbers and the way back agree, also in a used buffer."""
    desc, rng = _desc(dims), np.random.default_rng(seed)
    values = rng.normal(size=dims).astype(np.float32)
    buffer, used = (np.zeros(getsize_ztensor(desc), np.uint8) for _ in range(2))
    line = np.empty(values.size, np.uint32)
    write = prepared.stickify_rows(desc, used, _words, saturate=saturate, nchw=nchw)
    read = prepared.unstickify_rows(desc, used, lambda _: line, nchw=nchw)
    assert _run(write, values)
    values.reshape(-1)[rng.integers(values.size, size=len(some))] = some
    met = stick.stickify(values, desc, buffer, saturate=saturate, nchw=nchw)
    numeric = not met.any_ninf and not met.flags & (Flags.INVALID | Flags.OVERFLOW)
    assert _run(write, values) == numeric
    assert used.tobytes() == buffer.tobytes()
    array, back = stick.unstickify(buffer, desc, DataTypes.FP32, nchw=nchw)
    clean = _run(read)
    assert clean != back.any_ninf
    assert not clean or line.tobytes() == array.tobytes()


@given(dims=sizes, seed=st.integers(0, 99), operation=st.integers(0, 5), zero=st.booleans())
def test_prepared_operations_agree(
    dims: tuple[int, int, int, int], seed: int, operation: int, zero: bool
) -> None:
    """Sums, products and the others have the same cells and the same word on NINF, each time."""
    desc, rng = _desc(dims), np.random.default_rng(seed)
    a, b, out, expected = (np.zeros(getsize_ztensor(desc), np.uint8) for _ in range(4))
    tensors = (Ztensor(desc, desc, buffer.nbytes, buffer) for buffer in (a, b, out))
    rows = prepared.binary_rows(operation, *tensors)
    for repeated in range(2):
        for buffer in (a, b):
            values = rng.normal(size=dims).astype(np.float32)
            values.reshape(-1)[0] *= np.float32(not (zero and repeated))
            stick.stickify(values, desc, buffer)
        assert _run(rows) != combine(operation, a, b, expected, desc)
        assert out.tobytes() == expected.tobytes()


RESHAPED = [
    ((2, 1, 3, 5), (6, 1, 1, 5)), ((1, 1, 40, 70), (5, 4, 2, 70)), ((2, 1, 3, 4), (1, 1, 2, 12)),
    ((1, 2, 3, 4), (1, 2, 3, 4)), ((1, 1, 1, 130), (13, 5, 2, 1)),
]  # fmt: skip


@pytest.mark.parametrize("nchw", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("ninf", [False, True])
@pytest.mark.parametrize("dims", RESHAPED)
def test_prepared_reshapes_agree(
    dims: tuple[Dims, Dims], ninf: bool, nchw: tuple[bool, bool]
) -> None:
    """Rows that stay, and others by way of FP32, have the cells and the end of the function."""
    rng = np.random.default_rng(1)
    array = rng.normal(size=dims[0])
    array[-1, -1, -1, -1] = np.nan if ninf else -0.0
    src, plain, dest = values(array), blank(dims[1]), blank(dims[1])
    for tensor, is_nchw in zip((src, plain, dest), (nchw[0], nchw[1], nchw[1]), strict=True):
        if is_nchw:
            pre = tensor.pre_transformed_desc
            tensor.pre_transformed_desc = replace(pre, layout=DataLayouts.ZDNN_NCHW)
    outcome = run(guest(), "reshape_ztensor", {"src": src, "dest": plain})
    reshape = prepared.reshape_rows(src, dest, nchw=nchw)
    for _ in range(2):
        assert _run(reshape) == (outcome.status == Status.ZDNN_OK)
    if outcome.status == Status.ZDNN_OK:
        codes = (stick.read_cells(each.sticks, each.transformed_desc) for each in (plain, dest))
        assert next(codes).tobytes() == next(codes).tobytes()
