# SPDX-License-Identifier: Apache-2.0
"""Constants of a model at import: computed, stickified.

The transform of all other values that become sticks is chosen here, too.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
import onnx
from nnpa_emulator import Guest, Status, TensorDesc, Ztensor
from nnpa_emulator import run as call
from nnpa_emulator.machine import LIBRARY_VERSIONS
from nnpa_emulator.pipeline import allocate_sticks
from nnpa_emulator.status import Refused
from nnpa_emulator.ztensor import LAYOUT_GATES, DataTypes

from nnpa_network.building.type_inference import Value
from nnpa_network.program import Array, ModelRefused, TensorInfo, described
from nnpa_network.running import host
from nnpa_network.running.host_operators import MOVES, own_kernel


def evaluate(proto: onnx.NodeProto, opset: int, inputs: Sequence[Value | None]) -> list[Array]:
    """Run a node whose inputs are all constants; a result may be a view of an input."""
    values = [operand for operand in inputs if operand is not None]
    arrays = [operand.constant for operand in values if operand.constant is not None]
    if proto.op_type in MOVES and len(arrays) == len(proto.input):
        dtypes, shapes = [array.dtype for array in arrays], [array.shape for array in arrays]
        with suppress(host.HostError):  # ONNX Runtime says why
            if move := own_kernel(proto, dtypes, shapes, arrays):
                return move(arrays)
    types = tuple(None if operand is None else operand.dtype for operand in inputs)
    kernel = host.prepare(proto.SerializeToString(), opset, types)
    return [np.asarray(result) for result in kernel(arrays)]


def transform_to(
    transformed: TensorDesc, guest: Guest, saturate: bool
) -> tuple[str, dict[str, int]]:
    """Return the function that fills a tensor from arrays, and its options."""
    if transformed.type == DataTypes.ZDNN_BINARY_INT8:
        options = {"saturation_control": False, "clip_min": -128, "clip_max": 127}
        return "transform_quantized_ztensor", options
    old = guest.library_version < LIBRARY_VERSIONS["1.1.0"]
    if transformed.layout in LAYOUT_GATES or old or not saturate:
        return "transform_ztensor", {}
    return "transform_ztensor_with_saturation", {}


def stickify(
    guest: Guest, arrays: Sequence[Array], verb: str, options: Mapping[str, int], info: TensorInfo
) -> Ztensor:
    """Return a new tensor filled from arrays by a transform; raise `ModelRefused`."""
    tensor = described(info)
    try:
        allocate_sticks(guest, tensor, "allochelper_ztensor_c1")
    except Refused as refused:
        raise ModelRefused(f"a constant cannot be stickified: {refused.refusal}") from refused
    bits = [array.view(np.uint16) if array.dtype.kind == "V" else array for array in arrays]
    outcome = call(guest, verb, {"ztensor": tensor, **options, "data": bits})
    if not outcome.valid and outcome.status != Status.ZDNN_CONVERT_FAILURE:
        raise ModelRefused(f"a constant cannot be stickified: {outcome.refusal}")
    tensor.is_transformed = True
    return tensor
