# SPDX-License-Identifier: Apache-2.0
"""Compile every kernel, or load it from the cache, before a client needs it.

Each operation of the emulator runs once on small tensors. A file in the cache marks each step whose
kernels are compiled.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import TypeAlias

import numpy as np
from nnpa_emulator import FUNCTIONS, DataFormats, DataLayouts, DataTypes, Guest, TensorDesc, Ztensor
from nnpa_emulator import run as run_function
from nnpa_emulator.kernels import comparison, host_operators, table
from nnpa_emulator.kernels.jit import Signature, compile_by, load
from nnpa_emulator.machine import DEFAULT_MACHINE, MACHINES
from nnpa_emulator.pipeline import Function, allocate_sticks
from nnpa_emulator.ztensor import generate_transformed_desc

Dims: TypeAlias = tuple[int, int, int, int]
_log = logging.getLogger("nnpa.kernels")

_VECTOR, _MATRIX, _IMAGE = (1, 1, 1, 64), (1, 1, 64, 64), (1, 4, 4, 64)
_GATES: Dims = (1, 1, 1, 256)
_BIAS = {"input_c": _VECTOR}
# Operands that are not of the input's shape (1, 1, 64, 64), by parameter name.
_SHAPES: Mapping[str, Mapping[str, Dims]] = {
    "batchnorm": {"input_b": _VECTOR, "input_c": _VECTOR},
    "layernorm": {"input_b": (1, 1, 1, 1), "input_c": (1, 1, 1, 1)},
    "matmul_op": _BIAS,
    "matmul_bcast_op": _BIAS,
    "matmul_transpose_op": _BIAS,
    "avgpool2d": {"input": _IMAGE},
    "maxpool2d": {"input": _IMAGE},
    "meanreduce2d": {"input": _IMAGE},
    "conv2d": {"input": _IMAGE, "kernel": (2, 2, 64, 64), "bias": _VECTOR},
    "gru": {"input": _VECTOR, "h0": _VECTOR, "weights": (1, 1, 64, 192), "biases": (1, 1, 1, 192),
            "hidden_weights": (1, 1, 64, 192), "hidden_biases": (1, 1, 1, 192)},
    "lstm": {"input": _VECTOR, "h0": _VECTOR, "c0": _VECTOR, "weights": (1, 1, 64, 256),
             "biases": _GATES, "hidden_weights": (1, 1, 64, 256), "hidden_biases": _GATES},
}  # fmt: skip
_SPARSE: Mapping[str, Dims] = {
    "input": _IMAGE, "kernel": (1, 1, 64, 64), "bias": _VECTOR,
}  # fmt: skip
_SCALARS = {"kernel_height": 2, "kernel_width": 2}
_LIKELY = frozenset(("add", "relu", "matmul_op"))
_MAX_COMPILERS = 8  # processes: each imports Numba, and there are about 40 steps
_PLAIN_TYPES = (DataTypes.FP32, DataTypes.FP16, DataTypes.BFLOAT)


def compile_all(place: Path | None) -> None:
    """Compile every kernel, or load it from the cache in `place`, one after the other.

    In this order an image has the same contents each time it is built.
    """
    all_steps = steps()
    for done, (name, warm) in enumerate(all_steps.items(), 1):
        warm()
        if place is not None:
            kernel_mark(place, name).touch()
        _log.info("%d of %d steps: %s is ready", done, len(all_steps), name)


def compile_first(
    place: Path, functions: Collection[str], prepare: Callable[[], None]
) -> Iterator[tuple[int, int]]:
    """Compile the kernels of functions that the cache in `place` lacks, in several processes.

    Yield the number of steps done and of all steps. Steps with a mark in the cache are left out.
    """
    lacking = lacking_steps(place, _chosen(functions))
    if not lacking:
        return
    yield 0, len(lacking)
    processes = min(len(lacking), len(os.sched_getaffinity(0)), _MAX_COMPILERS)
    with ProcessPoolExecutor(processes, get_context("spawn"), prepare) as pool:
        compiled = [pool.submit(compile_step, place, name) for name in lacking]
        for done, future in enumerate(as_completed(compiled), 1):
            future.result()
            yield done, len(lacking)


def lacking_steps(place: Path, names: Collection[str]) -> list[str]:
    """Return the names of these steps that have no mark in a cache."""
    return [name for name in steps() if name in names and not kernel_mark(place, name).exists()]


def compile_step(place: Path, name: str) -> None:
    """Compile the kernels of a step into the cache in `place`."""
    steps()[name]()
    kernel_mark(place, name).touch()


def kernel_mark(place: Path, name: str) -> Path:
    """Return the file that marks a step whose kernels are in a cache."""
    return place / f"{_word(name)}.compiled"


def _word(name: str) -> str:
    """Return the name of a step for flags and files."""
    return name.replace(" ", "-")


def _chosen(functions: Collection[str]) -> list[str]:
    """Return the names of the steps of functions, or of all if none are named."""
    return [name for name in steps() if not functions or _word(name) in functions]


class _Nobody:
    """A compiler that compiles nothing: NumPy computes what the cache lacks."""

    has_kernels = True

    def load(self) -> None:
        """Do nothing: Numba is imported."""

    def compile(self, name: str, signature: Signature) -> None:
        """Do nothing: the reference of the kernel computes."""


def load_kernels(functions: Collection[str] = ()) -> None:
    """Load the cached kernels of functions, or of all, and compile nothing."""
    if not load():
        return
    all_steps = steps()
    compile_by(_Nobody())
    try:
        for name in _chosen(functions):
            all_steps[name]()
    finally:
        compile_by(None)


def steps() -> dict[str, Callable[[], object]]:
    """Return the steps of the warm-up by name, the likeliest first; each is short."""
    guest = Guest(MACHINES[DEFAULT_MACHINE])
    first, *further = (
        (f"transform {kind.name}", partial(_warm_transforms, guest, kind)) for kind in _PLAIN_TYPES
    )
    functions = sorted(
        (function for function in FUNCTIONS.values() if function.outputs),
        key=lambda function: function.name not in _LIKELY,
    )
    return dict([
        first,
        *((function.name, partial(_warm, guest, function)) for function in functions),
        ("conv2d between elements", partial(_warm, guest, FUNCTIONS["conv2d"], _SPARSE, 2)),
        ("reshape", partial(_warm_reshape, guest)),
        ("host operators", _warm_host_operators),
        ("table", _warm_table),
        ("comparison", _warm_comparison),
        *further,
    ])  # fmt: skip


def _warm_transforms(guest: Guest, kind: DataTypes) -> None:
    """Move small arrays of a type into sticks and back, in each layout."""
    size = 2 if kind != DataTypes.FP32 else 4
    layouts = DataLayouts.ZDNN_NHWC, DataLayouts.ZDNN_NCHW, DataLayouts.ZDNN_HWCK
    for layout, width in product(layouts, (64, 3)):
        pre = TensorDesc(layout, 0, kind, 1, 2, 2, width)
        tensor = Ztensor(pre, generate_transformed_desc(pre))
        allocate_sticks(guest, tensor, "warmup")
        data = bytes(4 * width * size)
        for array in (data, bytearray(data)):  # of messages, and of runs of networks
            run_function(guest, "transform_ztensor", {"ztensor": tensor, "data": [array]})
            tensor.is_transformed = False
        tensor.is_transformed = True
        run_function(guest, "transform_origtensor", {"ztensor": tensor})
        run_function(guest, "getrange_ztensor", {"ztensor": tensor})


def _warm_table() -> None:
    """Place arrays as networks supply them, and walk over no row."""
    cells, words = np.zeros(2, np.int64), np.zeros(1, np.uint32)
    for array in (words, words.view(np.float32), words.view(np.uint8)):
        table.place(cells, 0, array)
    words.setflags(write=False)
    table.place(cells, 0, words)
    table.walk(cells, 0, 0)


def _warm_host_operators() -> None:
    """Run the host operators of networks on an image of one element."""
    source, out, scalar = np.ones(1, np.float32), np.empty(1, np.float32), np.float32(1)
    host_operators.depthwise(
        source, source, source, out, (1, 1, 1, 1), (1, 1), (1, 1, 1, 1, 0, 0, 1, 1)
    )
    host_operators.hard_sigmoid(source, out, scalar, scalar)
    host_operators.hard_swish(source, out)


def _warm_comparison() -> None:
    """Compare arrays of one element, as reports on accuracy do."""
    source, sums, counts = np.ones(1, np.float32), np.empty(8), np.empty(9, np.int64)
    comparison.tally(source, source, sums, counts)
    comparison.row_errors(source, source, sums[:1])
    comparison.classes(source, counts[:1])


def _warm_reshape(guest: Guest) -> None:
    """Move rows between tensors of other dims."""
    pre = TensorDesc(DataLayouts.ZDNN_NHWC, 0, DataTypes.FP32, 1, 4, 16, 64)
    dest = Ztensor(pre, generate_transformed_desc(pre))
    allocate_sticks(guest, dest, "warmup")
    run_function(guest, "reshape_ztensor", {"src": _ones(guest, _MATRIX, "input"), "dest": dest})


def _warm(
    guest: Guest, function: Function, shapes: Mapping[str, Dims] | None = None, stride: int = 1
) -> None:
    """Run one operation on ones, twice: the second use of weights keeps them widened."""
    shapes = _SHAPES.get(function.name, {}) if shapes is None else shapes
    inputs = {
        name: _ones(guest, shapes.get(name, _MATRIX), name, is_lstm=function.name == "lstm")
        for name in function.tensors
        if name not in function.outputs
    }
    scalars = {
        name: stride if name.startswith("stride") else _SCALARS.get(name, 0)
        for name, parameter in function.parameters.items()
        if name not in function.tensors and parameter.default is parameter.empty
    }
    if function.infer is None or "clip_min" in scalars:
        return
    described = function.infer(**inputs, **scalars)
    outputs = {
        name: Ztensor(pre, desc)
        for name, (pre, desc) in zip(function.outputs, described, strict=True)
    }
    for output in outputs.values():
        allocate_sticks(guest, output, "warmup")
    arguments: dict[str, object] = {**inputs, **scalars, **outputs}
    for _ in range(2):
        run_function(guest, function.name, arguments)


def _ones(guest: Guest, dims: Dims, name: str, *, is_lstm: bool = False) -> Ztensor:
    layout, fmt = DataLayouts.ZDNN_NHWC, DataFormats.ZDNN_FORMAT_4DFEATURE
    if name == "kernel":
        layout, fmt = DataLayouts.ZDNN_HWCK, DataFormats.ZDNN_FORMAT_4DKERNEL
    elif "weights" in name or "biases" in name:
        layout = DataLayouts.ZDNN_FICO if is_lstm else DataLayouts.ZDNN_ZRH
    pre = TensorDesc(DataLayouts.ZDNN_NHWC, 0, DataTypes.FP32, *dims)
    tensor = Ztensor(pre, TensorDesc(layout, fmt, DataTypes.ZDNN_DLFLOAT16, *dims))
    allocate_sticks(guest, tensor, "warmup")
    tensor.sticks.view(np.uint16)[:] = 0x3E00  # 1.0 in DLFLOAT16
    tensor.is_transformed = True
    return tensor
