# SPDX-License-Identifier: Apache-2.0
"""The emulator's local functions as a target of the vector runner: JSON in, JSON out."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from google.protobuf import json_format
from nnpa.zdnn.v1 import tensor_pb2 as tensors
from nnpa_emulator import Refused, Status, TensorDesc, Ztensor, get_status_message, limits
from nnpa_emulator import ztensor as structs
from nnpa_emulator.machine import LIBRARY_VERSIONS

from tests.emulator.target import descriptor

Json: TypeAlias = Mapping[str, Any]
_LIMIT_DIGITS = {"INT8": 2, "BFLOAT": 4, "FP16": 4}


def local(function: str, arguments: Json) -> Json:
    """Call a local function by its C name without prefix."""
    try:
        return {"result": FUNCTIONS[function](arguments)}
    except Refused as refused:
        return {"status": Status(refused.refusal.status).name}


def _pre(arguments: Json) -> TensorDesc:
    return _parsed(arguments["pre_transformed_desc"])


def _parsed(line: Json) -> TensorDesc:
    return descriptor(json_format.ParseDict(dict(line), tensors.TensorDesc()))


def _number(name: str | int) -> int:
    for enum in (tensors.DataTypes, tensors.DataLayouts, tensors.QuantizedTransformTypes):
        if isinstance(name, str) and name in enum.keys():  # noqa: SIM118 - no mapping
            return enum.Value(name)
    return int(name)


def _told(desc: TensorDesc, *, transformed: bool = True) -> Json:
    reported = {"layout": desc.layout, "type": desc.type}
    reported |= {f"dim{n}": size for n, size in zip((4, 3, 2, 1), desc.dims, strict=True)}
    return reported | {"format": desc.format} if transformed else reported


def _init_pre_transformed_desc(a: Json) -> Json:
    layout, kind = _number(a["layout"]), _number(a["type"])
    return _told(structs.init_pre_transformed_desc(layout, kind, *a["dims"]), transformed=False)


def _limit(function: Callable[[int, int], int]) -> Callable[[Json], str]:
    def call(a: Json) -> str:
        kind = a["pre_transformed_type"]
        bits = function(_number(a["transformed_type"]), _number(kind))
        return f"{bits:0{_LIMIT_DIGITS.get(kind, 8)}X}"

    return call


FUNCTIONS: dict[str, Callable[[Json], Any]] = {
    "init_pre_transformed_desc": _init_pre_transformed_desc,
    "generate_transformed_desc": lambda a: _told(structs.generate_transformed_desc(_pre(a))),
    "generate_quantized_transformed_desc": lambda a: _told(
        structs.generate_quantized_transformed_desc(_pre(a), _number(a["transform_type"]))
    ),
    "generate_transformed_desc_concatenated": lambda a: _told(
        structs.generate_transformed_desc_concatenated(_pre(a), a["info"])
    ),
    "getsize_ztensor": lambda a: structs.getsize_ztensor(_parsed(a["transformed_desc"])),
    "is_quantized_ztensor": lambda a: structs.is_quantized_ztensor(
        Ztensor(structs.UNSET, structs.UNSET, rec_scale=a["rec_scale"])
    ),
    "get_max_limit": _limit(limits.get_max_limit),
    "get_min_limit": _limit(limits.get_min_limit),
    "get_status_message": lambda a: get_status_message(a["status"]),
    "get_library_version": lambda a: LIBRARY_VERSIONS[a["library"]],
    "get_library_version_str": lambda a: a["library"] if a["library"] in LIBRARY_VERSIONS else "",
}
