# SPDX-License-Identifier: Apache-2.0
"""Constraints of the utility functions: conversion, sub-tensors, getters."""

from collections.abc import Callable
from functools import partial

import mli_emulator as mli
import numpy as np
import pytest
from mli_emulator import (
    Asserted,
    Conversion,
    DebugLevel,
    ElType,
    FxParams,
    MliStatus,
    Options,
    Rounding,
    SaParams,
    SubTensorCfg,
    Tensor,
)

from tests.mli.scenes import convert, params_of

BAD = MliStatus.MLI_STATUS_BAD_TENSOR
INCOMPATEBLE = MliStatus.MLI_STATUS_INCOMPATEBLE_TENSORS
MEMORY = MliStatus.MLI_STATUS_NOT_ENGH_MEM
TYPE = MliStatus.MLI_STATUS_TYPE_MISMATCH
SIZE = MliStatus.MLI_STATUS_SIZE_MISMATCH
UNSUPPORTED = MliStatus.MLI_STATUS_NOT_SUPPORTED
OK = MliStatus.MLI_STATUS_OK
FX8, FX16, FP32 = ElType.MLI_EL_FX_8, ElType.MLI_EL_FX_16, ElType.MLI_EL_FP_32
SA8, SA32 = ElType.MLI_EL_SA_8, ElType.MLI_EL_SA_32
ASSERT = Options(debug=DebugLevel.ASSERT)


@pytest.mark.parametrize("source", [FX8, FX16, SA8, SA32, FP32])
@pytest.mark.parametrize("target", [FX8, FX16, SA8, SA32, FP32])
def test_every_permitted_pair_converts(source: ElType, target: ElType) -> None:
    """All pairs convert; the safx form all without FP_32."""
    scene = convert(source, target)
    assert scene.run().status is OK
    assert scene["dst"].shape == (2, 3)
    scene.kernel = "hlp_convert_tensor_safx"
    if FP32 in (source, target):
        scene.refused("convert_tensor_c9", TYPE)
    else:
        assert scene.run().status is OK


def test_convert_tensor_c1() -> None:
    """The source is a valid tensor."""
    scene = convert()
    scene["src"].rank = 5
    scene.refused("tensor_c2", BAD)


def test_convert_tensor_c2() -> None:
    """The destination is not NULL."""
    scene = convert()
    scene.arguments["dst"] = None
    scene.refused("convert_tensor_c2", BAD)


def test_convert_tensor_c3() -> None:
    """The destination holds the source's shape in its own strides, and its own shape is ignored."""
    scene = convert()
    scene["dst"].mem_stride = (-3, 1)
    scene.refused("tensor_c3", BAD)
    scene["dst"].mem_stride = (2, 1)
    scene.refused("tensor_c5", BAD)
    scene["dst"].mem_stride, scene["dst"].capacity = (4, 1), 13
    scene.refused("tensor_c6", MEMORY)
    scene.reshape("dst", 9, 9, 9)
    scene["dst"].capacity = 14
    assert scene.run().status is OK


def test_convert_tensor_c4() -> None:
    """The destination has a data pointer."""
    scene = convert()
    scene["dst"].data = None
    scene.refused("convert_tensor_c4", BAD)


def test_convert_tensor_c5() -> None:
    """The source's innermost stride is 1."""
    scene = convert()
    scene["src"].mem_stride = (6, 2)
    scene.refused("convert_tensor_c5", INCOMPATEBLE)


@pytest.mark.parametrize(("strides", "rank"), [((6, 2), 2), ((6, 2), 0), ((3, 1, 2), 3), ((3,), 1)])
def test_convert_tensor_c6(strides: tuple[int, ...], rank: int) -> None:
    """The destination's innermost stride is 1 in the source's rank, whatever its own rank is."""
    scene = convert()
    scene["dst"].mem_stride, scene["dst"].rank = strides, rank
    scene.refused("convert_tensor_c6", INCOMPATEBLE)


@pytest.mark.parametrize(
    ("target", "rank", "strides"),
    [(FX16, 2, ()), (FX8, 1, ()), (FX8, 2, (4, 1))],
)
def test_convert_tensor_c7(target: ElType, rank: int, strides: tuple[int, ...]) -> None:
    """In place, element size, rank and strides are equal."""
    scene = convert(FX8, target)
    scene["dst"].data, scene["dst"].capacity = scene["src"].data, scene["src"].capacity
    scene["dst"].rank, scene["dst"].mem_stride = rank, strides
    scene.refused("convert_tensor_c7", INCOMPATEBLE)


def per_axis(dim: int, slices: int) -> SaParams:
    """Parameters of a dimension."""
    scales = (1,) * slices
    return SaParams(scales, scales, scales, dim)


def test_convert_tensor_c8() -> None:
    """Two per-axis tensors have one axis; one of them may be per tensor."""
    scene = convert(SA8, SA8)
    scene["src"].el_params, scene["dst"].el_params = per_axis(0, 2), per_axis(1, 3)
    scene.refused("convert_tensor_c8", SIZE)
    scene["dst"].el_params = per_axis(0, 2)
    assert scene.run().status is OK
    scene["src"].el_params = params_of(SA8)
    assert scene.run().status is OK


@pytest.mark.parametrize("name", ["src", "dst"])
@pytest.mark.parametrize("kind", [ElType.MLI_EL_FX_4, ElType.MLI_EL_FP_16, 7])
def test_convert_tensor_c9(name: str, kind: int) -> None:
    """FX_4, FP_16 and unknown types do not convert."""
    scene = convert()
    scene[name].el_type = kind
    scene.refused("convert_tensor_c9", TYPE)


@pytest.mark.parametrize("name", ["src", "dst"])
def test_convert_tensor_c10(name: str) -> None:
    """Element parameters are of the type's kind and as long as the axis."""
    scene = convert(SA8, SA8)
    scene[name].el_params = FxParams(3)
    scene.refused("convert_tensor_c10", BAD)
    scene[name].el_params = per_axis(1, 2)
    scene.refused("convert_tensor_c10", BAD)
    scene[name].el_params = per_axis(3, 1)
    assert scene.run().status is OK


def test_convert_tensor_c11() -> None:
    """A scale of the destination is not 0."""
    scene = convert(FX8, SA8)
    scene["dst"].el_params = SaParams((0, 0), (1, 0), (0, 0), 0)
    scene.refused("convert_tensor_c11", BAD)


@pytest.mark.parametrize("name", ["src", "dst"])
def test_convert_tensor_c12(name: str) -> None:
    """Half-given strides do not lead beyond the memory."""
    scene = convert()
    scene[name].mem_stride = (1000, 0)
    scene.reshape("dst", 2, 3)
    scene.refused("convert_tensor_c12", MEMORY)


def test_convert_tensor_c13() -> None:
    """Source and destination overlap at the same start only."""
    scene = convert(FX8, FX8)
    data = scene["src"].data
    assert data is not None
    scene["dst"].data, scene["dst"].capacity = data[1:], data.nbytes - 1
    scene.refused("convert_tensor_c13", INCOMPATEBLE)
    scene["dst"].data, scene["dst"].capacity = data, data.nbytes
    scene.reshape("dst", 2, 3)
    assert scene.run().status is OK


def test_convert_tensor_c14() -> None:
    """The early-access arithmetic is described for convergent rounding only."""
    scene = convert()
    options = Options(Rounding.UP, conversion=Conversion.LIBRARY_2_0_EA)
    scene.refused("convert_tensor_c14", UNSUPPORTED, options)


def test_convert_leaves_gaps_alone() -> None:
    """Elements outside the destination's strided positions keep their bytes."""
    scene = convert(FX8, FX8)
    assert scene["dst"].data is not None
    scene["dst"].data[:] = 0x55
    scene["dst"].mem_stride = (5, 1)
    assert scene.run().status is OK
    assert scene["dst"].mem_stride == (5, 1)
    assert scene["dst"].data[[3, 4, 8, 9]].tolist() == [0x55] * 4
    src = scene["src"].data
    assert src is not None
    assert scene["dst"].data[[0, 1, 2, 5, 6, 7]].tolist() == src[:6].tolist()


def test_convert_copies_floats() -> None:
    """FP_32 to FP_32 copies every bit, NaN payloads too."""
    bits = np.array([0x7FC00001, 0xFF800000, 0x80000000, 1], np.uint32)
    src = mli.from_array(bits.view(np.float32), FP32, None)
    dst = mli.empty(16, FP32)
    assert mli.hlp_convert_tensor(src, dst).status is OK
    assert dst.data is not None
    assert dst.data.view(np.uint32).tolist() == bits.tolist()


def test_a_scalar_converts_and_slices() -> None:
    """Rank 0 holds one element: it converts, activates and is its own slice."""
    for target in (FX16, FP32):
        src = mli.from_array(np.array(-37), FX8, FxParams(3))
        dst = mli.empty(4, target, params_of(target))
        assert mli.hlp_convert_tensor(src, dst).status is OK
        assert (dst.shape, dst.rank) == ((), 0)
        assert mli.to_array(dst) == {FX16: -74, FP32: -4.625}[target]
    out = mli.empty(1, FX8)
    assert mli.krn_tanh_fx8(src, out).status is OK
    assert mli.to_array(out) == -128
    assert mli.hlp_subtensor(src, SubTensorCfg((), (), 0), out).status is OK
    assert mli.to_array(out) == -37


def test_a_scale_beyond_single_precision_gives_infinities() -> None:
    """SA_8 to FP_32 multiplies in single precision, also where the scale overflows."""
    params = SaParams((1,), (32767,), (-128,))
    src = mli.from_array([2, 0, 1], SA8, params)
    dst = mli.empty(12, FP32)
    assert mli.hlp_convert_tensor(src, dst).status is OK
    values = mli.to_array(dst)
    assert values[:2].tolist() == [np.inf, -np.inf]
    assert np.isnan(values[2])


def aborts(call: Callable[[Options], int], constraint: str) -> None:
    """Expect 0 below ASSERT, and an abort from ASSERT on."""
    assert call(Options()) == 0
    with pytest.raises(Asserted) as stop:
        call(ASSERT)
    assert stop.value.refusal.constraint == constraint


def of_type(el_type: int, params: mli.ElParams = None) -> Tensor:
    """A tensor for the getters."""
    return Tensor(None, 0, (2, 3), 2, el_type, params)


@pytest.mark.parametrize("kind", [ElType.MLI_EL_FX_4, ElType.MLI_EL_FP_16, 0, 0x02000000])
def test_tensor_element_size_c1(kind: int) -> None:
    """Types without support have size 0."""
    constraint = "tensor_element_size_c1"
    aborts(lambda o: mli.hlp_tensor_element_size(of_type(kind), options=o), constraint)
    aborts(lambda o: mli.hlp_tensor_element_size(None, options=o), constraint)


def count(x: Tensor | None, options: Options) -> int:
    """Count all elements."""
    return mli.hlp_count_elem_num(x, 0, options=options)


def test_count_elem_num_c1() -> None:
    """A tensor of rank 5, or none, has no elements."""
    five = Tensor(None, 0, (1,) * 5, 5, FX8, None)
    for x in (five, None):
        aborts(partial(count, x), "count_elem_num_c1")


@pytest.mark.parametrize("start", [3, 4, -1])
def test_count_elem_num_c2(start: int) -> None:
    """Counting starts at a dimension, or just behind the last."""
    aborts(lambda o: mli.hlp_count_elem_num(of_type(FX8), start, options=o), "count_elem_num_c2")
    counts = [mli.hlp_count_elem_num(of_type(FX8), d, options=ASSERT) for d in range(3)]
    assert counts == [6, 3, 1]


GETTERS = {
    "tensor_scale": mli.hlp_tensor_scale,
    "tensor_scale_shift": mli.hlp_tensor_scale_shift,
    "tensor_zero_offset": mli.hlp_tensor_zero_offset,
}


def getter(function: Callable[..., int], x: Tensor | None, options: Options) -> int:
    """Return a getter's value of the first slice."""
    return function(x, options=options)


def refused_format(name: str) -> None:
    """Expect 0 or an abort for everything without a valid data format."""
    function = GETTERS[name]
    for x in (None, of_type(7, FxParams(1)), of_type(SA8, FxParams(1)), of_type(FX8)):
        aborts(partial(getter, function, x), f"{name}_c1")
    per_axis_tensor = of_type(SA8, per_axis(1, 3))
    assert function(per_axis_tensor, 2) == 1
    with pytest.raises(IndexError, match=r"idx: 3, must be in 0\.\.2"):
        function(per_axis_tensor, 3)
    assert function(of_type(SA8, params_of(SA8)), 99) in (2, 3, 5)


def test_tensor_scale_c1() -> None:
    """The scale of an invalid tensor is 0; a missing slice is an IndexError."""
    refused_format("tensor_scale")


def test_tensor_scale_shift_c1() -> None:
    """The shift of an invalid tensor is 0; a missing slice is an IndexError."""
    refused_format("tensor_scale_shift")


def test_tensor_zero_offset_c1() -> None:
    """The zero offset of an invalid tensor is 0; a missing slice is an IndexError."""
    refused_format("tensor_zero_offset")
