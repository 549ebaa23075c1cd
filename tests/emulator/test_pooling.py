# SPDX-License-Identifier: Apache-2.0
"""Pooling against the oracle: windows, strides, padding, edges of sticks and pages."""

import numpy as np
import pytest
from nnpa_emulator import FUNCTIONS, Status, run
from nnpa_emulator.shape_inference import resized
from nnpa_emulator.ztensor import DataLayouts, init_pre_transformed_desc

from tests.emulator.operands import NINF, Codes, Dims, blank, cells, guest, tensor, values
from tests.oracle import onnx_layers
from tests.oracle import pooling as oracle
from tests.oracle.rounding import decoded, distance, rounded

Shape = tuple[Dims, tuple[int, int], tuple[int, int], bool]

SHAPES: list[Shape] = [
    ((1, 1, 1, 1), (1, 1), (1, 1), False),
    ((2, 3, 3, 3), (2, 2), (2, 2), True),
    ((1, 5, 4, 64), (2, 3), (1, 2), False),
    ((1, 5, 4, 65), (2, 3), (3, 1), True),
    ((2, 4, 31, 63), (3, 3), (2, 2), True),
    ((1, 3, 32, 127), (3, 3), (1, 1), True),
    ((1, 3, 33, 129), (2, 5), (2, 3), False),
    ((1, 2, 65, 128), (2, 2), (2, 2), False),
    ((1, 7, 6, 2), (1, 1), (3, 4), True),
    ((1, 70, 2, 2), (64, 2), (30, 1), False),
    ((2, 7, 5, 66), (7, 5), (0, 0), False),
    ((1, 1, 100, 3), (1, 100), (0, 0), False),
]
# ResNet-50: the pooling behind the first convolution and the global one at the end.
RESNET: list[Shape] = [
    ((1, 112, 112, 64), (3, 3), (2, 2), True),
    ((1, 7, 7, 2048), (7, 7), (0, 0), False),
]


def pool(name: str, source: Codes, shape: Shape, machine: str = "telum2") -> tuple[Codes, int]:
    """Run a pooling, output described by the emulator; return its codes and the status."""
    _, kernel, stride, same = shape
    arguments: dict[str, object] = {
        "input": tensor(source),
        "padding_type": int(same),
        "kernel_height": kernel[0],
        "kernel_width": kernel[1],
        "stride_height": stride[0],
        "stride_width": stride[1],
    }
    infer = FUNCTIONS[name].infer
    assert infer
    ((_, desc),) = infer(**arguments)
    output = blank(desc.dims)
    status = run(guest(machine, precheck=True), name, {**arguments, "output": output}).status
    assert output.is_transformed
    return cells(output), status


def data(dims: Dims) -> Codes:
    """Return random codes of a shape."""
    return rounded(np.random.default_rng(sum(dims)).normal(0, 2, dims))


@pytest.mark.parametrize("shape", SHAPES)
def test_average_is_correctly_rounded(shape: Shape) -> None:
    """The average of the elements inside the input is exactly rounded."""
    source = data(shape[0])
    got, status = pool("avgpool2d", source, shape)
    assert got.tolist() == rounded(oracle.average(decoded(source), *shape[1:])).tolist()
    assert status == Status.ZDNN_OK


@pytest.mark.parametrize("shape", SHAPES)
def test_maximum_is_exact(shape: Shape) -> None:
    """The greatest element of every window is selected, bit by bit."""
    source = data(shape[0])
    source.reshape(-1)[::3] |= 0x8000
    source.reshape(-1)[::7] &= 0x8000
    got, status = pool("maxpool2d", source, shape)
    assert got.tolist() == oracle.maximum(source, *shape[1:]).tolist()
    assert status == Status.ZDNN_OK


@pytest.mark.parametrize(("name", "kind"), [("avgpool2d", "AveragePool"), ("maxpool2d", "MaxPool")])
@pytest.mark.parametrize("shape", [*SHAPES[:-2], pytest.param(RESNET[0], marks=pytest.mark.heavy)])
def test_onnx_runtime_agrees(name: str, kind: str, shape: Shape) -> None:
    """ONNX Runtime in FP32 agrees within rtol 0.05 and atol 0.01."""
    source = data(shape[0])
    want = onnx_layers.pooling(kind, decoded(source).astype(np.float32), *shape[1:])
    got = decoded(pool(name, source, shape)[0]).astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=0.05, atol=0.01)


@pytest.mark.heavy
@pytest.mark.parametrize("shape", RESNET)
def test_pooling_of_resnet_50(shape: Shape) -> None:
    """The pooling layers of ResNet-50 are exact."""
    source = data(shape[0])
    worst = distance(
        pool("avgpool2d", source, shape)[0], rounded(oracle.average(decoded(source), *shape[1:]))
    )
    print(f"avgpool2d {shape}: {worst} ulp")
    assert worst == 0
    got, _ = pool("maxpool2d", source, shape)
    assert got.tolist() == oracle.maximum(source, *shape[1:]).tolist()


def test_padding_behind() -> None:
    """Of an odd padding the odd element is behind: 3 x 3, window 2, stride 2, SAME."""
    source = rounded(np.arange(1, 10).reshape(1, 3, 3, 1))
    got, _ = pool("avgpool2d", source, ((1, 3, 3, 1), (2, 2), (2, 2), True))
    assert decoded(got).reshape(-1).tolist() == [3, 4.5, 7.5, 9]


@pytest.mark.parametrize("name", ["avgpool2d", "maxpool2d"])
@pytest.mark.parametrize("ninf", [0x7FFF, 0xFFFF])
def test_ninf_in_a_window(name: str, ninf: int) -> None:
    """NINF makes the results of its windows 7FFF; outside all windows it is not looked at."""
    shape: Shape = ((1, 5, 5, 70), (2, 2), (3, 3), False)
    source = rounded(np.ones((1, 5, 5, 70)))
    source[0, 2, 2, 0] = ninf
    got, status = pool(name, source, shape)
    assert status == Status.ZDNN_OK
    assert np.all(got == 0x3E00)
    source[0, 4, 1, 69] = ninf
    got, status = pool(name, source, shape)
    assert status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    assert got[0, 1, 0, 69] == NINF
    assert np.count_nonzero(got != 0x3E00) == 1


def test_average_that_overflows_by_sums_only() -> None:
    """Sums are not rounded: the average of greatest numbers is the greatest number."""
    source = np.full((1, 8, 8, 1), 0x7FFE, np.uint16)
    got, status = pool("avgpool2d", source, ((1, 8, 8, 1), (8, 8), (0, 0), False))
    assert got.reshape(-1).tolist() == [0x7FFE]
    assert status == Status.ZDNN_OK


@pytest.mark.parametrize("name", ["avgpool2d", "maxpool2d"])
def test_telum_1_and_padding_cut_to_three_bits(name: str) -> None:
    """Telum I gives the same bits, and padding 9 is SAME_PADDING."""
    shape: Shape = ((1, 5, 5, 3), (2, 2), (2, 2), True)
    source = data((1, 5, 5, 3))
    got, _ = pool(name, source, shape)
    assert pool(name, source, shape, machine="telum1")[0].tolist() == got.tolist()
    output = blank((1, 3, 3, 3))
    sizes = {"kernel_height": 2, "kernel_width": 2, "stride_height": 2, "stride_width": 2}
    arguments = {"input": tensor(source), "padding_type": 9, **sizes, "output": output}
    assert run(guest(), name, arguments).status == Status.ZDNN_OK
    assert cells(output).tolist() == got.tolist()


def test_described_layouts() -> None:
    """An output left to the emulator keeps the user's layout where that can express it."""
    source = values(np.ones((2, 3, 4, 5)))
    source.pre_transformed_desc = init_pre_transformed_desc(DataLayouts.ZDNN_NCHW, 255, 2, 5, 3, 4)
    pre, transformed = resized(source, (2, 1, 2, 7))
    assert pre == init_pre_transformed_desc(DataLayouts.ZDNN_NCHW, 255, 2, 7, 1, 2)
    assert transformed.dims == (2, 1, 2, 7)
    source.pre_transformed_desc = init_pre_transformed_desc(DataLayouts.ZDNN_3DS, 254, 2, 4, 5)
    assert resized(source, (2, 1, 4, 1))[0] == init_pre_transformed_desc(
        DataLayouts.ZDNN_3DS, 254, 2, 4, 1
    )
    assert resized(source, (2, 3, 4, 1))[0] == init_pre_transformed_desc(
        DataLayouts.ZDNN_NHWC, 254, 2, 3, 4, 1
    )


@pytest.mark.parametrize("name", ["avgpool2d", "maxpool2d"])
def test_an_output_in_the_place_of_its_input(name: str) -> None:
    """Windows that overlap read the input, and never what was written over it."""
    shape: Shape = ((2, 5, 3, 66), (3, 2), (1, 1), True)
    expected, _ = pool(name, data(shape[0]), shape)
    both = tensor(data(shape[0]))
    scalars = {"padding_type": 1, "kernel_height": 3, "kernel_width": 2}
    arguments = {"input": both, **scalars, "stride_height": 1, "stride_width": 1, "output": both}
    assert run(guest("telum2", precheck=True), name, arguments).status == Status.ZDNN_OK
    assert np.array_equal(cells(both), expected)
