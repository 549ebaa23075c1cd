# SPDX-License-Identifier: Apache-2.0
"""Convert programs between messages and objects of the network runtime.

The operations of a program are decoded like the operations of Execute. Programs are not trusted:
each id must be written before it is read, and must be used as what it is, array or tensor.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from google.protobuf.message import DecodeError, Message
from nnpa.network.v1 import program_pb2 as pb
from nnpa.zdnn.v1 import operation_pb2, tensor_pb2
from nnpa.zdnn.v1 import status_pb2 as wire
from nnpa_emulator import Guest, Ztensor
from nnpa_emulator.machine import page_memory
from nnpa_emulator.status import NotInLibrary
from nnpa_emulator.ztensor import getsize_ztensor
from nnpa_network.program import (
    ABSENT,
    AcceleratorStep,
    Array,
    ArrayInfo,
    DType,
    HostStep,
    ModelRefused,
    Node,
    Place,
    Port,
    Program,
    Step,
    TensorInfo,
    reads,
    writes,
)
from nnpa_network.running.host import HostError

from nnpa_server.accelerator.decode import LiveIds, decode_operation
from nnpa_server.accelerator.execute import describe, describe_ztensor
from nnpa_server.accelerator.operands import read_structure, size_mismatch
from nnpa_server.errors import CallRefused, from_exception, invalid, unspecified
from nnpa_server.network import messages

_REF = tensor_pb2.TensorRef.DESCRIPTOR
_FREE = -1  # a dim that only running tells

ReadType: TypeAlias = Callable[[str, str], DType]
"""A function that returns the element type of a name; it also takes the field for the error."""


def parse_program(data: bytes) -> pb.Program:
    """Return the message of a serialised program; raise `ModelRefused` for other bytes."""
    try:
        return pb.Program.FromString(data)
    except DecodeError as error:
        raise ModelRefused(f"{len(data)} bytes are no nnpa.network.v1.Program") from error


def read_program(
    message: pb.Program,
    guest: Guest,
    constants: Mapping[int, Array | Ztensor] | None = None,
    read_type: ReadType = messages.read_dtype,
) -> Program:
    """Return a program for a guest; raise CallRefused if its parts do not fit together.

    `constants`, if given, replace the constants of the message. `read_type` finds types by name.
    """
    if constants is None:
        constants = {
            number: _constant(number, constant) for number, constant in message.constants.items()
        }
    structures = {number: _structure(number, info) for number, info in message.tensors.items()}
    program = Program(
        name=message.name,
        machine=message.machine,
        inputs=tuple(
            read_port(port, f"inputs[{i}]", read_type) for i, port in enumerate(message.inputs)
        ),
        outputs=tuple(
            read_port(port, f"outputs[{i}]", read_type) for i, port in enumerate(message.outputs)
        ),
        input_ids=tuple(message.input_ids),
        output_ids=tuple(message.output_ids),
        arrays={
            number: _array_info(number, info, read_type) for number, info in message.arrays.items()
        },
        tensors={number: _tensor_info(tensor) for number, tensor in structures.items()},
        constants=constants,
        steps=_steps(message, {**structures, **constants}, guest),
        nodes=tuple(_node(index, node) for index, node in enumerate(message.nodes)),
        places={
            name: tuple(
                Place(place.id, tuple(place.shape), tuple(place.order)) for place in places.places
            )
            for name, places in message.places.items()
        },
        placement=messages.read_placement(message.placement, "placement"),
    )
    _require_connected(program)
    return program


def read_port(message: pb.Port, path: str, read_type: ReadType = messages.read_dtype) -> Port:
    """Return an input or output."""
    dtype = read_type(message.dtype, f"{path}.dtype")
    shape = messages.read_shape(message.shape, f"{path}.shape", minimum=_FREE)
    return Port(message.name, dtype, shape, tuple(message.symbols))


def _array_info(number: int, message: pb.ArrayInfo, read_type: ReadType) -> ArrayInfo:
    path = f"arrays[{number}]"
    shape = messages.read_shape(message.shape, f"{path}.shape", minimum=_FREE)
    return ArrayInfo(read_type(message.dtype, f"{path}.dtype"), shape)


def _structure(number: int, message: tensor_pb2.Ztensor) -> Ztensor:
    """Return a declared tensor without storage."""
    path = f"tensors[{number}]"
    for name in ("pre_transformed_desc", "transformed_desc"):
        if not message.HasField(name):
            raise unspecified(f"{path}.{name}")
    return read_structure(message, path)


def _tensor_info(tensor: Ztensor) -> TensorInfo:
    scale = 1 / tensor.rec_scale if tensor.rec_scale else 0.0
    return TensorInfo(tensor.pre_transformed_desc, tensor.transformed_desc, scale, tensor.offset)


def _constant(number: int, message: pb.Constant) -> Array | Ztensor:
    path = f"constants[{number}]"
    match message.WhichOneof("constant"):
        case "array":
            return messages.read_array(message.array, f"{path}.array")
        case "ztensor":
            return _sticks(message.ztensor, f"{path}.ztensor")
        case _:
            raise unspecified(path)


def _sticks(message: tensor_pb2.Ztensor, path: str) -> Ztensor:
    if not message.HasField("transformed_desc"):
        raise unspecified(f"{path}.transformed_desc")
    tensor = read_structure(message, path)
    size = getsize_ztensor(tensor.transformed_desc)
    if len(message.sticks) != size:
        raise size_mismatch(f"{path}.sticks", len(message.sticks), size)
    tensor.buffer = page_memory(size)
    if tensor.buffer is None:
        raise ModelRefused(f"{path}: no storage for {size} bytes")
    tensor.buffer[:] = np.frombuffer(message.sticks, np.uint8)
    return tensor


def _node(index: int, message: pb.Node) -> Node:
    return Node(
        index,
        message.name,
        message.op_type,
        message.domain,
        tuple(message.inputs),
        tuple(message.outputs),
        message.device,
        tuple(message.functions),
        message.reason,
        message.macc,
        message.weights,
        tuple(tuple(shape.dims) for shape in message.output_shapes),
    )


@dataclass(frozen=True, slots=True)
class _Declared:
    """The tensors that a program declares, in place of a session's when operations are decoded."""

    guest: Guest
    tensors: Mapping[int, Ztensor]


def _steps(
    message: pb.Program, values: Mapping[int, Array | Ztensor], guest: Guest
) -> tuple[Step, ...]:
    """Decode the steps against the program's tensors, as Execute decodes a list."""
    tensors = {number: value for number, value in values.items() if isinstance(value, Ztensor)}
    ids = LiveIds(_Declared(guest, tensors))
    return tuple(_step(ids, step, f"steps[{i}]") for i, step in enumerate(message.steps))


def _step(ids: LiveIds, message: pb.Step, path: str) -> Step:
    match message.WhichOneof("step"):
        case "host":
            host = message.host
            ends = tuple(host.inputs), tuple(host.outputs)
            return HostStep(message.node, host.onnx_node, *ends, host.opset)
        case "operation":
            return _call(ids, message, f"{path}.operation")
        case _:
            raise unspecified(path)


def _call(ids: LiveIds, message: pb.Step, path: str) -> AcceleratorStep:
    operation = message.operation
    name = operation.WhichOneof("operation")
    try:
        step = decode_operation(ids, operation, name, path)
    except NotInLibrary as error:
        raise from_exception(error, operation=name or "") from error
    spec = step.spec
    if step.inline or step.new_ids or step.creates or spec.frees or not spec.tensors:
        raise invalid(step.path, "a call of its own", "a call on tensors of the program, by id")
    arguments: dict[str, object] = {**step.ids, **step.values}
    if "data" in arguments:
        if arguments["data"]:
            raise invalid(f"{step.path}.data", "set", "left out: arrays names the data")
        arguments["data"] = tuple(message.arrays)
    return AcceleratorStep(message.node, spec.name, arguments, message.result)


def _require_connected(program: Program) -> None:
    """Refuse ids that are read before they are written, or used as the wrong kind."""
    sticks = {n for n, constant in program.constants.items() if isinstance(constant, Ztensor)}
    dense = set(program.constants) - sticks
    tensors, arrays = set(program.tensors) | sticks, set(program.arrays) | dense
    if ABSENT in tensors | arrays or tensors & arrays:
        raise invalid("arrays, tensors, constants", "an id of 0, or used twice", "ids of their own")
    for end, ports in ((program.input_ids, program.inputs), (program.output_ids, program.outputs)):
        if len(end) != len(ports) or not set(end) <= arrays:
            raise invalid("input_ids, output_ids", list(end)[:8], "one array per input and output")
    written_before = {*program.constants, *program.input_ids}
    for index, step in enumerate(program.steps):
        path = f"steps[{index}]"
        written = {number for number in writes(step) if number != ABSENT}
        read = {number for number in reads(step) if number != ABSENT} - written
        _require_kinds(step, path, tensors, arrays)
        if read - written_before or written & set(program.constants):
            wrong = sorted(read - written_before or written)[:8]
            raise invalid(path, f"ids {wrong}", "made by earlier steps, constants left alone")
        if not -1 <= step.node < max(1, len(program.nodes)):
            raise invalid(f"{path}.node", step.node, f"-1 to {len(program.nodes) - 1}")
        written_before |= written
    if not set(program.output_ids) <= written_before:
        raise invalid("output_ids", list(program.output_ids)[:8], "made by a step")


def _require_kinds(step: Step, path: str, tensors: set[int], arrays: set[int]) -> None:
    if isinstance(step, HostStep):
        used = {*step.inputs, *step.outputs} - {ABSENT}
    else:
        used = {*step.arguments.get("data", ()), step.result} - {ABSENT}
        called = {*reads(step), *writes(step)} - used - {ABSENT}
        if not called <= tensors:
            raise invalid(path, f"ids {sorted(called - tensors)[:8]}", "tensors of the program")
    if not used <= arrays:
        raise invalid(path, f"ids {sorted(used - arrays)[:8]}", "arrays of the program")


def encode_program(program: Program, contents: bool = True) -> pb.Program:
    """Return the message of a program, with or without the contents of its constants."""
    return pb.Program(
        name=program.name,
        machine=program.machine,
        inputs=map(messages.encode_port, program.inputs),
        outputs=map(messages.encode_port, program.outputs),
        input_ids=program.input_ids,
        output_ids=program.output_ids,
        arrays={
            number: pb.ArrayInfo(dtype=messages.type_name(info.dtype), shape=info.shape)
            for number, info in program.arrays.items()
        },
        tensors={number: _encode_tensor(info) for number, info in program.tensors.items()},
        constants={
            number: _encode_constant(constant, contents)
            for number, constant in program.constants.items()
        },
        steps=map(_encode_step, program.steps),
        nodes=map(messages.encode_node, program.nodes),
        places={
            name: pb.Places(
                places=[
                    pb.Place(id=place.id, shape=place.shape, order=place.order) for place in places
                ]
            )
            for name, places in program.places.items()
        },
        placement=messages.encode_placement(program.placement),
    )


def _encode_tensor(info: TensorInfo) -> tensor_pb2.Ztensor:
    return tensor_pb2.Ztensor(
        pre_transformed_desc=describe(info.pre_transformed_desc),
        transformed_desc=describe(info.transformed_desc),
        rec_scale=1 / info.scale if info.scale else 0.0,
        offset=info.offset,
    )


def _encode_constant(constant: Array | Ztensor, contents: bool) -> pb.Constant:
    if isinstance(constant, Ztensor):
        message = describe_ztensor(constant)
        if contents:
            message.sticks = constant.sticks.tobytes()
        return pb.Constant(ztensor=message)
    array = pb.ConstantArray(dtype=messages.type_name(constant.dtype), shape=constant.shape)
    if contents:
        array.data = messages.little_endian(constant)
    return pb.Constant(array=array)


def _encode_step(step: Step) -> pb.Step:
    if isinstance(step, HostStep):
        host = pb.HostStep(
            onnx_node=step.onnx, opset=step.opset, inputs=step.inputs, outputs=step.outputs
        )
        return pb.Step(node=step.node, host=host)
    operation = operation_pb2.Operation()
    call: Message = getattr(operation, step.verb)
    call.SetInParent()
    for field in call.DESCRIPTOR.fields:
        value = step.arguments.get(field.name)
        if field.message_type is _REF:
            getattr(call, field.name).id = value
        elif value is not None and field.name != "data":
            setattr(call, field.name, value)
    arrays = step.arguments.get("data", ())
    return pb.Step(node=step.node, operation=operation, arrays=arrays, result=step.result)


@contextmanager
def refusing_misfits() -> Generator[None]:
    """Turn errors in the preparation of a program's steps into `ModelRefused`."""
    try:
        yield
    except ModelRefused:
        raise
    except (DecodeError, HostError, ValueError, TypeError, LookupError, OverflowError) as error:
        raise ModelRefused("the steps of the program do not fit together") from error


def refused_model(error: ModelRefused) -> CallRefused:
    """Return the error for a model that cannot be hosted."""
    facts = {"node": error.node, "why": error.reason}
    text = f"the model cannot be hosted: {error}"
    return CallRefused(wire.ERROR_REASON_MODEL_INVALID, text, **facts)
