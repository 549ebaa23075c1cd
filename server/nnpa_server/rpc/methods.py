# SPDX-License-Identifier: Apache-2.0
"""Types and constructors of gRPC's method handlers: behaviours and the codecs of messages."""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

if TYPE_CHECKING:  # generic in the stubs only
    Handler: TypeAlias = grpc.RpcMethodHandler[object, object]
    ServerInterceptor: TypeAlias = grpc.ServerInterceptor[object, object]
else:
    Handler, ServerInterceptor = grpc.RpcMethodHandler, grpc.ServerInterceptor

Behaviour: TypeAlias = Callable[..., object]
"""A function that answers a call: it takes the message or an iterator of them, and the context."""
StreamBehaviour: TypeAlias = Callable[..., Generator[Any]]
Raw: TypeAlias = bytes | memoryview
Parse: TypeAlias = Callable[..., object]
"""A function that returns the message of raw bytes; it raises DecodeError for other bytes."""
Serialize: TypeAlias = Callable[..., bytes]


class Conversation(NamedTuple):
    """A method whose messages are calls of their own; answers are serialized in pieces."""

    behaviour: StreamBehaviour
    parse: Parse
    serialize: Callable[..., Sequence[Raw]]


def one_by_one(method: MethodDescriptor, behaviour: Behaviour) -> Conversation:
    """Return a unary method as a conversation, in which each message is a call of the method."""
    parse, serialize = codec_of(method)

    def answer_each(requests: Iterator[object], context: object) -> Generator[object]:
        for request in requests:
            yield behaviour(request, context)

    def pieces(answer: object) -> Sequence[bytes]:
        return (serialize(answer),)

    def whole(raw: Raw) -> object:
        return parse(bytes(raw))

    return Conversation(answer_each, whole, pieces)


def handler_of(
    method: MethodDescriptor, behaviour: Behaviour, parse: Parse, serialize: Serialize
) -> Handler:
    """Return the gRPC handler of a method, unary or streaming as its descriptor says."""
    kind = kind_of(method.client_streaming, method.server_streaming)
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    handler: Handler = make(behaviour, request_deserializer=parse, response_serializer=serialize)
    return handler


def raw_handler(behaviour: Behaviour, streams_out: bool) -> Handler:
    """Return the gRPC handler of a behaviour that takes a stream of bytes and returns bytes."""
    make = getattr(grpc, f"{kind_of(True, streams_out)}_rpc_method_handler")
    handler: Handler = make(behaviour)
    return handler


def kind_of(streams_in: bool, streams_out: bool) -> str:
    """Return gRPC's name for a kind of method, such as "unary_stream"."""
    return f"{'stream' if streams_in else 'unary'}_{'stream' if streams_out else 'unary'}"


def codec_of(method: MethodDescriptor) -> tuple[Parse, Serialize]:
    """Return the functions that parse a method's requests and serialize its responses."""
    request: type[Message] = getattr(method.input_type, "_concrete_class")  # noqa: B009 - not in the stubs
    response: type[Message] = getattr(method.output_type, "_concrete_class")  # noqa: B009
    return request.FromString, response.SerializeToString
