# SPDX-License-Identifier: Apache-2.0
"""Elements on their way into sticks and back: values, bits, flags, saturation."""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from nnpa_emulator import dlfloat, stick
from nnpa_emulator.dlfloat import Flags
from nnpa_emulator.ztensor import (
    DataTypes,
    getsize_ztensor,
)

from tests.emulator.test_stick import SHAPES, Dims, descriptor, dirty
from tests.oracle import dlfloat as number
from tests.oracle import rounding


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("kind", ["feature", "kernel"])
@pytest.mark.parametrize("fresh", [False, True])
def test_float_data_round_trip(dtype: Any, kind: str, fresh: bool) -> None:
    """Floats of every type become the codes that numpy gives, pad with zeros and come back."""
    number = {"float32": DataTypes.FP32, "float16": DataTypes.FP16}.get(
        np.dtype(dtype).name, DataTypes.BFLOAT
    )
    random = np.random.default_rng(11)
    for dims in [*SHAPES[-12:], (1, 5, 7, 3), (2, 2, 40, 16), (1, 2, 3, 17), (1, 1, 32, 96)]:
        desc = descriptor(kind, dims)
        data = random.standard_normal(dims).astype(dtype)
        codes = dlfloat.from_fp32(data.astype(np.float32))
        buffer = np.zeros(getsize_ztensor(desc), np.uint8) if fresh else dirty(desc)
        met = stick.stickify(data, desc, buffer, fresh=fresh)
        assert met == stick.Conversion(Flags.NONE, any_ninf=False)
        assert np.array_equal(stick.read_cells(buffer, desc), codes), dims
        assert np.count_nonzero(buffer.view(np.uint16)) == np.count_nonzero(codes), dims
        back, met = stick.unstickify(buffer, desc, number)
        assert back.dtype == dtype
        assert met == stick.Conversion(Flags.NONE, any_ninf=False)
        assert np.array_equal(dlfloat.from_fp32(back.astype(np.float32)), _kept(codes, dtype)), dims


def _kept(codes: npt.NDArray[np.uint16], dtype: Any) -> npt.NDArray[np.uint16]:
    """Return the codes that are left after narrowing to the type."""
    if np.dtype(dtype).name == "bfloat16":
        return dlfloat.from_fp32(dlfloat.widen_bfloat(dlfloat.to_bfloat(codes)))
    return dlfloat.from_fp16(dlfloat.to_fp16(codes)) if dtype == np.float16 else codes


def test_bfloat_bits_are_bfloat() -> None:
    """`uint16` data counts as BFLOAT bit patterns."""
    desc = descriptor("feature", (1, 1, 1, 3))
    buffer = dirty(desc)
    stick.stickify(np.array([0x3F80, 0xC300, 0x4049], np.uint16), desc, buffer)
    assert stick.read_cells(buffer, desc).ravel().tolist() == [0x3E00, 0xCC00, 0x4124]


@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (2, 5, 7, 3), (1, 33, 31, 65), (2, 2, 64, 64)])
def test_nchw_is_permuted_both_ways(dims: Dims) -> None:
    """NCHW data lies in the sticks as its NHWC transpose would, and comes back in NCHW order."""
    desc = descriptor("feature", dims)
    nhwc = np.random.default_rng(2).uniform(1, 2, dims).astype(np.float32)
    nhwc = dlfloat.to_fp32(dlfloat.from_fp32(nhwc))
    nchw = np.ascontiguousarray(nhwc.transpose(0, 3, 1, 2))
    buffer = dirty(desc)
    stick.stickify(nchw, desc, buffer, nchw=True)
    assert np.array_equal(stick.read_fp32(buffer, desc)[0], nhwc)
    back, _ = stick.unstickify(buffer, desc, DataTypes.FP32, nchw=True)
    assert np.array_equal(back, nchw)
    stick.stickify(nchw.astype(np.float16), desc, buffer, nchw=True)
    back, _ = stick.unstickify(buffer, desc, DataTypes.FP16, nchw=True)
    assert np.array_equal(back, nchw.astype(np.float16))
    assert np.count_nonzero(buffer.view(np.uint16)) == nhwc.size


def test_nchw_meets_odd_elements() -> None:
    """NCHW data saturates and raises flags as NHWC does, and NINF is told on the way back."""
    desc = descriptor("feature", (2, 3, 33, 65))
    nhwc = np.ones(desc.dims, np.float32)
    nhwc[1, 2, 32, 64], nhwc[0, 1, 31, 3], nhwc[0, 0, 0, 0] = np.nan, 1e30, 1e-30
    buffer = dirty(desc)
    nchw = np.ascontiguousarray(nhwc.transpose(0, 3, 1, 2))
    met = stick.stickify(nchw, desc, buffer, nchw=True, saturate=True)
    assert met == stick.Conversion(Flags.INVALID | Flags.UNDERFLOW, any_ninf=True)
    want = dlfloat.from_fp32(dlfloat.saturate_fp32(nhwc))
    assert np.array_equal(stick.read_cells(buffer, desc), want)
    back, met = stick.unstickify(buffer, desc, DataTypes.FP32, nchw=True)
    assert met == stick.Conversion(Flags.INVALID, any_ninf=True)
    assert np.array_equal(back.transpose(0, 2, 3, 1), dlfloat.to_fp32(want), equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "bits", "flags", "any_ninf"),
    [
        (np.float32, 0x7FC00000, Flags.INVALID, True),
        (np.float32, 0xFF800000, Flags.OVERFLOW, True),
        (np.float32, 0x4FFFA000, Flags.NONE, True),
        (np.float32, 0x4FFF9FFF, Flags.NONE, False),
        (np.float32, 0x2FFFDFFF, Flags.UNDERFLOW, False),
        (np.float32, 0x2FFFE000, Flags.NONE, False),
        (np.float32, 0x80000001, Flags.UNDERFLOW, False),
        (np.float32, 0x80000000, Flags.NONE, False),
        (np.float16, 0x7C00, Flags.OVERFLOW, True),
        (np.float16, 0xFFFF, Flags.INVALID, True),
        (np.float16, 0x0001, Flags.NONE, False),
        (np.uint16, 0x7F80, Flags.OVERFLOW, True),
        (np.uint16, 0x5000, Flags.NONE, True),
        (np.uint16, 0x2FFF, Flags.UNDERFLOW, False),
    ],
)
@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (2, 3, 33, 3), (1, 2, 33, 65), (1, 1, 32, 64)])
def test_one_odd_element_is_told(
    dtype: Any, bits: int, flags: Flags, any_ninf: bool, dims: Dims
) -> None:
    """One odd value among ones, at the tensor's end, is met whatever path its place takes."""
    desc = descriptor("feature", dims)
    raw = np.dtype(f"u{np.dtype(dtype).itemsize}")
    bits_of_one = {"float32": 0x3F800000, "float16": 0x3C00, "uint16": 0x3F80}[np.dtype(dtype).name]
    data = np.full(dims, bits_of_one, raw)
    data[-1, -1, -1, -1] = bits
    met = stick.stickify(data.view(dtype), desc, dirty(desc))
    assert met == stick.Conversion(flags, any_ninf)


@pytest.mark.parametrize("dims", [(1, 1, 1, 4), (2, 3, 33, 3), (1, 2, 33, 65), (1, 1, 32, 64)])
def test_saturation_clamps_numbers_only(dims: Dims) -> None:
    """With saturation FLT_MAX is 7FFE without complaint; NaN and infinities are still NINF."""
    desc = descriptor("feature", dims)
    buffer = dirty(desc)
    data = np.full(dims, np.finfo(np.float32).max, np.float32)
    data[..., 0] = -1e20
    met = stick.stickify(data, desc, buffer, saturate=True)
    assert met == stick.Conversion(Flags.NONE, any_ninf=False)
    want = np.full(dims, 0x7FFE, np.uint16)
    want[..., 0] = 0xFFFE
    assert np.array_equal(stick.read_cells(buffer, desc), want)
    data[-1, -1, -1, -2:] = -np.inf, np.nan
    met = stick.stickify(data, desc, buffer, saturate=True)
    assert met == stick.Conversion(Flags.INVALID | Flags.OVERFLOW, any_ninf=True)
    want[-1, -1, -1, -2:] = 0xFFFF, 0x7FFF
    assert np.array_equal(stick.read_cells(buffer, desc), want)


def test_saturation_by_type() -> None:
    """BFLOAT saturates as FP32 does; FP16, whose range is smaller, never needs to."""
    desc = descriptor("feature", (1, 1, 1, 2))
    buffer = dirty(desc)
    met = stick.stickify(np.array([0x7F7F, 0xFF7F], np.uint16), desc, buffer, saturate=True)
    assert met == stick.Conversion(Flags.NONE, any_ninf=False)
    assert stick.read_cells(buffer, desc).ravel().tolist() == [0x7FFE, 0xFFFE]
    bits = stick.unstickify(buffer, desc, DataTypes.BFLOAT)[0].view(np.uint16)
    assert bits.ravel().tolist() == [0x4FFF, 0xCFFF]
    infinite = np.array([np.inf, 65504], np.float16)
    met = stick.stickify(infinite, desc, buffer, saturate=True)
    assert met == stick.Conversion(Flags.OVERFLOW, any_ninf=True)


@pytest.mark.parametrize(
    ("kind", "code", "flags"),
    [
        (DataTypes.FP32, 0x7FFF, Flags.INVALID), (DataTypes.FP32, 0x7FFE, Flags.NONE),
        (DataTypes.FP16, 0xFFFF, Flags.INVALID), (DataTypes.FP16, 0xFE00, Flags.OVERFLOW),
        (DataTypes.FP16, 0x5DFF, Flags.NONE), (DataTypes.FP16, 0x0001, Flags.UNDERFLOW),
        (DataTypes.BFLOAT, 0x7FFF, Flags.INVALID), (DataTypes.BFLOAT, 0x3E03, Flags.NONE),
    ],
)  # fmt: skip
def test_flags_on_the_way_back(kind: int, code: int, flags: Flags) -> None:
    """Reading raises invalid for NINF, and for FP16 overflow and underflow; padding never does."""
    desc = descriptor("feature", (1, 2, 33, 65))
    codes = np.full(desc.dims, 0x3E00, np.uint16)
    codes[0, 1, 32, 64] = code
    buffer = dirty(desc)
    stick.write_cells(codes, desc, buffer)
    buffer.view(np.uint16)[stick.padding(desc)] = 0x7FFF
    ninf = code & 0x7FFF == 0x7FFF
    assert stick.unstickify(buffer, desc, kind)[1] == stick.Conversion(flags, ninf)


def test_results_round_once_and_tell_of_ninf() -> None:
    """Results from FP32 and float64 round once; NaN is 7FFF, overflow keeps its sign."""
    desc = descriptor("feature", (1, 1, 2, 3))
    values = np.array([1, -1e10, 1e10, -np.nan, -0.0, 1e-20]).reshape(desc.dims)
    want = [0x3E00, 0xFFFF, 0x7FFF, 0x7FFF, 0x8000, 0x0000]
    for dtype in (np.float32, np.float64):
        buffer = dirty(desc)
        assert stick.write_fp32(values.astype(dtype), desc, buffer)
        assert stick.read_cells(buffer, desc).ravel().tolist() == want
        assert np.count_nonzero(buffer.view(np.uint16)) == 5
        assert not stick.write_fp32(np.ones(desc.dims, dtype), desc, buffer)
    below = np.full(desc.dims, np.nextafter(1 + 2.0**-10, 0))
    stick.write_fp32(below, desc, buffer)
    assert stick.read_fp32(buffer, desc)[0].max() == 1


@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (2, 3, 33, 129), (1, 1, 32, 128)])
def test_quantised_data(dims: Dims) -> None:
    """INT8 sticks hold what the numpy rule gives, padding is zero, non-numbers are told."""
    desc = descriptor("int8", dims)
    data = (np.random.default_rng(4).standard_normal(dims) * 50).astype(np.float32)
    buffer = dirty(desc)
    met = stick.quantize(
        data, desc, buffer, rec_scale=1.7, offset=-3.3, clip_min=-100, clip_max=120
    )
    scale, offset = rounding.decoded(rounding.rounded(np.array([1.7, -3.3]))).astype(np.float32)
    want = np.clip(np.rint(data * scale + offset), -100, 120).astype(np.int8)
    assert met == stick.Conversion(Flags.NONE, any_ninf=False)
    assert np.array_equal(stick.read_cells(buffer, desc), want)
    assert not np.any(buffer.view(np.int8)[stick.padding(desc)])
    data[-1, -1, -1, -1] = np.nan
    met = stick.quantize(data, desc, buffer, rec_scale=1, offset=7, clip_min=-100, clip_max=120)
    assert met == stick.Conversion(Flags.INVALID, any_ninf=True)
    assert stick.read_cells(buffer, desc)[-1, -1, -1, -1] == 0


def test_quantisation_rounds_half_to_even_and_clips() -> None:
    """Scale and offset are reduced to DLFLOAT16, halves go to even, clips hold, NaN is zero."""

    def quantized(values: list[float], scale: float, offset: float, low: int, high: int) -> object:
        desc, line = descriptor("int8", (1, 1, 1, len(values))), np.array(values, np.float32)
        buffer = dirty(desc)
        stick.quantize(
            line, desc, buffer, rec_scale=scale, offset=offset, clip_min=low, clip_max=high
        )
        return stick.read_cells(buffer, desc).ravel().tolist()

    values = [0.5, 1.5, 2.5, -0.5, -1.5, 300, -300, np.inf, -np.inf, np.nan]
    expected = [0, 2, 2, 0, -2, 99, -100, 99, -100, 0]
    assert quantized(values, 1.0, 0.0, -100, 99) == expected
    assert quantized([1], 1.0005, 3.0, -128, 127) == [4]
    reduced = number.value(0x3733)
    assert reduced is not None
    assert quantized([1000], 0.1, 0.0, -128, 127) == [round(1000 * reduced)]
