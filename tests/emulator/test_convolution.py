# SPDX-License-Identifier: Apache-2.0
"""Convolution against the oracle and ONNX Runtime: windows, blocks, layers of ResNet-50."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from nnpa_emulator import FUNCTIONS, Guest, Status, run
from nnpa_emulator.engines import convolution as engine

from tests.emulator.operands import KERNEL, NINF, Codes, blank, cells, guest, tensor
from tests.oracle import convolution as oracle
from tests.oracle.onnx_layers import convolution as onnx_convolution
from tests.oracle.rounding import decoded, distance, rounded


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution: input (n, h, w, c), kernel (kh, kw), output channels, strides, padding."""

    dims: tuple[int, int, int, int]
    kernel: tuple[int, int]
    channels: int
    stride: tuple[int, int]
    same: bool


LAYERS = [
    Layer((1, 1, 1, 1), (1, 1), 1, (1, 1), False),
    Layer((2, 5, 4, 3), (3, 2), 2, (1, 1), True),
    Layer((1, 6, 7, 17), (3, 3), 63, (2, 2), True),
    Layer((1, 6, 31, 64), (3, 3), 64, (1, 1), True),
    Layer((1, 5, 33, 65), (2, 3), 65, (2, 1), False),
    Layer((1, 4, 64, 128), (1, 1), 127, (1, 2), False),
    Layer((1, 3, 65, 129), (1, 3), 129, (3, 3), True),
    Layer((3, 7, 7, 16), (7, 7), 5, (0, 0), False),
    Layer((1, 9, 9, 2), (5, 5), 3, (13, 13), True),
    Layer((1, 66, 3, 1), (64, 3), 4, (1, 1), False),
]
# ResNet-50: one of each kind of layer. Source: He et al., "Deep Residual Learning", 2015, table 1.
RESNET = [
    Layer((1, 224, 224, 3), (7, 7), 64, (2, 2), True),
    Layer((1, 56, 56, 64), (1, 1), 64, (1, 1), False),
    Layer((1, 56, 56, 64), (3, 3), 64, (1, 1), True),
    Layer((1, 56, 56, 64), (1, 1), 256, (1, 1), False),
    Layer((1, 56, 56, 256), (1, 1), 512, (2, 2), False),
    Layer((1, 28, 28, 128), (3, 3), 128, (1, 1), True),
    Layer((1, 14, 14, 256), (3, 3), 256, (1, 1), True),
    Layer((1, 7, 7, 512), (3, 3), 512, (1, 1), True),
    Layer((1, 7, 7, 512), (1, 1), 2048, (1, 1), False),
]
BLOCK_LIMITS = [(1 << 24, 64, 1 << 20), (1 << 12, 1 << 9, 1 << 20), (1 << 10, 1 << 18, 100)]
Operands = tuple[Codes, Codes, Codes]


def operands(layer: Layer) -> Operands:
    """Return random input, kernel and bias; sums have a deviation near 1 around 4."""
    random = np.random.default_rng(layer.channels)
    rows, width, inputs = *layer.kernel, layer.dims[3]
    scale = 1 / np.sqrt(rows * width * inputs)
    return (
        rounded(random.normal(0, 1, layer.dims)),
        rounded(random.normal(0, scale, (rows, width, inputs, layer.channels))),
        rounded(random.normal(4, 1, (1, 1, 1, layer.channels))),
    )


def convolved(
    layer: Layer, layer_operands: Operands, program: Guest | None = None, **scalars: Any
) -> tuple[Codes, int]:
    """Run conv2d, output described by the emulator; return its codes and the status."""
    arguments: dict[str, Any] = {
        "input": tensor(layer_operands[0]),
        "kernel": tensor(layer_operands[1], KERNEL),
        "bias": tensor(layer_operands[2]),
        "padding_type": int(layer.same),
        "stride_height": layer.stride[0],
        "stride_width": layer.stride[1],
        "act_func": 0,
        **scalars,
    }
    infer = FUNCTIONS["conv2d"].infer
    assert infer
    ((_, desc),) = infer(**arguments)
    output = blank(desc.dims)
    status = run(program or guest(precheck=True), "conv2d", {**arguments, "output": output}).status
    assert output.is_transformed
    return cells(output), status


def exact(layer: Layer, layer_operands: Operands) -> npt.NDArray[np.float64]:
    """Return the oracle's values."""
    x, kernel, bias = (decoded(array) for array in layer_operands)
    return oracle.convolution(x, kernel, bias, layer.stride, layer.same)


def fp64() -> Guest:
    """Return a guest that sums in float64."""
    program = guest()
    program.accumulate = "fp64"
    return program


@pytest.mark.parametrize("layer", LAYERS)
def test_convolution_is_within_one_ulp(layer: Layer) -> None:
    """FP32 sums are within one unit of the last place of the exact value, rounded once."""
    layer_operands = operands(layer)
    got, status = convolved(layer, layer_operands)
    assert status == Status.ZDNN_OK
    assert distance(got, rounded(exact(layer, layer_operands))) <= 1


@pytest.mark.parametrize("layer", LAYERS)
def test_convolution_in_fp64_is_correctly_rounded(layer: Layer) -> None:
    """Float64 sums give the exact value, rounded once."""
    layer_operands = operands(layer)
    got, _ = convolved(layer, layer_operands, fp64())
    assert got.tolist() == rounded(exact(layer, layer_operands)).tolist()


@pytest.mark.heavy
@pytest.mark.parametrize("layer", RESNET)
def test_convolution_of_resnet_50(layer: Layer) -> None:
    """The layers of ResNet-50 are within one unit of the last place."""
    layer_operands = operands(layer)
    got, status = convolved(layer, layer_operands, act_func=1)
    want = rounded(oracle.rectified(exact(layer, layer_operands), 0.0))
    worst, differing = distance(got, want), int(np.count_nonzero(got != want))
    print(f"conv2d {layer}: {worst} ulp, {differing} of {got.size} differ")
    assert status == Status.ZDNN_OK
    assert worst <= 1
    assert distance(convolved(layer, layer_operands, fp64(), act_func=1)[0], want) == 0


@pytest.mark.parametrize("layer", [*LAYERS, pytest.param(RESNET[2], marks=pytest.mark.heavy)])
def test_onnx_runtime_agrees(layer: Layer) -> None:
    """ONNX Runtime in FP32 agrees within rtol 0.05 and atol 0.01."""
    layer_operands = operands(layer)
    x, kernel, bias = (decoded(array).astype(np.float32) for array in layer_operands)
    stride = (max(layer.stride[0], 1), max(layer.stride[1], 1))
    want = onnx_convolution(x, kernel, bias.reshape(-1), stride, layer.same)
    got = decoded(convolved(layer, layer_operands)[0]).astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=0.05, atol=0.01)


@pytest.mark.parametrize("limits", BLOCK_LIMITS)
def test_blocks_change_no_more_than_the_order(
    limits: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small the blocks are, float64 sums round to the same bits."""
    for name, limit in zip(("WEIGHTS", "WINDOWS", "SUMS"), limits, strict=True):
        monkeypatch.setattr(engine, name, limit)
    for layer in (LAYERS[2], LAYERS[6], Layer((2, 4, 5, 130), (3, 2), 140, (1, 1), True)):
        layer_operands = operands(layer)
        want = rounded(exact(layer, layer_operands)).tolist()
        assert convolved(layer, layer_operands, fp64())[0].tolist() == want
        assert distance(convolved(layer, layer_operands)[0], np.array(want, np.uint16)) <= 1


@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
def test_an_output_in_the_place_of_its_input(accumulate: str) -> None:
    """Windows that overlap read the input, and never what was written over it."""
    layer = Layer((2, 64, 64, 64), (3, 3), 64, (1, 1), True)
    layer_operands, program = operands(layer), fp64() if accumulate == "fp64" else guest()
    expected, _ = convolved(layer, layer_operands, program)
    both = tensor(layer_operands[0])
    arguments: dict[str, Any] = {
        "input": both, "kernel": tensor(layer_operands[1], KERNEL), "output": both,
        "bias": tensor(layer_operands[2]), "padding_type": 1, "stride_height": 1, "stride_width": 1,
        "act_func": 0,
    }  # fmt: skip
    assert run(program, "conv2d", arguments).status == Status.ZDNN_OK
    assert np.array_equal(cells(both), expected)


def test_same_call_same_bits() -> None:
    """A convolution gives the same bits every time."""
    layer = LAYERS[3]
    layer_operands = operands(layer)
    first = convolved(layer, layer_operands)[0].tolist()
    assert all(convolved(layer, layer_operands)[0].tolist() == first for _ in range(5))


def test_images_do_not_depend_on_their_batch_in_fp64() -> None:
    """With float64 sums an image keeps its bits whatever the batch around it."""
    layer = Layer((9, 6, 7, 40), (3, 3), 70, (1, 1), True)
    layer_operands = operands(layer)
    whole, _ = convolved(layer, layer_operands, fp64())
    for index in range(9):
        single = replace(layer, dims=(1, *layer.dims[1:]))
        image = (layer_operands[0][index : index + 1], *layer_operands[1:])
        assert convolved(single, image, fp64())[0].tolist() == whole[index : index + 1].tolist()


@pytest.mark.parametrize("clipping", [None, 0.0, 4.0, 1e-12])
@pytest.mark.parametrize("accumulate", ["fp32", "fp64"])
def test_relu_and_clipping(clipping: float | None, accumulate: str) -> None:
    """CONV2D_ACT_RELU gives max(0, x), at most the clipping value unless that rounds to 0."""
    layer = LAYERS[2]
    x, kernel, bias = operands(layer)
    layer_operands = (x, kernel, rounded(decoded(bias) - 4))
    program = fp64() if accumulate == "fp64" else None
    got, _ = convolved(layer, layer_operands, program, act_func=17, clipping_value=clipping)
    limit = float(decoded(rounded(clipping or 0.0)))
    want = rounded(oracle.rectified(exact(layer, layer_operands), limit))
    assert distance(got, want) <= 1
    assert not np.any(got & 0x8000)


@pytest.mark.parametrize("program", [guest(), fp64()])
def test_clipping_is_ignored_without_relu(program: Guest) -> None:
    """With CONV2D_ACT_NONE a bad clipping value does nothing."""
    layer = LAYERS[1]
    layer_operands = operands(layer)
    got, status = convolved(layer, layer_operands, program, clipping_value=-1.0)
    assert status == Status.ZDNN_OK
    assert distance(got, rounded(exact(layer, layer_operands))) <= 1


@pytest.mark.parametrize("program", [guest(), fp64()])
@pytest.mark.parametrize("act", [0, 1])
def test_ninf(program: Guest, act: int) -> None:
    """NINF spreads to the windows over it, or to the output channel of a kernel or bias."""
    layer = Layer((1, 5, 5, 3), (2, 2), 3, (3, 3), False)
    layer_operands = operands(layer)
    layer_operands[0][0, 2, 2, 0] = NINF
    got, status = convolved(layer, layer_operands, program, act_func=act)
    assert status == Status.ZDNN_OK, "no window covers it"
    for operand, place, hit in (
        (0, (0, 4, 4, 2), (0, 1, 1)),
        (1, (1, 1, 2, 2), (..., 2)),
        (2, (0, 0, 0, 1), (..., 1)),
    ):
        bad = [one_of.copy() for one_of in layer_operands]
        bad[operand][place] = 0xFFFF
        spoilt, status = convolved(layer, (bad[0], bad[1], bad[2]), program, act_func=act)
        assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
        want = got.copy()
        want[hit] = NINF
        assert spoilt.tolist() == want.tolist()


@pytest.mark.parametrize("program", [guest(), fp64()])
def test_overflow_keeps_its_sign(program: Guest) -> None:
    """A sum beyond the range is NINF of its sign; relu and clipping come before rounding."""
    layer = Layer((1, 1, 1, 2), (1, 1), 2, (1, 1), False)
    kernel = np.array([[[[0x7FFE, 0xFFFE], [0x7FFE, 0xFFFE]]]], np.uint16)
    layer_operands = (
        np.full((1, 1, 1, 2), 0x7FFE, np.uint16),
        kernel,
        np.zeros((1, 1, 1, 2), np.uint16),
    )
    got, status = convolved(layer, layer_operands, program)
    assert got.reshape(-1).tolist() == [0x7FFF, 0xFFFF]
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    got, status = convolved(layer, layer_operands, program, act_func=1, clipping_value=6.0)
    assert decoded(got).reshape(-1).tolist() == [6.0, 0.0]
    assert status == Status.ZDNN_OK


def test_telum_1() -> None:
    """Telum I gives the same bits."""
    layer = LAYERS[1]
    layer_operands = operands(layer)
    got = convolved(layer, layer_operands, guest("telum1"))[0]
    assert got.tolist() == convolved(layer, layer_operands)[0].tolist()
