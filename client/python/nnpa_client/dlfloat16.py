# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: A001 - names of NumPy's functions
"""DLFLOAT16 by itself: rounding, codes, neighbours, and how a tensor fits. It needs no server.

A code has a sign, 6 bits of exponent (bias 31) and 9 of fraction; the leading one is implied.
Magnitude 0x0000 is zero, 0x7FFF is NINF, the only value that is no number; there are no subnormals
and no infinities. Values round once, to nearest, ties away from zero; a value beyond the greatest
becomes NINF, a value that is too small becomes zero. In NumPy's arrays NINF is NaN.

An argument `x` is an array, a tensor of torch, another object with `__array__` or `__dlpack__`, a
number or a list, with real elements of at most 64 bits; the result has its shape. Results are
exact: float64 for float64 and for whole numbers of 32 and 64 bits, float32 for all other types.

Source: "DLFloat: A 16-b Floating Point Format Designed for Deep Learning Training and Inference",
ARITH 2019; zDNN API Reference 1.2.0, "Data Type Conversion".
"""

import os
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from nnpa_client._values.arrays import ArrayLike, as_array
from nnpa_client._values.ulp import NINF, codes_of, values_of

__all__ = [
    "Finfo",
    "Histogram",
    "convert_file",
    "decode",
    "encode",
    "finfo",
    "histogram",
    "histogram_file",
    "nextafter",
    "round",
    "ulp",
]

Array: TypeAlias = npt.NDArray[Any]
Codes: TypeAlias = npt.NDArray[np.uint16]
Values: TypeAlias = "ArrayLike | float"
Singles: TypeAlias = npt.NDArray[np.float32]
FilePath: TypeAlias = "str | os.PathLike[str]"
Converted = TypeVar("Converted")

_SIGN = 0x8000
_FRACTION_BITS = 9
_EXPONENTS = range(-31, 33)
_BLOCK = 1 << 16  # elements that are converted at a time, so that steps meet in the cache
_HALF_PLACE = 13  # of FP32's fraction, the bit worth half a unit in a code's last place


@dataclass(frozen=True, slots=True)
class Finfo:
    """Facts about DLFLOAT16, under the names of `numpy.finfo`."""

    bits: int = 16
    nexp: int = 6
    nmant: int = _FRACTION_BITS
    bias: int = 31
    eps: float = float.fromhex("0x1p-9")
    """The difference between 1 and the next greater value."""
    max: float = float.fromhex("0x1.ffp+32")
    """The greatest value, 8573157376 (zDNN API Reference 1.2.0, zdnn_get_max_limit)."""
    min: float = float.fromhex("-0x1.ffp+32")
    smallest_normal: float = float.fromhex("0x1.008p-31")
    """The least value above zero: 2^-31 itself would have the code of zero."""
    dtype: type[np.float32] = np.float32
    """The type that represents all values exactly; NumPy has none of its own for them."""


finfo = Finfo()
"""The facts about DLFLOAT16."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """The exponents of a tensor's values in DLFLOAT16, and how many values it cannot represent.

    `counts[i]` counts values with a rounded magnitude from 2**(i - 31) on, below 2**(i - 30).
    `zeros` are zero, `underflows` become zero, `overflows` are finite and become NINF, and
    `not_finite` are NaN or infinite. `str()` draws it.
    """

    counts: tuple[int, ...]
    zeros: int
    underflows: int
    overflows: int
    not_finite: int

    @property
    def size(self) -> int:
        """The number of values of the tensor."""
        return sum(self.counts) + self.zeros + self.out_of_range

    @property
    def out_of_range(self) -> int:
        """The number of values that underflow, overflow or are not finite."""
        return self.underflows + self.overflows + self.not_finite

    @property
    def share_out_of_range(self) -> float:
        """The share of values out of range, 0 to 1; 0 for an empty tensor."""
        return self.out_of_range / self.size if self.size else 0.0

    def __str__(self) -> str:
        powers = zip(_EXPONENTS, self.counts, strict=True)
        rows = [(f"2^{exponent}", count) for exponent, count in powers if count]
        rows += [("zero", self.zeros), ("underflow", self.underflows)]
        rows += [("overflow", self.overflows), ("not finite", self.not_finite)]
        most, width = max(count for _, count in rows), len(str(self.size))
        lines = [f"{name:>10} {n:>{width}} {'#' * -(-40 * n // max(most, 1))}" for name, n in rows]
        return "\n".join(line.rstrip() for line in lines)


def round(x: Values, *, saturate: bool = False) -> Array:
    """Return the nearest values of DLFLOAT16, ties away from zero; NaN where it has none.

    `saturate` clamps finite values to `finfo.min` and `finfo.max`, as
    zdnn_transform_ztensor_with_saturation does.
    """
    values, shape = _floats(x, "x")
    if values.dtype == np.float32:
        table = _round_table(saturate)
        return _looked_up(table, values.view(np.uint32), _HALF_PLACE).reshape(shape)
    return decode(encode(values, saturate=saturate)).astype(values.dtype).reshape(shape)


def encode(x: Values, *, saturate: bool = False) -> Codes:
    """Return the codes of the nearest values, uint16; NINF keeps the value's sign."""
    values, shape = _floats(x, "x")
    if values.dtype == np.float32:
        table = _code_table(saturate)
        return _looked_up(table, values.view(np.uint32), _HALF_PLACE).reshape(shape)
    codes = np.empty(values.size, np.uint16)
    for block in _blocks(values.size):
        codes[block] = _rounded(values[block], saturate)
    return codes.reshape(shape)


def decode(codes: Values) -> Singles:
    """Return the values of codes, float32, exactly; NINF of either sign is NaN.

    `codes` are whole numbers from 0 to 65535, of any type.
    """
    array = _array(codes, "codes")
    if array.dtype.kind not in "iu":
        raise TypeError(f"codes: dtype {array.dtype}, expected uint16 or other whole numbers")
    if array.dtype.itemsize != 2 or array.dtype.kind != "u":
        outside = array[(array < 0) | (array > 0xFFFF)]
        if outside.size:
            raise ValueError(f"codes: {outside[0]}, expected 0 to 65535")
    flat = np.ascontiguousarray(array, np.uint16).reshape(-1)
    return _looked_up(_value_table(), flat, 0).reshape(array.shape)


def nextafter(x: Values, toward: Values) -> Array:
    """Return the values of DLFLOAT16 that follow `x` in the direction of `toward`.

    Both are rounded first and broadcast as in NumPy. NaN follows `finfo.max`, and itself.
    Infinities in `toward` are directions.
    """
    (values, shape), (goals, goal_shape) = _floats(x, "x"), _floats(toward, "toward")
    here, goal = np.broadcast_arrays(
        _places(values).reshape(shape), _places(goals).reshape(goal_shape)
    )
    step = np.sign(goal - here)
    moved = here + step
    is_negative = (moved < 0) | ((moved == 0) & (here < 0))
    codes = np.abs(moved) | np.where(is_negative, _SIGN, 0)
    codes = np.where(step == 0, encode(goals).reshape(goal_shape), codes)
    is_number = (np.abs(here) != NINF) & ~np.isnan(goals).reshape(goal_shape)
    return decode(np.where(is_number, codes, NINF)).astype(np.result_type(values, goals))


def ulp(x: Values) -> Array:
    """Return the unit in the last place of `x`, rounded first: the distance to the next magnitude.

    As in `math.ulp`, the sign does not matter, and the result for zero is the least value above
    zero. The result for NaN and infinities is NaN.
    """
    values, shape = _floats(x, "x")
    return _looked_up(_ulp_table(), encode(values), 0).astype(values.dtype).reshape(shape)


def histogram(x: Values) -> Histogram:
    """Count a tensor's values by exponent, and the values out of DLFLOAT16's range."""
    values, _shape = _floats(x, "x")
    counts = np.zeros(len(_EXPONENTS), np.int64)
    zeros = zero_codes = ninfs = not_finite = 0
    for block in _blocks(values.size):
        magnitudes = encode(values[block]) & np.uint16(NINF)
        counts += np.bincount(magnitudes >> _FRACTION_BITS, minlength=counts.size)
        zeros += int(np.count_nonzero(values[block] == 0))
        zero_codes += int(np.count_nonzero(magnitudes == 0))
        ninfs += int(np.count_nonzero(magnitudes == NINF))
        not_finite += int(np.count_nonzero(~np.isfinite(values[block])))
    counts[0] -= zero_codes
    counts[-1] -= ninfs
    whole = tuple(int(count) for count in counts)
    return Histogram(whole, zeros, zero_codes - zeros, ninfs - not_finite, not_finite)


def histogram_file(source: FilePath) -> dict[str, Histogram]:
    """Return the histograms of a file's arrays by name; the name of an .npy file's array is ""."""
    return {name: _named(source, name, histogram, array) for name, array in _arrays_of(source)}


def convert_file(
    source: FilePath, target: FilePath, convert: Callable[[Array], Array] = round
) -> None:
    """Write a file's arrays, converted by `round`, `encode` or `decode`, to a file of that kind.

    `source` is an .npy or .npz file without Python objects. `target` is written when all arrays
    are converted, and may be `source`.
    """
    is_archive = zipfile.is_zipfile(source)
    arrays = {name: _named(source, name, convert, array) for name, array in _arrays_of(source)}
    with Path(target).open("wb") as file:
        if not is_archive:
            np.save(file, arrays[""], allow_pickle=False)
            return
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.save(member, array, allow_pickle=False)


def _arrays_of(source: FilePath) -> Iterator[tuple[str, Array]]:
    """Yield names and arrays of a file; the array of an .npy file is "" and is mapped."""
    try:
        if not zipfile.is_zipfile(source):
            yield "", np.lib.format.open_memmap(source, mode="r")
            return
        with zipfile.ZipFile(source) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    yield member.removesuffix(".npy"), np.load(file, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        expected = "an .npy or .npz file without Python objects"
        raise ValueError(f"source: {os.fspath(source)}, expected {expected}") from error


def _named(
    source: FilePath, name: str, function: Callable[[Array], Converted], array: Array
) -> Converted:
    """Call a function on an array of a file; an error names the file and the array."""
    try:
        return function(array)
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{os.fspath(source)}{f', {name}' if name else ''}: {error}") from error


def _array(x: Values, name: str) -> Array:
    """Return values as an array; numbers are float64 or whole, as NumPy has them."""
    return np.asarray(x) if isinstance(x, list | tuple | float | int) else as_array(x, name)


def _floats(x: Values, name: str) -> tuple[Array, tuple[int, ...]]:
    """Return values as float32 or float64 that holds them exactly, in one row, and their shape."""
    array = _array(x, name)
    for dtype in (np.float32, np.float64):
        if np.can_cast(array.dtype, dtype):
            with np.errstate(invalid="ignore"):  # of NaN that signal
                return np.ascontiguousarray(array, dtype).reshape(-1), array.shape
    raise TypeError(f"{name}: dtype {array.dtype}, expected real numbers of at most 64 bits")


def _blocks(size: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, size, _BLOCK))


def _looked_up(table: Array, words: Array, shift: int) -> Array:
    """Return the entries of a table at words shifted to the right."""
    entries = np.empty(words.size, table.dtype)
    places = np.empty(min(_BLOCK, words.size), np.intp)
    for block in _blocks(words.size):
        index = places[: words[block].size]
        np.right_shift(words[block], shift, out=index)
        np.take(table, index, out=entries[block], mode="clip")
    return entries


def _rounded(values: npt.NDArray[np.float64], saturate: bool) -> Codes:
    codes = codes_of(values)
    if saturate:
        codes -= (codes & NINF == NINF) & np.isfinite(values)
    return codes.astype(np.uint16)


def _places(values: Array) -> npt.NDArray[np.int32]:
    """Return places on the line of codes, with NINF behind the greatest value on either side."""
    codes = encode(values).astype(np.int32)
    magnitude = codes & NINF
    return np.where(codes & _SIGN, -magnitude, magnitude)


@cache
def _code_table(saturate: bool) -> Codes:
    """Return codes by the upper 19 bits of FP32: with ties away, no lower bit decides."""
    words = np.arange(1 << (32 - _HALF_PLACE), dtype=np.uint32) << np.uint32(_HALF_PLACE)
    with np.errstate(invalid="ignore"):
        return _rounded(words.view(np.float32).astype(np.float64), saturate)


@cache
def _value_table() -> Singles:
    """Return values by code."""
    return values_of(np.arange(1 << 16)).astype(np.float32)


@cache
def _round_table(saturate: bool) -> Singles:
    """Return rounded values by the upper 19 bits of FP32."""
    return _value_table()[_code_table(saturate)]


@cache
def _ulp_table() -> Singles:
    """Return the worth of the last place by code."""
    magnitude = np.arange(1 << 16) & NINF
    places = (magnitude >> _FRACTION_BITS) - float(finfo.bias + _FRACTION_BITS)
    worth: npt.NDArray[np.float64] = np.exp2(places)
    worth[magnitude == 0] = finfo.smallest_normal
    worth[magnitude == NINF] = np.nan
    return worth.astype(np.float32)
