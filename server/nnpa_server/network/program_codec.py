# SPDX-License-Identifier: Apache-2.0
"""The codec of programs between workers and server: a message, and constants as arrays.

Workers are not trusted. The server reads their programs like a client's upload, and decodes texts
from bytes with checked lengths.
"""

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
from google.protobuf.message import DecodeError
from nnpa.network.v1 import program_pb2 as pb
from nnpa_emulator import Guest, Ztensor
from nnpa_emulator.ztensor import getsize_ztensor
from nnpa_network.program import ABSENT, Array, DType, ModelRefused, Port, Program

from nnpa_server.accelerator.execute import describe_ztensor
from nnpa_server.accelerator.operands import read_structure
from nnpa_server.network.messages import encode_port, read_dtype, type_name
from nnpa_server.network.programs import encode_program, read_port, read_program
from nnpa_server.network.text_arrays import TEXT, decode_text, encode_text
from nnpa_server.sandbox.frames import TYPES

_TYPES: Mapping[str, DType] = {dtype.name: dtype for dtype in TYPES}


class NotProgram(ValueError):
    """An answer of a worker is not valid; the text says why."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The name, inputs, optional inputs and outputs of a model."""

    name: str
    inputs: tuple[Port, ...]
    optional: tuple[Port, ...]
    outputs: tuple[Port, ...]


def encode_facts(model: Facts) -> bytes:
    """Return the bytes of a model's facts; the id of an optional input is 0."""
    message = pb.Program(
        name=model.name,
        inputs=map(encode_port, (*model.inputs, *model.optional)),
        outputs=map(encode_port, model.outputs),
        input_ids=[*(1 for _ in model.inputs), *(ABSENT for _ in model.optional)],
    )
    return message.SerializeToString()


def decode_facts(data: bytes) -> Facts:
    """Return a model's facts; raise `NotProgram`, CallRefused."""
    message = _parse(data)
    inputs = tuple(read_port(port, "inputs", read_type) for port in message.inputs)
    outputs = tuple(read_port(port, "outputs", read_type) for port in message.outputs)
    if any(len(port.symbols) != len(port.shape) for port in inputs):
        raise NotProgram("dims without their symbols")
    required = sum(number != ABSENT for number in message.input_ids)
    return Facts(message.name, inputs[:required], inputs[required:], outputs)


def encode(program: Program) -> tuple[bytes, tuple[Array, ...]]:
    """Return the message of a program, and its arrays: tensors' scales, then constants by id."""
    message = encode_program(replace(program, constants={}))
    quantized = [(info.scale, info.offset) for _, info in sorted(program.tensors.items())]
    arrays: list[Array] = [np.array(quantized, np.float64).reshape(len(quantized), 2)]
    for number, constant in sorted(program.constants.items()):
        entry = message.constants[number]
        if isinstance(constant, Ztensor):
            entry.ztensor.CopyFrom(describe_ztensor(constant))
            arrays.append(constant.sticks.reshape(-1))
        else:
            entry.array.dtype = type_name(constant.dtype)
            entry.array.shape.extend(constant.shape)
            arrays.append(encode_text(constant) if constant.dtype == TEXT else constant)
    return message.SerializeToString(), tuple(arrays)


class Decoder:
    """Decodes the programs of one model, and keeps equal constants once.

    `borrowed` arrays are copied; otherwise a program keeps the arrays that came with it. `nbytes`
    counts the bytes of constants in sticks.
    """

    def __init__(
        self, constants: Mapping[bytes, Ztensor] | None = None, *, borrowed: bool = False
    ) -> None:
        self.constants: MutableMapping[bytes, Ztensor] = dict(constants or {})
        self._borrowed = borrowed
        self.nbytes = 0
        self._count()

    def decode(self, data: bytes, arrays: Sequence[Array], guest: Guest) -> Program:
        """Return a program for a guest; raise ValueError, `ModelRefused`, CallRefused."""
        message = _parse(data)
        numbers = sorted(message.constants)
        if len(arrays) != 1 + len(numbers):
            raise NotProgram(f"{len(arrays)} arrays for {len(numbers)} constants")
        constants = {
            number: self._constant(message.constants[number], array, guest)
            for number, array in zip(numbers, arrays[1:], strict=True)
        }
        program = read_program(message, guest, constants, read_type)
        return _with_scales(program, arrays[0])

    def _constant(self, message: pb.Constant, array: Array, guest: Guest) -> Array | Ztensor:
        if message.WhichOneof("constant") == "ztensor":
            return self._sticks(message, array, guest)
        if message.array.dtype == TEXT.name:
            return decode_text(array, tuple(message.array.shape))
        return array.copy() if self._borrowed else array

    def _sticks(self, message: pb.Constant, array: Array, guest: Guest) -> Ztensor:
        """Return a constant of the accelerator, with its sticks in storage of the guest."""
        digest = sha256(message.ztensor.SerializeToString(deterministic=True))
        digest.update(array.data)
        key = digest.digest()
        if key not in self.constants:
            tensor = read_structure(message.ztensor, "constants")
            size = getsize_ztensor(tensor.transformed_desc)
            if array.dtype != np.uint8 or array.shape != (size,):
                raise NotProgram(f"sticks of {array.nbytes} bytes, not {size}")
            tensor.buffer = guest.allocate(size)
            if tensor.buffer is None:
                raise ModelRefused(f"a constant cannot be stickified: no storage for {size} bytes")
            tensor.buffer[:] = array
            self.constants[key] = tensor
            self.nbytes += size
        return self.constants[key]

    def hold(self, program: Program) -> None:
        """Count a program's constants that were not decoded here."""
        known = {id(tensor) for tensor in self.constants.values()}
        for tensor in program.constants.values():
            if isinstance(tensor, Ztensor) and id(tensor) not in known:
                self.constants[id(tensor).to_bytes(8)] = tensor
                self.nbytes += tensor.sticks.nbytes

    def keep_only(self, programs: Iterable[Program]) -> None:
        """Drop the constants that none of these programs uses."""
        held = {id(constant) for program in programs for constant in program.constants.values()}
        for key in [key for key, constant in self.constants.items() if id(constant) not in held]:
            del self.constants[key]
        self._count()

    def _count(self) -> None:
        self.nbytes = sum(tensor.sticks.nbytes for tensor in self.constants.values())


def _parse(data: bytes) -> pb.Program:
    try:
        return pb.Program.FromString(data)
    except DecodeError as error:
        raise NotProgram(f"{len(data)} bytes are no program") from error


def read_type(name: str, path: str) -> DType:
    """Return the element type of a name; models have more types than clients may send."""
    return _TYPES[name] if name in _TYPES else read_dtype(name, path)


def _with_scales(program: Program, scales: Array) -> Program:
    """Return a program whose tensors have exact scales: its message has their reciprocals."""
    numbers = sorted(program.tensors)
    if scales.dtype != np.float64 or scales.shape != (len(numbers), 2):
        raise NotProgram(f"scales of shape {scales.shape} for {len(numbers)} tensors")
    tensors = {
        number: replace(program.tensors[number], scale=scale, offset=offset)
        for number, (scale, offset) in zip(numbers, scales.tolist(), strict=True)
    }
    return replace(program, tensors=tensors)


def pack(arrays: Iterable[Array]) -> tuple[tuple[Array, ...], dict[str, list[int]]]:
    """Return arrays with texts as bytes, and the shapes of arrays of text by position."""
    dense = tuple(arrays)
    shapes = {
        str(place): list(array.shape) for place, array in enumerate(dense) if array.dtype == TEXT
    }
    return tuple(encode_text(array) if array.dtype == TEXT else array for array in dense), shapes


def unpack(arrays: Sequence[Array], shapes: Mapping[str, Sequence[int]]) -> tuple[Array, ...]:
    """Return the arrays that `pack` encoded; raise ValueError, TypeError."""
    return tuple(
        decode_text(array, tuple(shapes[str(place)])) if str(place) in shapes else array
        for place, array in enumerate(arrays)
    )
