# SPDX-License-Identifier: Apache-2.0
"""The client API under its own names: create, init, run, get_error, get_info, destroy.

As in C: create returns an error and a handle, init returns success, run the number of batches, and
get_error the reason of a failure. Memory of outputs is filled in place. A call that does not reach
the network raises `TransportError`. Source: X-CUBE-AI 7.0 Embedded Inference Client API 1.1.0.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable

from nnpa.network.v1 import network_pb2 as pb
from nnpa.network.v1.program_pb2 import Placement
from nnpa_files import external_data

from nnpa_client._guest.open_session import OpenSession
from nnpa_client._server.methods import (
    CREATE_NETWORK,
    DESTROY_NETWORK,
    GET_NETWORK_ERROR,
    GET_NETWORK_INFO,
    GET_NODE_INFO,
    INIT_NETWORK,
    OBSERVE_NETWORK,
    RUN_NETWORK,
)
from nnpa_client._server.transport import Method
from nnpa_client._values.fields import enum_of_word
from nnpa_client.network.buffers import (
    AiError,
    Buffer,
    MetaInfo,
    NetworkParams,
    error_from_wire,
    from_wire,
    to_wire,
    write_back,
)

__tracebackhide__ = True  # pytest shows the line that called, not these

CHUNK_BYTES = 1 << 20
TOOLS_API_VERSION = (1, 4, 0)  # AI_TOOLS_API_VERSION_XX of X-CUBE-AI 7.0.0
# sizeof of ai_i8 ... ai_u64, ai_float, ai_size, bit 7 set for unsigned types.
TYPE_SIZES = bytes((0x01, 0x81, 0x02, 0x82, 0x04, 0x84, 0x08, 0x88, 0x04, 0x84))


@runtime_checkable
class Serializable(Protocol):
    """A message with a wire form, such as an onnx.ModelProto."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """Return the file's bytes."""
        ...


Model = str | PathLike[str] | bytes | Serializable
"""An ONNX model: the path of its file, the file's bytes, or an onnx.ModelProto.

External data are read beside a path, in its folder only, and sent with the model.
"""


class ToNetwork(Protocol):
    """A request to a network, which it names."""

    session: str
    network: str


Request = TypeVar("Request", bound=ToNetwork)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Handle:
    """A created network: its session, and its name there."""

    session: OpenSession
    name: str


def addressed(network: Handle, request: Request) -> Request:
    """Name the network in a request, and return it."""
    request.session, request.network = network.session.name, network.name
    return request


def ask(network: Handle, method: Method[Request, Answer], request: Request) -> Answer:
    """Send a request to the network, and return the answer."""
    return network.session.transport.unary(method, addressed(network, request))


@dataclass(frozen=True, slots=True)
class Options:
    """How to compile a model and what to allocate.

    `strict_placement` refuses a model with a node on the host. `offload_integer` runs integer
    products on the accelerator, which rounds. `placement` decides which nodes go to the
    accelerator: the nodes that the open compiler for the machine places there ("compiler"), or all
    that zDNN can express ("all"). `overflow` is the result for values beyond DLFLOAT16: the
    greatest number ("saturate"), or no number ("ninf"). `allocate_inputs`, `allocate_outputs` and
    `split_weights` are options of ST's generator. `strict` refuses a second create of a C name, and
    a run during a run, which would wait otherwise. `formats` sets another format for inputs and
    outputs of a float model, with scale and zero point, or None for fixed point; `shapes` sets the
    shapes of inputs with free dims. For tests of clients: `failing_node` is the c_idx of a node
    that fails, `device_gate_closed` makes create fail.
    """

    strict_placement: bool = False
    offload_integer: bool = False
    overflow: Literal["saturate", "ninf"] = "saturate"
    allocate_inputs: bool = False
    allocate_outputs: bool = False
    split_weights: bool = False
    strict: bool = True
    formats: Mapping[str, tuple[int, MetaInfo | None]] | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    failing_node: int | None = None
    device_gate_closed: bool = False
    placement: Literal["compiler", "all"] = "compiler"


DEFAULT = Options()


class Source(TypedDict, total=False):
    """The keywords of `create`: sources instead of a model, and the model's name and version."""

    program: bytes | None
    published: str | None
    publish_as: str
    tools_api_version: tuple[int, int, int] | None


def _options(options: Options) -> pb.CreateOptions:
    overflow = enum_of_word(pb.Overflow.DESCRIPTOR, "overflow", options.overflow)
    placement = enum_of_word(Placement.DESCRIPTOR, "placement", options.placement)
    formats = [
        pb.TensorFormat(name=name, format=fmt, meta_info=_meta(meta))
        for name, (fmt, meta) in (options.formats or {}).items()
    ]
    return pb.CreateOptions(
        strict_placement=options.strict_placement,
        offload_integer=options.offload_integer,
        overflow=pb.Overflow.ValueType(overflow),
        allocate_inputs=options.allocate_inputs,
        allocate_outputs=options.allocate_outputs,
        split_weights=options.split_weights,
        strict=options.strict,
        formats=formats,
        failing_node=options.failing_node,
        device_gate_closed=options.device_gate_closed,
        shapes=input_shapes(options.shapes),
        placement=Placement.ValueType(placement),
    )


def _meta(meta: MetaInfo | None) -> pb.MetaInfo | None:
    return None if meta is None else pb.MetaInfo(scale=meta.scale, zero_point=meta.zero_point)


def input_shapes(shapes: Mapping[str, Sequence[int]] | None) -> list[pb.InputShape]:
    """Return shapes as messages."""
    return [pb.InputShape(name=name, shape=shape) for name, shape in (shapes or {}).items()]


def create_header(c_name: str, options: Options) -> pb.CreateNetworkHeader:
    """Return the header of a network, without session and source."""
    return pb.CreateNetworkHeader(c_name=c_name, options=_options(options))


def create_message(
    session: OpenSession,
    model: Model | None,
    c_name: str,
    options: Options,
    *,
    program: bytes | None = None,
    published: str | None = None,
    publish_as: str = "",
    tools_api_version: tuple[int, int, int] | None = TOOLS_API_VERSION,
) -> pb.CreateNetworkResponse:
    """Upload a model, or name a published one, and return the server's answer."""
    if [model, program, published].count(None) != 2:
        raise ValueError("model, program, published: expected exactly one of them")
    data = program if program is not None else b"" if model is None else _bytes_of(model)
    header = create_header(c_name, options)
    header.session, header.publish_as, header.type_sizes = session.name, publish_as, TYPE_SIZES
    if published is not None:
        header.published = published
    elif program is not None:
        header.program_bytes = len(data)
    else:
        header.onnx_bytes = len(data)
    if tools_api_version is not None:
        major, minor, micro = tools_api_version
        header.tools_api_version.CopyFrom(pb.Version(major=major, minor=minor, micro=micro))

    def parts() -> Iterator[pb.CreateNetworkRequest]:
        yield pb.CreateNetworkRequest(header=header)
        for start in range(0, len(data), CHUNK_BYTES):
            yield pb.CreateNetworkRequest(chunk=data[start : start + CHUNK_BYTES])

    return session.transport.send_stream(CREATE_NETWORK, parts())


def _bytes_of(model: Model) -> bytes:
    if isinstance(model, bytes):
        return model
    if isinstance(model, Serializable):
        return model.SerializeToString()
    return external_data.read_model(Path(model))


def create(
    session: OpenSession,
    model: Model | None = None,
    c_name: str = "network",
    options: Options = DEFAULT,
    **source: Unpack[Source],
) -> tuple[AiError, Handle | None]:
    """Create a network: ai_<name>_create. Return an error and None, or no error and the handle.

    In place of `model`: `program`, the bytes of a serialised nnpa.network.v1.Program, or
    `published`, the name of a model that the server offers. `publish_as` offers the model to every
    session. `tools_api_version` is the version that the calling code was generated for.
    """
    answer = create_message(session, model, c_name, options, **source)
    if answer.HasField("error"):
        return error_from_wire(answer.error), None
    return AiError(), Handle(session, answer.network.name)


def init(
    network: Handle,
    params: NetworkParams | None,
    *,
    model_signature: str = "",
    shared_activations: str = "",
) -> bool:
    """Bind weights and activations: ai_<name>_init; False: see `get_error`.

    Networks with the same `shared_activations` use the same memory, one at a time.
    """
    message = None
    if params is not None:
        message = pb.NetworkParams(
            params=to_wire(params.params), activations=to_wire(params.activations)
        )
    request = pb.InitNetworkRequest(
        params=message, model_signature=model_signature, shared_activations=shared_activations
    )
    return ask(network, INIT_NETWORK, request).ok


def run(network: Handle, inputs: Sequence[Buffer] | None, outputs: Sequence[Buffer] | None) -> int:
    """Process the batches of the inputs: ai_<name>_run. Return their number; <= 0: see `get_error`.

    Results are written to the outputs' memory; an output in the activations gets new `data`.
    """
    request = pb.RunNetworkRequest(
        inputs=map(to_wire, inputs or ()),
        outputs=[to_wire(buffer, output=True) for buffer in outputs or ()],
    )
    answer = ask(network, RUN_NETWORK, request)
    for buffer, message in zip(outputs or (), answer.outputs, strict=False):
        if buffer.data is None or message.HasField("activations_offset"):
            buffer.data, buffer.activations_offset = message.data, message.activations_offset
        else:
            write_back(buffer, message.data)
    return answer.n_batches


def forward(network: Handle, inputs: Sequence[Buffer] | None) -> int:
    """Process the batches of the inputs and drop the results: ai_<name>_forward."""
    request = pb.RunNetworkRequest(inputs=map(to_wire, inputs or ()), forward=True)
    return ask(network, RUN_NETWORK, request).n_batches


def get_error(network: Handle, sequence: int = 0) -> AiError:
    """Return the first error and clear it: ai_<name>_get_error.

    A repeated call with the same `sequence`, not 0, returns the same error and clears nothing.
    """
    request = pb.GetNetworkErrorRequest(sequence=sequence)
    return error_from_wire(ask(network, GET_NETWORK_ERROR, request).error)


@dataclass(frozen=True, slots=True)
class Report:
    """`ai_network_report`: its buffers, and in `message` the whole report."""

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    activations: Buffer
    params: Buffer
    message: pb.NetworkReport


def get_info(network: Handle) -> Report | None:
    """Describe a network: ai_<name>_get_info; None: see `get_error`."""
    answer = ask(network, GET_NETWORK_INFO, pb.GetNetworkInfoRequest())
    if not answer.ok:
        return None
    report = answer.report
    return Report(
        tuple(map(from_wire, report.inputs)),
        tuple(map(from_wire, report.outputs)),
        from_wire(report.activations),
        from_wire(report.params),
        report,
    )


def destroy(network: Handle) -> Handle | None:
    """Destroy a network: ai_<name>_destroy. Return None, or the handle if that failed."""
    answer = ask(network, DESTROY_NETWORK, pb.DestroyNetworkRequest())
    return network if answer.network else None


def node_info(network: Handle, c_idx: int) -> pb.ObserverNode | None:
    """Describe a node: ai_platform_observer_node_info; None: see `get_error`."""
    answer = ask(network, GET_NODE_INFO, pb.GetNodeInfoRequest(c_idx=c_idx))
    return answer.node if answer.ok else None


def observe(
    network: Handle,
    events: int = 0,
    *,
    tensors: bool = False,
    nodes: Sequence[int] = (),
    block: bool = False,
) -> Iterator[pb.ObserverEvent] | None:
    """Register the observer and return its events: ai_platform_observer_register.

    None: see `get_error`. `events` is a mask of 1 (init), 2 (before a node), 4 (after), 0 all;
    with `block`, runs wait for the reader, otherwise events are dropped. The iterator lasts as long
    as the network; closing it unregisters.
    """
    request = pb.ObserveNetworkRequest(events=events, tensors=tensors, nodes=nodes, block=block)
    transport = network.session.transport
    stream = transport.receive_stream(OBSERVE_NETWORK, addressed(network, request))
    if not next(stream).registered.ok:
        return None
    return (message.event for message in stream)
