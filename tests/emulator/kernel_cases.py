# SPDX-License-Identifier: Apache-2.0
"""Arguments of every kernel that has a reference, drawn from a seeded generator."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from nnpa_emulator import dlfloat
from nnpa_emulator.kernels import comparison as comparison  # called by networks alone, as the next
from nnpa_emulator.kernels import host_operators as host_operators
from nnpa_emulator.kernels import table as table

from tests.emulator.kernel_cases_matmul import (
    all_panels,
    clear_matrices,
    column_sums,
    correlate,
    decode_block,
    decode_bytes,
    decode_weights,
    finish,
    lane_sums,
    multiply,
    panels,
    patch,
    quantize,
    row_sums,
    store_codes,
    store_fp64,
    store_relations,
    weights,
    windows,
)
from tests.emulator.kernel_cases_recurrent import (
    fuse,
    gate_panels,
    gru_step,
    lstm_step,
    round_doubles,
    round_sums,
    run_layer,
)
from tests.emulator.kernel_cases_sticks import (
    code_range,
    encode_fp64,
    find_codes,
    stickify_copy,
    stickify_fp32,
    stickify_quantized,
    stickify_table,
    stickify_weights,
    unstickify_copy,
    unstickify_fp32,
    unstickify_table,
    unstickify_weights,
)
from tests.emulator.kernel_draws import (
    Case,
    Random,
    codes,
    draw_window,
    flag,
    page_count,
    pages_of,
    singles,
    sizes,
    tensor,
)


def binary(random: Random) -> Case:
    """Arguments of `elementwise.binary`."""
    region, count = _region(random)
    a, b, out = (codes(random, count) for _ in range(3))
    if flag(random):
        out = a if flag(random) else b
    return (int(random.integers(0, 6)), a, b, out.copy(), region, flag(random)), (3,)


def place(random: Random) -> Case:
    """Arguments of `table.place`."""
    return (np.zeros(4, np.int64), int(random.integers(0, 3)), codes(random, 8)), (0,)


def walk(_random: Random) -> Case:
    """Arguments of `table.walk` without a row: the reference runs none."""
    return (np.zeros(4, np.int64), 1, 1), ()


def layer_normalization(random: Random) -> Case:
    """Arguments of `layer_normalization.layer_normalization`."""
    dims = sizes(random, (3, 3, 33, 129))
    buffer, pages = tensor(random, dims)
    if flag(random):
        buffer[:] = dlfloat.from_fp32(random.standard_normal(buffer.size, np.float32))
    scalars = (np.float32(value) for value in (*random.standard_normal(2), 0.5))
    return (buffer, codes(random, buffer.size), dims, pages, *scalars), (1,)


def lookup(random: Random) -> Case:
    """Arguments of `elementwise.lookup`."""
    region, count = _region(random)
    table = random.permutation(np.arange(65536, dtype=np.uint16))
    return (table, codes(random, count), codes(random, count), region), (2,)


def _region(random: Random) -> tuple[tuple[int, int, int, int, int], int]:
    dims = sizes(random, (3, 3, 65, 129))
    d4, d3, d2, d1 = dims
    columns = -(-d1 // 64)
    per_column = d4 * d3 if flag(random) else d3
    region = d4 * d3 * columns, per_column, columns, d2, d1 - 64 * (columns - 1)
    return region, page_count(dims) * 2048


def softmax(random: Random) -> Case:
    """Arguments of `activation.softmax`."""
    dims = sizes(random, (3, 1, 33, 129))
    buffer, pages = tensor(random, dims)
    count = int(random.integers(1, dims[3] + 1))
    return (buffer, codes(random, buffer.size), dims, pages, count, flag(random)), (1,)


def scale(random: Random) -> Case:
    """Arguments of `normalization.scale`."""
    dims = sizes(random, (3, 3, 33, 129))
    buffer, pages = tensor(random, dims)
    factors, added = (dlfloat.to_fp32(codes(random, dims[3])) for _ in range(2))
    return (buffer, codes(random, buffer.size), dims, pages, factors, added), (1,)


def distances(random: Random) -> Case:
    """Arguments of `normalization.distances`."""
    dims = sizes(random, (3, 1, 33, 129))
    buffer, pages = tensor(random, dims)
    results = np.zeros(dims[0] * dims[2])
    return (buffer, codes(random, buffer.size), dims, pages, results), (4,)


def moments(random: Random) -> Case:
    """Arguments of `normalization.moments`."""
    dims = sizes(random, (9, 3, 33, 129))
    buffer, pages = tensor(random, dims)
    bessel = int(flag(random) and dims[1:] != (1, 1, 1))
    return (buffer, dims, pages, bessel, np.zeros(2 * dims[0])), (4,)


def standardise(random: Random) -> Case:
    """Arguments of `normalization.standardise`."""
    dims = sizes(random, (3, 3, 33, 129))
    buffer, pages = tensor(random, dims)
    means, factors = random.standard_normal((2, dims[0]))
    factors[0] = np.nan if flag(random) else 0
    out, added = codes(random, buffer.size), float(random.standard_normal())
    return (buffer, out, dims, pages, means, factors, added, flag(random)), (1,)


def extremes(random: Random) -> Case:
    """Arguments of `normalization.extremes`."""
    dims = sizes(random, (3, 3, 33, 129))
    buffer, pages = tensor(random, dims)
    count = dims[0] * dims[1] * dims[2]
    outputs = np.zeros(count, np.uint16), np.zeros(count, np.int32)
    return (buffer, dims, pages, flag(random), *outputs), (4, 5)


def pooling(random: Random) -> Case:
    """Arguments of `pooling.average` and `pooling.maximum`."""
    dims = sizes(random, (3, 17, 33, 129))
    buffer, pages = tensor(random, dims)
    axes = [draw_window(random, dims[1], 8), draw_window(random, dims[2], 8)]
    (height, step3, above, o3), (width, step2, left, o2) = axes
    target = dims[0], o3, o2, dims[3]
    out = codes(random, page_count(target) * 2048)
    window = height, width, step3, step2, above, left
    return (buffer, out, dims, pages, target, pages_of(target), window), (1,)


def clear_feature(random: Random) -> Case:
    """Arguments of `padding.clear_padding`."""
    dims = sizes(random, (3, 3, 65, 129))
    buffer, pages = tensor(random, dims)
    return (buffer, dims, pages), (0,)


def depthwise(random: Random) -> Case:
    """Images, windows that reach beyond them, and now and then a NaN."""
    n, height, width, channels = (int(random.integers(1, most)) for most in (3, 8, 8, 150))
    kernel = tuple(int(size) for size in random.integers(1, 6, 2))
    strides, dilations = ([int(size) for size in random.integers(1, 4, 2)] for _ in range(2))
    before = [int(size) for size in random.integers(0, 5, 2)]
    sizes = tuple(int(size) for size in random.integers(1, 8, 2))
    source = singles(random, n * height * width * channels)
    weights, bias = singles(random, kernel[0] * kernel[1] * channels), singles(random, channels)
    out = singles(random, n * sizes[0] * sizes[1] * channels)
    window = (*kernel, *strides, *before, *dilations)
    return (source, weights, bias, out, (n, height, width, channels), sizes, window), (3,)


def hard_sigmoid(random: Random) -> Case:
    """A line of numbers."""
    source = singles(random, int(random.integers(1, 200)))
    alpha, beta = random.uniform(0, 1, 2).astype(np.float32)
    return (source, source.copy(), alpha, beta), (1,)


def hard_swish(random: Random) -> Case:
    """A line of numbers."""
    source = singles(random, int(random.integers(1, 200)))
    return (source, source.copy()), (1,)


def compared(random: Random) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Lines of numbers, most of them a little apart, and now and then some that are special."""
    line = singles(random, int(random.integers(1, 400)))
    apart = np.exp2(random.uniform(-14, 0)) * random.standard_normal(line.size)
    with np.errstate(all="ignore"):
        got = (line + line * apart * (random.random(line.size) < 0.8)).astype(np.float32)
    at = random.integers(0, line.size, 1 + line.size // 50)
    got[at] = singles(random, at.size)
    return got, line


def tally(random: Random) -> Case:
    """Arguments of `comparison.tally`."""
    return (*compared(random), np.empty(8), np.empty(9, np.int64)), (2, 3)


def row_errors(random: Random) -> Case:
    """Arguments of `comparison.row_errors`; a row of zeros beside zeros has none."""
    got, line = compared(random)
    rows = int(random.integers(1, 1 + got.size))
    size = rows * (got.size // rows)
    got, line = got[:size], line[:size]
    if flag(random):
        got[: size // rows] = line[: size // rows] = 0
    return (got, line, np.empty(rows)), (2,)


def classes(random: Random) -> Case:
    """Arguments of `comparison.classes`: equal ones, NaN, and rows without a number."""
    rows, size = (int(random.integers(1, most)) for most in (30, 70))
    values = random.integers(-9, 9, (rows, size)).astype(np.float32)
    values[random.random((rows, size)) < random.choice([0, 0.05, 0.5])] = np.nan
    values[0] = random.choice(np.array([np.nan, -np.inf, np.inf], np.float32), size)
    return (values.reshape(-1), np.empty(rows, np.int64)), (1,)


CASES: dict[str, Callable[[Random], Case]] = {
    "activation.softmax": softmax,
    "comparison.classes": classes,
    "comparison.row_errors": row_errors,
    "comparison.tally": tally,
    "convert.encode_fp64": encode_fp64,
    "convolution_matrices.store_fp64": store_fp64,
    "convolution_matrices.weights": weights,
    "convolution_matrices.windows": windows,
    "convolution.correlate": correlate,
    "convolution.panels": panels,
    "convolution.patch": patch,
    "elementwise.binary": binary,
    "elementwise.lookup": lookup,
    "host_operators.depthwise": depthwise,
    "host_operators.hard_sigmoid": hard_sigmoid,
    "host_operators.hard_swish": hard_swish,
    "integers.stickify_quantized": stickify_quantized,
    "integers.stickify_weights": stickify_weights,
    "integers.unstickify_weights": unstickify_weights,
    "recurrent_layers.fuse": fuse,
    "recurrent_layers.gate_panels": gate_panels,
    "recurrent_layers.run_layer": run_layer,
    "layer_normalization.layer_normalization": layer_normalization,
    "matmul_blocks.clear_padding": clear_matrices,
    "matmul_blocks.decode_block": decode_block,
    "matmul_blocks.store_codes": store_codes,
    "matmul_blocks.store_relations": store_relations,
    "normalization.distances": distances,
    "normalization.extremes": extremes,
    "normalization.moments": moments,
    "normalization.scale": scale,
    "normalization.standardise": standardise,
    "padding.clear_padding": clear_feature,
    "planar.stickify_nchw": stickify_fp32,
    "planar.unstickify_nchw": unstickify_fp32,
    "pooling.average": pooling,
    "pooling.maximum": pooling,
    "matmul.all_panels": all_panels,
    "matmul.multiply": multiply,
    "quantized.column_sums": column_sums,
    "quantized.decode_bytes": decode_bytes,
    "quantized.decode_weights": decode_weights,
    "quantized.finish": finish,
    "quantized.lane_sums": lane_sums,
    "quantized.quantize": quantize,
    "quantized.row_sums": row_sums,
    "recurrent.gru_step": gru_step,
    "recurrent.lstm_step": lstm_step,
    "recurrent.round_doubles": round_doubles,
    "recurrent.round_sums": round_sums,
    "scan.code_range": code_range,
    "scan.find_codes": find_codes,
    "sticks.stickify_copy": stickify_copy,
    "sticks.stickify_fp32": stickify_fp32,
    "sticks.stickify_table": stickify_table,
    "sticks.unstickify_copy": unstickify_copy,
    "sticks.unstickify_fp32": unstickify_fp32,
    "sticks.unstickify_table": unstickify_table,
    "table.place": place,
    "table.walk": walk,
}
