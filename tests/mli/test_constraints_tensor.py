# SPDX-License-Identifier: Apache-2.0
"""Constraints of a valid tensor, of the activations and of the fully connected kernels."""

import numpy as np
import pytest
from mli_emulator import DebugLevel, ElType, FxParams, MliStatus, Options, SaParams, Tensor

from tests.mli.golden_records import TYPES
from tests.mli.scenes import M, N, Scene, activation, convert, fully_connected, tensor

BAD = MliStatus.MLI_STATUS_BAD_TENSOR
SHAPE = MliStatus.MLI_STATUS_SHAPE_MISMATCH
INCOMPATEBLE = MliStatus.MLI_STATUS_INCOMPATEBLE_TENSORS
MEMORY = MliStatus.MLI_STATUS_NOT_ENGH_MEM
TYPE = MliStatus.MLI_STATUS_TYPE_MISMATCH
UNSUPPORTED = MliStatus.MLI_STATUS_NOT_SUPPORTED

VARIANTS = pytest.mark.parametrize("variant", sorted(TYPES))
ACTIVATIONS = pytest.mark.parametrize("name", ["tanh_fx8", "tanh_fx16", "sigm_fx8", "sigm_fx16"])
INPUTS = pytest.mark.parametrize("name", ["in_", "weights", "bias"])


def test_tensor_c1() -> None:
    """A tensor is not NULL."""
    scene = convert()
    scene.arguments["src"] = None
    scene.refused("tensor_c1", BAD)


def test_tensor_c2() -> None:
    """Rank is at most 4."""
    scene = convert()
    scene["src"].shape, scene["src"].rank = (1, 1, 1, 1, 2), 5
    scene.refused("tensor_c2", BAD)


@pytest.mark.parametrize("strides", [(-3, 1), (3, -1), (0, -1)])
def test_tensor_c3(strides: tuple[int, int]) -> None:
    """No stride is negative."""
    scene = convert()
    scene["src"].mem_stride = strides
    scene.refused("tensor_c3", BAD)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (2,)])
def test_tensor_c4(shape: tuple[int, ...]) -> None:
    """No extent is 0, nor absent below the rank."""
    scene = convert()
    scene["src"].shape = shape
    scene.refused("tensor_c4", BAD)


@pytest.mark.parametrize("strides", [(2, 1), (5, 2)])
def test_tensor_c5(strides: tuple[int, int]) -> None:
    """Given strides leave room for the dimensions inside them."""
    scene = convert()
    scene["src"].mem_stride = strides
    scene.refused("tensor_c5", BAD)


@pytest.mark.parametrize(("strides", "needed"), [((), 6), ((4, 1), 7), ((0, 1), 6)])
def test_tensor_c6(strides: tuple[int, ...], needed: int) -> None:
    """Capacity holds the last element that the strides reach."""
    scene = convert()
    scene["src"].mem_stride, scene["src"].capacity = strides, needed - 1
    scene.refused("tensor_c6", MEMORY)
    scene["src"].capacity = needed
    assert scene.run().status is MliStatus.MLI_STATUS_OK


@pytest.mark.parametrize("scale", [0, -1])
def test_tensor_c7(scale: int) -> None:
    """Scales of a source are positive."""
    scene = convert(ElType.MLI_EL_SA_8)
    scene["src"].el_params = SaParams((0, 0), (1, scale), (0, 0), 0)
    scene.refused("tensor_c7", BAD)


def test_tensor_c8() -> None:
    """The data pointer is not NULL."""
    scene = convert()
    scene["src"].data = None
    scene.refused("tensor_c8", BAD)


@VARIANTS
@INPUTS
def test_tensor_c9(variant: str, name: str) -> None:
    """The 1.x kernels hold fractional bits in an unsigned byte."""
    scene = fully_connected(variant)
    scene["in_"].el_params = scene["weights"].el_params = FxParams(40)
    scene[name].el_params = FxParams(-1)
    scene.refused("tensor_c9", BAD)


@ACTIVATIONS
def test_activation_c1(name: str) -> None:
    """The input is a valid tensor."""
    scene = activation(name)
    scene["in_"].capacity = 1
    scene.refused("tensor_c6", MEMORY)


@ACTIVATIONS
def test_activation_c2(name: str) -> None:
    """The input has the kernel's element type."""
    scene = activation(name)
    scene["in_"].el_type = ElType.MLI_EL_SA_8
    scene.refused("activation_c2", TYPE)


@ACTIVATIONS
def test_activation_c3(name: str) -> None:
    """The input's fractional bits are in 0..255."""
    scene = activation(name)
    scene["in_"].el_params = FxParams(-1)
    scene.refused("activation_c3", BAD)


@ACTIVATIONS
@pytest.mark.parametrize("null", [True, False])
def test_activation_c4(name: str, null: bool) -> None:
    """The output is not NULL and has a data pointer."""
    scene = activation(name)
    scene["out"].data = None
    if null:
        scene.arguments["out"] = None
    scene.refused("activation_c4", BAD)


@ACTIVATIONS
def test_activation_c5(name: str) -> None:
    """Half-given strides do not lead beyond the memory of the input."""
    scene = activation(name)
    scene["in_"].mem_stride = (100, 0)
    scene.refused("activation_c5", MEMORY)


@ACTIVATIONS
def test_activation_c6(name: str) -> None:
    """The output's capacity holds the result."""
    scene = activation(name)
    scene["out"].capacity = 5
    scene.refused("activation_c6", MEMORY)


@ACTIVATIONS
def test_activation_c7(name: str) -> None:
    """The output overlaps the input at the identical start only."""
    scene = activation(name)
    data = scene["in_"].data
    assert data is not None
    scene["out"].data, scene["out"].capacity = data[2:], data.nbytes - 2
    scene.refused("activation_c7", INCOMPATEBLE)
    apart = activation(name)
    apart.run()
    scene["out"].data, scene["out"].capacity = data, data.nbytes
    assert scene.run().status is MliStatus.MLI_STATUS_OK
    assert scene["out"].data is not None
    assert apart["out"].data is not None
    assert scene["out"].data[:6].tolist() == apart["out"].data[:6].tolist()


@VARIANTS
@INPUTS
def test_fully_connected_c1(variant: str, name: str) -> None:
    """Input, weights and bias are not NULL."""
    scene = fully_connected(variant)
    scene.arguments[name] = None
    scene.refused("fully_connected_c1", BAD)


@VARIANTS
@INPUTS
@pytest.mark.parametrize("kind", [ElType.MLI_EL_SA_8, ElType.MLI_EL_FP_32, 3])
def test_fully_connected_c2(variant: str, name: str, kind: int) -> None:
    """Input, weights and bias have the variant's element types."""
    scene = fully_connected(variant)
    scene[name].el_type = kind
    scene.refused("fully_connected_c2", TYPE)


@VARIANTS
def test_fully_connected_c3(variant: str) -> None:
    """Bias has at most the fractional bits of input and weights together."""
    scene = fully_connected(variant)
    scene["bias"].el_params = FxParams(10)
    scene.refused("fully_connected_c3", INCOMPATEBLE)
    scene["bias"].el_params = FxParams(9)
    assert scene.run().status is MliStatus.MLI_STATUS_OK


@VARIANTS
@INPUTS
def test_fully_connected_c4(variant: str, name: str) -> None:
    """Input, weights and bias are valid tensors."""
    scene = fully_connected(variant)
    scene[name].shape = (0,) * scene[name].rank
    scene.refused("tensor_c4", BAD)


@VARIANTS
@pytest.mark.parametrize("null", [True, False])
def test_fully_connected_c5(variant: str, null: bool) -> None:
    """The output is not NULL and has a data pointer."""
    scene = fully_connected(variant)
    scene["out"].data = None
    if null:
        scene.arguments["out"] = None
    scene.refused("fully_connected_c5", BAD)


def reshaped(scene: Scene, name: str, shape: tuple[int, ...]) -> Scene:
    """Give a tensor another shape."""
    scene[name].shape, scene[name].rank = shape, len(shape)
    return scene


@VARIANTS
def test_fully_connected_c6(variant: str) -> None:
    """Weights have two dimensions."""
    reshaped(fully_connected(variant), "weights", (M, N, 1)).refused("fully_connected_c6", SHAPE)


@VARIANTS
def test_fully_connected_c7(variant: str) -> None:
    """Bias has one dimension."""
    reshaped(fully_connected(variant), "bias", (M, 1)).refused("fully_connected_c7", SHAPE)


@VARIANTS
@pytest.mark.parametrize("shape", [(N + 1,), (N, 2), ()])
def test_fully_connected_c8(variant: str, shape: tuple[int, ...]) -> None:
    """The input's elements, in any shape, are equal in number to the weights' columns."""
    reshaped(fully_connected(variant), "in_", shape).refused("fully_connected_c8", SHAPE)
    accepted = reshaped(fully_connected(variant), "in_", (2, 1, N // 2))
    assert accepted.run().status is MliStatus.MLI_STATUS_OK


@VARIANTS
def test_fully_connected_c9(variant: str) -> None:
    """Bias is as long as the weights have rows."""
    reshaped(fully_connected(variant), "bias", (M + 1,)).refused("fully_connected_c9", SHAPE)


@VARIANTS
def test_fully_connected_c10(variant: str) -> None:
    """The input is contiguous."""
    scene = fully_connected(variant)
    scene["in_"].mem_stride = (2,)
    scene.refused("fully_connected_c10", INCOMPATEBLE)


@VARIANTS
def test_fully_connected_c11(variant: str) -> None:
    """The rows of the weights are dense; a row pitch is allowed."""
    scene = fully_connected(variant)
    scene["weights"].mem_stride = (2 * N, 2)
    scene.refused("fully_connected_c11", INCOMPATEBLE)
    scene["weights"].mem_stride = (2 * N, 1)
    assert scene.run().status is MliStatus.MLI_STATUS_OK


@VARIANTS
def test_fully_connected_c12(variant: str) -> None:
    """Bias is contiguous."""
    scene = fully_connected(variant)
    scene["bias"].mem_stride = (2,)
    scene.refused("fully_connected_c12", INCOMPATEBLE)


@VARIANTS
def test_fully_connected_c13(variant: str) -> None:
    """The output is contiguous."""
    scene = fully_connected(variant)
    scene["out"].mem_stride = (2,)
    scene.refused("fully_connected_c13", INCOMPATEBLE)


@VARIANTS
def test_fully_connected_c14(variant: str) -> None:
    """The output's capacity holds M elements."""
    scene = fully_connected(variant)
    scene["out"].capacity = M * (1 if variant == "fx8" else 2) - 1
    scene.refused("fully_connected_c14", MEMORY)
    scene["out"].capacity += 1
    assert scene.run().status is MliStatus.MLI_STATUS_OK


@VARIANTS
def test_fully_connected_c15(variant: str) -> None:
    """A row pitch beside a derived inner stride does not lead beyond the memory."""
    scene = fully_connected(variant)
    scene["weights"].mem_stride = (1000, 0)
    scene.refused("fully_connected_c15", MEMORY)


@VARIANTS
@pytest.mark.parametrize("params", [None, SaParams((0,), (1,), (0,)), FxParams(-1)])
def test_fully_connected_c16(variant: str, params: FxParams | SaParams | None) -> None:
    """The output comes with 0..255 fractional bits."""
    scene = fully_connected(variant)
    scene["out"].el_params = params
    scene.refused("fully_connected_c16", BAD)


@VARIANTS
@INPUTS
def test_fully_connected_c17(variant: str, name: str) -> None:
    """The output overlaps no other tensor."""
    scene = fully_connected(variant)
    shared = scene[name].data
    scene["out"].data, scene["out"].capacity = shared, scene[name].capacity
    outcome = scene.refused("fully_connected_c17", INCOMPATEBLE)
    assert outcome.refusal is not None
    assert name.rstrip("_") in outcome.refusal.value


def overflowing(variant: str) -> Scene:
    """A layer whose partial sums leave the accumulator although their total fits."""
    io, kind = TYPES[variant]
    half = {"fx8": 140000, "fx16": 600, "fx8w16d": 600}[variant]
    low = -(1 << (7 if variant == "fx8" else 15))
    weight_low = -(1 << (15 if variant == "fx16" else 7))
    scene = fully_connected(variant)
    signs = np.repeat([1, -1], half)
    scene.arguments["in_"] = exact(np.where(signs > 0, low, -low - 1), io)
    scene.arguments["weights"] = exact(np.full((1, 2 * half), weight_low), kind)
    scene.arguments["bias"] = exact(np.zeros(1, np.int64), kind)
    return scene


def exact(values: np.ndarray[tuple[int, ...], np.dtype[np.int64]], kind: ElType) -> Tensor:
    """Given values with no fractional bits."""
    output = tensor(values.shape, kind, FxParams(0), 0)
    dtype = np.int8 if kind is ElType.MLI_EL_FX_8 else np.int16
    data = np.ascontiguousarray(values, dtype).view(np.uint8).reshape(-1)
    output.data, output.capacity = data, data.nbytes
    return output


@VARIANTS
def test_fully_connected_c18(variant: str) -> None:
    """FULL asserts that no partial sum overflows; below, the call is exact and flagged."""
    scene = overflowing(variant)
    scene.stops("fully_connected_c18", DebugLevel.FULL)
    outcome = scene.run(Options(debug=DebugLevel.DEBUG))
    assert outcome.status is MliStatus.MLI_STATUS_OK
    assert outcome.accumulator_overflow
    assert not fully_connected(variant).run().accumulator_overflow
