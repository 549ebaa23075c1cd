# SPDX-License-Identifier: Apache-2.0
"""Transforms for tests: guests, user arrays, and codes by the oracle."""

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from nnpa_emulator import MACHINES, Guest, Outcome, Status, TensorDesc, Ztensor, run
from nnpa_emulator import ztensor as structs
from nnpa_emulator.ztensor import DataLayouts, DataTypes, getsize_ztensor

from tests.oracle import dlfloat as oracle

L = DataLayouts
FP32, FP16, BFLOAT, INT8 = DataTypes.FP32, DataTypes.FP16, DataTypes.BFLOAT, DataTypes.INT8
Array = npt.NDArray[Any]
DTYPES = {FP32: np.float32, FP16: np.float16, BFLOAT: ml_dtypes.bfloat16, INT8: np.int8}
OK, WARNED = Status.ZDNN_OK, Status.ZDNN_ELEMENT_RANGE_VIOLATION
FAILED = Status.ZDNN_CONVERT_FAILURE


def guest(machine: str = "telum2", library: str = "1.2.0") -> Guest:
    """Return a program on a machine."""
    return Guest(MACHINES[machine], library)


def fresh(user: TensorDesc, desc: TensorDesc) -> Ztensor:
    """Return a ztensor whose buffer is full of garbage."""
    size = getsize_ztensor(desc)
    return Ztensor(user, desc, size, np.full(size, 0x5A, np.uint8))


def described(layout: int, kind: int, *dims: int) -> Ztensor:
    """Return a ztensor with the descriptors that the library generates."""
    user = structs.init_pre_transformed_desc(layout, kind, *dims)
    return fresh(user, structs.generate_transformed_desc(user))


def transform(
    mine: Guest, ztensor: Ztensor, *arrays: Array, name: str = "transform_ztensor"
) -> Outcome:
    """Transform arrays into a ztensor."""
    return run(mine, name, {"ztensor": ztensor, "data": arrays})


def back(mine: Guest, ztensor: Ztensor) -> Outcome:
    """Transform a ztensor back."""
    return run(mine, "transform_origtensor", {"ztensor": ztensor})


def sample(shape: tuple[int, ...], kind: int, seed: int = 1) -> Array:
    """Return random values that have some 2^8 different exponents and both signs."""
    random = np.random.default_rng(seed)
    exponents = random.integers(-10, 10, shape)
    return (random.standard_normal(shape) * np.exp2(exponents)).astype(DTYPES[DataTypes(kind)])


def code_of(value: float) -> int:
    """Round a finite value by exact arithmetic."""
    return oracle.rounded(Fraction(value), math.copysign(1, value) < 0)
