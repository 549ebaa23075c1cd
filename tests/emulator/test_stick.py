# SPDX-License-Identifier: Apache-2.0
"""Sticks: offsets element by element, worked examples, every way in and out of a buffer."""

from itertools import product

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
        result, size = oracle.offsets(KINDS[kind][0], KINDS[kind][2], dims)
        assert getsize_ztensor(desc) == size
        got = np.array([stick.offset(desc, *index) for index in np.ndindex(*dims)])
        assert np.array_equal(got.reshape(dims), result), dims


@pytest.mark.parametrize("kind", KINDS)
def test_cells_land_where_the_walk_says(kind: str) -> None:
    """Written cells lie at their offsets, all other bytes of a used buffer are zero."""
    random = np.random.default_rng(3)
    for dims in SHAPES:
        desc = descriptor(kind, dims)
        width = KINDS[kind][2]
        cells = random.integers(1, 100, dims).astype(np.uint16 if width == 2 else f"i{width}")
        result, size = oracle.offsets(KINDS[kind][0], width, dims)
        want = np.zeros(size // width, cells.dtype)
        want[result // width] = cells
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
