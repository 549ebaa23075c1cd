# SPDX-License-Identifier: Apache-2.0
"""Read the tensors of a kernel from messages, and describe them in answers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message
from mli_emulator import MLI_MAX_RANK, ElParams, FxParams, SaParams, Tensor
from nnpa.mli.v1 import mli_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.config import MIB, Limits
from nnpa_server.errors import CallRefused, beyond, invalid, unspecified

# Largest memory of a tensor: a kernel takes 20 to 80 times as much, and some seconds, for it.
MAX_TENSOR_BYTES = 4 * MIB
Operands: TypeAlias = Mapping[str, Tensor]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Named = TypeVar("Named")


def too_large(path: str, size: int, limit: int) -> CallRefused:
    """Return the error for memory or contents beyond the limit of a call."""
    text = f"{path} has {size} bytes, must be at most {limit}: send less per call"
    return beyond(wire.ERROR_REASON_MESSAGE_TOO_LARGE, text, path, size, limit)


@dataclass(slots=True)
class Room:
    """The bytes that the tensors of a call take, or that its answer carries, and their limit."""

    limits: Limits
    used: int = 0

    def take(self, path: str, size: int) -> None:
        """Count the bytes of one tensor; raise CallRefused if it, or all of them, have too many."""
        most = min(MAX_TENSOR_BYTES, self.limits.max_inline)
        if size > most:
            raise too_large(path, size, most)
        self.used += size
        if self.used > self.limits.max_message:
            raise too_large(path, self.used, self.limits.max_message)


@dataclass(slots=True)
class Reader:
    """Reads the tensors of one kernel; `earlier` has the tensors of the kernels before it."""

    path: str
    earlier: Sequence[Operands]
    room: Room
    references: Mapping[str, pb.TensorRef]
    tensors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    waiting: set[str] = field(default_factory=set[str])

    def read(self, name: str) -> Tensor:
        """Return the tensor of a field; first read the tensor whose memory it shares, if any."""
        if name in self.tensors:
            return self.tensors[name]
        path = f"{self.path}.{name}"
        reference = self.references[name]
        if name in self.waiting:
            raise invalid(f"{path}.same_memory_as", name, "memory that is given somewhere")
        self.waiting.add(name)
        match reference.WhichOneof("tensor"):
            case "inline":
                tensor = self._inline(reference.inline, f"{path}.inline")
            case "output_of":
                tensor = self._earlier(reference.output_of, f"{path}.output_of")
            case "same_memory_as":
                tensor = self._shared(reference.same_memory_as, f"{path}.same_memory_as")
            case _:
                raise unspecified(path)
        self.tensors[name] = tensor
        return tensor

    def _inline(self, message: pb.Tensor, path: str) -> Tensor:
        which = message.WhichOneof("memory")
        data: Bytes | None = None
        if which == "data":
            self.room.take(f"{path}.data", len(message.data))
            data = np.frombuffer(message.data, np.uint8).copy()
        elif which == "zero_bytes":
            self.room.take(f"{path}.zero_bytes", message.zero_bytes)
            data = np.zeros(message.zero_bytes, np.uint8)
        return _tensor(message, data, path)

    def _earlier(self, place: pb.Place, path: str) -> Tensor:
        if not place.HasField("kernel_index"):
            raise unspecified(f"{path}.kernel_index")
        index = place.kernel_index
        if index >= len(self.earlier):
            limit = f"below {len(self.earlier)}, the kernel's own place"
            raise invalid(f"{path}.kernel_index", index, limit)
        return _named(self.earlier[index], place.field, f"{path}.field")

    def _shared(self, message: pb.SharedTensor, path: str) -> Tensor:
        place = message.place
        if place.HasField("kernel_index"):
            base = self._earlier(place, f"{path}.place")
        else:
            _named(self.references, place.field, f"{path}.place.field")
            base = self.read(place.field)
        if base.data is None:
            raise invalid(f"{path}.place.field", place.field, "a tensor with memory")
        if message.offset > base.data.nbytes:
            limit = f"at most {base.data.nbytes}, the memory's end"
            raise invalid(f"{path}.offset", message.offset, limit)
        if memory := message.tensor.WhichOneof("memory"):
            raise invalid(f"{path}.tensor.memory", memory, "absent")
        return _tensor(message.tensor, base.data[message.offset :], f"{path}.tensor")


def _named(tensors: Mapping[str, Named], name: str, path: str) -> Named:
    if name not in tensors:
        raise invalid(path, repr(name[:64]), f"one of {', '.join(sorted(tensors)) or 'no tensors'}")
    return tensors[name]


def read_operands(message: Message, path: str, earlier: Sequence[Operands], room: Room) -> Operands:
    """Return the tensors of a kernel by field; without tensors that are left out (NULL in C)."""
    reader = Reader(path, earlier, room, dict(_references(message)))
    return {name: reader.read(name) for name in reader.references}


def _references(message: Message) -> Iterator[tuple[str, pb.TensorRef]]:
    for parameter in message.DESCRIPTOR.fields:
        if parameter.message_type is None or not message.HasField(parameter.name):
            continue
        if parameter.message_type is pb.TensorRef.DESCRIPTOR:
            yield parameter.name, getattr(message, parameter.name)
        elif parameter.message_type is pb.RnnCellCfg.DESCRIPTOR:
            cfg: pb.RnnCellCfg = getattr(message, parameter.name)
            if cfg.HasField("ir_tsr"):
                yield "cfg.ir_tsr", cfg.ir_tsr


def require_short(values: Sequence[int], path: str) -> tuple[int, ...]:
    """Return the entries of a C array of MLI_MAX_RANK."""
    if len(values) > MLI_MAX_RANK:
        raise invalid(path, f"{len(values)} entries", f"at most {MLI_MAX_RANK} entries")
    return tuple(values)


def _tensor(message: pb.Tensor, data: Bytes | None, path: str) -> Tensor:
    shape = require_short(message.shape, f"{path}.shape")
    strides = require_short(message.mem_stride, f"{path}.mem_stride")
    size = 0 if data is None else data.nbytes
    capacity = message.capacity if message.HasField("capacity") else size
    if data is not None and capacity > size:
        raise invalid(f"{path}.capacity", capacity, f"at most {size}, the memory's bytes")
    rank = message.rank if message.HasField("rank") else len(shape)
    params = _el_params(message, path)
    return Tensor(data, capacity, shape, rank, message.el_type, params, strides)


def _el_params(message: pb.Tensor, path: str) -> ElParams:
    which = message.WhichOneof("el_params")
    try:
        if which == "fx":
            return FxParams(message.fx.frac_bits)
        if which == "sa":
            sa = message.sa
            columns = (tuple(sa.zero_point), tuple(sa.scale), tuple(sa.scale_frac_bits))
            return SaParams(*columns, sa.dim if sa.HasField("dim") else -1)
    except ValueError as error:
        name, _, rest = str(error).partition(": ")
        value, _, limit = rest.partition(", must be ")
        raise invalid(f"{path}.{which}.{name}", value, limit) from None
    return None


def describe(tensor: Tensor) -> pb.Tensor:
    """Return the message of a tensor: all fields, and the first `capacity` bytes of its data."""
    message = pb.Tensor(
        capacity=tensor.capacity,
        shape=tensor.shape,
        rank=tensor.rank,
        mem_stride=tensor.mem_stride,
        el_type=pb.ElType.ValueType(tensor.el_type),
    )
    if tensor.data is not None:
        message.data = tensor.data[: tensor.capacity].tobytes()
    match tensor.el_params:
        case FxParams(bits):
            message.fx.frac_bits = bits
        case SaParams() as params:
            message.sa.CopyFrom(pb.SaParams(**asdict(params)))
        case None:
            pass
    return message
