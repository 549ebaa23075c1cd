# SPDX-License-Identifier: Apache-2.0
"""Sticks: offsets element by element, worked examples, every way in and out of a buffer."""

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from nnpa_emulator import dlfloat, stick
from nnpa_emulator.dlfloat import Flags
from nnpa_emulator.ztensor import (
    DataFormats,
    DataLayouts,
    DataTypes,
    TensorDesc,
    getsize_ztensor,
)

from tests.oracle import dlfloat as number
from tests.oracle import rounding
from tests.oracle import stick as oracle

Dims = tuple[int, int, int, int]

DLF16 = DataTypes.ZDNN_DLFLOAT16
KINDS = {
    "feature": (DataFormats.ZDNN_FORMAT_4DFEATURE, DLF16, 2),
    "kernel": (DataFormats.ZDNN_FORMAT_4DKERNEL, DLF16, 2),
    "int8": (DataFormats.ZDNN_FORMAT_4DFEATURE, DataTypes.ZDNN_BINARY_INT8, 1),
    "int32": (DataFormats.ZDNN_FORMAT_4DFEATURE, DataTypes.ZDNN_BINARY_INT32, 4),
    "weights": (DataFormats.ZDNN_FORMAT_4DWEIGHTS, DataTypes.ZDNN_BINARY_INT8, 1),
}
EDGES = (1, 31, 32, 33, 63, 64, 65, 127, 128, 129)
SHAPES: list[Dims] = [
    *((1, 1, rows, columns) for rows, columns in product(EDGES, EDGES)),
    *((2, 3, rows, columns) for rows, columns in product((1, 33, 64), (3, 65, 129))),
    (3, 2, 2, 1),
    (2, 1, 65, 64),
    (1, 4, 33, 129),
]


def descriptor(kind: str, dims: Dims) -> TensorDesc:
    """Describe a transformed tensor of one of the five kinds."""
    fmt, number, _ = KINDS[kind]
    layout = DataLayouts.ZDNN_HWCK if kind == "kernel" else DataLayouts.ZDNN_NHWC
    return TensorDesc(layout, fmt, number, *dims)


def dirty(desc: TensorDesc) -> npt.NDArray[np.uint8]:
    """Return a buffer full of 0xA5, as a used one may be."""
    return np.full(getsize_ztensor(desc), 0xA5, np.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_element_by_element(kind: str) -> None:
    """Every element's offset, and the size, are those found by walking through memory."""
    for dims in SHAPES:
        desc = descriptor(kind, dims)
        found, size = oracle.offsets(KINDS[kind][0], KINDS[kind][2], dims)
        assert getsize_ztensor(desc) == size
        got = np.array([stick.offset(desc, *index) for index in np.ndindex(*dims)])
        assert np.array_equal(got.reshape(dims), found), dims


@pytest.mark.parametrize("kind", KINDS)
def test_cells_land_where_the_walk_says(kind: str) -> None:
    """Written cells lie at their offsets, all other bytes of a used buffer are zero."""
    random = np.random.default_rng(3)
    for dims in SHAPES:
        desc = descriptor(kind, dims)
        width = KINDS[kind][2]
        cells = random.integers(1, 100, dims).astype(np.uint16 if width == 2 else f"i{width}")
        found, size = oracle.offsets(KINDS[kind][0], width, dims)
        want = np.zeros(size // width, cells.dtype)
        want[found // width] = cells
        buffer = dirty(desc)
        stick.write_cells(cells, desc, buffer)
        assert np.array_equal(buffer.view(cells.dtype), want), dims
        assert np.array_equal(stick.read_cells(buffer, desc), cells), dims
        assert np.array_equal(stick.padding(desc), want == 0), dims


@pytest.mark.parametrize(
    ("kind", "dims", "size", "places"),
    [
        (
            "feature", (1, 4, 33, 129), 98304,
            ("0,0,0,0:0 0,0,0,63:126 0,0,0,64:32768 0,0,0,128:65536 0,0,1,0:128 0,0,31,0:3968 "
            "0,0,32,0:4096 0,1,0,0:8192 0,2,5,100:49864 0,3,32,63:28798 0,3,32,64:61440 "
            "0,3,32,128:94208"),
        ),
        ("feature", (2, 3, 33, 129), 147456, "1,0,0,0:73728 1,2,32,128:143360"),
        (
            "feature", (1, 4, 4, 1), 16384,
            "0,0,1,0:128 0,0,2,0:256 0,0,3,0:384 0,1,0,0:4096 0,1,1,0:4224",
        ),
        (
            "kernel", (3, 3, 70, 65), 221184,
            ("0,0,1,0:128 0,0,31,63:4094 0,0,32,0:4096 0,0,69,0:8832 0,1,0,0:12288 1,0,0,0:36864 "
            "2,2,69,63:107262 0,0,0,64:110592 2,2,69,64:217728"),
        ),
        (
            "int8", (1, 1, 33, 129), 16384,
            "0,0,0,127:127 0,0,0,128:8192 0,0,32,0:4096 0,0,32,128:12288",
        ),
        (
            "weights", (2, 3, 65, 65), 98304,
            ("0,0,0,0:0 0,0,1,0:1 0,0,0,1:2 0,0,2,0:128 0,0,63,63:4095 0,0,64,0:4096 "
            "0,1,0,0:8192 0,0,0,64:24576 1,0,0,0:49152 1,2,64,64:94208"),
        ),
        ("weights", (1, 1, 5, 10), 4096, "0,0,0,9:18 0,0,1,9:19 0,0,4,9:274"),
        ("feature", (2, 1, 33, 512), 131072, "0,0,0,64:8192 0,0,32,0:4096 0,0,0,128:16384"),
    ],
)  # fmt: skip
def test_worked_examples(kind: str, dims: Dims, size: int, places: str) -> None:
    """Offsets computed by hand for tensors that fill pages and sticks unevenly."""
    desc = descriptor(kind, dims)
    assert getsize_ztensor(desc) == size
    for place in places.split():
        index, offset = place.split(":")
        e4, e3, e2, e1 = (int(number) for number in index.split(","))
        assert stick.offset(desc, e4, e3, e2, e1) == int(offset), place


@pytest.mark.parametrize(
    ("kind", "dims", "size"),
    [
        ("feature", (1, 3, 3, 5), 12288), ("feature", (5, 32, 32, 3), 655360),
        ("feature", (1, 64, 64, 64), 524288), ("feature", (1, 8, 8, 1), 32768),
        ("feature", (1, 256, 256, 1), 8388608), ("feature", (1, 1, 256, 1), 32768),
        ("int8", (1, 3, 3, 128), 12288), ("int8", (1, 3, 3, 129), 24576),
        ("weights", (1, 3, 3, 64), 12288), ("weights", (1, 3, 3, 65), 24576),
        ("weights", (1, 3, 64, 64), 12288), ("weights", (1, 3, 65, 64), 24576),
        ("feature", (1, 1, 1, 256), 16384), ("feature", (2, 1, 1, 512), 65536),
        ("feature", (2, 1, 50, 768), 196608), ("feature", (2, 1, 128, 768), 393216),
        ("feature", (1, 1, 128, 256), 65536), ("feature", (2, 1, 10, 70), 16384),
        ("feature", (1, 1, 2, 128), 8192), ("feature", (2, 1, 50, 384), 98304),
    ],
)  # fmt: skip
def test_published_sizes(kind: str, dims: Dims, size: int) -> None:
    """Sizes that zDNN's own tests expect, as transformed dims."""
    assert getsize_ztensor(descriptor(kind, dims)) == size


def test_lstm_weights_by_hand() -> None:
    """Gates of plain LSTM weights (2, 33, 65) start where the hand computation says."""
    places = oracle.gate_offsets(2, 4, 33, 65, 1)
    want = {
        (0, 0, 0, 64): 8192, (0, 0, 32, 0): 4096, (0, 1, 0, 0): 16384, (0, 3, 0, 64): 57344,
        (1, 0, 0, 0): 65536, (1, 3, 32, 64): 126976,
    }  # fmt: skip
    assert {index: int(places[index]) for index in want} == want
    behind = oracle.gate_offsets(2, 4, 66, 65, 2)
    want = {
        (0, 0, 32, 0): 4096, (0, 0, 33, 0): 8192, (0, 0, 65, 0): 12288, (0, 0, 33, 64): 24576,
        (0, 1, 0, 0): 32768, (1, 3, 65, 64): 258048,
    }  # fmt: skip
    assert {index: int(behind[index]) for index in want} == want


@pytest.mark.parametrize("layout", [10, 13, 5, 12], ids=["FICO", "BIDIR_FICO", "ZRH", "BIDIR_ZRH"])
@pytest.mark.parametrize("rows", [2, 62, 64, 66, 128, 130])
@pytest.mark.parametrize("columns", [1, 64, 65])
def test_gates_land_where_the_walk_says(layout: int, rows: int, columns: int) -> None:
    """Every element of every gate and slice lies at its offset, everything else is zero."""
    gates = 4 if layout in (10, 13) else 3
    halves = 2 if layout in (12, 13) else 1
    spread = 2 * -(-rows // 2 // 64) * 64 if halves == 2 else rows
    width = -(-columns // 64) * 64
    desc = TensorDesc(layout, 0, DLF16, 2, 1, spread, gates * width)
    data = np.random.default_rng(5).uniform(1, 2, (gates, 2, rows, columns)).astype(np.float32)
    buffer = dirty(desc)
    stick.clear(buffer, desc)
    for index, gate in product(range(2), range(gates)):
        met = stick.stickify_gate(data[gate, index], desc, buffer, index=index, gate=gate)
        assert met == stick.Conversion(Flags.NONE, any_ninf=False)
    places = oracle.gate_offsets(2, gates, rows, columns, halves) // 2
    want = np.zeros(buffer.size // 2, np.uint16)
    want[places] = dlfloat.from_fp32(data.transpose(1, 0, 2, 3))
    assert np.array_equal(buffer.view(np.uint16), want)


def test_bias_gates_have_one_row() -> None:
    """A bias, one row per slice, fills the first stick of each of its gate's pages."""
    desc = TensorDesc(DataLayouts.ZDNN_FICO, 0, DLF16, 2, 1, 1, 512)
    buffer = np.zeros(getsize_ztensor(desc), np.uint8)
    bias = np.arange(1, 71, dtype=np.float32)
    stick.stickify_gate(bias, desc, buffer, index=1, gate=2)
    assert np.array_equal(stick.read_fp32(buffer, desc)[0][1, 0, 0, 256:326], bias)
    assert np.count_nonzero(buffer.view(np.uint16)) == 70


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
    one = {"float32": 0x3F800000, "float16": 0x3C00, "uint16": 0x3F80}[np.dtype(dtype).name]
    data = np.full(dims, one, raw)
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


@pytest.mark.parametrize("kind", KINDS)
def test_the_machine_image_is_big_endian(kind: str) -> None:
    """Swapped sticks read the same as big-endian cells, and swapping twice gives them back."""
    desc = descriptor(kind, (1, 2, 33, 65))
    buffer = np.random.default_rng(1).integers(0, 256, getsize_ztensor(desc), np.uint8)
    image = stick.byteswapped(buffer, desc)
    width = KINDS[kind][2]
    assert np.array_equal(image.view(f">u{width}"), buffer.view(f"<u{width}"))
    assert np.array_equal(stick.byteswapped(image, desc), buffer)


def test_wrong_element_count_is_told() -> None:
    """Data whose element count differs from the tensor's is refused with both numbers."""
    desc = descriptor("feature", (1, 1, 2, 3))
    with pytest.raises(ValueError, match=r"array: 5 elements, dims .* have 6"):
        stick.stickify(np.ones(5, np.float32), desc, dirty(desc))
