# SPDX-License-Identifier: Apache-2.0
"""DLFLOAT16 conversions: published vectors, every code, every boundary, exact oracles.

Vectors: computed by hand from the encoding and compared with the portable DLFLOAT16 model of the
onnx-mlir project; the rows with a tie decide the rounding.
"""

import math
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt
import pytest
from nnpa_emulator import dlfloat
from nnpa_emulator.dlfloat import Flags

from tests.oracle import dlfloat as oracle

EVERY_CODE: Final = np.arange(65536, dtype=np.uint16)
FLAG_OF: Final = {"-": Flags.NONE, "I": Flags.INVALID, "O": Flags.OVERFLOW, "U": Flags.UNDERFLOW}

FP32_VECTORS: Final = """
    00000000 0000 - 00000000;  80000000 8000 - 80000000;  3F800000 3E00 - 3F800000
    BF800000 BE00 - BF800000;  3F000000 3C00 - 3F000000;  3C800000 3200 - 3C800000
    41700000 45C0 - 41700000;  C1700000 C5C0 - C1700000;  40000000 4000 - 40000000
    40490FDB 4124 - 40490000;  402DF854 40B8 - 402E0000;  3DCCCCCD 3733 - 3DCCC000
    3EAAAAAB 3AAB - 3EAAC000;  4036DB6E 40DB - 4036C000;  3F801FFF 3E00 - 3F800000
    3F802000 3E01 - 3F804000;  3F802001 3E01 - 3F804000;  3F805FFF 3E01 - 3F804000
    3F806000 3E02 - 3F808000;  BF802000 BE01 - BF804000;  3FFFDFFF 3FFF - 3FFFC000
    3FFFE000 4000 - 40000000;  3FFFFFFF 4000 - 40000000;  43FFE000 5000 - 44000000
    447FC000 51FF - 447FC000;  4FFF8000 7FFE - 4FFF8000;  4FFF9FFF 7FFE - 4FFF8000
    4FFFA000 7FFF - NaN;  CFFFA000 FFFF - NaN;  4FFFC000 7FFF - NaN
    50000000 7FFF - NaN;  7F7FFFFF 7FFF - NaN;  FF7FFFFF FFFF - NaN
    7F800000 7FFF O NaN;  FF800000 FFFF O NaN;  7FC00000 7FFF I NaN
    FFC00000 FFFF I NaN;  7FFFFFFF 7FFF I NaN;  FFFFFFFF FFFF I NaN
    7F800001 7FFF I NaN;  30006000 0002 - 30008000;  30004000 0001 - 30004000
    30002000 0001 - 30004000;  30001FFF 0000 - 00000000;  30000000 0000 - 00000000
    2FFFE000 0000 - 00000000;  2FFFDFFF 0000 U 00000000;  2F800000 0000 U 00000000
    00800000 0000 U 00000000;  80800000 8000 U 80000000;  00000FF0 0000 U 00000000
    80000FF0 8000 U 80000000;  00000001 0000 U 00000000
"""
"""FP32 bits, code, flag, FP32 bits of the code."""

FP16_VECTORS: Final = """
    0000 0000 - 0000;  8000 8000 - 8000;  3C00 3E00 - 3C00
    BC00 BE00 - BC00;  3800 3C00 - 3800;  2400 3200 - 2400
    CB80 C5C0 - CB80;  41B6 40DB - 41B6;  F000 D800 - F000
    4248 4124 - 4248;  2E66 3733 - 2E66;  57F0 4BF8 - 57F0
    D800 CC00 - D800;  3C01 3E01 - 3C02;  3C02 3E01 - 3C02
    3C03 3E02 - 3C04;  3FFF 4000 - 4000;  7BFD 5DFF - 7BFE
    7BFE 5DFF - 7BFE;  7BFF 5E00 - 7C00;  FBFF DE00 - FC00
    0400 2200 - 0400;  03FF 21FF - 03FF;  0203 2003 - 0203
    0001 0E00 - 0001;  8001 8E00 - 8001;  7C00 7FFF O NaN
    FC00 FFFF O NaN;  7E00 7FFF I NaN;  7FFF 7FFF I NaN
    FFFF FFFF I NaN
"""
"""FP16 bits, code, flag, FP16 bits of the code."""

BFLOAT_VECTORS: Final = """
    0000 0000 - 0000;  8000 8000 - 8000;  3F80 3E00 - 3F80
    BF80 BE00 - BF80;  3F81 3E04 - 3F81;  3FFF 3FFC - 3FFF
    4049 4124 - 4049;  3DCD 3734 - 3DCD;  42FE 4BF8 - 42FE
    C300 CC00 - C300;  4FFF 7FFC - 4FFF;  CFFF FFFC - CFFF
    5000 7FFF - NaN;  7F7F 7FFF - NaN;  FF7F FFFF - NaN
    7F80 7FFF O NaN;  FF80 FFFF O NaN;  7FC0 7FFF I NaN
    FFFF FFFF I NaN;  3001 0004 - 3001;  3000 0000 - 0000
    2FFF 0000 U 0000;  2F80 0000 U 0000;  0001 0000 U 0000
"""
"""BFLOAT bits, code, flag, BFLOAT bits of the code."""

CODE_VECTORS: Final = """
    0000 00000000 0000 0000 -;  8000 80000000 8000 8000 -;  0001 30004000 3000 0000 U
    8001 B0004000 B000 8000 U;  01FF 307FC000 307F 0000 U;  0200 30800000 3080 0000 U
    0A00 32800000 3280 0000 U;  0B00 32C00000 32C0 0000 U;  0C00 33000000 3300 0001 U
    0D00 33400000 3340 0001 U;  0E00 33800000 3380 0001 -;  0E80 33A00000 33A0 0001 U
    0F01 33C04000 33C0 0002 U;  1EFF 37BFC000 37BF 0180 U;  1FFF 37FFC000 37FF 0200 U
    2000 38000000 3800 0200 -;  2001 38004000 3800 0201 -;  21FF 387FC000 387F 03FF -
    2200 38800000 3880 0400 -;  2401 39004000 3900 0802 -;  3200 3C800000 3C80 2400 -
    3C00 3F000000 3F00 3800 -;  3E00 3F800000 3F80 3C00 -;  BE00 BF800000 BF80 BC00 -
    3E01 3F804000 3F80 3C02 -;  3E03 3F80C000 3F80 3C06 -;  3E04 3F810000 3F81 3C08 -
    40DB 4036C000 4036 41B6 -;  4122 40488000 4048 4244 -;  45C0 41700000 4170 4B80 -
    5DFF 477FC000 477F 7BFE -;  5E00 47800000 4780 7C00 O;  DE00 C7800000 C780 FC00 O
    7E00 4F800000 4F80 7C00 O;  FE00 CF800000 CF80 FC00 O;  7FFC 4FFF0000 4FFF 7C00 O
    7FFE 4FFF8000 4FFF 7C00 O;  FFFE CFFF8000 CFFF FC00 O;  7FFF 7FC00000 7FC0 7E00 I
    FFFF 7FC00000 7FC0 7E00 I
"""
"""Code, FP32 bits, BFLOAT bits, FP16 bits, flag of FP16."""


def rows(table: str) -> list[list[str]]:
    """Split a vector table into rows of fields."""
    return [row.split() for row in table.replace("\n", ";").split(";") if row.strip()]


def fp32(bits: int) -> npt.NDArray[np.float32]:
    """Return one FP32 value by its bits, in an array."""
    return np.array([bits], np.uint32).view(np.float32)


def code_of(bits: int) -> int:
    """Return the code of one FP32 bit pattern."""
    return int(dlfloat.from_fp32(fp32(bits))[0])


@pytest.mark.parametrize("row", rows(FP32_VECTORS), ids=" ".join)
def test_fp32_vector(row: list[str]) -> None:
    """An FP32 bit pattern has this code, raises this flag and comes back as these bits."""
    bits, code = int(row[0], 16), int(row[1], 16)
    assert code_of(bits) == code
    assert dlfloat.flags_from_fp32(fp32(bits)) == FLAG_OF[row[2]]
    back = dlfloat.to_fp32(np.array([code], np.uint16)).view(np.uint32)[0]
    assert back == (0x7FC00000 if row[3] == "NaN" else int(row[3], 16))


@pytest.mark.parametrize("row", rows(FP16_VECTORS), ids=" ".join)
def test_fp16_vector(row: list[str]) -> None:
    """An FP16 bit pattern has this code, raises this flag and comes back as these bits."""
    value = np.array([int(row[0], 16)], np.uint16).view(np.float16)
    code = np.array([int(row[1], 16)], np.uint16)
    assert dlfloat.from_fp16(value) == code
    assert dlfloat.flags_from_fp32(value.astype(np.float32)) == FLAG_OF[row[2]]
    assert dlfloat.to_fp16(code).view(np.uint16) == (0x7E00 if row[3] == "NaN" else int(row[3], 16))


@pytest.mark.parametrize("row", rows(BFLOAT_VECTORS), ids=" ".join)
def test_bfloat_vector(row: list[str]) -> None:
    """A BFLOAT bit pattern has this code, raises this flag and comes back as these bits."""
    bits, code = np.array([[int(row[0], 16)], [int(row[1], 16)]], np.uint16)
    wide = dlfloat.widen_bfloat(bits)
    assert dlfloat.from_fp32(wide) == code
    assert dlfloat.flags_from_fp32(wide) == FLAG_OF[row[2]]
    assert dlfloat.to_bfloat(code) == (0x7FC0 if row[3] == "NaN" else int(row[3], 16))


@pytest.mark.parametrize("row", rows(CODE_VECTORS), ids=" ".join)
def test_code_vector(row: list[str]) -> None:
    """A code has these FP32, BFLOAT and FP16 bits, and narrowing to FP16 raises this flag."""
    code = np.array([int(row[0], 16)], np.uint16)
    assert dlfloat.to_fp32(code).view(np.uint32) == int(row[1], 16)
    assert dlfloat.to_bfloat(code) == int(row[2], 16)
    assert dlfloat.to_fp16(code).view(np.uint16) == int(row[3], 16)
    assert dlfloat.signals_to_fp16(code) == [FLAG_OF[row[4]]]


def test_vector_tables_are_whole() -> None:
    """The four tables have 53, 31, 24 and 40 rows."""
    tables = (FP32_VECTORS, FP16_VECTORS, BFLOAT_VECTORS, CODE_VECTORS)
    assert [len(rows(table)) for table in tables] == [53, 31, 24, 40]


def test_constants_by_name() -> None:
    """The named codes have the values that the format's definition gives them."""
    assert oracle.value(dlfloat.ZERO) == 0
    assert oracle.value(dlfloat.ONE) == 1
    assert oracle.value(dlfloat.MAX) == Fraction(dlfloat.MAX_VALUE) == 8573157376
    assert oracle.value(dlfloat.LOWEST) == -8573157376
    assert oracle.value(dlfloat.SMALLEST) == Fraction(dlfloat.SMALLEST_VALUE)
    assert oracle.value(dlfloat.NINF) is None
    assert oracle.value(dlfloat.NEGATIVE_NINF) is None


def test_every_code_widens_exactly() -> None:
    """Every finite code has its exact value in FP32, sign of zero kept; NINF is 7FC00000."""
    wide = dlfloat.to_fp32(EVERY_CODE)
    for code, got in enumerate(wide.tolist()):
        exact = oracle.value(code)
        if exact is None:
            assert math.isnan(got)
        else:
            assert Fraction(got) == exact
            assert math.copysign(1, got) == (-1 if code & 0x8000 else 1)
    assert set(wide.view(np.uint32)[[0x7FFF, 0xFFFF]].tolist()) == {0x7FC00000}


def test_every_code_comes_back_from_fp32_and_fp64() -> None:
    """Widening a finite code and rounding it again gives the same code, from FP32 and FP64."""
    finite = EVERY_CODE[(EVERY_CODE & 0x7FFF) != 0x7FFF]
    wide = dlfloat.to_fp32(finite)
    assert np.array_equal(dlfloat.from_fp32(wide), finite)
    assert np.array_equal(dlfloat.from_fp64(wide.astype(np.float64)), finite)


def test_every_code_narrows_to_fp16() -> None:
    """Every code narrows to the FP16 bits that exact arithmetic gives."""
    got = dlfloat.to_fp16(EVERY_CODE).view(np.uint16)
    assert got.tolist() == [oracle.fp16_bits(code) for code in range(65536)]


def test_every_code_truncates_to_bfloat() -> None:
    """Every code's BFLOAT is the upper half of its FP32, whatever the lower half was."""
    upper = dlfloat.to_fp32(EVERY_CODE).view(np.uint32) >> 16
    assert np.array_equal(dlfloat.to_bfloat(EVERY_CODE), upper)


def test_only_ninf_raises_on_the_way_to_fp32() -> None:
    """Widening raises invalid for the two NINF codes and nothing else for any code."""
    raised = np.flatnonzero(dlfloat.signals_to_fp32(EVERY_CODE))
    assert raised.tolist() == [0x7FFF, 0xFFFF]
    assert set(dlfloat.signals_to_fp32(EVERY_CODE[raised])) == {Flags.INVALID}


def test_every_fp16_rounds_as_the_oracle_says() -> None:
    """Every finite FP16 rounds once, ties away; infinities and NaN are NINF of their sign."""
    values = EVERY_CODE.view(np.float16)
    got = dlfloat.from_fp16(values).tolist()
    for bits, value in enumerate(values.tolist()):
        sign = bits & 0x8000
        finite = math.isfinite(value)
        want = oracle.rounded(Fraction(value), bool(sign)) if finite else sign | 0x7FFF
        assert got[bits] == want, hex(bits)


def test_every_bfloat_rounds_as_the_oracle_says() -> None:
    """Every finite BFLOAT rounds once, ties away; infinities and NaN are NINF of their sign."""
    values = (EVERY_CODE.astype(np.uint32) << np.uint32(16)).view(np.float32)
    got = dlfloat.from_fp32(dlfloat.widen_bfloat(EVERY_CODE)).tolist()
    for bits, value in enumerate(values.tolist()):
        sign = bits & 0x8000
        finite = math.isfinite(value)
        want = oracle.rounded(Fraction(value), bool(sign)) if finite else sign | 0x7FFF
        assert got[bits] == want, hex(bits)


def test_half_of_the_fp16_codes_do_not_survive() -> None:
    """30720 of the 65536 FP16 codes change on a round trip (hand: odd fractions of normals)."""
    converted = dlfloat.from_fp16(EVERY_CODE.view(np.float16))
    back = dlfloat.to_fp16(converted).view(np.uint16)
    numbers = (EVERY_CODE & 0x7C00) != 0x7C00
    assert np.count_nonzero((back != EVERY_CODE) & numbers) == 30720


def test_every_midpoint_goes_away_from_zero() -> None:
    """The value half way between two neighbours has the code of the greater magnitude."""
    low = np.arange(0x0001, 0x7FFE, dtype=np.uint32)
    middle = ((low << np.uint32(14)) + np.uint32(0x30002000)).view(np.float32)
    assert np.array_equal(dlfloat.from_fp32(middle), low + 1)
    below = np.nextafter(middle, np.float32(0))
    assert np.array_equal(dlfloat.from_fp32(below), low)
    assert np.array_equal(dlfloat.from_fp32(-middle), (low + 1) | 0x8000)


def test_fp64_rounds_once() -> None:
    """A float64 just below a midpoint goes down although FP32 would take it to the midpoint."""
    below = math.nextafter(1 + 2.0**-10, 0)
    assert dlfloat.from_fp64([below, 1 + 2.0**-10]).tolist() == [0x3E00, 0x3E01]
    assert dlfloat.from_fp32([np.float32(below)]).tolist() == [0x3E01]


def test_fp64_against_the_oracle() -> None:
    """Random float64 values over the whole range and beyond round as exact arithmetic says."""
    random = np.random.default_rng(7)
    values = random.standard_normal(4000) * np.exp2(random.uniform(-40, 40, 4000))
    want = [oracle.rounded(Fraction(value), value < 0) for value in values.tolist()]
    assert dlfloat.from_fp64(values).tolist() == want
    odd = dlfloat.from_fp64([math.inf, -math.inf, math.nan, 5e-324, -0.0])
    assert odd.tolist()[:2] == [0x7FFF, 0xFFFF]
    assert odd.tolist()[2] & 0x7FFF == 0x7FFF
    assert odd.tolist()[3:] == [0x0000, 0x8000]


def test_saturation_leaves_non_numbers_alone() -> None:
    """Finite FP32 values stop at ±8573157376, zeros keep their sign, the rest keeps its bits."""
    inputs = [0x7F7FFFFF, 0xFF7FFFFF, 0x4FFF8000, 0x4FFF8001, 0x80000000, 0x3F800000]
    want = [0x4FFF8000, 0xCFFF8000, 0x4FFF8000, 0x4FFF8000, 0x80000000, 0x3F800000]
    odd = [0x7F800000, 0xFF800000, 0x7FC00001, 0xFFFFFFFF, 0x7F800001]
    values = np.array(inputs + odd, np.uint32).view(np.float32)
    assert dlfloat.saturate_fp32(values).view(np.uint32).tolist() == want + odd


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (0.0, 0x0000), (-0.0, 0x0000), (1e-12, 0x0000), (-1e-12, 0x8000), (1.0005, 0x3E00),
        (2.0**-31, 0x0000), (1.0, 0x3E00), (1e10, 0x7FFF), (-1e10, 0xFFFF),
        (math.inf, 0x7FFF), (-math.inf, 0xFFFF), (math.nan, 0x7FFF), (1e300, 0x7FFF),
        (1e-300, 0x0000), (8573157376.0, 0x7FFE), (-8573157376.0, 0xFFFE),
    ],
)  # fmt: skip
def test_scalar_arguments(value: float, code: int) -> None:
    """A scalar argument that equals zero is 0x0000, any other is rounded with its sign kept."""
    assert dlfloat.scalar_to_dlfloat(value) == code


def test_signals_stand_beside_their_elements() -> None:
    """The element-wise form names the very elements that raise; no elements raise nothing."""
    values = np.array([1, np.nan, np.inf, 1e-20, 0, -np.inf], np.float32)
    assert dlfloat.signals_from_fp32(values).tolist() == [0, 1, 2, 4, 0, 2]
    assert dlfloat.flags_from_fp32(values) == Flags.INVALID | Flags.OVERFLOW | Flags.UNDERFLOW
    assert dlfloat.flags_from_fp32(np.array([], np.float32)) == Flags.NONE
