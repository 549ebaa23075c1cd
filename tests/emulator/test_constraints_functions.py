# SPDX-License-Identifier: Apache-2.0
"""Every constraint of the functions that are no operations, alone and against every other.

Rows of a table stand in the order in which the library tests them; of two broken rows the upper
one wins. A test's id is the constraint's name. Source of the orders: zDNN library behaviour.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from nnpa_emulator import FUNCTIONS, Status, TensorDesc, Ztensor
from nnpa_emulator.machine import FunctionCode
from nnpa_emulator.ztensor import DataFormats, DataLayouts, DataTypes, getsize_ztensor

from tests.emulator.breaches import Case, numbered

Change = Callable[[Case], None]
BUFFER, STATE = Status.ZDNN_INVALID_BUFFER, Status.ZDNN_INVALID_STATE
SHAPE, LAYOUT = Status.ZDNN_INVALID_SHAPE, Status.ZDNN_INVALID_LAYOUT
TYPE, FORMAT = Status.ZDNN_INVALID_TYPE, Status.ZDNN_INVALID_FORMAT
AIU, MISSING = Status.ZDNN_UNSUPPORTED_AIU_EXCEPTION, Status.ZDNN_UNAVAILABLE_FUNCTION


@dataclass(frozen=True, slots=True)
class Flaw:
    """One way to break one constraint; `touches` says what, so that two flaws can be combined."""

    label: str
    touches: str
    apply: Change
    status: int


def transformed(operand: str = "ztensor", **fields: int) -> Change:
    """Return a change of the transformed descriptor."""
    return lambda case: case.change(operand, **fields)


def pre(operand: str = "ztensor", **fields: int) -> Change:
    """Return a change of the pre-transformed descriptor."""

    def change(case: Case) -> None:
        tensor: Ztensor = case.arguments[operand]
        tensor.pre_transformed_desc = replace(tensor.pre_transformed_desc, **fields)

    return change


def having(operand: str = "ztensor", **fields: Any) -> Change:
    """Return a change of the ztensor itself."""

    def change(case: Case) -> None:
        for name, value in fields.items():
            setattr(case.arguments[operand], name, value)

    return change


def arguing(**scalars: Any) -> Change:
    """Return a change of scalar arguments."""
    return lambda case: case.arguments.update(scalars)


def remembering(**overrides: Any) -> Change:
    """Return a change of the machine, as the library remembers it and as it is."""

    def change(case: Case) -> None:
        case.remembered.update(overrides)
        case.actual.update(overrides)

    return change


def _elsewhere(case: Case) -> None:
    case.alignment["buffer_misaligned"] = True


def _on_z15(case: Case) -> None:
    case.machine = "z15"


KERNEL, GENERIC, WEIGHTS = (
    DataFormats.ZDNN_FORMAT_4DKERNEL,
    DataFormats.ZDNN_FORMAT_4DGENERIC,
    DataFormats.ZDNN_FORMAT_4DWEIGHTS,
)
INT8 = DataTypes.ZDNN_BINARY_INT8


def limits(label: str) -> tuple[Flaw, ...]:
    """Return the flaws of dimensions, dim4 to dim1 and then the size, in their order."""
    small = remembering(max_dims=(1, 1, 32, 64))
    return (
        Flaw(label, "dim4", transformed(dim4=0), SHAPE),
        Flaw(label, "dim3", transformed(dim3=32769), SHAPE),
        Flaw(label, "dims", small, SHAPE),
        Flaw(label, "size", remembering(max_tensor_size=4096), SHAPE),
    )


def buffers(label: str) -> tuple[Flaw, ...]:
    """Return the flaws of a buffer."""
    return (
        Flaw(label, "buffer", having(buffer=None), BUFFER),
        Flaw(label, "alignment", _elsewhere, BUFFER),
        Flaw(label, "buffer_size", having(buffer_size=16383), BUFFER),
    )


FLOATS = (
    Flaw("c1", "format", transformed(format=GENERIC), FORMAT),
    Flaw("c1", "layout", transformed(layout=DataLayouts.ZDNN_HWCK), LAYOUT),
    Flaw("c1", "type", transformed(type=DataTypes.ZDNN_BINARY_INT32), TYPE),
    Flaw("c1", "pre_layout", pre(layout=DataLayouts.ZDNN_FICO), LAYOUT),
    Flaw("c1", "pre_type", pre(type=DataTypes.INT8), TYPE),
    *limits("c2"),
    *buffers("c3"),
    Flaw("c4", "state", having(is_transformed=True), STATE),
)
KERNELS = (
    Flaw("c1", "type", transformed(type=INT8), TYPE),
    Flaw("c1", "layout", transformed(layout=DataLayouts.ZDNN_NHWC), LAYOUT),
    Flaw("c1", "pre_layout", pre(layout=DataLayouts.ZDNN_NHWC), LAYOUT),
    Flaw("c1", "pre_type", pre(type=DataTypes.INT32), TYPE),
    *limits("c2"),
    *buffers("c3"),
    Flaw("c4", "state", having(is_transformed=True), STATE),
)
GATES = (
    *FLOATS[2:],
    Flaw("c5", "pre_layout", pre(layout=DataLayouts.ZDNN_2D), LAYOUT),
    Flaw("c5", "pre_dim2", pre(dim2=33), SHAPE),
    Flaw("c5", "pre_dim3", pre(dim3=2), SHAPE),
)
SATURATED = (
    *(row for row in FLOATS if row.touches != "layout"),
    Flaw("c5", "layout", transformed(layout=DataLayouts.ZDNN_ZRH), LAYOUT),
)
QUANTIZED = (
    *buffers("c1"),
    Flaw("c2", "state", having(is_transformed=True), STATE),
    Flaw("c3", "layout", transformed(layout=DataLayouts.ZDNN_FICO), LAYOUT),
    Flaw("c3", "pre_layout", pre(layout=DataLayouts.ZDNN_NCHW), LAYOUT),
    Flaw("c4", "buffer_size", transformed(dim4=0), SHAPE),  # needs 0 bytes, which any size has
    *limits("c4")[1:],
    Flaw("c5", "format", transformed(format=KERNEL), FORMAT),
    Flaw("c5", "type", transformed(type=DataTypes.ZDNN_BINARY_INT32), TYPE),
    Flaw("c5", "pre_type", pre(type=DataTypes.INT32), TYPE),
    Flaw("c6", "formats", remembering(parmblk_formats=1 << 127), MISSING),
    Flaw("c6", "code", remembering(removed_functions={FunctionCode.NNPA_TRANSFORM}), MISSING),
    Flaw("c7", "clips", arguing(clip_min=3, clip_max=3), Status.ZDNN_INVALID_CLIPPING_VALUE),
    Flaw("c7", "scale", having(rec_scale=0.0), Status.ZDNN_FUNC_RC_F001),
    Flaw("c7", "offset", having(offset=1e10), Status.ZDNN_FUNC_RC_F001),
)
BACK = (
    Flaw("c1", "format", transformed(format=KERNEL), FORMAT),
    Flaw("c1", "type", transformed(type=INT8), TYPE),
    Flaw("c1", "layout", transformed(layout=DataLayouts.ZDNN_ZRH), LAYOUT),
    Flaw("c1", "pre_type", pre(type=DataTypes.INT32), TYPE),
    Flaw("c1", "pre_layout", pre(layout=DataLayouts.ZDNN_HWCK), LAYOUT),
    *limits("c2"),
    *buffers("c3")[:2],
    Flaw("c4", "state", having(is_transformed=False), STATE),
    Flaw("c5", "layout", transformed(layout=DataLayouts.ZDNN_BIDIR_ZRH), LAYOUT),
    Flaw("c5", "pre_layout", pre(layout=DataLayouts.ZDNN_4DS, dim3=3), SHAPE),
)
ALLOCATION = (
    Flaw("c1", "format", transformed(format=GENERIC), FORMAT),
    Flaw("c1", "layout", transformed(layout=DataLayouts.ZDNN_HWCK), LAYOUT),
    Flaw("c1", "type", transformed(type=DataTypes.ZDNN_BINARY_FP32), TYPE),
    *limits("c1"),
)
RESHAPE = (
    Flaw("c1", "count", pre("dest", dim1=64), SHAPE),
    Flaw("c2", "layout", transformed("dest", layout=DataLayouts.ZDNN_HWCK), LAYOUT),
    Flaw("c3", "src", having("src", is_transformed=False), STATE),
    Flaw("c3", "dest", having("dest", is_transformed=True), STATE),
)
RANGE = (
    Flaw("c1", "state", having(is_transformed=False), STATE),
    Flaw("c2", "layout", transformed(layout=DataLayouts.ZDNN_BIDIR_FICO), LAYOUT),
    Flaw("c3", "format", transformed(format=WEIGHTS), FORMAT),
    Flaw("c4", "type", transformed(type=INT8), TYPE),
)


def ztensor(*, layout: int = 8, fmt: int = 0, pre_layout: int = 8, dim1: int = 65) -> Ztensor:
    """Return a ztensor of (1, 1, 33, dim1), four pages for 65."""
    desc = TensorDesc(layout, fmt, 0, 1, 1, 33, dim1)
    user = TensorDesc(pre_layout, 0, DataTypes.FP32, 1, 1, 33, dim1)
    size = getsize_ztensor(desc)
    return Ztensor(user, desc, size, np.zeros(size, np.uint8))


def _data(count: int = 1, elements: int = 33 * 65) -> tuple[bytes, ...]:
    return (bytes(4 * elements),) * count


def _plain(name: str) -> Case:
    return Case(name, {"ztensor": ztensor(), "data": _data()})


def _kernel() -> Case:
    operand = ztensor(layout=DataLayouts.ZDNN_HWCK, fmt=KERNEL, pre_layout=DataLayouts.ZDNN_HWCK)
    return Case("transform_ztensor", {"ztensor": operand, "data": _data()})


def _gates() -> Case:
    desc = TensorDesc(DataLayouts.ZDNN_BIDIR_FICO, 0, 0, 1, 1, 128, 256)
    user = TensorDesc(DataLayouts.ZDNN_3DS, 0, DataTypes.FP32, 0, 1, 34, 5)
    size = getsize_ztensor(desc)
    operand = Ztensor(user, desc, size, np.zeros(size, np.uint8))
    return Case("transform_ztensor", {"ztensor": operand, "data": _data(4, 170)})


def _quantized() -> Case:
    operand = ztensor()
    operand.transformed_desc = replace(operand.transformed_desc, type=INT8, dim1=129)
    operand.pre_transformed_desc = replace(operand.pre_transformed_desc, dim1=129)
    operand.rec_scale, operand.offset, operand.buffer_size = 0.5, 3.0, 1 << 40
    scalars = {"saturation_control": False, "clip_min": -128, "clip_max": 127}
    data = _data(elements=33 * 129)
    return Case("transform_quantized_ztensor", {"ztensor": operand, **scalars, "data": data})


def _transformed(name: str) -> Case:
    operand = ztensor()
    operand.is_transformed = True
    return Case(name, {"ztensor": operand})


def _reshape() -> Case:
    source = ztensor()
    source.is_transformed = True
    return Case("reshape_ztensor", {"src": source, "dest": ztensor()})


TABLES: Mapping[str, tuple[Callable[[], Case], Sequence[Flaw]]] = {
    "transform_ztensor": (lambda: _plain("transform_ztensor"), FLOATS),
    "transform_ztensor kernel": (_kernel, KERNELS),
    "transform_ztensor gates": (_gates, GATES),
    "transform_ztensor_with_saturation": (
        lambda: _plain("transform_ztensor_with_saturation"),
        SATURATED,
    ),
    "transform_quantized_ztensor": (_quantized, QUANTIZED),
    "transform_origtensor": (lambda: _transformed("transform_origtensor"), BACK),
    "allochelper_ztensor": (
        lambda: Case("allochelper_ztensor", {"ztensor": ztensor()}),
        ALLOCATION,
    ),
    "reshape_ztensor": (_reshape, RESHAPE),
    "getrange_ztensor": (lambda: _transformed("getrange_ztensor"), RANGE),
    "free_ztensor_buffer": (
        lambda: Case("free_ztensor_buffer", {"ztensor": ztensor()}),
        (Flaw("c1", "buffer", having(buffer=None), BUFFER),),
    ),
    "refresh_nnpa_query_result": (
        lambda: Case("refresh_nnpa_query_result", {}),
        (Flaw("c1", "machine", _on_z15, MISSING),),
    ),
}
SINGLES = [(table, number) for table, (_, rows) in TABLES.items() for number in range(len(rows))]
PAIRS = [
    (table, first, second)
    for table, (_, rows) in TABLES.items()
    for first, second in combinations(range(len(rows)), 2)
    if rows[first].touches != rows[second].touches
]


def _answer(make: Callable[[], Case], *flaws: Flaw) -> tuple[int | str, str]:
    case = make()
    for flaw in flaws:
        flaw.apply(case)
    return case.answer(precheck=False)


def _wanted(table: str, flaw: Flaw) -> tuple[int, str]:
    name = table.partition(" ")[0]
    labels = {"formats": "pipeline_c2", "code": "pipeline_c4"}
    return flaw.status, labels.get(flaw.touches, f"{name}_{flaw.label}")


@pytest.mark.parametrize(
    ("table", "number"),
    SINGLES,
    ids=[
        f"{table.partition(' ')[0]}_{TABLES[table][1][number].label}-{table}-{number}"
        for table, number in SINGLES
    ],
)
def test_constraint(table: str, number: int) -> None:
    """A call that is right is OK; broken in one way it gets that way's status and label."""
    make, rows = TABLES[table]
    assert _answer(make)[0] == Status.ZDNN_OK
    assert _answer(make, rows[number]) == _wanted(table, rows[number])


@pytest.mark.parametrize("table", TABLES)
def test_pairs_of_constraints(table: str) -> None:
    """Of every two broken constraints the one that the library tests first wins."""
    make, rows = TABLES[table]
    for _, row, second_row in (pair for pair in PAIRS if pair[0] == table):
        first, second = rows[row], rows[second_row]
        got = _answer(make, first, second)
        assert got == _wanted(table, first), (first.touches, second.touches)
        assert _answer(make, second, first) == got, (second.touches, first.touches)


def test_number_of_pairs() -> None:
    """The tables have pairs to test: a table that lost its rows would test nothing."""
    assert len(PAIRS) > 500


@pytest.mark.parametrize("table", ["transform_ztensor", "transform_origtensor"])
def test_limits_without_nnpa(table: str) -> None:
    """Where the maximum of a dimension is 0, exceeding it is no shape problem but the machine's."""
    make, _ = TABLES[table]
    assert _answer(make, Flaw("c2", "machine", _on_z15, AIU))[0] == AIU
    assert _answer(make, Flaw("c2", "", _on_z15, 0), Flaw("c2", "", transformed(dim4=0), 0))[0] == (
        SHAPE
    )


@pytest.mark.parametrize("name", sorted({table.partition(" ")[0] for table in TABLES}))
def test_every_numbered_constraint_is_broken(name: str) -> None:
    """The numbers in the docstring and the tables above are the same."""
    rows = [rows for table, (_, rows) in TABLES.items() if table.partition(" ")[0] == name]
    assert set(numbered(name)) == {row.label for table in rows for row in table}


MODULES = ("lifecycle", "transform", "transform_quantized", "reshape", "environment")


def test_functions_without_constraints() -> None:
    """The functions left out of the tables say that they check nothing: they have no numbers."""
    rest = {
        name
        for name, entry in FUNCTIONS.items()
        if entry.operation is None
        and entry.run.__module__.rpartition(".")[2] in MODULES
        and name not in {table.partition(" ")[0] for table in TABLES}
    }
    assert rest
    assert not [name for name in rest if numbered(name)]
