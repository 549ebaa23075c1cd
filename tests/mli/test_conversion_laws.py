# SPDX-License-Identifier: Apache-2.0
"""Laws of the MLI utility functions, over random tensors, against the rational formula."""

from collections.abc import Sequence

import mli_emulator as mli
import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from mli_emulator import (
    ElType,
    FxParams,
    MliStatus,
    Options,
    Rounding,
    SaParams,
    SubTensorCfg,
    Tensor,
)

from tests.mli.strategies import LAW, ROUNDINGS, integers, values
from tests.oracle import mli as oracle

INTEGER_TYPES = [
    ElType.MLI_EL_FX_8,
    ElType.MLI_EL_FX_16,
    ElType.MLI_EL_SA_8,
    ElType.MLI_EL_SA_32,
]
BITS = {
    ElType.MLI_EL_FX_8: 8,
    ElType.MLI_EL_FX_16: 16,
    ElType.MLI_EL_SA_8: 8,
    ElType.MLI_EL_SA_32: 32,
}


@st.composite
def quantised(draw: st.DrawFn, kind: ElType, slices: int) -> FxParams | SaParams:
    """Element parameters of a type, per tensor or per slice of dimension 0."""
    if kind in (ElType.MLI_EL_FX_8, ElType.MLI_EL_FX_16):
        return FxParams(draw(st.integers(-20, 60)))
    axis = draw(st.booleans())
    count = slices if axis else 1

    def column(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(count))

    zeros, scales = column(-(1 << 15), (1 << 15) - 1), column(1, (1 << 15) - 1)
    return SaParams(zeros, scales, column(-20, 60), 0 if axis else -1)


def triple(params: FxParams | SaParams, index: int) -> tuple[int, int, int]:
    """Zero point, scale, fractional bits of a slice."""
    if isinstance(params, FxParams):
        return 0, 1, params.frac_bits
    i = index if params.dim >= 0 else 0
    return params.zero_point[i], params.scale[i], params.scale_frac_bits[i]


@LAW
@given(st.sampled_from(INTEGER_TYPES), st.sampled_from(INTEGER_TYPES), ROUNDINGS, st.data())
def test_conversion_equals_the_rational_formula(
    source: ElType, target: ElType, rounding: Rounding, data: st.DataObject
) -> None:
    """Integers convert by the formula over fractions, for every pair, per tensor or axis."""
    slices = 3
    x = data.draw(integers(BITS[source], slices * 4))
    before, after = data.draw(quantised(source, slices)), data.draw(quantised(target, slices))
    src = mli.from_array(np.reshape(x, (slices, 4)), source, before)
    dst = mli.empty(slices * 4 * BITS[target] // 8, target, after)
    outcome = mli.hlp_convert_tensor(src, dst, options=Options(rounding))
    assert outcome.status is MliStatus.MLI_STATUS_OK
    assert (dst.shape, dst.rank) == ((slices, 4), 2)
    up, bits = rounding is Rounding.UP, BITS[target]
    expected = [
        oracle.convert(v, triple(before, i // 4), triple(after, i // 4), bits, up)
        for i, v in enumerate(x)
    ]
    assert values(dst) == expected


@LAW
@given(st.integers(0, 7), integers(8, 12))
def test_widening_and_back_is_the_identity(frac_bits: int, x: list[int]) -> None:
    """FX_8 to FX_16, SA_32 or FP_32 with at least its fractional bits, and back, loses nothing."""
    src = mli.from_array(x, ElType.MLI_EL_FX_8, FxParams(frac_bits))
    for wide, params in (
        (ElType.MLI_EL_FX_16, FxParams(frac_bits + 8)),
        (ElType.MLI_EL_SA_32, SaParams((-77,), (1,), (frac_bits + 3,))),
        (ElType.MLI_EL_FP_32, None),
    ):
        wide_tensor = mli.empty(48, wide, params)
        back = mli.empty(12, ElType.MLI_EL_FX_8, FxParams(frac_bits))
        mli.hlp_convert_tensor(src, wide_tensor)
        mli.hlp_convert_tensor(wide_tensor, back)
        assert values(back) == x


@LAW
@given(st.sampled_from(INTEGER_TYPES), st.data())
def test_conversion_saturates_at_the_container(target: ElType, data: st.DataObject) -> None:
    """Far too large magnitudes become the container's bounds, by sign, integer or float."""
    bits = BITS[target]
    params: FxParams | SaParams = FxParams(40)
    if target in (ElType.MLI_EL_SA_8, ElType.MLI_EL_SA_32):
        params = SaParams((data.draw(st.integers(-100, 100)),), (1,), (60,))
    sign = data.draw(st.sampled_from([-1, 1]))
    bound = (1 << (bits - 1)) - 1 if sign > 0 else -(1 << (bits - 1))
    for source in (
        mli.from_array([sign * 100], ElType.MLI_EL_FX_8, FxParams(-20)),
        mli.from_array([sign * 1e30], ElType.MLI_EL_FP_32, None),
        mli.from_array([sign * np.inf], ElType.MLI_EL_FP_32, None),
    ):
        dst = mli.empty(bits // 8, target, params)
        mli.hlp_convert_tensor(source, dst)
        assert values(dst) == [bound]


@LAW
@given(st.data())
def test_a_subtensor_of_a_subtensor_composes(data: st.DataObject) -> None:
    """Slicing twice equals slicing once with the offsets added."""
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    array = np.arange(int(np.prod(shape))).reshape(shape) % 251 - 125
    axis = data.draw(st.integers(0, len(shape) - 1))
    scales = tuple(range(1, shape[axis] + 1))
    params = SaParams(scales, scales, scales, axis)
    whole = mli.from_array(array, ElType.MLI_EL_SA_8, params)
    first, second, once = (mli.empty(0, ElType.MLI_EL_SA_8) for _ in range(3))
    offset1, size1 = slice_of(shape, data)
    offset2, size2 = slice_of(size1, data)
    total = tuple(a + b for a, b in zip(offset1, offset2, strict=True))
    mli.hlp_subtensor(whole, SubTensorCfg(offset1, size1, len(shape)), first)
    mli.hlp_subtensor(first, SubTensorCfg(offset2, size2, len(shape)), second)
    mli.hlp_subtensor(whole, SubTensorCfg(total, size2, len(shape)), once)
    index = tuple(slice(o, o + s) for o, s in zip(total, size2, strict=True))
    assert np.array_equal(mli.to_array(second), array[index])
    keys = ("shape", "mem_stride", "capacity", "rank", "el_type", "el_params")
    assert [getattr(second, k) for k in keys] == [getattr(once, k) for k in keys]
    assert np.shares_memory(first_byte(second), first_byte(once))


def slice_of(shape: Sequence[int], data: st.DataObject) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A start and a size inside the shape."""
    offset = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    room = zip(shape, offset, strict=True)
    return offset, tuple(data.draw(st.integers(1, n - o)) for n, o in room)


def first_byte(tensor: Tensor) -> npt.NDArray[np.uint8]:
    """The byte at the data pointer."""
    assert tensor.data is not None
    return tensor.data[:1]


@LAW
@given(st.lists(st.floats(width=32), min_size=1, max_size=8), st.integers(-10, 20))
def test_float_sources_equal_single_precision_by_hand(x: list[float], frac_bits: int) -> None:
    """FP_32 to FX_16 is one float32 product, a half by sign, truncation; NaN is the zero point."""
    src = mli.from_array(np.array(x, np.float32), ElType.MLI_EL_FP_32, None)
    dst = mli.empty(2 * len(x), ElType.MLI_EL_FX_16, FxParams(frac_bits))
    mli.hlp_convert_tensor(src, dst)
    expected: list[int] = []
    with np.errstate(all="ignore"):
        for value in np.array(x, np.float32):
            scaled = np.float32(value * np.float32(2.0**frac_bits))
            moved = np.float32(scaled + np.float32(0.5 if value > 0 else -0.5))
            bound = 40000.0 if moved > 0 else -40000.0
            whole = 0 if np.isnan(moved) else int(bound if abs(moved) > 40000 else moved)
            expected.append(oracle.saturate(whole, 16))
    assert values(dst) == expected
