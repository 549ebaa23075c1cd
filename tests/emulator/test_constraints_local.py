# SPDX-License-Identifier: Apache-2.0
"""Constraints of functions that run without a machine."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

import pytest
from nnpa_emulator import Refused, Status, TensorDesc
from nnpa_emulator import limits as value_limits
from nnpa_emulator import ztensor as structs
from nnpa_emulator.ztensor import DataLayouts, DataTypes

from tests.emulator.test_constraints_functions import LAYOUT, SHAPE, TYPE

FLAT = TensorDesc(DataLayouts.ZDNN_1D, 0, DataTypes.FP32, 0, 0, 0, 5)
STACK = TensorDesc(DataLayouts.ZDNN_3DS, 0, DataTypes.FP32, 0, 2, 4, 5)
ODD = replace(STACK, dim2=3)
BIDIR = structs.PREV_LAYER_BIDIR
Local = tuple[str, Callable[[], object], int]
LOCAL: list[Local] = [
    ("generate_transformed_desc_c1",
     lambda: structs.generate_transformed_desc(
         replace(FLAT, layout=DataLayouts.ZDNN_ZRH, type=DataTypes.INT8)), LAYOUT),
    ("generate_transformed_desc_c2",
     lambda: structs.generate_transformed_desc(replace(FLAT, type=DataTypes.INT8)), TYPE),
    ("generate_quantized_transformed_desc_c1",
     lambda: structs.generate_quantized_transformed_desc(
         replace(FLAT, layout=DataLayouts.ZDNN_4DS, type=DataTypes.INT32), 3), LAYOUT),
    ("generate_quantized_transformed_desc_c2",
     lambda: structs.generate_quantized_transformed_desc(
         replace(FLAT, type=DataTypes.INT32), 3), TYPE),
    ("generate_quantized_transformed_desc_c3",
     lambda: structs.generate_quantized_transformed_desc(FLAT, 3),
     Status.ZDNN_INVALID_TRANSFORM_TYPE),
    ("generate_transformed_desc_concatenated_c1",
     lambda: structs.generate_transformed_desc_concatenated(
         replace(ODD, type=DataTypes.INT32, layout=1), 0xFF000000 | BIDIR), TYPE),
    ("generate_transformed_desc_concatenated_c2",
     lambda: structs.generate_transformed_desc_concatenated(
         replace(ODD, layout=1), 0xFF000000 | BIDIR), SHAPE),
    ("generate_transformed_desc_concatenated_c3",
     lambda: structs.generate_transformed_desc_concatenated(
         replace(STACK, layout=1), 0xFF000000), LAYOUT),
    ("generate_transformed_desc_concatenated_c4",
     lambda: structs.generate_transformed_desc_concatenated(STACK, 0x02000000),
     Status.ZDNN_INVALID_CONCAT_INFO),
    ("get_max_limit_c1", lambda: value_limits.get_max_limit(6, 6), TYPE),
    ("get_max_limit_c2", lambda: value_limits.get_max_limit(0, DataTypes.INT8), TYPE),
    ("get_min_limit_c1", lambda: value_limits.get_min_limit(6, 6), TYPE),
    ("get_min_limit_c2", lambda: value_limits.get_min_limit(0, DataTypes.INT8), TYPE),
]  # fmt: skip


@pytest.mark.parametrize(("label", "call", "status"), LOCAL, ids=[label for label, _, _ in LOCAL])
def test_local_constraint(label: str, call: Callable[[], object], status: int) -> None:
    """A local function refuses with the status and label of the first constraint that is broken."""
    with pytest.raises(Refused) as caught:
        call()
    assert (caught.value.refusal.status, caught.value.refusal.constraint) == (status, label)


def _home_of(name: str) -> ModuleType:
    """Return the module of a local function."""
    return value_limits if hasattr(value_limits, name) else structs


def test_local_constraints_are_all_broken() -> None:
    """The numbers in the docstrings of the local functions and the table above are the same."""
    names = {label.rpartition("_c")[0] for label, _, _ in LOCAL}
    documented = {
        f"{name}_c{line.split('.')[0]}"
        for name in names
        for line in (getattr(_home_of(name), name).__doc__ or "").replace(" ", "").splitlines()
        if line.split(".")[0].isdigit()
    }
    assert documented == {label for label, _, _ in LOCAL}
