# SPDX-License-Identifier: Apache-2.0
"""DLFLOAT16 by itself, bit for bit against the emulator's conversions and exact arithmetic."""

import io
import subprocess
import sys
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa_client import dlfloat16
from nnpa_emulator import dlfloat as emulator

from tests.oracle import dlfloat as oracle

ALL = np.arange(1 << 16, dtype=np.uint16)
NUMBERS = ALL[(ALL & oracle.NINF) != oracle.NINF]
CHUNK = 1 << 20
DOUBLES = np.random.default_rng(16).integers(0, 1 << 64, 200_000, np.uint64).view(np.float64)
WHOLE = st.integers(-(2**31), 2**31 - 1)


class Tensor:
    """A tensor of another library, which NumPy makes an array of."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._values = values

    def __array__(self, dtype: object = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the values."""
        return self._values


class Shared:
    """A tensor of another library, which shares its memory by DLPack only."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._values = values

    def __dlpack__(self, **_wishes: object) -> object:
        """Return a capsule."""
        return self._values.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return that it is on the CPU."""
        return self._values.__dlpack_device__()


def bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    """Return the bits of FP32 values, in which NaN is equal to itself."""
    return values.view(np.uint32)


def around_halves() -> npt.NDArray[np.float32]:
    """Return FP32 values below, at and above each bit that decides: 4 of every 8192 patterns."""
    upper = np.arange(1 << 19, dtype=np.uint32)[:, None] << np.uint32(13)
    return (upper | np.array([0, 1, 0xFFF, 0x1FFF], np.uint32)).reshape(-1).view(np.float32)


def strided() -> npt.NDArray[np.float32]:
    """Return every 509th FP32 pattern: all exponents, both signs, NaN and infinities."""
    return np.arange(0, 1 << 32, 509, dtype=np.uint32).view(np.float32)


def test_every_code_has_the_emulators_value() -> None:
    """All 65,536 codes are decoded to the emulator's bits, and numbers encoded to their codes."""
    values = dlfloat16.decode(ALL)
    np.testing.assert_array_equal(bits(values), bits(emulator.to_fp32(ALL)))
    np.testing.assert_array_equal(dlfloat16.encode(values[NUMBERS]), NUMBERS)
    np.testing.assert_array_equal(dlfloat16.encode(values.astype(np.float64))[NUMBERS], NUMBERS)


@pytest.mark.parametrize("patterns", [around_halves, strided])
def test_fp32_rounds_as_on_the_emulator(patterns: Any) -> None:
    """FP32 values get the emulator's codes, round to the codes' values, and saturate alike."""
    values: npt.NDArray[np.float32] = patterns()
    codes = emulator.from_fp32(values)
    clamped = emulator.from_fp32(emulator.saturate_fp32(values))
    np.testing.assert_array_equal(dlfloat16.encode(values), codes)
    np.testing.assert_array_equal(dlfloat16.encode(values, saturate=True), clamped)
    np.testing.assert_array_equal(bits(dlfloat16.round(values)), bits(emulator.to_fp32(codes)))
    saturated = dlfloat16.round(values, saturate=True)
    np.testing.assert_array_equal(bits(saturated), bits(emulator.to_fp32(clamped)))


@pytest.mark.heavy
def test_every_fp32_pattern_has_the_code_of_exact_arithmetic() -> None:
    """All 2^32 FP32 patterns have the code that integer arithmetic computes."""
    expected = np.empty(CHUNK, np.uint16)
    wrong = 0
    for first in range(0, 1 << 32, CHUNK):
        values = np.arange(first, first + CHUNK, dtype=np.uint32).view(np.float32)
        oracle.codes_of_fp32(first, expected)
        wrong += int(np.count_nonzero(dlfloat16.encode(values) != expected))
    assert wrong == 0


def test_float64_is_rounded_once() -> None:
    """Float64 values have the emulator's codes, also where rounding to FP32 first differs."""
    steps = np.ldexp(DOUBLES.view(np.uint64) / 2.0**64 + 1, np.arange(DOUBLES.size) % 70 - 35)
    for values in (DOUBLES, steps, -steps):
        codes = emulator.from_fp64(values)
        np.testing.assert_array_equal(dlfloat16.encode(values), codes)
        expected = emulator.to_fp32(codes).astype(np.float64)
        np.testing.assert_array_equal(dlfloat16.round(values), expected)
    just_below_half = 1 + 2.0**-10 - 2.0**-40
    assert dlfloat16.round(just_below_half) == 1
    assert dlfloat16.round(np.float32(just_below_half)) == 1 + 2.0**-9


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_rounded_as_exact_arithmetic_says(x: float) -> None:
    """A Python number has the code of the oracle; saturated it is never NINF."""
    code = oracle.rounded(Fraction(x), np.signbit(x).item())
    assert dlfloat16.encode(x) == code
    is_ninf = code & oracle.NINF == oracle.NINF
    assert dlfloat16.encode(x, saturate=True) == code - is_ninf


def test_narrower_types_are_exact_in_float32() -> None:
    """FP16 and BFLOAT have the emulator's codes, whatever their pattern."""
    halves = ALL.view(np.float16)
    np.testing.assert_array_equal(dlfloat16.encode(halves), emulator.from_fp16(halves))
    brain = ALL.view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(
        dlfloat16.encode(brain), emulator.from_fp32(emulator.widen_bfloat(ALL))
    )
    assert dlfloat16.round(halves).dtype == dlfloat16.round(brain).dtype == np.float32


@given(st.lists(WHOLE, min_size=1))
def test_whole_numbers_are_rounded_once(numbers: list[int]) -> None:
    """INT32 and INT64 values have the emulator's codes."""
    narrow = np.array(numbers, np.int32)
    codes = emulator.from_fp64(narrow.astype(np.float64))
    np.testing.assert_array_equal(dlfloat16.encode(narrow), codes)
    np.testing.assert_array_equal(dlfloat16.encode(narrow.astype(np.int64)), codes)
    np.testing.assert_array_equal(dlfloat16.encode(numbers), codes)


def test_facts_are_those_of_the_codes() -> None:
    """`finfo` has the greatest, least and smallest value, and the distance of 1 to the next."""
    values = dlfloat16.decode(NUMBERS).astype(np.float64)
    finfo = dlfloat16.finfo
    assert (finfo.max, finfo.min) == (values.max(), values.min()) == (8573157376.0, -8573157376.0)
    assert finfo.smallest_normal == values[values > 0].min()
    assert finfo.eps == np.unique(values[values > 1])[0] - 1 == dlfloat16.ulp(1)
    assert (finfo.bits, finfo.nexp + finfo.nmant + 1) == (16, 16)
    assert finfo.bias == (emulator.ONE >> finfo.nmant)


def test_neighbours_are_the_next_codes() -> None:
    """Up and down from every number is the value next to it; NaN is behind the last."""
    line = np.unique(dlfloat16.decode(NUMBERS))
    up, down = dlfloat16.nextafter(line, np.inf), dlfloat16.nextafter(line, -np.inf)
    np.testing.assert_array_equal(up[:-1], line[1:])
    np.testing.assert_array_equal(down[1:], line[:-1])
    assert np.isnan([up[-1], down[0]]).all()
    np.testing.assert_array_equal(dlfloat16.nextafter(line, line), line)


def test_neighbours_of_what_is_rounded() -> None:
    """`nextafter` rounds, broadcasts, keeps the sign of zero, and has no number after NaN."""
    assert dlfloat16.nextafter(1.0003, [2, 0]).tolist() == [1 + 2**-9, 1 - 2**-10]
    assert dlfloat16.nextafter(np.ones((2, 1)), np.zeros(3)).shape == (2, 3)
    assert np.signbit(dlfloat16.nextafter(-dlfloat16.finfo.smallest_normal, 1))
    assert np.signbit(dlfloat16.nextafter(0.0, -0.0))
    assert dlfloat16.nextafter(dlfloat16.finfo.max, 0) == dlfloat16.decode(0x7FFD)
    for x, toward in ((np.nan, 1), (1, np.nan), (np.inf, 0), (9e9, 0)):
        assert np.isnan(dlfloat16.nextafter(x, toward))
    assert dlfloat16.nextafter(np.float32(1), np.float16(2)).dtype == np.float32


def test_the_last_place_is_worth_the_distance_upwards() -> None:
    """`ulp` of a number is the distance from its magnitude to the next, of any sign; else NaN."""
    magnitudes = NUMBERS[NUMBERS < 0x7FFE]
    values = dlfloat16.decode(magnitudes).astype(np.float64)
    upwards = dlfloat16.nextafter(values, np.inf) - values
    np.testing.assert_array_equal(dlfloat16.ulp(values), upwards)
    np.testing.assert_array_equal(dlfloat16.ulp(-values), upwards)
    assert dlfloat16.ulp(dlfloat16.finfo.max) == 2.0**23
    assert np.isnan(dlfloat16.ulp([np.nan, np.inf, 1e10])).all()


@given(st.lists(st.floats(width=32) | st.floats(-1e-9, 1e-9) | st.just(0.0)))
def test_a_histogram_counts_every_value_once(numbers: list[float]) -> None:
    """Counts equal exact arithmetic's; each value is zero, has an exponent, or is out of range."""
    codes = [
        oracle.rounded(Fraction(x), np.signbit(x).item()) & oracle.NINF
        for x in numbers
        if np.isfinite(x)
    ]
    counts = [0] * 64
    for code in codes:
        if code not in (0, oracle.NINF):
            counts[code >> 9] += 1
    drawn = dlfloat16.histogram(np.array(numbers, np.float64))
    assert list(drawn.counts) == counts
    assert drawn.zeros == numbers.count(0.0)
    assert drawn.underflows == codes.count(0) - drawn.zeros
    assert drawn.overflows == codes.count(oracle.NINF)
    assert drawn.not_finite == len(numbers) - len(codes)
    lost = drawn.underflows + drawn.overflows + drawn.not_finite
    assert (drawn.size, drawn.out_of_range) == (len(numbers), lost)
    assert drawn.share_out_of_range == (lost / len(numbers) if numbers else 0)


def test_a_histogram_draws_itself() -> None:
    """A histogram's text has a line for each exponent that occurs, and the values out of range."""
    drawn = str(dlfloat16.histogram([1.0, 1.5, 4.0, 1e10, np.nan, 0.0, 1e-20]))
    assert [" ".join(line.split()) for line in drawn.splitlines()] == [
        f"2^0 2 {'#' * 40}", f"2^2 1 {'#' * 20}", f"zero 1 {'#' * 20}", f"underflow 1 {'#' * 20}",
        f"overflow 1 {'#' * 20}", f"not finite 1 {'#' * 20}",
    ]  # fmt: skip


def test_any_arrangement_of_an_array_has_its_shape() -> None:
    """Transposed, swapped, empty, large and scalar arrays keep their shape and order."""
    whole = np.random.default_rng(1).standard_normal((300, 700)).astype(np.float32)
    expected = emulator.from_fp32(whole)
    np.testing.assert_array_equal(dlfloat16.encode(whole), expected)
    np.testing.assert_array_equal(dlfloat16.encode(whole.T), expected.T)
    np.testing.assert_array_equal(dlfloat16.encode(whole[::3, ::-2]), expected[::3, ::-2])
    np.testing.assert_array_equal(dlfloat16.encode(whole.astype(">f4")), expected)
    np.testing.assert_array_equal(dlfloat16.encode(whole.astype(np.float64).T), expected.T)
    np.testing.assert_array_equal(
        dlfloat16.decode(expected.astype(">u2").T), expected_values(whole.T)
    )
    for shape in ((), (0, 3), (1, 1)):
        empty = np.zeros(shape, np.float32)
        for convert in (dlfloat16.round, dlfloat16.encode, dlfloat16.ulp):
            assert convert(empty).shape == shape
        assert dlfloat16.nextafter(empty, 1).shape == shape


def expected_values(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return values as the emulator rounds them."""
    return emulator.to_fp32(emulator.from_fp32(values))


def test_tensors_of_others_are_arrays() -> None:
    """A tensor with `__array__` or `__dlpack__` alone is converted like the array that it holds."""
    values = np.array([[0.1, -3e9], [np.inf, 1e-12]], np.float32)
    for tensor in (Tensor(values), Shared(values)):
        np.testing.assert_array_equal(dlfloat16.round(tensor), expected_values(values))
        assert dlfloat16.histogram(tensor) == dlfloat16.histogram(values)


def test_codes_of_any_whole_type_are_decoded() -> None:
    """Codes are whole numbers of any type in 0 to 65535; an error names any other value."""
    expected = dlfloat16.decode(ALL)
    for dtype in (np.int32, np.uint32, np.int64, ">u2"):
        np.testing.assert_array_equal(dlfloat16.decode(ALL.astype(dtype)), expected)
    assert dlfloat16.decode([0x3E00, 0xBE00]).tolist() == [1, -1]
    with pytest.raises(ValueError, match="codes: 65536, expected 0 to 65535"):
        dlfloat16.decode([1, 65536])
    with pytest.raises(ValueError, match="codes: -1, expected 0 to 65535"):
        dlfloat16.decode(-1)
    with pytest.raises(TypeError, match="codes: dtype float32, expected uint16"):
        dlfloat16.decode(np.ones(1, np.float32))


@pytest.mark.parametrize(
    ("x", "says"),
    [
        ("text", "x: str, expected an array, a list"),
        (np.array(["text"]), "x: dtype <U4, expected real numbers of at most 64 bits"),
        (np.ones(1, np.complex64), "x: dtype complex64, expected real numbers"),
        ([2**70], "x: dtype object, expected real numbers"),
    ],
)
def test_what_is_no_number_is_refused(x: Any, says: str) -> None:
    """An argument without real numbers is a TypeError that names the parameter and the type."""
    functions: tuple[Any, ...] = (
        dlfloat16.round, dlfloat16.encode, dlfloat16.ulp, dlfloat16.histogram,
    )  # fmt: skip
    for function in functions:
        with pytest.raises(TypeError, match=says):
            function(x)
    with pytest.raises(TypeError, match=says.replace("x:", "toward:", 1)):
        dlfloat16.nextafter(1, x)


def test_a_file_of_an_array(tmp_path: Path) -> None:
    """An .npy file is rounded, encoded and decoded in place, and has a histogram."""
    values = np.random.default_rng(2).standard_normal((70, 1000)).astype(np.float32)
    file = tmp_path / "weights.npy"
    np.save(file, values)
    assert dlfloat16.histogram_file(file) == {"": dlfloat16.histogram(values)}
    dlfloat16.convert_file(file, tmp_path / "rounded")
    np.testing.assert_array_equal(np.load(tmp_path / "rounded"), expected_values(values))
    dlfloat16.convert_file(file, file, dlfloat16.encode)
    np.testing.assert_array_equal(np.load(file), emulator.from_fp32(values))
    dlfloat16.convert_file(str(file), str(file), dlfloat16.decode)
    np.testing.assert_array_equal(np.load(file), expected_values(values))


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_a_file_of_a_scalar_or_of_nothing(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """A file of no dims, or of no elements, is converted and counted like the array."""
    values = np.full(shape, 0.1)
    np.save(tmp_path / "a.npy", values)
    dlfloat16.convert_file(tmp_path / "a.npy", tmp_path / "b.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), dlfloat16.round(values))
    assert dlfloat16.histogram_file(tmp_path / "a.npy") == {"": dlfloat16.histogram(values)}


def test_a_file_of_several_arrays(tmp_path: Path) -> None:
    """An .npz file keeps the names of its arrays, whatever they are."""
    arrays = {"file": np.ones(3, np.float32), "layers/0": np.full((2, 2), 0.1), "": np.zeros(1)}
    source, target = tmp_path / "a.npz", tmp_path / "b.npz"
    with zipfile.ZipFile(source, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.save(member, array)
    dlfloat16.convert_file(source, target)
    with np.load(target) as converted:
        assert {*converted.files} == {*arrays}
        for name, array in arrays.items():
            np.testing.assert_array_equal(converted[name], dlfloat16.round(array))
    histograms = dlfloat16.histogram_file(source)
    assert histograms == {name: dlfloat16.histogram(array) for name, array in arrays.items()}


def test_a_file_that_cannot_be_converted_is_named(tmp_path: Path) -> None:
    """A file of another kind, or with an array of text, is refused by name and left as it was."""
    text = tmp_path / "a.txt"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("a.txt", "text")
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}]), allow_pickle=True)
    for content in (b"text", b"", b"PK\x03\x04", archive.getvalue(), pickled.getvalue()):
        text.write_bytes(content)
        with pytest.raises(ValueError, match=r"source: .*a\.txt, expected an \.npy or \.npz file"):
            dlfloat16.histogram_file(text)
    mixed = tmp_path / "mixed.npz"
    np.savez(mixed, weights=np.ones(2), labels=np.array(["a"]))
    before = mixed.read_bytes()
    with pytest.raises(TypeError, match=r"mixed\.npz, labels: x: dtype <U1, expected real numbers"):
        dlfloat16.convert_file(mixed, mixed)
    with pytest.raises(TypeError, match=r"mixed\.npz, weights: codes: dtype float64"):
        dlfloat16.convert_file(mixed, mixed, dlfloat16.decode)
    assert mixed.read_bytes() == before
    with pytest.raises(FileNotFoundError, match="none"):
        dlfloat16.histogram_file(tmp_path / "none.npy")


def test_it_takes_neither_server_nor_grpc() -> None:
    """The module loads NumPy alone: no gRPC, no protobuf, no emulator."""
    program = (
        "import sys; from nnpa_client import dlfloat16; dlfloat16.round(0.1); "
        "print(sorted({'grpc', 'google.protobuf', 'nnpa_emulator', 'numba'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
