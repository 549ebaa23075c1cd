# SPDX-License-Identifier: Apache-2.0
"""Large tensors in blocks: the same bits as in one piece, and an end between two blocks."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pytest
from nnpa_emulator import FUNCTIONS, blocks, interruption, run, stick
from nnpa_emulator.ztensor import (
    Array,
    DataFormats,
    DataLayouts,
    DataTypes,
    TensorDesc,
    Ztensor,
    getsize_ztensor,
)

from tests.emulator.operands import GARBAGE, Dims, blank, guest, tensor
from tests.oracle.rounding import rounded

Arguments: TypeAlias = dict[str, Any]
SHAPES: list[Dims] = [(3, 4, 70, 130), (5, 1, 33, 64), (1, 6, 32, 65), (4, 1, 100, 200)]
SIZES = [1, 3000, 20000]
"""Elements of a block: pages of rows, a few of them, some of dim3 or dim4."""
POOLING = {
    "padding_type": 1, "kernel_height": 3, "kernel_width": 2, "stride_height": 2, "stride_width": 1
}  # fmt: skip
SCALARS = {"beta_value": 0.5, "gamma_value": 2.0, "epsilon_value": 0.1}


class Stopped(Exception):
    """The check of these tests raises it."""


@pytest.fixture(autouse=True)
def no_check() -> Iterator[None]:
    """Leave no check behind."""
    yield
    interruption.thread.check = None


def cut_at(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Let blocks have `size` elements, also where parts were cut before."""
    monkeypatch.setattr(blocks, "ELEMENTS", size)
    blocks.regions_of.cache_clear()


def data(dims: Dims, seed: int = 0) -> Ztensor:
    """Return a tensor of random codes, NINF among them."""
    random = np.random.default_rng((*dims, seed))
    codes = rounded(random.normal(1, 2, dims))
    codes[random.random(dims) < 1e-3] = 0x7FFF
    return tensor(codes)


def unary(dims: Dims) -> Arguments:
    """Return the argument of a function of one tensor."""
    return {"input": data(dims)}


def binary(dims: Dims) -> Arguments:
    """Return the arguments of a function of two tensors."""
    return {"input_a": data(dims), "input_b": data(dims, 1)}


def channels(dims: Dims) -> Arguments:
    """Return the arguments of batchnorm."""
    scales = data((1, 1, 1, dims[3]), 1), data((1, 1, 1, dims[3]), 2)
    return {"input_a": data(dims), "input_b": scales[0], "input_c": scales[1]}


def layers(dims: Dims) -> Arguments:
    """Return the arguments of layernorm."""
    moments = data((dims[0], 1, 1, 1), 1), data((dims[0], 1, 1, 1), 2)
    return {"input_a": data(dims), "input_b": moments[0], "input_c": moments[1], **SCALARS}


def flat(dims: Dims) -> Dims:
    """Return the dims of a function that takes dim3 1 only."""
    return dims[0] * dims[1], 1, dims[2], dims[3]


CALLS: dict[str, Callable[[Dims], Arguments]] = {
    "add": binary,
    "div": binary,
    "max": binary,
    "exp": unary,
    "gelu": unary,
    "softmax": lambda dims: {**unary(flat(dims)), "act_func": 0},
    "softmax_mask": lambda dims: {**unary(flat(dims)), "act_func": 1, "softmax_mask": 5},
    "batchnorm": channels,
    "layernorm": layers,
    "moments": lambda dims: {**unary(dims), "bessel_correction_type": 1},
    "norm": lambda dims: binary(flat(dims)),
    "reduce": lambda dims: {**unary(dims), "op_type": 3},
    "meanreduce2d": unary,
    "avgpool2d": lambda dims: {**unary(dims), **POOLING},
    "maxpool2d": lambda dims: {**unary(dims), **POOLING},
}


def outputs(name: str, arguments: Arguments) -> list[Ztensor]:
    """Return garbage for the outputs of a function."""
    infer = FUNCTIONS[name].infer
    assert infer is not None
    return [blank(desc.dims, kind=desc.type) for _, desc in infer(**arguments)]


def results(name: str, arguments: Arguments) -> list[object]:
    """Run a function; return all bytes of its outputs, its status and its report of NINF."""
    written = outputs(name, arguments)
    named = dict(zip(FUNCTIONS[name].outputs, written, strict=True))
    outcome = run(guest(), name, {**arguments, **named})
    return [
        *(output.sticks.tobytes() for output in written),
        outcome.status,
        repr(outcome.violation),
    ]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("name", CALLS)
def test_operations_in_blocks_have_the_same_bytes(
    monkeypatch: pytest.MonkeyPatch, name: str, dims: Dims, size: int
) -> None:
    """An operation in blocks writes the same bytes, padding included."""
    arguments = CALLS[name](dims)
    whole = results(name, arguments)
    cut_at(monkeypatch, size)
    assert results(name, arguments) == whole


@pytest.mark.parametrize("name", ["add", "exp", "softmax", "batchnorm", "layernorm"])
def test_a_result_in_the_place_of_its_input(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Blocks leave alone what later ones read."""
    arguments = CALLS[name]((3, 1, 70, 130))
    (whole, *_) = results(name, arguments)
    cut_at(monkeypatch, 1)
    first = arguments[FUNCTIONS[name].tensors[0]]
    run(guest(), name, {**arguments, FUNCTIONS[name].outputs[0]: first})
    assert first.sticks.tobytes() == whole


LAYOUTS = {
    "NHWC": (DataLayouts.ZDNN_NHWC, DataFormats.ZDNN_FORMAT_4DFEATURE, DataTypes.ZDNN_DLFLOAT16),
    "HWCK": (DataLayouts.ZDNN_HWCK, DataFormats.ZDNN_FORMAT_4DKERNEL, DataTypes.ZDNN_DLFLOAT16),
    "INT8": (DataLayouts.ZDNN_NHWC, DataFormats.ZDNN_FORMAT_4DFEATURE, DataTypes.ZDNN_BINARY_INT8),
    "INT32": (
        DataLayouts.ZDNN_NHWC, DataFormats.ZDNN_FORMAT_4DFEATURE, DataTypes.ZDNN_BINARY_INT32
    ),
    "WEIGHTS": (
        DataLayouts.ZDNN_NHWC, DataFormats.ZDNN_FORMAT_4DWEIGHTS, DataTypes.ZDNN_BINARY_INT8
    ),
}  # fmt: skip
KINDS: dict[str, tuple[np.dtype[Any], int]] = {
    "FP32": (np.dtype(np.float32), DataTypes.FP32),
    "FP16": (np.dtype(np.float16), DataTypes.FP16),
    "BFLOAT": (stick.BFLOAT16, DataTypes.BFLOAT),
}


def buffer_of(desc: TensorDesc) -> stick.Buffer:
    """Return sticks full of garbage."""
    return np.full(getsize_ztensor(desc), GARBAGE, np.uint8)


def there_and_back(array: Array, desc: TensorDesc, kind: int, nchw: bool) -> list[object]:
    """Return an array's sticks, the array read back, and the conversion reports of both ways."""
    sticks = buffer_of(desc)
    met = stick.stickify(array, desc, sticks, nchw=nchw)
    back, read = stick.unstickify(sticks, desc, kind, nchw=nchw)
    return [sticks.tobytes(), met, back.tobytes(), read]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW", "HWCK"])
def test_transforms_in_blocks_have_the_same_sticks(
    monkeypatch: pytest.MonkeyPatch, layout: str, kind: str, dims: Dims, size: int
) -> None:
    """Sticks and arrays are the same, and so are the conversions' reports."""
    dtype, number = KINDS[kind]
    desc = TensorDesc(*LAYOUTS["NHWC" if layout == "NCHW" else layout], *dims)
    array = np.random.default_rng(dims).normal(0, 1e4, dims).astype(dtype)
    array.flat[[0, -1]] = np.inf, 1e-12
    whole = there_and_back(array, desc, number, layout == "NCHW")
    cut_at(monkeypatch, size)
    assert there_and_back(array, desc, number, layout == "NCHW") == whole


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dims", SHAPES)
@pytest.mark.parametrize("layout", ["INT8", "INT32", "WEIGHTS"])
def test_cells_in_blocks_are_where_they_belong(
    monkeypatch: pytest.MonkeyPatch, layout: str, dims: Dims, size: int
) -> None:
    """Cells that are copied, or quantized, are where they belong."""
    desc = TensorDesc(*LAYOUTS[layout], *dims)
    values = np.random.default_rng(dims).integers(-128, 128, dims)
    kind = np.int32 if layout == "INT32" else np.int8

    def copies() -> list[bytes]:
        sticks = buffer_of(desc)
        stick.write_cells(values.astype(kind), desc, sticks)
        produced = [sticks.tobytes(), stick.read_cells(sticks, desc).tobytes()]
        if layout == "INT8":
            floats = values.astype(np.float32)
            stick.quantize(
                floats, desc, sticks, rec_scale=0.5, offset=3.0, clip_min=-100, clip_max=100
            )
            produced.append(sticks.tobytes())
        return produced

    whole = copies()
    cut_at(monkeypatch, size)
    assert copies() == whole


@pytest.mark.parametrize("name", CALLS)
def test_an_operation_ends_between_blocks(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The check is called before each block, and its exception ends the operation."""
    cut_at(monkeypatch, 1)
    arguments = CALLS[name]((3, 2, 70, 130))

    def check() -> None:
        raise Stopped

    named = dict(zip(FUNCTIONS[name].outputs, outputs(name, arguments), strict=True))
    interruption.thread.check = check
    with pytest.raises(Stopped):
        run(guest(), name, {**arguments, **named})


@pytest.mark.parametrize("dims", SHAPES)
def test_blocks_keep_their_size(monkeypatch: pytest.MonkeyPatch, dims: Dims) -> None:
    """No block has more elements than the limit, and all blocks together cover the tensor."""
    cut_at(monkeypatch, 10000)
    shape = stick.geometry(TensorDesc(*LAYOUTS["NHWC"], *dims))
    counts = [
        block.elements.stop - block.elements.start
        for block in blocks.blocks_of(shape.dims, shape.pages)
    ]
    assert sum(counts) == np.prod(dims)
    assert len(counts) > 1
    assert max(counts) <= 10000
