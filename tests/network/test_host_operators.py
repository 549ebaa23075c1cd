# SPDX-License-Identifier: Apache-2.0
"""Host operators of our own, beside float64 and ONNX Runtime, however images lie in memory."""

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nnpa_emulator.kernels import table
from nnpa_emulator.reference import table as reference_table
from nnpa_network.running import host
from nnpa_network.running.host_operators import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    has_channels_last,
    own_kernel,
)
from onnx import helper

from tests.network.hosting import Array, agree, load, normal, reference
from tests.network.small_models import depthwise

OPSET = 18
EPSILON = float(np.finfo(np.float32).eps)
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
ends = st.integers(0, 3)


def _own(node: onnx.NodeProto, arrays: list[Array]) -> host.Kernel | None:
    """Return what computes a node whose inputs but the first are constants."""
    shapes = [array.shape for array in arrays]
    return own_kernel(node, [array.dtype for array in arrays], shapes, [None, *arrays[1:]])


def _runtime(node: onnx.NodeProto, arrays: list[Array]) -> list[Array]:
    dtypes = tuple(array.dtype for array in arrays)
    return host.prepare(node.SerializeToString(), OPSET, dtypes)(arrays)


def _turned(array: Array) -> Array:
    """Return the same image with its channels last in memory."""
    return np.ascontiguousarray(array.transpose(CHANNELS_LAST)).transpose(CHANNELS_FIRST)


def _conv(**attributes: Any) -> onnx.NodeProto:
    return helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)


def _in_float64(
    image: Array, weights: Array, bias: Array, attributes: dict[str, Any]
) -> tuple[Array, Array]:
    """Return a depthwise convolution, and the sums of its terms' magnitudes."""
    top, left, bottom, right = attributes["pads"]
    padded = np.pad(image.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    (down, across), (apart, aside) = attributes["strides"], attributes["dilations"]
    reach = (weights.shape[2] - 1) * apart + 1, (weights.shape[3] - 1) * aside + 1
    under = np.lib.stride_tricks.sliding_window_view(padded, reach, (2, 3))
    terms = under[:, :, ::down, ::across, ::apart, ::aside] * weights[:, 0][None, :, None, None]
    added = bias[None, :, None, None].astype(np.float64)
    return terms.sum((4, 5)) + added, np.abs(terms).sum((4, 5)) + np.abs(added)


@given(
    size=st.tuples(st.integers(1, 2), st.integers(2, 70), st.integers(7, 12), st.integers(7, 12)),
    kernel=pairs, strides=pairs, dilations=pairs, pads=st.tuples(ends, ends, ends, ends),
)  # fmt: skip
def test_depthwise_convolutions_are_within_fp32_of_float64(
    size: tuple[int, int, int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, int, int, int],
) -> None:
    """Each product and each addition rounds once; how an image lies does not change a bit."""
    attributes = {"strides": strides, "dilations": dilations, "pads": pads}
    image, weights, bias = normal(*size), normal(size[1], 1, *kernel, seed=1), normal(size[1])
    compute = _own(_conv(group=size[1], **attributes), [image, weights, bias])
    assert compute is not None
    (result,) = compute([image, weights, bias])
    expected, magnitudes = _in_float64(image, weights, bias, attributes)
    assert result.shape == expected.shape
    rounded = (kernel[0] * kernel[1] + 1) * EPSILON * magnitudes
    assert np.all(np.abs(result - expected) <= rounded)
    (turned,) = compute([_turned(image), weights, bias])
    assert np.ascontiguousarray(turned).tobytes() == np.ascontiguousarray(result).tobytes()


@pytest.mark.parametrize("padding", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_automatic_padding(padding: str) -> None:
    """auto_pad works as in ONNX Runtime, with strides that do not divide the size."""
    arrays: list[Array] = [normal(1, 5, 10, 9), normal(5, 1, 4, 3, seed=1), normal(5)]
    node = _conv(group=5, auto_pad=padding, strides=[3, 2])
    compute = _own(node, arrays)
    assert compute is not None
    (result,), (expected,) = compute(arrays), _runtime(node, arrays)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["HardSigmoid", "HardSwish"])
def test_hard_activations(name: str) -> None:
    """They are ONNX Runtime's within a rounding, and leave images as they lie."""
    image = 4 * normal(2, 5, 3, 4)
    image[0, 0, 0, :3] = np.nan, np.inf, -np.inf
    node = helper.make_node(name, ["x"], ["y"])
    compute = _own(node, [image])
    assert compute is not None
    (result,), (turned,) = compute([image]), compute([_turned(image)])
    np.testing.assert_allclose(result, _runtime(node, [image])[0], rtol=1e-6, atol=1e-6)
    assert np.array_equal(result, turned, equal_nan=True)
    assert has_channels_last(turned)


def _vector(*numbers: int) -> npt.NDArray[np.int64]:
    return np.array(numbers, np.int64)


IMAGE = normal(2, 6, 5, 4)
MOVES: dict[str, tuple[str, list[Array], dict[str, Any]]] = {
    "concat": ("Concat", [IMAGE, IMAGE[:, :2]], {"axis": 1}),
    "concat rows": ("Concat", [IMAGE, IMAGE], {"axis": -2}),
    "expand": ("Expand", [IMAGE[:, :, :1, :1], _vector(2, 6, 5, 4)], {}),
    "expand a rank": ("Expand", [IMAGE[0, 0], _vector(3, 1, 1, 4)], {}),
    "gather": ("Gather", [IMAGE, _vector(3, -1, 0, 3)], {"axis": 1}),
    "gather rows": ("Gather", [IMAGE[0, 0], _vector(1, 0).reshape(2, 1)], {}),
    "gather one": ("Gather", [IMAGE, np.array(-5, np.int64)], {"axis": -2}),
    "pad": ("Pad", [IMAGE, _vector(0, 1, 2, 0, 0, 0, 1, 3)], {}),
    "pad by a number": (
        "Pad",
        [IMAGE, _vector(0, 0, 1, 1, 0, 0, 1, 1), np.array(-2, np.float32)],
        {},
    ),
    "crop": ("Pad", [IMAGE, _vector(0, 0, -1, 1, 0, -2, -1, 2)], {}),
    "reshape": ("Reshape", [IMAGE, _vector(0, -1, 2)], {}),
    "reshape to a size of none": ("Reshape", [IMAGE[:, :0], _vector(0, 3)], {"allowzero": 1}),
    "slice": ("Slice", [IMAGE, _vector(1), _vector(4), _vector(1)], {}),
    "slice from behind": (
        "Slice",
        [IMAGE, _vector(-1, 0), _vector(-(1 << 62), 99), _vector(3, 1), _vector(-2, 3)],
        {},
    ),
    "slice of first axes": ("Slice", [IMAGE, _vector(0, 2), _vector(1, -1)], {}),
    "split": ("Split", [IMAGE, _vector(1, 5)], {"axis": 1}),
    "transpose": ("Transpose", [IMAGE], {"perm": [0, 2, 3, 1]}),
    "transpose by default": ("Transpose", [IMAGE], {}),
}


@pytest.mark.parametrize("name", MOVES)
def test_moved_elements_agree_with_onnx_runtime(name: str) -> None:
    """Elements come where ONNX Runtime has them, of any type, however an image lies."""
    op_type, operands, attributes = MOVES[name]
    outputs = ["y", "z"] if op_type == "Split" else ["y"]
    names = [f"i{at}" for at in range(len(operands))]
    node = helper.make_node(op_type, names, outputs, **attributes)
    for dtype in (np.float32, np.float16, np.int64):
        arrays = [
            np.asarray(array if array.dtype == np.int64 else (8 * array).astype(dtype))
            for array in operands
        ]
        compute = _own(node, arrays)
        assert compute is not None
        expected = _runtime(node, arrays)
        lying = [arrays]
        if arrays[0].ndim == 4:
            lying.append([_turned(array) if array.ndim == 4 else array for array in arrays])
        for given_ in lying:
            results = compute(given_)
            assert len(results) == len(expected)
            for result, array in zip(results, expected, strict=True):
                assert (result.dtype, result.shape) == (array.dtype, array.shape)
                assert np.ascontiguousarray(result).tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "node",
    [
        _conv(group=1), _conv(group=3, strides=[0, 1]), _conv(group=3, pads=[-1, 0, 0, 0]),
        _conv(group=3, kernel_shape=[2, 2]), _conv(group=3, dilations=[9, 9]),
        _conv(group=2), _conv(group=3, dilations=[0, 1]), _conv(group=3, strides=[1]),
    ],
)  # fmt: skip
def test_other_convolutions_are_left_to_onnx_runtime(node: onnx.NodeProto) -> None:
    """One group, attributes that contradict each other, windows that do not fit."""
    assert _own(node, [normal(1, 3, 6, 6), normal(3, 1, 3, 3), normal(3)]) is None


def test_operands_of_other_shapes() -> None:
    """Operands that are not as declared end the node, not the process."""
    arrays: list[Array] = [normal(1, 3, 6, 6), normal(3, 1, 3, 3), normal(3)]
    dtypes, shapes = [array.dtype for array in arrays], [array.shape for array in arrays]
    compute = own_kernel(_conv(group=3), dtypes, shapes, [None] * 3)
    assert compute is not None
    assert compute(arrays)[0].shape == (1, 3, 4, 4)
    for position, shape in [(0, (1, 3, 5, 6)), (1, (3, 1, 2, 3)), (2, (4,))]:
        wrong = [*arrays]
        wrong[position] = normal(*shape)
        with pytest.raises(host.HostError, match="operands of shapes"):
            compute(wrong)


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
def test_a_network_with_depthwise_convolutions(machine: str) -> None:
    """It agrees with ONNX Runtime within a few roundings, by the references too."""
    model = depthwise().SerializeToString()
    executor = load(model, machine).executor({})
    feeds = {"x": normal(*executor.program.inputs[0].shape)}
    expected = reference(model, feeds)[0]
    for _ in range(3):
        (result,) = executor.run(feeds).outputs.values()
        np.testing.assert_allclose(result, expected, rtol=0.02, atol=0.02)


def test_operations_behind_a_depthwise_convolution_take_images() -> None:
    """The convolution's result goes into sticks once, channels last, for all its readers."""
    body = (
        "g (float[1,5,6,7] x, float[5,1,3,3] w, float[4,5,1,1] v) => (float[1,4,4,5] y) {"
        " d = Conv <group = 5> (x, w)  s = Sigmoid(d)  m = Mul(d, s)  y = Conv(m, v) }"
    )
    feeds = {"x": normal(1, 5, 6, 7), "w": normal(5, 1, 3, 3), "v": normal(4, 5, 1, 1)}
    result, _ = agree(body, feeds)
    assert result.calls["transform_ztensor_with_saturation"] == 2  # one for the kernel v
    assert result.calls["transform_origtensor"] == 1


def test_images_between_sticks_are_never_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once steps are prepared, only the network's input and its output change their order."""
    executor = load(depthwise().SerializeToString()).executor({})
    feeds = {"x": normal(*executor.program.inputs[0].shape)}
    for _ in range(2):
        executor.run(feeds)
    turned = list[str]()
    monkeypatch.setattr(table, "walk", reference_table.walk)  # Python makes the calls
    for name in ("stickify_nchw", "unstickify_nchw"):
        kernel: Any = getattr(table, name)

        def counted(*arguments: Any, name: str = name, kernel: Any = kernel) -> Any:
            turned.append(name)
            return kernel(*arguments)

        monkeypatch.setattr(table, name, counted)
    executor.run(feeds)
    assert turned == ["stickify_nchw", "unstickify_nchw"]
