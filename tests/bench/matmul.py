# SPDX-License-Identifier: Apache-2.0
"""Rows 7 to 9: matrix products on sticks against numpy on FP32 arrays, BLAS on one thread."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from nnpa_emulator import FUNCTIONS, MACHINES, Guest, Ztensor, stick
from nnpa_emulator.ztensor import DataFormats, DataLayouts, DataTypes, TensorDesc, getsize_ztensor
from threadpoolctl import threadpool_limits

from tests.bench.local import repeated
from tests.bench.report import Figure, ratio, row

Singles = npt.NDArray[np.float32]
Sizes = tuple[int, int, int]
WEIGHTS = DataFormats.ZDNN_FORMAT_4DWEIGHTS


def tensor(values: npt.NDArray[Any], fmt: int = 0) -> Ztensor:
    """Return sticks of a matrix: DLFLOAT16 of floats, INT8 of bytes."""
    bytes_ = values.dtype == np.int8
    kind = DataTypes.ZDNN_BINARY_INT8 if bytes_ else DataTypes.ZDNN_DLFLOAT16
    desc = TensorDesc(DataLayouts.ZDNN_NHWC, fmt, kind, 1, 1, *values.shape)
    buffer = np.zeros(getsize_ztensor(desc), np.uint8)
    stick.stickify(values, desc, buffer)
    return Ztensor(desc, desc, buffer.nbytes, buffer, True, 1.0, 0.0)


def operands(sizes: Sizes) -> tuple[Singles, Singles, Singles]:
    """Return a, b and c of a product m x n by n x p."""
    m, n, p = sizes
    random = np.random.default_rng(1)
    shapes = (m, n), (n, p), (1, p)
    a, b, c = (random.standard_normal(shape).astype(np.float32) for shape in shapes)
    return a, b, c


def product_on_sticks(
    arrays: tuple[Singles, Singles, Singles], accumulate: Any = "fp32"
) -> Callable[[], object]:
    """Return a call of matmul_op, everything allocated."""
    a, b, c = arrays
    output = tensor(np.zeros((a.shape[0], b.shape[1]), np.float32))
    guest = Guest(MACHINES["telum2"], accumulate=accumulate)
    names = {"input_a": tensor(a), "input_b": tensor(b), "input_c": tensor(c)}
    arguments: dict[str, Any] = {**names, "op_type": 0, "output": output}
    return repeated(guest, "matmul_op", arguments)


def share(sizes: Sizes, floor: float | None, moonshot: float | None) -> Figure:
    """Measure matmul_op, all conversions included, as a share of the speed of np.matmul."""
    arrays = operands(sizes)
    out = np.empty((sizes[0], sizes[2]), np.float32)
    with threadpool_limits(1):
        figure = ratio(lambda: np.matmul(arrays[0], arrays[1], out=out), product_on_sticks(arrays))
    return Figure("x".join(map(str, sizes)), figure, floor, moonshot, more=True)


@row("7", "matmul_op on sticks, share of the speed of np.matmul")
def square() -> list[Figure]:
    """Floor 0.90, moonshot 0.98; input_b is widened in the first calls and kept."""
    return [share((512, 512, 512), 0.90, 0.98), share((1024, 1024, 1024), 0.90, 0.98)]


@row("8", "matmul_op of the size of a recurrent layer, share of the speed of np.matmul")
def flat() -> list[Figure]:
    """Floor 0.75, moonshot 1.0; the fixed cost of a call bounds small batches."""
    return [
        share((64, 256, 1024), 0.75, 1.0),
        share((8, 256, 1024), None, None),
        share((1, 1024, 1024), None, None),
    ]


@row("9", "dense layer with bias and relu on sticks, share of the speed of the numpy trio")
def dense() -> list[Figure]:
    """Floor 0.9, moonshot 1.05."""
    a, b, c = operands((64, 768, 256))
    multiply = product_on_sticks((a, b, c))
    output = tensor(np.zeros((64, 256), np.float32))
    guest = Guest(MACHINES["telum2"])
    relu: dict[str, Any] = {"input": output, "clipping_value": None, "output": output}

    activate = repeated(guest, "relu", relu)

    def on_sticks() -> None:
        multiply()
        activate()

    with threadpool_limits(1):
        figure = ratio(lambda: np.maximum(a @ b + c, 0), on_sticks)
    return [Figure("64x768x256", figure, 0.9, 1.05, more=True)]


@row("7b", "matmul_op with float64 sums, time over FP32 sums")
def doubles() -> list[Figure]:
    """Reported: the cost of bits that do not depend on the batch."""
    figures: list[Figure] = []
    for sizes in ((512, 512, 512), (64, 256, 1024)):
        arrays = operands(sizes)
        with threadpool_limits(1):
            figure = ratio(product_on_sticks(arrays, "fp64"), product_on_sticks(arrays))
        figures.append(Figure("x".join(map(str, sizes)), figure))
    return figures


@row("7c", "quantized_matmul_op on INT8 sticks, time over matmul_op")
def quantized() -> list[Figure]:
    """Reported; FP32 BLAS computes the sums, exact in pieces of 1024."""
    m, n, p = 128, 768, 768
    random = np.random.default_rng(1)
    a, b, c = (
        random.integers(-128, 128, shape).astype(np.int8) for shape in ((m, n), (n, p), (1, p))
    )
    guest = Guest(MACHINES["telum2"])
    names = FUNCTIONS["quantized_matmul_op"].tensors[:3]
    tensors = tensor(a), tensor(b, WEIGHTS), tensor(c)
    arguments: dict[str, Any] = dict(zip(names, tensors, strict=True))
    arguments |= {"op_type": 0, "clip_min": -128, "clip_max": 127, "disable_clipping": False}
    arguments |= {"dequantize": False, "pre_computed": False}
    arguments["output"] = tensor(np.zeros((m, p), np.float32))
    with threadpool_limits(1):
        plain = product_on_sticks(operands((m, n, p)))
        figure = ratio(repeated(guest, "quantized_matmul_op", arguments), plain)
    return [Figure(f"{m}x{n}x{p}", figure)]
