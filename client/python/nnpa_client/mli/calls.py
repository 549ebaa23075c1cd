# SPDX-License-Identifier: Apache-2.0
"""Calls of kernels on their way to the server, alone or several in one request.

Inside a request a tensor travels once: its later uses are `output_of` its first one, and tensors
that share memory are `same_memory_as` the first one there.
"""

import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from nnpa.mli.v1 import mli_pb2 as pb

from nnpa_client._methods import RUN_KERNEL
from nnpa_client._transport import Transport
from nnpa_client.mli.errors import MliError, MliWarning, remarks
from nnpa_client.mli.tensor import FxParams, SaParams, Tensor

RoundingOption: TypeAlias = Literal["convergent", "up"]
DebugOption: TypeAlias = Literal["release", "ret_codes", "assert", "debug", "full"]
AccumulatorOption: TypeAlias = Literal["exact", "hardware"]
ConversionOption: TypeAlias = Literal["exact", "library_2_0_2", "library_2_0_ea"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a build of the library fixes: the build options of the wire contract, in lower case."""

    rounding: RoundingOption = "convergent"
    debug_level: DebugOption = "ret_codes"
    accumulator: AccumulatorOption = "exact"
    conversion: ConversionOption = "exact"

    def message(self) -> pb.BuildOptions:
        """Return the options as they travel."""
        return pb.BuildOptions(
            rounding=pb.Rounding.Value(f"ROUNDING_{self.rounding.upper()}"),
            debug_level=pb.DebugLevel.Value(f"DEBUG_LEVEL_{self.debug_level.upper()}"),
            accumulator=pb.Accumulator.Value(f"ACCUMULATOR_{self.accumulator.upper()}"),
            conversion=pb.Conversion.Value(f"CONVERSION_{self.conversion.upper()}"),
        )


DEFAULT = Options()
# Frames from `Batch.send` to the user's line: through submit or ask and a kernel's function, or
# through two context managers at the end of a block.
_CALLING, _LEAVING = 4, 6


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the kernel's name, its tensors by field (None is NULL), all other fields.

    `values` are those of the kernel's message; the configuration's are under "cfg", None for NULL.
    """

    kernel: str
    tensors: Mapping[str, Tensor | None]
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One call that was made, with copies of its tensors, for `export_case`.

    `before` are the tensors that were given, `after` those that were written. `shared` says of a
    field whose tensor lies in another one's memory: that field, and bytes between the two.
    """

    kernel: str
    options: Options
    values: Mapping[str, Any]
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
    """Record the calls of the block, each as a `Case`; statuses that raise are recorded too."""
    cases: list[Case] = []
    token = _cases.set(cases)
    try:
        yield cases
    finally:
        _cases.reset(token)


@dataclass(slots=True)
class Encoder:
    """Where the tensors of a request are: (kernel, field), and per memory the first byte sent."""

    placed: dict[int, tuple[int, str]] = field(default_factory=dict[int, tuple[int, str]])
    memories: dict[int, tuple[int, str, int]] = field(
        default_factory=dict[int, tuple[int, str, int]]
    )

    def encode(self, index: int, call: Call) -> pb.Kernel:
        """Return a call as it travels."""
        kernel = pb.Kernel()
        message = getattr(kernel, call.kernel)
        message.SetInParent()
        for name, value in call.values.items():
            if name == "cfg" and value is not None:
                message.cfg.SetInParent()
                for key, one in value.items():
                    _assign(message.cfg, key, one)
            elif name != "cfg":
                _assign(message, name, value)
        given = [(name, tensor) for name, tensor in call.tensors.items() if tensor is not None]
        for name, one in sorted(given, key=lambda pair: pair[1].offset):
            owner, _, member = name.rpartition(".")
            target = getattr(message, owner) if owner else message
            getattr(target, member).CopyFrom(self._reference(index, name, one, call))
        self.placed.update((id(one), (index, name)) for name, one in given)
        return kernel

    def _reference(self, index: int, name: str, one: Tensor, call: Call) -> pb.TensorRef:
        if id(one) in self.placed:
            kernel, where = self.placed[id(one)]
            return pb.TensorRef(output_of=pb.Place(kernel_index=kernel, field=where))
        if one.memory is None:
            return pb.TensorRef(inline=_fields(one))
        if id(one.memory) not in self.memories:
            if call.kernel != "hlp_subtensor" or name != "out":  # whose pointer the kernel moves
                self.memories[id(one.memory)] = index, name, one.offset
            return pb.TensorRef(inline=_with_memory(one))
        kernel, where, start = self.memories[id(one.memory)]
        if one.offset < start:
            raise ValueError(f"{name}: begins in shared memory before the first tensor sent of it")
        place = pb.Place(field=where)
        if kernel != index:
            place.kernel_index = kernel
        shared = pb.SharedTensor(place=place, offset=one.offset - start, tensor=_fields(one))
        return pb.TensorRef(same_memory_as=shared)


def _assign(message: Any, name: str, value: Any) -> None:
    if isinstance(value, Sequence):
        getattr(message, name).extend(value)
    else:
        setattr(message, name, value)


def _fields(one: Tensor) -> pb.Tensor:
    number: Any = one.el_type
    message = pb.Tensor(
        capacity=one.capacity,
        shape=one.shape,
        rank=one.rank,
        mem_stride=one.mem_stride,
        el_type=number,
    )
    if isinstance(one.el_params, FxParams):
        message.fx.frac_bits = one.el_params.frac_bits
    elif one.el_params is not None:
        sa = one.el_params
        message.sa.zero_point.extend(sa.zero_point)
        message.sa.scale.extend(sa.scale)
        message.sa.scale_frac_bits.extend(sa.scale_frac_bits)
        message.sa.dim = sa.dim
    return message


def _with_memory(one: Tensor) -> pb.Tensor:
    message = _fields(one)
    assert one.memory is not None
    memory = one.memory[one.offset :]
    if memory.any():
        message.data = memory.tobytes()
    else:
        message.zero_bytes = memory.nbytes
    return message


def _apply(call: Call, result: pb.KernelResult) -> dict[str, Tensor]:
    """Give the written tensors of a call their new fields and contents; return them by field."""
    written: dict[str, Tensor] = {}
    for output in result.outputs:
        one, message = call.tensors[output.field], output.tensor
        assert one is not None
        source = call.tensors.get("in") if call.kernel == "hlp_subtensor" else None
        if source is not None:
            one.memory = source.memory
            one.offset = source.offset + source.capacity - message.capacity
        elif one.memory is not None:
            end = one.offset + len(message.data)
            one.memory[one.offset : end] = np.frombuffer(message.data, np.uint8)
        one.capacity, one.shape, one.rank = message.capacity, tuple(message.shape), message.rank
        one.mem_stride, one.el_type = tuple(message.mem_stride), message.el_type
        one.el_params = _el_params(message)
        written[output.field] = one
    return written


def _el_params(message: pb.Tensor) -> FxParams | SaParams | None:
    if message.HasField("fx"):
        return FxParams(message.fx.frac_bits)
    if message.HasField("sa"):
        sa = message.sa
        return SaParams(tuple(sa.zero_point), tuple(sa.scale), tuple(sa.scale_frac_bits), sa.dim)
    return None


def _copy(one: Tensor) -> Tensor:
    memory = None if one.memory is None else one.memory[one.offset :].copy()
    return replace(one, memory=memory, offset=0)


def _shared(call: Call) -> dict[str, tuple[str, int]]:
    first: dict[int, tuple[str, int]] = {}
    found: dict[str, tuple[str, int]] = {}
    given = [(name, tensor) for name, tensor in call.tensors.items() if tensor is not None]
    for name, one in sorted(given, key=lambda pair: pair[1].offset):
        if one.memory is not None:
            owner, start = first.setdefault(id(one.memory), (name, one.offset))
            if owner != name:
                found[name] = owner, one.offset - start
    return found


@dataclass(slots=True)
class Batch:
    """Calls that leave together; `results` holds every answer afterwards, as the wire has it."""

    transport: Transport
    options: Options
    calls: list[Call] = field(default_factory=list[Call])
    results: list[pb.KernelResult] = field(default_factory=list[pb.KernelResult])

    def send(self, stacklevel: int = 2) -> None:
        """Run the queued calls in one request; MliError for the first that is refused.

        Warnings point `stacklevel` frames up, where the user's line is.
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
                alone = _batch.get() is None
                raise MliError(call.kernel, result, None if alone else before + index)
            for remark in remarks(call.kernel, result):
                warnings.warn(remark, MliWarning, stacklevel=stacklevel)

    def _finish(self, call: Call, result: pb.KernelResult) -> None:
        cases = _cases.get()
        if cases is None:
            _apply(call, result)
            return
        before = {
            name: _copy(tensor) for name, tensor in call.tensors.items() if tensor is not None
        }
        shared = _shared(call)
        after = {name: _copy(one) for name, one in _apply(call, result).items()}
        number = result.number if result.HasField("number") else None
        told = int(result.mli_status), number, result.refusal.text
        cases.append(Case(call.kernel, self.options, call.values, before, shared, *told, after))


@contextmanager
def open_batch(batch: Batch) -> Generator[Batch]:
    """Have calls of the block queue in a batch, and send them at its end."""
    token = _batch.set(batch)
    try:
        yield batch
        batch.send(_LEAVING)
    finally:
        _batch.reset(token)


def submit(call: Call, transport: Transport, options: Options | None) -> None:
    """Run a call now, or queue it in the batch of the block."""
    batch = _joined(options)
    if batch is None:
        Batch(transport, options or DEFAULT, [call]).send(_CALLING)
    else:
        batch.calls.append(call)


def ask(call: Call, transport: Transport, options: Options | None) -> int:
    """Run a call that answers with a number, after what is queued."""
    batch = _joined(options) or Batch(transport, options or DEFAULT)
    batch.calls.append(call)
    batch.send(_CALLING)
    return int(batch.results[-1].number)


def _joined(options: Options | None) -> Batch | None:
    batch = _batch.get()
    if batch is not None and options not in (None, batch.options):
        raise ValueError(f"options: {options}, must be those of the batch, {batch.options}")
    return batch


def open_batch_transport() -> Transport | None:
    """Return the connection of the batch of the block, or None outside of any."""
    batch = _batch.get()
    return None if batch is None else batch.transport
