# SPDX-License-Identifier: Apache-2.0
"""Element-wise kernels on sticks: exact arithmetic per cell, regions, padding, NINF."""

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from nnpa_emulator import arith, dlfloat, stick
from nnpa_emulator.kernels import convert, elementwise
from nnpa_emulator.ztensor import DataFormats, DataLayouts, TensorDesc, getsize_ztensor

from tests.emulator.operands import combine as combine_sticks
from tests.oracle import dlfloat as oracle

Codes = npt.NDArray[np.uint16]

EVERY_CODE = np.arange(65536, dtype=np.uint16)
EDGE_CODES = [
    0x0000, 0x0001, 0x0002, 0x01FF, 0x0200, 0x1E00, 0x1F00, 0x1FFF, 0x2000, 0x3C00, 0x3DFF, 0x3E00,
    0x3E01, 0x3FFF, 0x4000, 0x41FF, 0x5DFF, 0x5E00, 0x7C00, 0x7DFF, 0x7E00, 0x7FFD, 0x7FFE, 0x7FFF,
]  # fmt: skip
OPERATIONS = {
    "+": elementwise.ADD,
    "-": elementwise.SUB,
    "*": elementwise.MUL,
    "/": elementwise.DIV,
}
REGIONS = [
    (1, 1, 1, 1), (1, 1, 32, 64), (2, 3, 64, 128), (1, 2, 31, 64), (2, 3, 33, 63), (2, 2, 3, 65),
    (1, 3, 5, 3), (2, 1, 65, 129),
]  # fmt: skip


def combine(operation: int, a: Codes, b: Codes) -> Codes:
    """Run a kernel over two lines of codes; any length, padded to whole pages."""
    desc = TensorDesc(DataLayouts.ZDNN_NHWC, 0, 0, 1, 1, -(-a.size // 64), 64)
    buffers = [np.zeros(getsize_ztensor(desc), np.uint8) for _ in range(3)]
    for codes, buffer in zip((a, b), buffers, strict=False):
        buffer.view(np.uint16)[: codes.size] = codes
    combine_sticks(operation, buffers[0], buffers[1], buffers[2], desc)
    return buffers[2].view(np.uint16)[: a.size]


@pytest.mark.parametrize("sign", OPERATIONS)
def test_arithmetic_at_the_edges(sign: str) -> None:
    """Every pair of boundary codes of both signs gives the exact result, rounded once."""
    codes = EDGE_CODES + [code | 0x8000 for code in EDGE_CODES]
    pairs = list(product(codes, codes))
    a, b = np.array(pairs, np.uint16).T.copy()
    got = combine(OPERATIONS[sign], a, b)
    want = [oracle.combined(sign, *pair) for pair in pairs]
    assert got.tolist() == want


@pytest.mark.parametrize("sign", OPERATIONS)
def test_arithmetic_at_random(sign: str) -> None:
    """Random codes of any exponent, and of near ones, give the exact result, rounded once."""
    random = np.random.default_rng(ord(sign))
    a = random.integers(0, 65536, 6000, np.uint16)
    near = (a & 0x7FFF) + random.integers(-9000, 9000, 6000)
    b = np.where(np.arange(6000) % 2, np.clip(near, 0, 0x7FFF), random.integers(0, 65536, 6000))
    b = (b | random.integers(0, 2, 6000) << 15).astype(np.uint16)
    got = combine(OPERATIONS[sign], a, b).tolist()
    want = [oracle.combined(sign, x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert got == want


@pytest.mark.parametrize("exponents", range(-24, 25, 3))
def test_sums_of_all_fractions(exponents: int) -> None:
    """FP32 sums and differences round as exact integers do, at every distance of exponents."""
    random = np.random.default_rng(exponents + 100)
    base = 0x3E00 if exponents < 0 else 0x4E00
    a = (base + random.integers(0, 512, 20000)).astype(np.uint16)
    b = (base + exponents * 512 + random.integers(0, 512, 20000)).astype(np.uint16)
    x, y = dlfloat.to_fp32(a).astype(np.float64), dlfloat.to_fp32(b).astype(np.float64)
    assert np.array_equal(combine(elementwise.ADD, a, b), dlfloat.from_fp64(x + y))
    assert np.array_equal(combine(elementwise.SUB, a, b), dlfloat.from_fp64(x - y))


@pytest.mark.parametrize("name", ["min", "max"])
def test_selection(name: str) -> None:
    """Min and max select exactly, -0 is less than +0, a NINF operand gives 7FFF."""
    codes = EDGE_CODES + [code | 0x8000 for code in EDGE_CODES]
    pairs = list(product(codes, codes))
    a, b = np.array(pairs, np.uint16).T.copy()
    operation = elementwise.MIN if name == "min" else elementwise.MAX
    got = combine(operation, a, b).tolist()
    assert got == [oracle.selected(name, *pair) for pair in pairs]


def test_quotients_of_all_fractions() -> None:
    """All 512 x 512 quotients of fractions round as integer division says."""
    a = np.repeat(0x3E00 + np.arange(512), 512).astype(np.uint16)
    b = np.tile(0x3E00 + np.arange(512), 512).astype(np.uint16)
    over, under = 512 + (a.astype(np.int64) & 511), 512 + (b.astype(np.int64) & 511)
    low = over < under
    significand = (2 * (over * 512 << low) + under) // (2 * under)
    want = 0x3E00 - 512 * low + significand - 512
    assert np.array_equal(combine(elementwise.DIV, a, b), want)


@pytest.mark.parametrize("dims", REGIONS)
@pytest.mark.parametrize("kernel", [False, True], ids=["feature", "kernel"])
def test_binary_covers_the_region(dims: tuple[int, int, int, int], kernel: bool) -> None:
    """Every real cell is computed; padding of the inputs is not read, of the output is zero."""
    desc = _descriptor(dims, kernel)
    random = np.random.default_rng(9)
    values = random.uniform(1, 2, (2, *dims)).astype(np.float32)
    a, b = (_filled(desc, dlfloat.from_fp32(value)) for value in values)
    out = np.full(getsize_ztensor(desc), 0xFF, np.uint8)
    assert not combine_sticks(elementwise.ADD, a, b, out, desc)
    exact = [dlfloat.to_fp32(dlfloat.from_fp32(value)) for value in values]
    assert np.array_equal(stick.read_cells(out, desc), dlfloat.from_fp32(exact[0] + exact[1]))
    assert np.count_nonzero(out.view(np.uint16)) == np.prod(dims)


@pytest.mark.parametrize("dims", REGIONS)
@pytest.mark.parametrize("kernel", [False, True], ids=["feature", "kernel"])
def test_lookup_covers_the_region(dims: tuple[int, int, int, int], kernel: bool) -> None:
    """Every real cell goes through the table; padding is not looked up and becomes zero."""
    desc = _descriptor(dims, kernel)
    codes = np.random.default_rng(8).integers(0x100, 0x7FFF, dims, np.uint16)
    table = EVERY_CODE[::-1].copy()
    table[0x7FFF] = 0x7FFF
    out = np.full(getsize_ztensor(desc), 0xFF, np.uint8)
    assert not arith.lookup(table, _filled(desc, codes), out, desc)
    assert np.array_equal(stick.read_cells(out, desc), table[codes])
    assert np.count_nonzero(out.view(np.uint16)) == np.prod(dims)


@pytest.mark.parametrize("dims", REGIONS)
def test_one_ninf_is_told(dims: tuple[int, int, int, int]) -> None:
    """A single NINF, as the last real element of an operand, is told and stored as 7FFF."""
    desc = _descriptor(dims, kernel=False)
    units = np.full(dims, 0x3E00, np.uint16)
    odd = units.copy()
    odd[-1, -1, -1, -1] = 0xFFFF
    a, b = _filled(desc, units), _filled(desc, odd)
    out = np.zeros_like(a)
    for operation in range(6):
        assert combine_sticks(operation, a, b, out, desc)
        assert stick.read_cells(out, desc)[-1, -1, -1, -1] == 0x7FFF
        assert not combine_sticks(operation, a, a, out, desc)
    assert arith.lookup(EVERY_CODE, b, out, desc)
    assert not arith.lookup(EVERY_CODE, a, out, desc)


@pytest.mark.parametrize("dims", REGIONS)
def test_the_output_may_be_an_operand(dims: tuple[int, int, int, int]) -> None:
    """A result written over its own operand is the same as one written elsewhere."""
    desc = _descriptor(dims, kernel=False)
    codes = np.random.default_rng(6).integers(0, 0x6000, dims, np.uint16)
    a = _filled(desc, codes)
    out = np.zeros_like(a)
    combine_sticks(elementwise.MUL, a, a, out, desc)
    combine_sticks(elementwise.MUL, a, a, a, desc)
    assert np.array_equal(a, out)


def test_scalar_kernels_know_every_code() -> None:
    """Inside kernels every code decodes as numpy says and, as a result, encodes back."""
    bits = np.empty(65536, np.uint32)
    convert.decode_run(EVERY_CODE, np.uintp(0), bits, np.uintp(0), np.uintp(65536))
    assert np.array_equal(bits, dlfloat.to_fp32(EVERY_CODE).view(np.uint32))
    want = np.where(EVERY_CODE == 0xFFFF, 0x7FFF, EVERY_CODE)
    back = [int(convert.encode_result(value)) for value in bits.view(np.float32)]
    assert back == want.tolist()


def test_fp64_kernel_agrees_with_numpy() -> None:
    """The float64 kernel rounds as the numpy form does, with NaN as 7FFF."""
    random = np.random.default_rng(5)
    values = random.standard_normal(50000) * np.exp2(random.uniform(-40, 40, 50000))
    values[:3] = np.nan, -np.inf, np.inf
    codes = np.empty(values.size, np.uint16)
    assert convert.encode_fp64(values.view(np.uint64), codes) == 0x7FFF
    assert codes[:3].tolist() == [0x7FFF, 0xFFFF, 0x7FFF]
    assert np.array_equal(codes[3:], dlfloat.from_fp64(values[3:]))


def _descriptor(dims: tuple[int, int, int, int], kernel: bool) -> TensorDesc:
    """Describe a DLFLOAT16 tensor in feature or kernel format."""
    if kernel:
        return TensorDesc(DataLayouts.ZDNN_HWCK, DataFormats.ZDNN_FORMAT_4DKERNEL, 0, *dims)
    return TensorDesc(DataLayouts.ZDNN_NHWC, DataFormats.ZDNN_FORMAT_4DFEATURE, 0, *dims)


def _filled(desc: TensorDesc, codes: Codes) -> npt.NDArray[np.uint8]:
    """Return sticks that hold the codes, with NINF in all padding."""
    buffer = np.zeros(getsize_ztensor(desc), np.uint8)
    stick.write_cells(codes, desc, buffer)
    buffer.view(np.uint16)[stick.padding(desc)] = 0x7FFF
    return buffer
