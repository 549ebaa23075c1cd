# SPDX-License-Identifier: Apache-2.0
"""The life of a ztensor: init, allocate, reset, free."""

from dataclasses import fields

from nnpa_emulator import ztensor as structs
from nnpa_emulator.pipeline import Call, Outcome, allocate_sticks, function
from nnpa_emulator.status import Refused, Status
from nnpa_emulator.ztensor import TensorDesc, Ztensor

_KEPT = frozenset(("buffer", "buffer_size"))


def _write(target: Ztensor, source: Ztensor) -> None:
    """Write every field but the buffer and its size, which init leaves untouched."""
    for field in fields(Ztensor):
        if field.name not in _KEPT:
            setattr(target, field.name, getattr(source, field.name))


@function()
def init_ztensor(
    call: Call, ztensor: Ztensor, pre_transformed_desc: TensorDesc, transformed_desc: TensorDesc
) -> Outcome:
    """Write the structure except buffer and buffer_size. Checks nothing.

    Source: zDNN API Reference 1.2.0, zdnn_init_ztensor.
    """
    _write(ztensor, Ztensor(pre_transformed_desc, transformed_desc))
    return Outcome()


@function(since="1.1.0")
def init_quantized_ztensor(
    call: Call,
    ztensor: Ztensor,
    pre_transformed_desc: TensorDesc,
    transformed_desc: TensorDesc,
    scale: float,
    offset: float,
) -> Outcome:
    """Write the structure with the reciprocal of `scale` and `offset`. Checks nothing.

    Source: zDNN API Reference 1.2.0, zdnn_init_quantized_ztensor.
    """
    descs = pre_transformed_desc, transformed_desc
    _write(ztensor, structs.init_quantized_ztensor(*descs, scale, offset))
    return Outcome()


@function()
def allochelper_ztensor(call: Call, ztensor: Ztensor) -> Outcome:
    """Allocate zero-filled sticks of the size that the transformed descriptor calls for.

    1. The transformed descriptor's format, layout, type and dims can be allocated for, else
       ZDNN_INVALID_FORMAT, ZDNN_INVALID_LAYOUT, ZDNN_INVALID_TYPE, ZDNN_INVALID_SHAPE, or
       ZDNN_UNSUPPORTED_AIU_EXCEPTION without NNPA; there is storage, else ZDNN_ALLOCATION_FAILURE.

    The pre-transformed descriptor is not examined, is_transformed not touched.
    Source: zDNN API Reference 1.2.0, zdnn_allochelper_ztensor.
    """
    allocate_sticks(call.guest, ztensor, "c1")
    return Outcome()


@function()
def reset_ztensor(call: Call, ztensor: Ztensor) -> Outcome:
    """Mark the ztensor as not transformed; data, scale and offset stay.

    Source: zDNN API Reference 1.2.0, zdnn_reset_ztensor.
    """
    ztensor.is_transformed = False
    return Outcome()


@function()
def free_ztensor_buffer(call: Call, ztensor: Ztensor) -> Outcome:
    """Free the sticks.

    1. There is a buffer, else ZDNN_INVALID_BUFFER.

    Source: zDNN API Reference 1.2.0, zdnn_free_ztensor_buffer.
    """
    if ztensor.buffer is None:
        limit = "allocated: zdnn_allochelper_ztensor"
        raise Refused(Status.ZDNN_INVALID_BUFFER, "ztensor.buffer", "NULL", limit, "c1")
    ztensor.buffer = None
    return Outcome()
