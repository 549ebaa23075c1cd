# SPDX-License-Identifier: Apache-2.0
"""Convert between messages of nnpa.network.v1 and objects of the network runtime.

Source of every field's meaning: the comments of nnpa/network/v1/*.proto.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeVar

import ml_dtypes
import numpy as np
from google.protobuf.message import Message
from nnpa.network.v1 import network_pb2 as pb
from nnpa.network.v1 import program_pb2
from nnpa_network.client_api.buffer_format import Buffer, Format, MetaInfo
from nnpa_network.client_api.creation import Caller, NetworkParams, Options
from nnpa_network.client_api.errors import AiError
from nnpa_network.client_api.network import Network
from nnpa_network.client_api.observer import Event, NodeInfo
from nnpa_network.client_api.report import Version
from nnpa_network.client_api.weights import layout
from nnpa_network.placements import Placement
from nnpa_network.program import Array, DType, Node, Port, Program
from nnpa_network.running.results import Violation
from nnpa_wire import byte_strings

from nnpa_server.errors import invalid, unspecified
from nnpa_server.network.text_arrays import TEXT, decode_text, encode_text

M = TypeVar("M", bound=Message)

MAX_VIOLATIONS = 1000
_VERSIONS = ("runtime_version", "tool_version", "tool_api_version", "api_version",
             "interface_api_version")  # fmt: skip
_BYTES_OF_TEXT = 64  # a short text as Python has it, and where it is
_MAX_DIMS = 64
_DTYPES: Mapping[str, DType] = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        *("float16", "float32", "float64", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
} | {"bfloat16": np.dtype(ml_dtypes.bfloat16), TEXT.name: TEXT}

_PLACEMENTS: Mapping["program_pb2.Placement.ValueType", Placement | Literal[""]] = {
    program_pb2.PLACEMENT_UNSPECIFIED: "",
    program_pb2.PLACEMENT_COMPILER: "compiler",
    program_pb2.PLACEMENT_ALL: "all",
}


def read_placement(value: "program_pb2.Placement.ValueType", path: str) -> Placement | Literal[""]:
    """Return the name of a placement, "" for an unspecified one."""
    if value not in _PLACEMENTS:
        raise invalid(path, value, "a number of Placement")
    return _PLACEMENTS[value]


def encode_placement(placement: str) -> "program_pb2.Placement.ValueType":
    """Return the number of a placement's name."""
    return next(value for value, name in _PLACEMENTS.items() if name == placement)


def read_dtype(name: str, path: str) -> DType:
    """Return the element type of a name; `path` is the field for the error."""
    if name not in _DTYPES:
        raise invalid(path, repr(name[:32]), f"one of {', '.join(_DTYPES)}")
    return _DTYPES[name]


@lru_cache(maxsize=256)
def type_name(dtype: DType) -> str:
    """Return the name of an element type; NumPy composes it at each call."""
    return dtype.name


def read_shape(dims: Sequence[int], path: str, *, minimum: int = 0) -> tuple[int, ...]:
    """Return a shape whose dims are at least `minimum`."""
    if len(dims) > _MAX_DIMS or any(dim < minimum for dim in dims):
        raise invalid(path, list(dims[:8]), f"at most {_MAX_DIMS} dims of at least {minimum}")
    return tuple(dims)


def read_array(message: pb.NamedArray | program_pb2.ConstantArray, path: str) -> Array:
    """Return the array of a NamedArray or ConstantArray, as a view of the message's bytes."""
    dtype = read_dtype(message.dtype, f"{path}.dtype")
    shape = read_shape(message.shape, f"{path}.shape")
    if dtype == TEXT:
        return _read_text(message.data, shape, f"{path}.data")
    size, n_bytes = math.prod(shape) * dtype.itemsize, len(message.data)
    if size != n_bytes:
        raise invalid(f"{path}.data", f"{n_bytes} bytes", f"{size} bytes, those of {list(shape)}")
    array: Array = np.frombuffer(message.data, dtype).reshape(shape)
    return array


def _read_text(data: bytes, shape: tuple[int, ...], path: str) -> Array:
    try:
        return decode_text(np.frombuffer(data, np.uint8), shape)
    except ValueError as error:
        limit = f"{math.prod(shape)} texts, before each its length in 4 bytes, in UTF-8"
        raise invalid(path, f"{len(data)} bytes", limit) from error


def named(name: str, array: Array) -> pb.NamedArray:
    """Return the message of a named array."""
    return pb.NamedArray(
        name=name, dtype=type_name(array.dtype), shape=array.shape, data=little_endian(array)
    )


def little_endian(array: Array) -> bytes:
    """Return row-major little-endian bytes of the elements; texts have their lengths before."""
    if array.dtype == TEXT:
        array = encode_text(array)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).tobytes()


def text_bytes(arrays: Iterable[pb.NamedArray]) -> int:
    """Return the most bytes that the texts of arrays take in memory."""
    return sum(
        len(array.data) // byte_strings.LENGTH_BYTES * _BYTES_OF_TEXT
        for array in arrays
        if array.dtype == TEXT.name
    )


def read_feeds(arrays: Iterable[pb.NamedArray], path: str) -> dict[str, Array]:
    """Return inputs by name; refuse a name that comes twice."""
    feeds: dict[str, Array] = {}
    for index, array in enumerate(arrays):
        if array.name in feeds:
            raise invalid(f"{path}[{index}].name", repr(array.name[:64]), "a name used once")
        feeds[array.name] = read_array(array, f"{path}[{index}]")
    return feeds


def encode_error(error: AiError) -> pb.AiError:
    """Return the message of an error."""
    kind, code = pb.AiErrorType.ValueType(error.type), pb.AiErrorCode.ValueType(error.code)
    return pb.AiError(type=kind, code=code, text=error.text)


def read_buffer(message: pb.Buffer) -> Buffer:
    """Return a buffer descriptor, whose data are the message's bytes."""
    return Buffer(
        message.format & 0xFFFFFFFF if message.HasField("format") else Format.NONE,
        message.n_batches if message.HasField("n_batches") else 1,
        message.height,
        message.width,
        message.channels,
        message.data if message.HasField("data") else None,
        message.activations_offset if message.HasField("activations_offset") else None,
        tuple(message.parts) or None,
    )


def encode_buffer(buffer: Buffer) -> pb.Buffer:
    """Return the message of a buffer descriptor, with its data."""
    meta = buffer.meta_info
    return pb.Buffer(
        format=(buffer.format + (1 << 31)) % (1 << 32) - (1 << 31),
        n_batches=buffer.n_batches,
        height=buffer.height,
        width=buffer.width,
        channels=buffer.channels,
        data=None if buffer.data is None else bytes(buffer.data),
        activations_offset=buffer.offset,
        meta_info=None if meta is None else _message(pb.MetaInfo, meta),
    )


def read_params(message: pb.InitNetworkRequest) -> NetworkParams | None:
    """Return the parameters of init, or None for C's NULL."""
    if not message.HasField("params"):
        return None
    params = message.params
    return NetworkParams(read_buffer(params.params), read_buffer(params.activations))


def read_caller(header: pb.CreateNetworkHeader) -> Caller:
    """Return the API version and type sizes with which the caller was compiled."""
    version = None
    if header.HasField("tools_api_version"):
        message = header.tools_api_version
        version = Version(message.major, message.minor, message.micro)
    return Caller(version, header.type_sizes or None)


def read_options(message: pb.CreateOptions) -> Options:
    """Return the options of the runtime; for the compiler see `sources.read_import_options`."""
    formats: dict[str, tuple[int, MetaInfo | None]] = {}
    for index, chosen in enumerate(message.formats):
        if not chosen.name:
            raise unspecified(f"options.formats[{index}].name")
        meta = None
        if chosen.HasField("meta_info"):
            meta = MetaInfo(chosen.meta_info.scale, chosen.meta_info.zero_point)
        formats[chosen.name] = chosen.format & 0xFFFFFFFF, meta
    return Options(
        allocate_inputs=message.allocate_inputs,
        allocate_outputs=message.allocate_outputs,
        split_weights=message.split_weights,
        strict=message.strict if message.HasField("strict") else True,
        formats=formats,
        shapes=read_shapes(message.shapes, "options.shapes"),
        failing_node=message.failing_node if message.HasField("failing_node") else None,
        gate_closed=message.device_gate_closed,
    )


def read_shapes(messages: Sequence[pb.InputShape], path: str) -> dict[str, tuple[int, ...]]:
    """Return shapes by input name."""
    return {
        buffer.name: read_shape(buffer.shape, f"{path}[{index}].shape")
        for index, buffer in enumerate(messages)
    }


def _message(kind: type[M], source: object, **fields: Any) -> M:
    """Return a message with `fields`, and with the attributes that its other fields name."""
    names = kind.DESCRIPTOR.fields_by_name.keys() - fields.keys()
    return kind(**fields, **{name: getattr(source, name) for name in names})


def encode_port(port: Port) -> program_pb2.Port:
    """Return the message of an input or output."""
    return _message(program_pb2.Port, port, dtype=type_name(port.dtype))


def encode_node(node: Node) -> program_pb2.Node:
    """Return the message of a node."""
    shapes = [program_pb2.Shape(dims=shape) for shape in node.output_shapes]
    return _message(program_pb2.Node, node, output_shapes=shapes)


def encode_report(network: Network) -> pb.NetworkReport:
    """Return the message of a network's report, with its nodes and the tensors of its weights."""
    report, program, weights = network.get_info(), network.executor.program, network.weights
    offsets, _end = layout(weights)
    versions = {name: _message(pb.Version, getattr(report, name)) for name in _VERSIONS}
    return _message(
        pb.NetworkReport,
        report,
        **versions,
        inputs=map(encode_buffer, report.inputs),
        outputs=map(encode_buffer, report.outputs),
        activations=encode_buffer(report.activations),
        params=encode_buffer(report.params),
        machine=program.machine,
        placement=encode_placement(program.placement),
        nodes=map(encode_node, program.nodes),
        weights=[
            _message(pb.WeightTensor, weight, offset=offset)
            for weight, offset in zip(weights, offsets, strict=True)
        ],
        split_weights=network.options.split_weights,
    )


def encode_observed(node: NodeInfo) -> pb.ObserverNode:
    """Return the message of a node in the form that observers get."""
    return _message(pb.ObserverNode, node, name=node.node.name, op_type=node.node.op_type)


def encode_event(event: Event, dropped: int) -> pb.ObserverEvent:
    """Return the message of an event."""
    return _message(
        pb.ObserverEvent,
        event,
        flags=int(event.flags),
        node=None if event.node is None else encode_observed(event.node),
        tensors=[named(name, array) for name, array in event.tensors.items()],
        dropped=dropped,
    )


def encode_violations(
    violations: Sequence[Violation], program: Program
) -> Iterable[pb.NodeViolation]:
    """Yield the messages of the accelerator's warnings, at most MAX_VIOLATIONS."""
    for violation in violations[:MAX_VIOLATIONS]:
        node = program.nodes[violation.node] if 0 <= violation.node < len(program.nodes) else None
        yield pb.NodeViolation(
            node="" if node is None else node.name or node.op_type,
            function=violation.verb,
            zdnn_status=violation.status,
            count=violation.count,
        )
