# SPDX-License-Identifier: Apache-2.0
"""The local functions of the Python SDK, as its testee calls them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from google.protobuf import json_format
from nnpa.zdnn.v1.tensor_pb2 import TensorDesc, Ztensor
from nnpa_client import ZdnnError, connect, zdnn

from tests.vector_runner import Json

IN_SESSION = ("get_library_version", "get_library_version_str", "is_quantized_ztensor")


def descriptor(line: Json) -> TensorDesc:
    """Return the descriptor of plain JSON."""
    return json_format.ParseDict(dict(line), TensorDesc())


def plain_descriptor(desc: TensorDesc) -> Json:
    """Return a descriptor as plain JSON."""
    fields: Json = json_format.MessageToDict(
        desc, preserving_proto_field_name=True, use_integers_for_enums=True
    )
    return fields


def bits(value: np.generic) -> str:
    """Return the bits of a limit as a word."""
    return value.tobytes()[::-1].hex().upper()


def pre(a: Json) -> TensorDesc:
    """Return the pre-transformed descriptor among the arguments."""
    return descriptor(a["pre_transformed_desc"])


FUNCTIONS: Mapping[str, Callable[[Json], Any]] = {
    "init_pre_transformed_desc": lambda a: plain_descriptor(
        zdnn.init_pre_transformed_desc(a["layout"], a["type"], *a["dims"])
    ),
    "generate_transformed_desc": lambda a: plain_descriptor(zdnn.generate_transformed_desc(pre(a))),
    "generate_quantized_transformed_desc": lambda a: plain_descriptor(
        zdnn.generate_quantized_transformed_desc(pre(a), a["transform_type"])
    ),
    "generate_transformed_desc_concatenated": lambda a: plain_descriptor(
        zdnn.generate_transformed_desc_concatenated(pre(a), a["info"])
    ),
    "getsize_ztensor": lambda a: zdnn.getsize_ztensor(descriptor(a["transformed_desc"])),
    "get_max_limit": lambda a: bits(
        zdnn.get_max_limit(a["transformed_type"], a["pre_transformed_type"])
    ),
    "get_min_limit": lambda a: bits(
        zdnn.get_min_limit(a["transformed_type"], a["pre_transformed_type"])
    ),
    "get_status_message": lambda a: zdnn.get_status_message(a["status"]),
}


def call(target: str, function: str, arguments: Json) -> dict[str, Any]:
    """Call a local function by its C name without prefix."""
    try:
        if function in IN_SESSION:
            return {"result": _in_session(target, function, arguments)}
        return {"result": FUNCTIONS[function](arguments)}
    except ZdnnError as error:
        return {"status": int(error.status)}


def _in_session(target: str, function: str, arguments: Json) -> Any:
    with connect(target, library=arguments.get("library")) as session:
        if function != "is_quantized_ztensor":
            return getattr(zdnn, function)()
        desc = zdnn.init_pre_transformed_desc(zdnn.ZDNN_1D, zdnn.FP32, 1)
        tfrmd = zdnn.generate_transformed_desc(desc)
        structure = Ztensor(transformed_desc=tfrmd, rec_scale=arguments["rec_scale"])
        return zdnn.is_quantized_ztensor(session.put_ztensor(structure))
