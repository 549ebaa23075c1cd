# SPDX-License-Identifier: Apache-2.0
"""Kernels against the references that define them."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from llvmlite.binding import get_host_cpu_features
from nnpa_emulator.kernels import convert, elementwise, jit, recurrent, tables
from nnpa_emulator.reference import elementwise as reference
from nnpa_emulator.reference import recurrent as reference_recurrent
from nnpa_emulator.stick import geometry
from nnpa_emulator.ztensor import (
    DataFormats,
    DataLayouts,
    DataTypes,
    TensorDesc,
    getsize_ztensor,
)

from tests import vector_runner
from tests.emulator.kernel_cases import CASES
from tests.emulator.target import emulator
from tests.vector_runner import VECTORS

Dims = tuple[int, int, int, int]
Codes = npt.NDArray[np.uint16]
EVERY_CODE = np.arange(65536, dtype=np.uint16)
EDGE_MAGNITUDES = [
    0x0000, 0x0001, 0x0002, 0x01FF, 0x0200, 0x1E00, 0x1FFF, 0x2000, 0x3DFF, 0x3E00, 0x3E01, 0x3FFF,
    0x4000, 0x5DFF, 0x5E00, 0x7DFF, 0x7E00, 0x7FFD, 0x7FFE, 0x7FFF,
]  # fmt: skip
EDGE_CODES = np.array([*EDGE_MAGNITUDES, *(array | 0x8000 for array in EDGE_MAGNITUDES)], np.uint16)
LOW_HALVES = [0, 1, 0x1FFF, 0x2000, 0x2001, 0x3FFF, 0x5FFF, 0x6000, 0x7FFF, 0x8000, 0xDFFF, 0xE000,
              0xE001, 0xFFFF]  # fmt: skip
SHAPES: list[Dims] = [
    *((1, 1, rows, columns) for rows, columns in product((1, 31, 32, 33), (1, 16, 17, 63, 64, 65))),
    *((2, 3, rows, columns) for rows, columns in product((1, 33, 64), (3, 65, 128, 129))),
]
SLOW = {"recurrent_layers.run_layer"}
"""Kernels that take five seconds to compile; vectors check their references, too."""


def forms(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return a kernel's reference and the kernel, by module and name."""
    assert jit.load()
    entry = jit.KERNELS[name]
    assert entry.reference is not None
    return entry.reference, entry.compiled()


def same(name: str, *arguments: Any, written: tuple[int, ...] = ()) -> list[Any]:
    """Call both forms: results are equal, and so are the arguments that they write.

    Returns the written arguments.
    """
    results, copies = [], []
    for form in forms(name):
        call_arguments = [*arguments]
        for position in written:
            call_arguments[position] = call_arguments[position].copy()
        results.append(form(*call_arguments))
        copies.append([call_arguments[position] for position in written])
    assert results[0] == results[1] or (results[0] != results[0] and results[1] != results[1])
    for mine, compiled in zip(*copies, strict=True):
        assert np.array_equal(mine, compiled, equal_nan=mine.dtype.kind == "f")
    return copies[0]


def laid_out(dims: Dims, kernel: bool = False) -> tuple[Dims, tuple[int, int, int], Codes]:
    """Return dims, page strides and a used buffer of a tensor, in feature or kernel format."""
    layout = DataLayouts.ZDNN_HWCK if kernel else DataLayouts.ZDNN_NHWC
    fmt = DataFormats.ZDNN_FORMAT_4DKERNEL if kernel else DataFormats.ZDNN_FORMAT_4DFEATURE
    desc = TensorDesc(layout, fmt, DataTypes.ZDNN_DLFLOAT16, *dims)
    buffer = np.random.default_rng(3).integers(0, 65536, getsize_ztensor(desc) // 2, np.uint16)
    return dims, geometry(desc).pages, buffer


def line_of(dims: Dims) -> npt.NDArray[np.uint32]:
    """Return random FP32 bits for a tensor, among them every kind of special value."""
    bits = np.random.default_rng(dims).integers(0, 1 << 32, int(np.prod(dims)), np.uint32)
    special = np.array([0, 0x80000000, 0x7F800000, 0xFFC00000, 0x4FFFA000, 0x2FFFDFFF], np.uint32)
    count = min(bits.size, special.size)
    bits[:count] = special[:count]
    return np.random.default_rng(1).permutation(bits)


def test_every_kernel_has_cases() -> None:
    """The kernels that have a reference are those that have cases, and share its arguments."""
    assert jit.KERNELS.keys() == CASES.keys()
    for name in CASES:
        reference, compiled = forms(name)
        arguments = inspect.signature(getattr(compiled, "py_func", compiled)).parameters
        assert list(inspect.signature(reference).parameters) == list(arguments)


@pytest.mark.parametrize("seeds", [10, pytest.param(60, marks=pytest.mark.heavy)])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.heavy) if name in SLOW else name for name in CASES],
)
def test_kernels_equal_their_references(name: str, seeds: int) -> None:
    """Every kernel returns and writes the same bits as the reference that defines it."""
    for seed in range(seeds):
        arguments, written = CASES[name](np.random.default_rng((seed, *name.encode())))
        same(name, *arguments, written=written)


def test_a_correlation_of_zeros_has_magnitude_0() -> None:
    """The largest magnitude of sums that are all zero is 0 in both forms."""
    arguments, _ = CASES["convolution.correlate"](np.random.default_rng(1))
    line, dense, bias, *others = arguments
    limits = np.float32(-np.inf), np.float32(np.inf)
    zeros = np.zeros_like(line), np.zeros_like(dense), np.zeros_like(bias), *others[:-1], limits
    for correlate in forms("convolution.correlate"):
        assert correlate(*zeros) == 0


@pytest.mark.parametrize("operation", range(6))
def test_arithmetic_of_every_code(operation: int) -> None:
    """Every code with every boundary code, on either side, has the same result in both forms."""
    for second in EDGE_CODES:
        region = (1, 1, 1, 1024, 64)
        edges = np.full(65536, second, np.uint16)
        for a, b in ((EVERY_CODE, edges), (edges, EVERY_CODE)):
            same(
                "elementwise.binary",
                operation,
                a,
                b,
                np.zeros(65536, np.uint16),
                region,
                False,
                written=(3,),
            )


@pytest.mark.parametrize("operation", range(6))
def test_arithmetic_at_random(operation: int) -> None:
    """A million pairs of random codes have the same results in both forms."""
    a, b = np.random.default_rng(operation).integers(0, 65536, (2, 1 << 20), np.uint16)
    out = np.zeros(1 << 20, np.uint16)
    same("elementwise.binary", operation, a, b, out, (1, 1, 1, 1 << 14, 64), False, written=(3,))


@pytest.mark.heavy
@pytest.mark.parametrize("features", ["+sse2", "+avx2,+fma"])
def test_arithmetic_for_lesser_processors(features: str, tmp_path: Path) -> None:
    """Kernels compiled for processors with fewer features than this one have the same results."""
    if not all(get_host_cpu_features().get(name[1:]) for name in features.split(",")):
        pytest.skip(f"no {features} here")
    processor = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": features}
    law = f"{__file__}::{test_arithmetic_of_every_code.__name__}"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", law],
        env={**os.environ, **processor, "NUMBA_CACHE_DIR": str(tmp_path)}, check=False,
        capture_output=True, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("kernel", [False, True], ids=["feature", "kernel"])
def test_regions(dims: Dims, kernel: bool) -> None:
    """Padding that holds anything is not read, and written as zero, by both forms."""
    d4, d3, d2, d1 = dims
    columns = -(-d1 // 64)
    region = (d4 * d3 * columns, d4 * d3 if kernel else d3, columns, d2, d1 - 64 * (columns - 1))
    a = laid_out(dims, kernel)[2]
    b, table = a[::-1].copy(), np.random.default_rng(2).permutation(EVERY_CODE)
    for operation in range(6):
        for fresh in (False, True):
            same("elementwise.binary", operation, a, b, b, region, fresh, written=(3,))
    same("elementwise.lookup", table, a, b, region, written=(2,))
    cell, quiet = np.zeros_like(a), np.where(EVERY_CODE == 0x7FFF, 0x7FFF, 0).astype(np.uint16)
    same("elementwise.lookup", quiet, cell, b, region, written=(2,))


def test_the_output_may_be_an_operand() -> None:
    """A reference's result over its own operands is the same as one written elsewhere."""
    a, region = laid_out((1, 2, 33, 65))[2], (4, 2, 2, 33, 1)
    (out,) = same(
        "elementwise.binary", elementwise.MUL, a, a, a.copy(), region, False, written=(3,)
    )
    reference.binary(elementwise.MUL, a, a, a, region, False)
    assert np.array_equal(a, out)


@pytest.mark.parametrize("limit", [convert.LINE_HIGH32, convert.MAX32], ids=["plain", "saturated"])
@pytest.mark.parametrize("low", LOW_HALVES)
def test_every_high_half_of_fp32(limit: np.uint32, low: int) -> None:
    """All 65 536 high halves with a boundary low half become the same codes in both forms."""
    words = EVERY_CODE.astype(np.uint32) << np.uint32(16) | np.uint32(low)
    dims, pages, buffer = laid_out((1, 1, 1024, 64))
    same("sticks.stickify_fp32", words, buffer, dims, pages, limit, False, written=(1,))


def test_every_code_to_fp32() -> None:
    """All codes become the same FP32 bits in both forms."""
    dims, pages, _ = laid_out((1, 1, 1024, 64))
    words = np.zeros(65536, np.uint32)
    same("sticks.unstickify_fp32", EVERY_CODE, words, dims, pages, written=(1,))


@pytest.mark.parametrize("kind", [DataTypes.FP16, DataTypes.BFLOAT], ids=["fp16", "bfloat"])
def test_every_16_bit_value(kind: int) -> None:
    """All values of FP16 and BFLOAT become the same codes, and all codes the same values."""
    dims, pages, buffer = laid_out((1, 1, 1024, 64))
    for saturate in (False, True):
        table = tables.from_bits(kind, saturate)
        same("sticks.stickify_table", EVERY_CODE, table, buffer, dims, pages, False, written=(2,))
        for bits in range(0, 65536, 4099):
            arguments = (
                np.full(64, bits, np.uint16),
                table,
                buffer[:2048],
                (1, 1, 1, 64),
                pages,
                True,
            )
            same("sticks.stickify_table", *arguments, written=(2,))
    same(
        "sticks.unstickify_table",
        EVERY_CODE,
        tables.to_bits(kind),
        buffer,
        dims,
        pages,
        written=(2,),
    )


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("kernel", [False, True], ids=["feature", "kernel"])
def test_kernels_fill_and_read_sticks_as_references_do(dims: Dims, kernel: bool) -> None:
    """Sticks of every shape are filled, padded or left alone, and read, alike by both forms."""
    words, layout = line_of(dims), laid_out(dims, kernel)
    halves, table = words.astype(np.uint16), tables.from_bits(DataTypes.FP16, False)
    _, pages, buffer = layout
    for fresh in (False, True):
        for limit in (convert.LINE_HIGH32, convert.MAX32):
            for name in ("sticks.stickify_fp32", "planar.stickify_nchw"):
                same(name, words, buffer, dims, pages, limit, fresh, written=(1,))
        same("sticks.stickify_table", halves, table, buffer, dims, pages, fresh, written=(2,))
    for name in ("sticks.unstickify_fp32", "planar.unstickify_nchw"):
        same(name, buffer, words, dims, pages, written=(1,))
    same("sticks.unstickify_table", buffer, tables.to_bits(0), halves, dims, pages, written=(2,))


@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("fmt", [1, 2], ids=["feature", "kernel"])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_kernels_copy_cells_as_references_do(dims: Dims, fmt: int, width: int) -> None:
    """Cells of one, two and four bytes are copied alike by both forms."""
    types = {1: DataTypes.ZDNN_BINARY_INT8, 2: DataTypes.ZDNN_DLFLOAT16,
             4: DataTypes.ZDNN_BINARY_INT32}  # fmt: skip
    layout = DataLayouts.ZDNN_NHWC if fmt == 1 else DataLayouts.ZDNN_HWCK
    kind = DataFormats.ZDNN_FORMAT_4DFEATURE if fmt == 1 else DataFormats.ZDNN_FORMAT_4DKERNEL
    desc = TensorDesc(layout, kind, types[width], *dims)
    random, dtype = np.random.default_rng(4), np.dtype(f"u{width}")
    buffer = random.integers(0, 255, getsize_ztensor(desc), np.uint8).view(dtype)
    line = random.integers(0, 255, int(np.prod(dims)) * width, np.uint8).view(dtype)
    pages = geometry(desc).pages
    for fresh in (False, True):
        same("sticks.stickify_copy", line, buffer, dims, pages, fresh, written=(1,))
    same("sticks.unstickify_copy", buffer, line, dims, pages, written=(1,))


@pytest.mark.parametrize("dims", SHAPES)
def test_kernels_scan_codes_as_references_do(dims: Dims) -> None:
    """The range of codes, and the places of large ones, are found alike by both forms."""
    d4, d3, d2, d1 = dims
    _, pages, buffer = laid_out(dims)
    strides = (*(4096 * item for item in pages), 128, 2)
    for sign in (0, 0x8000):
        codes = buffer & 0x7FFF | sign
        shape = d4, -(-d1 // 64), d3, d2, 64
        cells = np.lib.stride_tricks.as_strided(codes, shape, strides)
        same("scan.code_range", cells, d1)
        for least in (0x7FFF, 0x7F00, 0x4000, 0):
            same("scan.find_codes", cells, d1, least, np.zeros((8, 4), np.int64), written=(3,))


@pytest.mark.heavy
@pytest.mark.parametrize("function", sorted(file.stem for file in VECTORS.glob("*.jsonl")))
def test_vectors_by_references(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every vector keeps its bits where references stand for all kernels."""
    for name, entry in jit.KERNELS.items():
        module, _, attribute = name.partition(".")
        monkeypatch.setattr(f"nnpa_emulator.kernels.{module}.{attribute}", entry.reference)
    for vector in vector_runner.read(VECTORS / f"{function}.jsonl"):
        vector_runner.run(vector, emulator)


@pytest.mark.parametrize("gru_step", [reference_recurrent.gru_step, recurrent.gru_step])
def test_a_gate_that_is_nearly_one_has_a_complement(gru_step: Callable[..., np.uint16]) -> None:
    """(1 - Z) * n + Z * h, Z = sigmoid(60), n < 0, h = 0, is below 0 and rounds to -0.

    1 - Z is 8.8e-27, which a difference of float64 values would lose.
    """
    fused, added, h = np.zeros(192, np.float32), np.zeros(192, np.float32), np.zeros(1, np.float32)
    fused[[0, 128]] = 60, -3
    cells = np.zeros(64, np.uint16)
    assert gru_step(fused, added, h, (1, 1, 64, 64), cells, (0, 64)) == 0
    assert cells[0] == 0x8000
    assert np.signbit(h[0])
