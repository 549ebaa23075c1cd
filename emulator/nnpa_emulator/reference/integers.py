# SPDX-License-Identifier: Apache-2.0
"""INT8 sticks: quantisation of FP32 values, and weights whose rows are interleaved in pairs.

Source: zDNN API Reference 1.2.0, zdnn_transform_quantized_ztensor; zDNN library behaviour.
"""

import numpy as np

from nnpa_emulator.reference.layout import (
    CELLS,
    PAGE_BYTES,
    STICK_BYTES,
    STICKS,
    Bytes,
    Dims,
    Integers,
    Pages,
    Singles,
    fill,
)


def stickify_quantized(
    values: Singles, sticks: Integers, dims: Dims, pages: Pages,
    scale: Singles, limits: Singles, fresh: bool,
) -> bool:  # fmt: skip
    """Quantize: round(x * scale + offset), half to even, clipped, in single FP32 operations.

    NaN counts as zero. Returns whether a NaN or an infinity is among the values.
    """
    with np.errstate(all="ignore"):
        scaled = np.rint(values * scale[0] + scale[1])
    scaled[np.isnan(scaled)] = 0
    quantized = np.clip(scaled, limits[0], limits[1]).astype(np.int8)
    fill(sticks, quantized.reshape(dims), pages, fresh)
    return not bool(np.isfinite(values).all())


def _pairs(sticks: Bytes, dims: Dims, pages: Pages) -> Bytes:
    """View weights as (dim4, stick columns, dim3, pairs of rows, cells, rows of a pair)."""
    d4, d3, d2, d1 = dims
    height = -(-d2 // (2 * STICKS)) * STICKS
    strides = (*(PAGE_BYTES * count for count in pages), STICK_BYTES, 2, 1)
    shape = d4, -(-d1 // CELLS), d3, height, CELLS, 2
    return np.lib.stride_tricks.as_strided(sticks, shape, strides)


def stickify_weights(source: Bytes, sticks: Bytes, dims: Dims, pages: Pages) -> None:
    """Interleave INT8 rows in pairs into sticks."""
    target = _pairs(sticks, dims, pages)
    d4, columns, d3, height, _, _ = target.shape
    dense = np.zeros((d4, d3, 2 * height, columns * CELLS), np.uint8)
    dense[:, :, : dims[2], : dims[3]] = source.reshape(dims)
    turned = dense.reshape(d4, d3, height, 2, columns, CELLS)
    target[...] = turned.transpose(0, 4, 1, 2, 5, 3)


def unstickify_weights(sticks: Bytes, target: Bytes, dims: Dims, pages: Pages) -> None:
    """Read INT8 rows out of sticks."""
    turned = _pairs(sticks, dims, pages).transpose(0, 2, 3, 5, 1, 4)
    d4, d3, height, _, columns, _ = turned.shape
    dense = turned.reshape(d4, d3, 2 * height, columns * CELLS)
    target[:] = dense[:, :, : dims[2], : dims[3]].ravel()
