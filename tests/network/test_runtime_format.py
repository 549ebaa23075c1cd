# SPDX-License-Identifier: Apache-2.0
"""The format word, buffers, and the conversions between floats and integers.

Numbers: X-CUBE-AI 7.0 public header set (API 1.1.0), "Tensor format" and the two conversion
snippets of the Embedded Inference Client API, compiled or worked out by hand.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa_network.client_api import buffer_format as bf
from nnpa_network.client_api.buffer_format import Format, FormatFlag

# name, word, type, bits, fbits
PREDEFINED = (
    ("NONE", 0x00000040, 0, 0, 0),
    ("FLOAT", 0x01821040, 1, 32, 0),
    ("U8", 0x00040440, 2, 8, 0),
    ("U16", 0x00040840, 2, 16, 0),
    ("S8", 0x00840440, 2, 8, 0),
    ("S16", 0x00840840, 2, 16, 0),
    ("Q", 0x00840040, 2, 0, 0),
    ("Q7", 0x00840447, 2, 8, 7),
    ("Q15", 0x0084084F, 2, 16, 15),
    ("UQ", 0x00040040, 2, 0, 0),
    ("UQ7", 0x00040447, 2, 8, 7),
    ("UQ15", 0x0004084F, 2, 16, 15),
    ("BOOL", 0x00060440, 3, 8, 0),
)


@pytest.mark.parametrize("row", PREDEFINED, ids=lambda row: row[0])
def test_predefined(row: tuple[str, int, int, int, int]) -> None:
    """A predefined format has the header's word, and every accessor reads the header's value."""
    name, word, kind, bits, fbits = row
    assert Format[name] == word
    assert bf.get_type(word) == kind
    assert (bf.get_bits(word), bf.get_fbits(word)) == (bits, fbits)


@given(word=st.integers(0, (1 << 32) - 1))
def test_flags_do_not_count(word: int) -> None:
    """Comparison of formats leaves out bits 25 to 31 and nothing else."""
    for bit in range(32):
        assert bf.same_format(word, word ^ 1 << bit) == (bit >= 25)
    flags = FormatFlag.CONST | FormatFlag.STATIC | FormatFlag.IS_IO
    assert flags == 0x68000000
    assert bf.without_flags(word | flags) == bf.without_flags(word)


@pytest.mark.parametrize(
    ("count", "word", "expected"),
    [
        *((3, 0x00840440, 3), (3, 0x00840840, 6), (5, 0x01821040, 20), (0, 0x01821040, 0)),
        # Elements of 4 bits and of 1 bit: (n * bits + 4) >> 3, worked out by hand.
        *((1, 0x00840240, 1), (3, 0x00840240, 2), (3, 0x000400C0, 0), (4, 0x000400C0, 1)),
    ],
)
def test_byte_size(count: int, word: int, expected: int) -> None:
    """Bytes of elements are (count * bits + 4) >> 3."""
    assert bf.byte_size(count, word) == expected


@pytest.mark.parametrize("name", ["f4", "f2", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_types_round_trip(name: str) -> None:
    """A NumPy type's format says its kind and its bits, and names the type back."""
    word = bf.format_of(name)
    assert bf.dtype_of(word) == np.dtype(f"<{name}")
    assert bf.get_bits(word) == np.dtype(name).itemsize * 8
    assert bf.dtype_of(word | FormatFlag.CONST) == np.dtype(f"<{name}")


def test_types_of_other_words() -> None:
    """Fractions do not change a type, a later header's FLOAT is a float, a wildcard is no type."""
    assert bf.dtype_of(Format.Q7) == np.int8
    assert bf.dtype_of(0x00821040) == np.float32
    assert bf.dtype_of(Format.BOOL) == np.bool_
    for word in (Format.NONE, Format.Q, Format.UQ, 0x00880440):
        with pytest.raises(ValueError, match="format"):
            bf.dtype_of(word)
    with pytest.raises(ValueError, match="dtype"):
        bf.format_of("c8")


def test_buffer_sizes() -> None:
    """The number of elements leaves the batches out; a buffer of zeros is the empty one."""
    buffer = bf.Buffer(Format.S16, n_batches=7, height=2, width=3, channels=5)
    assert (buffer.size, buffer.nbytes) == (30, 60)
    assert not buffer.is_empty
    assert bf.Buffer(height=0, width=0, channels=0).is_empty


@pytest.mark.parametrize(
    ("value", "scale", "zero_point", "word", "expected"),
    [
        (0.25, 0.5, 0, Format.S8, 1),  # 0.5 is half: away from zero
        (-0.25, 0.5, 0, Format.S8, -1),
        (1.25, 0.5, 3, Format.S8, 6),  # 2.5 becomes 3
        (1e9, 0.5, 0, Format.S8, 127),
        (-1e9, 0.5, 0, Format.S8, -128),
        (-1.0, 0.5, 128, Format.U8, 126),
        (-1e9, 0.5, 128, Format.U8, 0),
        (1e9, 0.5, 128, Format.U8, 255),
        (np.nan, 0.5, 5, Format.S8, 5),  # undefined in C, defined here
        (np.inf, 0.5, 5, Format.S8, 127),
        (-np.inf, 0.5, 5, Format.U8, 0),
        # The trap of adding one half in FP32: the greatest float below 0.5 becomes 1.
        (np.nextafter(np.float32(0.5), np.float32(0)), 1.0, 0, Format.S8, 1),
        # A reciprocal, not a division: 1/0.1 is 10 in FP32, 0.35 * 10 is 3.5, which becomes 4.
        (0.35, 0.1, 0, Format.S8, 4),
    ],
)
def test_quantise(value: float, scale: float, zero_point: int, word: int, expected: int) -> None:
    """Floats become integers as the documented snippet makes them."""
    result = bf.quantise(np.array([value], np.float32), scale, zero_point, word)
    assert result.dtype == bf.dtype_of(word)
    assert result.tolist() == [expected]


@given(
    value=st.floats(-1e6, 1e6, width=32),
    scale=st.floats(2.0**-10, 8.0, width=32),
    zero=st.integers(-128, 127),
)
def test_quantise_against_c(value: float, scale: float, zero: int) -> None:
    """The conversion agrees with the snippet's C arithmetic, one operation at a time."""
    inverse = np.float32(1.0) / np.float32(scale)
    product = np.float32(value) * inverse
    rounded = int(
        np.float32(product - np.float32(0.5) if product < 0 else product + np.float32(0.5))
    )
    expected = min(max(zero + rounded, -128), 127)
    assert bf.quantise(np.array([value]), scale, zero, Format.S8).tolist() == [expected]


def test_dequantise() -> None:
    """Integers become floats by one FP32 subtraction and one FP32 multiplication."""
    result = bf.dequantise(np.array([-128, 0, 127], np.int8), 1 / 256, -128)
    assert result.dtype == np.float32
    assert result.tolist() == [0.0, 0.5, 0.99609375]
    assert bf.dequantise(np.array([255], np.uint8), 0.1, 0)[0] == np.float32(0.1) * np.float32(255)


@given(st.integers(-128, 127), st.sampled_from([Format.S8, Format.Q7, 0x00840443, 0x0084043E]))
def test_fixed_point_round_trip(number: int, word: int) -> None:
    """Every element of a fixed-point format is its value, and the value is that element."""
    value = bf.from_fixed_point(np.array([number], np.int8), word)
    assert value[0] == number * 2.0 ** -bf.get_fbits(word)
    assert bf.to_fixed_point(value, word).tolist() == [number]


def test_fixed_point_edges() -> None:
    """Values round half away from zero and saturate; NaN is zero."""
    values = np.array([1.0, -1.0, 0.5 / 128, -0.5 / 128, np.nan, np.inf, 0.0039])
    assert bf.to_fixed_point(values, Format.Q7).tolist() == [127, -128, 1, -1, 0, 127, 0]
    assert bf.to_fixed_point(np.array([2.0, -1.0]), Format.UQ7).tolist() == [255, 0]
