# SPDX-License-Identifier: Apache-2.0
"""What goes back over the wire: results, ztensors, machines, sessions.

Source of every field's meaning: the comments of nnpa/zdnn/v1/*.proto.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import numpy as np
from google.protobuf import duration_pb2, timestamp_pb2
from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2, status_pb2, tensor_pb2
from nnpa_emulator import stick
from nnpa_emulator.machine import Machine, hardware_version
from nnpa_emulator.pipeline import Outcome
from nnpa_emulator.status import Refusal, Status, get_status_message
from nnpa_emulator.ztensor import TensorDesc, Ztensor

from nnpa_server.accelerator.decode import Step
from nnpa_server.accelerator.operands import forget, keep
from nnpa_server.config import Limits
from nnpa_server.rpc.codec import Answered
from nnpa_server.sessions.shared_memory import shared_of
from nnpa_server.sessions.store import Session

_NO_STICKS: Mapping[int, stick.Array] = {}
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
        result.diagnostics.add(stream=_signed(text.stream), kind=_signed(text.kind), text=text.text)
    if outcome.value is not None:
        _put_value(result, outcome.value)
    return result


def encode_result(
    session: Session, step: Step, tensors: Mapping[str, Ztensor], outcome: Outcome
) -> tuple[operation_pb2.OperationResult, Mapping[int, stick.Array]]:
    """Return an operation's result, and the sticks of its inline outputs by number."""
    result = answer(outcome)
    if outcome.valid or outcome.status == Status.ZDNN_CONVERT_FAILURE:
        return result, report_outputs(session, result, step, tensors)
    return result, _NO_STICKS


def report_outputs(
    session: Session,
    result: operation_pb2.OperationResult,
    step: Step,
    tensors: Mapping[str, Ztensor],
) -> Mapping[int, stick.Array]:
    """Add the tensors to a result that its operation created, wrote, or changed the state of.

    Return the sticks of inline outputs, which the result lacks.
    """
    sticks: dict[int, stick.Array] = {}
    for name in step.arm.written:
        tensor = tensors[name]
        which, wanted = step.others.get(name, ("", None))
        if which == "inline_ztensor" and tensor.buffer is not None and name in step.arm.filled:
            contents = place_output(session, tensor, wanted)
            if contents is not None:
                sticks[len(result.outputs)] = contents
            message = describe_output(tensor, wanted, contents is not None)
            result.outputs.add(operand=name, ztensor=message)
            cache_output(session, tensor, wanted)
        elif which == "inline_ztensor":
            result.outputs.add(operand=name, ztensor=describe_ztensor(tensor))
        else:
            number = wanted or step.ids.get(name) or step.creates
            result.outputs.add(id=number, operand=name, ztensor=describe_ztensor(tensor))
    return sticks


def cache_output(session: Session, tensor: Ztensor, wanted: tensor_pb2.Ztensor) -> None:
    """Have the cache hold an output, if it is to, in the place of what that was written over."""
    if tensor.buffer is not None:
        forget(session, tensor, wanted)
        keep(session, tensor, tensor.buffer, wanted.cache_as, wanted.byte_order)


def _put(session: Session, extent: tensor_pb2.Extent, array: stick.Array, path: str) -> bool:
    """Write an array where the client wants it, and tell whether there was storage for it."""
    memory = shared_of(session)
    if memory is None or extent.size < array.nbytes:
        return False
    place = memory.view(extent.offset, array.nbytes, path)
    if place is not None and place.ctypes.data == array.ctypes.data:
        return True  # it was computed there
    return memory.write(extent.offset, array, path)


def put_array(
    session: Session,
    place: tensor_pb2.Extent | None,
    array: stick.Array,
    result: operation_pb2.OperationResult,
    path: str,
) -> bool:
    """Write a user array to shared memory if the client wants it there; tell whether it is."""
    if place is None or not _put(session, place, dense(array), path):
        return False
    result.shared.offset, result.shared.size = place.offset, dense(array).nbytes
    return True


def place_output(
    session: Session, tensor: Ztensor, wanted: tensor_pb2.Ztensor
) -> stick.Array | None:
    """Write an output's sticks to shared memory; return them if they travel instead."""
    sticks = in_order(tensor, wanted.byte_order).view(np.uint8)
    if wanted.HasField("sticks_to") and _put(session, wanted.sticks_to, sticks, "sticks_to"):
        return None
    return sticks


def describe_output(
    tensor: Ztensor, wanted: tensor_pb2.Ztensor, travels: bool
) -> tensor_pb2.Ztensor:
    """Return the structure of an inline output that has sticks, and where they are."""
    message = describe_ztensor(tensor)
    message.byte_order = wanted.byte_order
    if not travels:
        message.shared.CopyFrom(wanted.sticks_to)
    return message


def encode(answered: Answered) -> accelerator_pb2.ExecuteResponse:
    """Return the message of a list's results, their arrays and sticks included."""
    response = accelerator_pb2.ExecuteResponse(results=answered.results)
    for index, array in answered.arrays.items():
        response.results[index].data = array.tobytes()
    for index, outputs in answered.sticks.items():
        for output, array in outputs.items():
            response.results[index].outputs[output].ztensor.sticks = array.tobytes()
    return response


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
    memory = shared_of(session)
    if memory is not None and memory.name:
        message.shared_memory.name = memory.name
        message.shared_memory.size = memory.size
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
