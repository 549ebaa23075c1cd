# SPDX-License-Identifier: Apache-2.0
"""The largest and smallest value of a data type, as bits of the user's type."""

from collections.abc import Mapping

from nnpa_emulator.status import Refused, Status
from nnpa_emulator.ztensor import DataTypes, name_of

# Bits of the largest and smallest value, in the pre-transformed type's width.
# Source: zDNN API Reference 1.2.0, zdnn_get_max_limit and zdnn_get_min_limit.
_LIMITS: Mapping[tuple[int, int], tuple[int, int]] = {
    (DataTypes.ZDNN_DLFLOAT16, DataTypes.FP32): (0x4FFF8000, 0xCFFF8000),
    (DataTypes.ZDNN_DLFLOAT16, DataTypes.FP16): (0x7BFF, 0xFBFF),
    (DataTypes.ZDNN_DLFLOAT16, DataTypes.BFLOAT): (0x4FFF, 0xCFFF),
    (DataTypes.ZDNN_BINARY_INT8, DataTypes.FP32): (0x42FE0000, 0xC3000000),
    (DataTypes.ZDNN_BINARY_INT8, DataTypes.FP16): (0x57F0, 0xD800),
    (DataTypes.ZDNN_BINARY_INT8, DataTypes.BFLOAT): (0x42FE, 0xC300),
    (DataTypes.ZDNN_BINARY_INT8, DataTypes.INT8): (0x7F, 0x80),
    (DataTypes.ZDNN_BINARY_INT32, DataTypes.INT32): (0x7FFFFFFF, 0x80000000),
}


def _limit(transformed_type: int, pre_transformed_type: int, name: str) -> tuple[int, int]:
    if transformed_type not in (kind for kind, _ in _LIMITS):
        raise Refused(
            Status.ZDNN_INVALID_TYPE, "transformed_type", name_of(DataTypes, transformed_type),
            "ZDNN_DLFLOAT16, ZDNN_BINARY_INT8 or ZDNN_BINARY_INT32", f"{name}_c1",
        )  # fmt: skip
    limits = _LIMITS.get((transformed_type, pre_transformed_type))
    if limits is None:
        kinds = [DataTypes(pre).name for kind, pre in _LIMITS if kind == transformed_type]
        limit = f"{' or '.join(kinds)} for {DataTypes(transformed_type).name}"
        value = name_of(DataTypes, pre_transformed_type)
        raise Refused(Status.ZDNN_INVALID_TYPE, "pre_transformed_type", value, limit, f"{name}_c2")
    return limits


def get_max_limit(transformed_type: int, pre_transformed_type: int) -> int:
    """Return the bits of the largest value, as wide as the pre-transformed type.

    1. The transformed type has limits, else ZDNN_INVALID_TYPE.
    2. The pre-transformed type can become it, else ZDNN_INVALID_TYPE.
    """
    return _limit(transformed_type, pre_transformed_type, "get_max_limit")[0]


def get_min_limit(transformed_type: int, pre_transformed_type: int) -> int:
    """Return the bits of the smallest value, as wide as the pre-transformed type.

    1. The transformed type has limits, else ZDNN_INVALID_TYPE.
    2. The pre-transformed type can become it, else ZDNN_INVALID_TYPE.
    """
    return _limit(transformed_type, pre_transformed_type, "get_min_limit")[1]
