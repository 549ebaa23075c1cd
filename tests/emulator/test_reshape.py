# SPDX-License-Identifier: Apache-2.0
"""reshape_ztensor in its three ways: all sticks, row by row, and through FP32."""

from dataclasses import replace

import numpy as np
import pytest
from nnpa_emulator import MACHINES, Guest, ProgramCheck, Status, TensorDesc, Ztensor, run
from nnpa_emulator import ztensor as structs
from nnpa_emulator.custom_machine import Overrides, customise
from nnpa_emulator.ztensor import DataFormats, DataLayouts, DataTypes, getsize_ztensor

from tests.oracle import stick as places

OK = Status.ZDNN_OK
Dims = tuple[int, int, int, int]
WAYS = [
    ((1, 2, 33, 65), (1, 2, 33, 65), "sticks"),
    ((1, 2, 33, 65), (66, 1, 1, 65), "rows"),
    ((1, 2, 33, 65), (1, 1, 66, 65), "rows"),
    ((3, 1, 1, 129), (1, 1, 3, 129), "rows"),
    ((1, 2, 33, 65), (1, 1, 65, 66), "fp32"),
    ((1, 2, 33, 65), (1, 1, 1, 4290), "fp32"),
    ((2, 1, 3, 4), (1, 1, 12, 2), "fp32"),
]


def laid(dims: Dims, *, layout: int = DataLayouts.ZDNN_NHWC, kind: int = 0) -> Ztensor:
    """Return a ztensor of these transformed dims, its buffer zero."""
    user = TensorDesc(layout, 0, DataTypes.FP32, *dims)
    fmt = 1 if layout == DataLayouts.ZDNN_HWCK else 0
    desc = TensorDesc(layout, fmt, kind, *dims)
    size = getsize_ztensor(desc)
    return Ztensor(user, desc, size, np.zeros(size, np.uint8))


def filled(dims: Dims, *, layout: int = DataLayouts.ZDNN_NHWC) -> Ztensor:
    """Return a transformed ztensor whose elements are 0x3000 and up, in row-major order."""
    ztensor = laid(dims, layout=layout)
    offsets, _ = places.offsets(ztensor.transformed_desc.format, 2, dims)
    ztensor.sticks.view(np.uint16)[offsets.ravel() // 2] = _codes(offsets.size)
    ztensor.is_transformed = True
    return ztensor


def _codes(count: int) -> list[int]:
    return [0x3000 + n % 0x2000 for n in range(count)]


def cells(ztensor: Ztensor) -> list[int]:
    """Return the elements in row-major order, as the walk through memory finds them."""
    desc = ztensor.transformed_desc
    offsets, _ = places.offsets(desc.format, 2, desc.dims)
    result: list[int] = ztensor.sticks.view(np.uint16)[offsets.ravel() // 2].tolist()
    return result


def reshape(src: Ztensor, dest: Ztensor, machine: str = "telum2") -> int:
    """Reshape, and return the status."""
    return run(Guest(MACHINES[machine]), "reshape_ztensor", {"src": src, "dest": dest}).status


@pytest.mark.parametrize("machine", ["telum1", "telum2"])
@pytest.mark.parametrize(("before", "after", "way"), WAYS)
def test_elements_keep_their_order(before: Dims, after: Dims, way: str, machine: str) -> None:
    """Whichever way, elements are the same in row-major order and dest is transformed."""
    src, dest = filled(before), laid(after)
    assert reshape(src, dest, machine) == OK, way
    assert dest.is_transformed
    assert cells(dest) == _codes(src.transformed_desc.dim1 * np.prod(before[:3], dtype=int))


@pytest.mark.parametrize(("before", "after", "way"), WAYS)
def test_ninf_passes_copies_only(before: Dims, after: Dims, way: str) -> None:
    """Copies look at nothing; NINF stops the way through FP32 and leaves dest as it was."""
    for machine in ("telum1", "telum2"):
        src, dest = filled(before), laid(after)
        src.sticks.view(np.uint16)[0] = 0x7FFF
        status = reshape(src, dest, machine)
        size = before[1] * before[2] * before[3]
        if way != "fp32":
            expected: int = OK
        elif machine == "telum2" and size > 2048:
            expected = Status.ZDNN_ELEMENT_RANGE_VIOLATION
        else:
            expected = Status.ZDNN_CONVERT_FAILURE
        assert status == expected
        assert dest.is_transformed is (way != "fp32")
        assert dest.sticks.any() == (way != "fp32")


def test_hwck_copies_between_equal_dims() -> None:
    """HWCK copies between equal dims and equal dim1, and cannot go through FP32."""
    hwck = DataLayouts.ZDNN_HWCK
    for after, status in (
        ((3, 3, 5, 70), OK),
        ((1, 9, 5, 70), OK),
        ((1, 1, 45, 70), OK),
        ((3, 3, 70, 5), Status.ZDNN_INVALID_FORMAT),
    ):
        src, dest = filled((3, 3, 5, 70), layout=hwck), laid(after, layout=hwck)
        assert reshape(src, dest) == status
        if status == OK:
            assert cells(dest) == _codes(9 * 5 * 70)


def test_elements_are_counted_before_transformation() -> None:
    """The user's dims decide whether the numbers of elements agree, not the sticks."""
    src, dest = filled((1, 1, 2, 3)), laid((1, 1, 2, 3))
    dest.pre_transformed_desc = replace(dest.pre_transformed_desc, dim1=4)
    assert reshape(src, dest) == Status.ZDNN_INVALID_SHAPE
    flat = TensorDesc(DataLayouts.ZDNN_1D, 0, DataTypes.FP32, 7, 7, 7, 6)
    dest.pre_transformed_desc = flat
    assert reshape(src, dest) == OK, "dims that the layout does not have do not count"


def test_both_engines_refuse_through_fp32() -> None:
    """The way through FP32 makes all checks of the two transforms and returns their status."""
    src, dest = filled((1, 1, 4, 3)), laid((1, 1, 3, 4))
    dest.buffer_size = 0
    assert reshape(src, dest) == Status.ZDNN_INVALID_BUFFER
    src.transformed_desc = replace(src.transformed_desc, type=DataTypes.ZDNN_BINARY_INT8)
    assert reshape(src, dest) == Status.ZDNN_INVALID_TYPE
    small = Guest(customise(MACHINES["telum2"], Overrides(max_dims=(9, 9, 9, 3))))
    outcome = run(small, "reshape_ztensor", {"src": filled((1, 1, 4, 3)), "dest": dest})
    assert outcome.status == Status.ZDNN_INVALID_SHAPE
    assert outcome.refusal
    assert outcome.refusal.constraint == "transform_ztensor_c2"


def test_each_side_keeps_its_own_order() -> None:
    """NCHW data on either side is put into its user's order on the way through FP32."""
    src = filled((1, 1, 2, 6))
    user = structs.init_pre_transformed_desc(DataLayouts.ZDNN_NCHW, DataTypes.FP32, 1, 3, 2, 2)
    desc = structs.generate_transformed_desc(user)
    dest = Ztensor(user, desc, 8192, np.zeros(8192, np.uint8))
    assert reshape(src, dest) == OK
    expected = np.array(_codes(12)).reshape(1, 3, 2, 2).transpose(0, 2, 3, 1)
    assert cells(dest) == expected.ravel().tolist()


def test_copies_do_not_look_at_types() -> None:
    """Equal transformed dims are copied whatever the pre-transformed types."""
    src, dest = filled((1, 1, 2, 3)), laid((1, 1, 2, 3))
    dest.pre_transformed_desc = replace(dest.pre_transformed_desc, type=DataTypes.INT8)
    assert reshape(src, dest) == OK


@pytest.mark.parametrize("missing", ["src", "dest"])
@pytest.mark.parametrize("after", [(1, 1, 2, 3), (2, 1, 1, 3)])
def test_copies_need_storage(missing: str, after: Dims) -> None:
    """Where the library copies from or to NULL, the program ends with an access exception."""
    tensors = {"src": filled((1, 1, 2, 3)), "dest": laid(after)}
    tensors[missing].buffer = None
    with pytest.raises(ProgramCheck, match="access exception"):
        run(Guest(MACHINES["telum2"]), "reshape_ztensor", tensors)


def test_int8_rows() -> None:
    """INT8 rows move as cells of one byte, also beyond 64 columns."""
    kind = DataTypes.ZDNN_BINARY_INT8
    src, dest = laid((1, 1, 4, 130), kind=kind), laid((4, 1, 1, 130), kind=kind)
    values = np.arange(520).astype(np.int8)
    offsets, _ = places.offsets(DataFormats.ZDNN_FORMAT_4DFEATURE, 1, (1, 1, 4, 130))
    src.sticks.view(np.int8)[offsets.ravel()] = values
    src.is_transformed = True
    assert reshape(src, dest) == OK
    offsets, _ = places.offsets(DataFormats.ZDNN_FORMAT_4DFEATURE, 1, (4, 1, 1, 130))
    assert np.array_equal(dest.sticks.view(np.int8)[offsets.ravel()], values)
