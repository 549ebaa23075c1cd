# SPDX-License-Identifier: Apache-2.0
"""Messages that describe machines and sessions.

Source of every field's meaning: the comments of nnpa/zdnn/v1/*.proto.
"""

from collections.abc import Iterable
from copy import deepcopy
from importlib.metadata import version
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2
from nnpa.zdnn.v1 import accelerator_pb2
from nnpa_emulator.machine import Machine, hardware_version

from nnpa_server.config import Limits
from nnpa_server.sessions.shared_memory import shared_of
from nnpa_server.sessions.store import Session

SERVER_VERSION = version("nnpa")


def _bits(mask: int, width: int) -> Iterable[Any]:
    """Yield the numbers of the bits that are set in a mask of `width` bits, bit 0 leftmost."""
    return (number for number in range(width) if mask >> (width - 1 - number) & 1)


def describe_machine(machine: Machine, model: str) -> accelerator_pb2.Machine:
    """Return the NNPA-QAF answer of a machine, as fields and raw; a custom machine has no name."""
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
    """Return the options and present state of a session; `now` is in seconds since the epoch."""
    message = deepcopy(session.options)
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
    return accelerator_pb2.SessionLimits(
        max_inline_bytes=limits.max_inline,
        max_message_bytes=limits.max_message,
        max_tensors=limits.max_session_tensors,
        max_bytes=limits.max_session_bytes,
        idle_timeout=_duration(limits.idle_timeout),
        max_cache_bytes=limits.max_session_cache,
        lease_grace=_duration(limits.lease_grace),
    )


def _duration(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(round(seconds * 1e9))
    return duration


def timestamp(seconds: float) -> timestamp_pb2.Timestamp:
    """Return the message of a moment in seconds since the epoch."""
    stamp = timestamp_pb2.Timestamp()
    stamp.FromNanoseconds(round(seconds * 1e9))
    return stamp
