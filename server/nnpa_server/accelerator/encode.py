# SPDX-License-Identifier: Apache-2.0
"""What goes back over the wire: results, ztensors, machines, sessions.

Source of every field's meaning: the comments of nnpa/zdnn/v1/*.proto.
"""

from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np
from google.protobuf import duration_pb2, timestamp_pb2
from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, status_pb2, tensor_pb2
from nnpa_emulator import stick
from nnpa_emulator.machine import Machine, hardware_version
from nnpa_emulator.pipeline import Outcome
from nnpa_emulator.status import Refusal, get_status_message
from nnpa_emulator.ztensor import TensorDesc, Ztensor

from nnpa_server.config import Limits
from nnpa_server.sanitizer.reports import Finding
from nnpa_server.sessions.store import Session

SERVER_VERSION = version("nnpa")
_message = lru_cache(maxsize=256)(get_status_message)


@lru_cache(maxsize=4096)
def describe(desc: TensorDesc) -> tensor_pb2.TensorDesc:
    """Return a descriptor's message; shared, so never to be changed."""
    return tensor_pb2.TensorDesc(
        layout=_signed(desc.layout),
        format=_signed(desc.format),
        type=_signed(desc.type),
        dim4=desc.dim4,
        dim3=desc.dim3,
        dim2=desc.dim2,
        dim1=desc.dim1,
    )


def _signed(number: int) -> Any:
    """Return the int32 with the same bits as a C enum's value."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def describe_ztensor(tensor: Ztensor) -> tensor_pb2.Ztensor:
    """Return the structure without its contents."""
    return tensor_pb2.Ztensor(
        pre_transformed_desc=describe(tensor.pre_transformed_desc),
        transformed_desc=describe(tensor.transformed_desc),
        buffer_size=tensor.buffer_size,
        null_buffer=tensor.buffer is None,
        is_transformed=tensor.is_transformed,
        rec_scale=tensor.rec_scale,
        offset=tensor.offset,
    )


def in_order(tensor: Ztensor, order: int) -> stick.Array:
    """Return a tensor's buffer in a wire byte order: the buffer itself if it is that already."""
    if order == tensor_pb2.BYTE_ORDER_BIG_ENDIAN:
        return stick.byteswapped(tensor.sticks, tensor.transformed_desc)
    return tensor.sticks


def answer(outcome: Outcome) -> operation_pb2.OperationResult:
    """Return an operation's result, without outputs and without an array that it returns."""
    status = int(outcome.status)
    result = operation_pb2.OperationResult(zdnn_status=status, status_message=_message(status))
    if outcome.refusal is not None:
        result.refusal.CopyFrom(_refusal(outcome.refusal))
    if outcome.violation is not None:
        result.range_violation.CopyFrom(_violation(outcome.violation))
    if outcome.fp_flags:
        result.fp_flags = outcome.fp_flags
    for text in outcome.diagnostics:
        line = result.diagnostics.add(
            stream=_signed(text.stream), kind=_signed(text.kind), text=text.text
        )
        if isinstance(text, Finding):
            line.report.CopyFrom(text.report)
    if outcome.value is not None:
        _put_value(result, outcome.value)
    return result


def _put_value(result: operation_pb2.OperationResult, value: Any) -> None:
    match value:
        case bool():
            result.boolean = value
        case int():
            result.number = value
        case tuple():  # no sequence pattern: since NumPy 2.5 an array matches those
            result.range.min, result.range.max = value
        case _:
            pass  # an array travels apart


def dense(value: Any) -> stick.Array:
    """Return a user array as one contiguous line of little-endian bytes."""
    array = np.ascontiguousarray(value)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array.reshape(-1).view(np.uint8)


def _refusal(refusal: Refusal) -> status_pb2.Refusal:
    return status_pb2.Refusal(
        field=refusal.field,
        value=refusal.value,
        limit=refusal.limit,
        constraint=refusal.constraint,
        text=str(refusal),
    )


def _violation(violation: Any) -> operation_pb2.RangeViolation:
    message = operation_pb2.RangeViolation(function=violation.function)
    for operand in violation.operands:
        elements = (
            operation_pb2.ViolatingElement(
                index=one.index,
                code=one.code,
                padding=one.padding,
                operand_values=one.operand_values,
            )
            for one in operand.elements
        )
        message.operands.add(operand=operand.operand, count=operand.count, elements=elements)
    return message


def _bits(mask: int, width: int) -> Iterable[Any]:
    """Return the numbers of the bits that are set, bit 0 on the left of `width`."""
    return (number for number in range(width) if mask >> (width - 1 - number) & 1)


def describe_machine(machine: Machine, model: str) -> accelerator_pb2.Machine:
    """Return what NNPA-QAF says of a machine, as fields and raw; a custom machine has no name."""
    custom = machine.name != model
    qaf = machine.qaf
    formats = qaf.parmblk_formats >> 96
    return accelerator_pb2.Machine(
        name="" if custom else f"machines/{machine.name}",
        model=accelerator_pb2.MachineModel.Value(
            f"MACHINE_MODEL_{model.upper().replace('-', '_')}"
        ),
        aliases=machine.aliases,
        display_name=machine.title,
        nnpa_installed=machine.nnpa_installed,
        hardware_version=hardware_version(qaf),
        functions_vector=qaf.functions.to_bytes(32, "big"),
        functions=_bits(qaf.functions, 256),
        parmblk_formats_mask=formats,
        parmblk_formats=_bits(formats, 32),
        data_types_mask=qaf.data_types,
        data_types=_bits(qaf.data_types, 16),
        layout_formats_mask=qaf.layout_formats,
        layout_formats=_bits(qaf.layout_formats, 32),
        conversions_mask=qaf.conversions,
        conversions=_bits(qaf.conversions, 16),
        max_dim_idx_size=qaf.max_dim_idx_size,
        max_tensor_size=qaf.max_tensor_size,
        max_dim4=qaf.max_dims[0],
        max_dim3=qaf.max_dims[1],
        max_dim2=qaf.max_dims[2],
        max_dim1=qaf.max_dims[3],
        qaf_block=qaf.block(),
    )


def describe_session(session: Session, model: str, now: float) -> accelerator_pb2.Session:
    """Return a session: the options wanted, and how it is. `now` is in seconds since the epoch."""
    message = accelerator_pb2.Session()
    message.CopyFrom(session.options)
    message.name = session.name
    message.machine.CopyFrom(describe_machine(session.guest.machine, model))
    message.limits.CopyFrom(_limits(session.limits))
    message.tensor_count = len(session.tensors)
    message.stored_bytes = session.stored_bytes
    message.create_time.CopyFrom(timestamp(session.created))
    message.expire_time.CopyFrom(timestamp(now + session.limits.idle_timeout))
    message.server_version = SERVER_VERSION
    if session.shared is not None and session.shared.name:
        message.shared_memory.name = session.shared.name
        message.shared_memory.size = session.shared.size
    return message


def _limits(limits: Limits) -> accelerator_pb2.SessionLimits:
    timeout = duration_pb2.Duration()
    timeout.FromNanoseconds(round(limits.idle_timeout * 1e9))
    return accelerator_pb2.SessionLimits(
        max_inline_bytes=limits.max_inline,
        max_message_bytes=limits.max_message,
        max_tensors=limits.max_session_tensors,
        max_bytes=limits.max_session_bytes,
        idle_timeout=timeout,
        max_cache_bytes=limits.max_session_cache,
    )


def timestamp(seconds: float) -> timestamp_pb2.Timestamp:
    """Return a moment, in seconds since the epoch, as a message."""
    stamp = timestamp_pb2.Timestamp()
    stamp.FromNanoseconds(round(seconds * 1e9))
    return stamp
