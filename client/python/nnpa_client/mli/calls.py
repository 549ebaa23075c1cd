# SPDX-License-Identifier: Apache-2.0
"""Kernel calls as requests, one or several calls in each.

A request has each tensor once: later uses are `output_of` the first, and tensors in shared memory
are `same_memory_as` the first tensor there.
"""

import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from google.protobuf.message import Message
from nnpa.mli.v1 import mli_pb2 as pb

from nnpa_client._guest.sanitizer import user_frame
from nnpa_client._server.methods import RUN_KERNEL
from nnpa_client._server.transport import Transport
from nnpa_client._values.fields import c_enum, enum_of_word
from nnpa_client.mli.errors import MliError, MliWarning, remarks
from nnpa_client.mli.tensor import FxParams, SaParams, Tensor

__tracebackhide__ = True  # pytest shows the line that called, not these

RoundingOption: TypeAlias = Literal["convergent", "up"]
DebugOption: TypeAlias = Literal["release", "ret_codes", "assert", "debug", "full"]
AccumulatorOption: TypeAlias = Literal["exact", "hardware"]
ConversionOption: TypeAlias = Literal["exact", "library_2_0_2", "library_2_0_ea"]
Setting: TypeAlias = int | Sequence[int]
Value: TypeAlias = Setting | Mapping[str, Setting] | None
"""The value of a field of a kernel's message; a mapping for its configuration."""


@dataclass(frozen=True, slots=True)
class Options:
    """Build options of the library, under the wire contract's names in lower case."""

    rounding: RoundingOption = "convergent"
    debug_level: DebugOption = "ret_codes"
    accumulator: AccumulatorOption = "exact"
    conversion: ConversionOption = "exact"

    def message(self) -> pb.BuildOptions:
        """Return the options' message."""
        numbers: dict[str, Any] = {
            field.name: enum_of_word(field.enum_type, field.name, getattr(self, field.name))
            for field in pb.BuildOptions.DESCRIPTOR.fields
            if field.enum_type is not None
        }
        return pb.BuildOptions(**numbers)


DEFAULT = Options()
_MAKERS = "mli.tensor(array, frac_bits=...) and mli.quantise(array, el_type)"
_LEAVING = 6  # frames from `Batch.send` to the user's line, through two context managers


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the kernel's name, its tensors by field (None is NULL), its other fields.

    `values` are the fields of the kernel's message; "cfg" has the configuration's, None for NULL.
    """

    kernel: str
    tensors: Mapping[str, Tensor | None]
    values: Mapping[str, Value]

    def __post_init__(self) -> None:
        for name, tensor in cast("Mapping[str, object]", self.tensors).items():
            if tensor is not None and not isinstance(tensor, Tensor):
                kind = type(tensor).__name__
                raise TypeError(f"{name}: {kind}, expected an mli.Tensor; {_MAKERS} make one")


@dataclass(frozen=True, slots=True)
class Case:
    """A recorded call, with copies of its tensors, for `export_case`.

    `before` are the call's tensors, `after` those that it wrote. `shared` lists the fields whose
    tensor lies in another tensor's memory: that tensor's field, and the bytes between the two.
    """

    kernel: str
    options: Options
    values: Mapping[str, Value]
    before: Mapping[str, Tensor]
    shared: Mapping[str, tuple[str, int]]
    status: int
    number: int | None
    refusal: str
    after: Mapping[str, Tensor]


_cases: ContextVar[list[Case] | None] = ContextVar("nnpa_mli_cases", default=None)
_batch: ContextVar["Batch | None"] = ContextVar("nnpa_mli_batch", default=None)


@contextmanager
def record() -> Generator[list[Case]]:
    """Record the calls of the block, each as a `Case`, including a call that raises MliError."""
    cases: list[Case] = []
    token = _cases.set(cases)
    try:
        yield cases
    finally:
        _cases.reset(token)


@dataclass(slots=True)
class Encoder:
    """Encodes calls; remembers each tensor's (kernel, field), and each memory's first byte sent."""

    placed: dict[int, tuple[int, str]] = field(default_factory=dict[int, tuple[int, str]])
    memories: dict[int, tuple[int, str, int]] = field(
        default_factory=dict[int, tuple[int, str, int]]
    )

    def encode(self, index: int, call: Call) -> pb.Kernel:
        """Return a call's message."""
        kernel = pb.Kernel()
        message = getattr(kernel, call.kernel)
        message.SetInParent()
        for name, value in call.values.items():
            if isinstance(value, Mapping):
                message.cfg.SetInParent()
                for key, setting in value.items():
                    _assign(message.cfg, key, setting)
            elif value is not None:
                _assign(message, name, value)
        tensors = _by_offset(call)
        for name, tensor in tensors:
            owner, _, member = name.rpartition(".")
            target = getattr(message, owner) if owner else message
            getattr(target, member).CopyFrom(self._reference(index, name, tensor, call))
        self.placed.update((id(tensor), (index, name)) for name, tensor in tensors)
        return kernel

    def _reference(self, index: int, name: str, tensor: Tensor, call: Call) -> pb.TensorRef:
        if id(tensor) in self.placed:
            kernel, where = self.placed[id(tensor)]
            return pb.TensorRef(output_of=pb.Place(kernel_index=kernel, field=where))
        if tensor.memory is None:
            return pb.TensorRef(inline=_fields(tensor))
        if id(tensor.memory) not in self.memories:
            if call.kernel != "hlp_subtensor" or name != "out":  # whose pointer the kernel moves
                self.memories[id(tensor.memory)] = index, name, tensor.offset
            return pb.TensorRef(inline=_with_memory(tensor))
        kernel, where, start = self.memories[id(tensor.memory)]
        if tensor.offset < start:
            raise ValueError(f"{name}: begins in shared memory before the first tensor sent of it")
        place = pb.Place(field=where)
        if kernel != index:
            place.kernel_index = kernel
        shared = pb.SharedTensor(place=place, offset=tensor.offset - start, tensor=_fields(tensor))
        return pb.TensorRef(same_memory_as=shared)


def _assign(message: Message, name: str, value: Setting) -> None:
    if isinstance(value, Sequence):
        getattr(message, name).extend(value)
    else:
        setattr(message, name, value)


def _fields(tensor: Tensor) -> pb.Tensor:
    message = pb.Tensor(
        capacity=tensor.capacity,
        shape=tensor.shape,
        rank=tensor.rank,
        mem_stride=tensor.mem_stride,
        el_type=c_enum(tensor.el_type),
    )
    if isinstance(tensor.el_params, FxParams):
        message.fx.frac_bits = tensor.el_params.frac_bits
    elif tensor.el_params is not None:
        sa = tensor.el_params
        message.sa.zero_point.extend(sa.zero_point)
        message.sa.scale.extend(sa.scale)
        message.sa.scale_frac_bits.extend(sa.scale_frac_bits)
        message.sa.dim = sa.dim
    return message


def _with_memory(tensor: Tensor) -> pb.Tensor:
    message = _fields(tensor)
    assert tensor.memory is not None
    memory = tensor.memory[tensor.offset :]
    if memory.any():
        message.data = memory.tobytes()
    else:
        message.zero_bytes = memory.nbytes
    return message


def _apply(call: Call, result: pb.KernelResult) -> dict[str, Tensor]:
    """Update the tensors that a call wrote, fields and contents; return them by field."""
    written: dict[str, Tensor] = {}
    for output in result.outputs:
        tensor, message = call.tensors[output.field], output.tensor
        assert tensor is not None
        source = call.tensors.get("in") if call.kernel == "hlp_subtensor" else None
        if source is not None:
            tensor.memory = source.memory
            tensor.offset = source.offset + source.capacity - message.capacity
        elif tensor.memory is not None:
            end = tensor.offset + len(message.data)
            tensor.memory[tensor.offset : end] = np.frombuffer(message.data, np.uint8)
        tensor.capacity, tensor.shape = message.capacity, tuple(message.shape)
        tensor.rank, tensor.mem_stride = message.rank, tuple(message.mem_stride)
        tensor.el_type = message.el_type
        tensor.el_params = _el_params(message)
        written[output.field] = tensor
    return written


def _el_params(message: pb.Tensor) -> FxParams | SaParams | None:
    if message.HasField("fx"):
        return FxParams(message.fx.frac_bits)
    if message.HasField("sa"):
        sa = message.sa
        return SaParams(tuple(sa.zero_point), tuple(sa.scale), tuple(sa.scale_frac_bits), sa.dim)
    return None


def _copy(tensor: Tensor) -> Tensor:
    memory = None if tensor.memory is None else tensor.memory[tensor.offset :].copy()
    return replace(tensor, memory=memory, offset=0)


def _by_offset(call: Call) -> list[tuple[str, Tensor]]:
    """Return the fields and tensors of a call, without NULLs, ordered by offset in memory."""
    tensors = [(name, tensor) for name, tensor in call.tensors.items() if tensor is not None]
    return sorted(tensors, key=lambda pair: pair[1].offset)


def _shared(call: Call) -> dict[str, tuple[str, int]]:
    """Return fields in another field's memory, with that field and the bytes between the two."""
    first: dict[int, tuple[str, int]] = {}
    shared: dict[str, tuple[str, int]] = {}
    for name, tensor in _by_offset(call):
        if tensor.memory is not None:
            owner, start = first.setdefault(id(tensor.memory), (name, tensor.offset))
            if owner != name:
                shared[name] = owner, tensor.offset - start
    return shared


@dataclass(slots=True)
class Batch:
    """Calls that are sent in one request; `results` holds the messages of their results."""

    transport: Transport
    options: Options
    calls: list[Call] = field(default_factory=list[Call])
    results: list[pb.KernelResult] = field(default_factory=list[pb.KernelResult])

    def send(self, stacklevel: int = 2) -> None:
        """Run the queued calls in one request; raise MliError for the first refused one.

        Warnings point `stacklevel` frames up; with 0, to the first line outside of this package.
        """
        calls, self.calls = self.calls, []
        if not calls:
            return
        before, encoder = len(self.results), Encoder()
        kernels = [encoder.encode(index, call) for index, call in enumerate(calls)]
        request = pb.RunKernelRequest(kernels=kernels, options=self.options.message())
        results = self.transport.unary(RUN_KERNEL, request).results
        for index, (call, result) in enumerate(zip(calls, results, strict=False)):
            self.results.append(result)
            self._finish(call, result)
            if result.mli_status != pb.MLI_STATUS_OK:
                kernel_index = None if _batch.get() is None else before + index
                raise MliError(call.kernel, result, kernel_index)
            for remark in remarks(call.kernel, result):
                warnings.warn(remark, MliWarning, stacklevel=stacklevel or user_frame()[1])

    def _finish(self, call: Call, result: pb.KernelResult) -> None:
        cases = _cases.get()
        if cases is None:
            _apply(call, result)
            return
        before = {
            name: _copy(tensor) for name, tensor in call.tensors.items() if tensor is not None
        }
        shared = _shared(call)
        after = {name: _copy(tensor) for name, tensor in _apply(call, result).items()}
        number = result.number if result.HasField("number") else None
        answer = int(result.mli_status), number, result.refusal.text
        cases.append(Case(call.kernel, self.options, call.values, before, shared, *answer, after))


@contextmanager
def open_batch(batch: Batch) -> Generator[Batch]:
    """Queue the calls of the block in a batch; send them at its end."""
    token = _batch.set(batch)
    try:
        yield batch
        batch.send(_LEAVING)
    finally:
        _batch.reset(token)


def current_batch(options: Options | None = None) -> Batch | None:
    """Return the batch of the block, or None; raise ValueError if it has other options."""
    batch = _batch.get()
    if batch is not None and options not in (None, batch.options):
        raise ValueError(f"options: {options}, must be those of the batch, {batch.options}")
    return batch
