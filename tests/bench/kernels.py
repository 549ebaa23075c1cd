# SPDX-License-Identifier: Apache-2.0
"""Rows 1 to 6 and 22: conversion, sticks and element-wise kernels, on one thread."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
from nnpa_emulator import arith, dlfloat, stick
from nnpa_emulator.kernels import elementwise, sticks
from nnpa_emulator.reference.elementwise import region_of
from nnpa_emulator.ztensor import DataFormats, DataLayouts, DataTypes, TensorDesc, getsize_ztensor

from tests.bench.report import Figure, ratio, row
from tests.emulator import test_dlfloat_exhaustive as exhaustive

Dims = tuple[int, int, int, int]

WHOLE_STICKS: tuple[Dims, ...] = (
    (8, 56, 56, 64),
    (32, 112, 112, 64),
    (1, 1, 1024, 1024),
    (1, 1, 4096, 4096),
)
PHOTO: Dims = (1, 224, 224, 3)
SIZES = {"64K": 1 << 16, "1M": 1 << 20, "16M": 1 << 24}


def tensor(dims: Dims) -> tuple[npt.NDArray[np.float32], TensorDesc, npt.NDArray[np.uint8]]:
    """Return normal data, its descriptor and its sticks, warm."""
    desc = TensorDesc(DataLayouts.ZDNN_NHWC, 0, DataTypes.ZDNN_DLFLOAT16, *dims)
    data = np.random.default_rng(1).standard_normal(dims).astype(np.float32)
    buffer = np.zeros(getsize_ztensor(desc), np.uint8)
    stick.stickify(data, desc, buffer)
    return data, desc, buffer


def copying(traffic: int) -> Callable[[], None]:
    """Return a memcpy that reads and writes `traffic` bytes in all."""
    source = np.ones(traffic // 2, np.uint8)
    target = np.ones_like(source)
    return lambda: np.copyto(target, source)


def name(dims: Dims) -> str:
    """Return dims as they are written."""
    return "x".join(str(size) for size in dims)


def stickify_share(dims: Dims, floor: float | None, moonshot: float | None) -> Figure:
    """Measure stickify, padding included, as a share of the speed of a memcpy."""
    data, desc, buffer = tensor(dims)
    copy = copying(data.nbytes + buffer.nbytes)
    share = ratio(copy, lambda: stick.stickify(data, desc, buffer))
    return Figure(name(dims), share, floor, moonshot, more=True)


@row("1", "stickify NHWC fp32, C % 64 == 0, share of same-traffic memcpy")
def stickify_whole() -> list[Figure]:
    """Floor 0.55, moonshot 0.90."""
    return [stickify_share(dims, 0.55, 0.90) for dims in WHOLE_STICKS]


@row("1b", "the other ways into and out of sticks, share of same-traffic memcpy")
def other_movements() -> list[Figure]:
    """Reported only: one figure for each kernel, to see a kernel that gets slow."""
    dims = WHOLE_STICKS[0]
    data, desc, buffer = tensor(dims)
    half = data.astype(np.float16)
    bytes_desc = replace(desc, type=DataTypes.ZDNN_BINARY_INT8)
    bytes_ = np.zeros(getsize_ztensor(bytes_desc), np.uint8)
    weights_desc = replace(bytes_desc, format=DataFormats.ZDNN_FORMAT_4DWEIGHTS)
    weights = np.zeros(getsize_ztensor(weights_desc), np.uint8)
    small = np.ones(dims, np.int8)
    scale = partial(stick.quantize, rec_scale=9.0, offset=1.0, clip_min=-128, clip_max=127)
    out = partial(stick.unstickify, buffer, desc)
    works: list[tuple[str, int, Callable[[], object]]] = [
        ("fp16 in", half.nbytes, partial(stick.stickify, half, desc, buffer)),
        ("fp16 out", half.nbytes, partial(out, DataTypes.FP16)),
        ("NCHW in", data.nbytes, partial(stick.stickify, data, desc, buffer, nchw=True)),
        ("NCHW out", data.nbytes, partial(out, DataTypes.FP32, nchw=True)),
        ("codes in", half.nbytes, partial(stick.write_cells, half.view(np.uint16), desc, buffer)),
        ("codes out", half.nbytes, partial(stick.read_cells, buffer, desc)),
    ]
    rest: list[tuple[str, int, Callable[[], object]]] = [
        ("fp32 quantised", data.nbytes, partial(scale, data, bytes_desc, bytes_)),
        ("int8 weights in", small.nbytes, partial(stick.write_cells, small, weights_desc, weights)),
        ("int8 weights out", small.nbytes, partial(stick.read_cells, weights, weights_desc)),
    ]
    stored = [buffer.nbytes] * len(works) + [bytes_.nbytes, weights.nbytes, weights.nbytes]
    return [
        Figure(label, ratio(copying(read + written), work, 7), more=True)
        for (label, read, work), written in zip(works + rest, stored, strict=True)
    ]


@row("2", "unstickify, share of same-traffic memcpy")
def unstickify_whole() -> list[Figure]:
    """Floor 0.4, moonshot 0.85; the output array is warm."""
    return [unstickify_share(dims) for dims in WHOLE_STICKS]


def unstickify_share(dims: Dims) -> Figure:
    """Measure the kernel on a warm output array as a share of the speed of a memcpy."""
    data, desc, buffer = tensor(dims)
    words, shape = data.view(np.uint32).reshape(-1), stick.geometry(desc)
    codes = buffer.view(np.uint16)
    copy = copying(data.nbytes + buffer.nbytes)
    share = ratio(copy, lambda: sticks.unstickify_fp32(codes, words, shape.dims, shape.pages))
    return Figure(name(dims), share, 0.4, 0.85, more=True)


@row("3", "stickify of a photo, share of same-traffic memcpy")
def stickify_photo() -> list[Figure]:
    """Floor 0.3, moonshot 0.8; a zeroed buffer needs no padding written."""
    data, desc, buffer = tensor(PHOTO)
    copy = copying(data.nbytes + buffer.nbytes)
    fresh = ratio(copy, lambda: stick.stickify(data, desc, buffer, fresh=True))
    return [
        stickify_share(PHOTO, 0.3, 0.8),
        Figure(f"{name(PHOTO)}, zeroed buffer", fresh, None, None, more=True),
        stickify_share((4, 28, 28, 96), None, None),
        stickify_share((1, 224, 224, 16), None, None),
    ]


@row("4", "stickify in plain numpy, time over the kernel's")
def stickify_numpy() -> list[Figure]:
    """Reported only."""
    figures: list[Figure] = []
    for dims in (WHOLE_STICKS[0], PHOTO, WHOLE_STICKS[2]):
        data, desc, buffer = tensor(dims)
        if not np.array_equal(plain_sticks(data).view(np.uint8).reshape(-1), buffer):
            raise AssertionError(f"{name(dims)}: numpy and kernel disagree")
        times = ratio(
            partial(plain_sticks, data),
            partial(stick.stickify, data, desc, buffer),
            7,
        )
        figures.append(Figure(name(dims), times, more=True))
    return figures


def plain_sticks(data: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Return 4DFEATURE sticks by padding and transposing whole arrays."""
    d4, d3, d2, d1 = data.shape
    rows, columns = -(-d2 // 32), -(-d1 // 64)
    codes = np.zeros((d4, d3, rows * 32, columns * 64), np.uint16)
    codes[:, :, :d2, :d1] = dlfloat.from_fp32(data)
    pages = codes.reshape(d4, d3, rows, 32, columns, 64).transpose(0, 4, 1, 2, 3, 5)
    return np.ascontiguousarray(pages)


@row("5", "unary operation on sticks, time over np.exp fp32")
def unary() -> list[Figure]:
    """Floor 1.0, moonshot 0.5, at 1M elements."""
    every = dlfloat.to_fp32(np.arange(65536, dtype=np.uint16)).astype(np.float64)
    with np.errstate(over="ignore"):
        table = dlfloat.from_fp64(np.exp(every))
    figures: list[Figure] = []
    for label, size in SIZES.items():
        data, desc, buffer = tensor((1, 1, size // 64, 64))
        target, out = np.empty_like(data), np.empty_like(buffer)
        times = ratio(
            partial(arith.lookup, table, buffer, out, desc),
            partial(np.exp, data, target),
        )
        bounds = (1.0, 0.5) if label == "1M" else (None, None)
        figures.append(Figure(label, times, *bounds))
    return figures


@row("6", "add on sticks, time over np.add fp32")
def add() -> list[Figure]:
    """Floor 2.0 at 1M and 0.8 at 16M elements, moonshot 1.0 and 0.5."""
    bounds = {"64K": (None, None), "1M": (2.0, 1.0), "16M": (0.8, 0.5)}
    figures: list[Figure] = []
    for label, size in SIZES.items():
        data, desc, buffer = tensor((1, 1, size // 64, 64))
        target, target_cells = np.empty_like(data), np.empty_like(buffer).view(np.uint16)
        cells, region = buffer.view(np.uint16), region_of(desc)
        times = ratio(
            partial(elementwise.binary, elementwise.ADD, cells, cells, target_cells, region, False),
            partial(np.add, data, data, target),
        )
        figures.append(Figure(label, times, *bounds[label]))
    return figures


@row("22", "fp32 to DLFLOAT16 over all 2^32 patterns, seconds on two threads")
def every_pattern() -> list[Figure]:
    """Reported; the note counts mismatches of codes and flags against the integer oracle."""
    start = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        wrong = sum(pool.map(exhaustive.mismatches, range(2)))
    seconds = time.perf_counter() - start
    return [Figure("2^32", seconds, note=f"{wrong} mismatches, oracle included")]
