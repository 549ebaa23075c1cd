# SPDX-License-Identifier: Apache-2.0
"""Register the methods of AcceleratorService with the codecs of their messages."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import grpc
from nnpa.zdnn.v1 import accelerator_pb2 as pb

from nnpa_server.accelerator.decode import Request
from nnpa_server.accelerator.execute import serialize
from nnpa_server.accelerator.service import SERVICE, AcceleratorService
from nnpa_server.accelerator.streaming import parse_write, serialize_read
from nnpa_server.rpc import codec
from nnpa_server.rpc.codec import Response
from nnpa_server.rpc.methods import Conversation, Handler, Parse, codec_of, handler_of

_SERVICE = pb.DESCRIPTOR.services_by_name["AcceleratorService"]


class Codec(NamedTuple):
    """Functions that parse a list of operations, and serialize its answer whole or in pieces."""

    parse: Parse
    serialize: Callable[[Response], bytes]
    pieces: Callable[[Response], Sequence[bytes | memoryview]]


def list_codec(shortcuts: Collection[str]) -> Codec:
    """Return the codec of lists: protobuf's own, or a shortcut around it."""
    if "out-of-band-arrays" in shortcuts:
        return Codec(codec.parse, codec.serialize, codec.pieces)
    if "request-cache" in shortcuts:
        return Codec(_parse_lazily, serialize, _pieces)
    return Codec(pb.ExecuteRequest.FromString, serialize, _pieces)


def _parse_lazily(raw: bytes | memoryview) -> Request:
    return codec.WireRequest(bytes(raw))


def _pieces(answered: Response) -> Sequence[bytes | memoryview]:
    return (serialize(answered),)


def conversation_of(service: AcceleratorService) -> Conversation:
    """Return ExecuteStream with answers in pieces."""
    lists = list_codec(service.shortcuts)
    return Conversation(service.converse, lists.parse, lists.pieces)


def add_to(server: grpc.Server, service: AcceleratorService) -> None:
    """Serve AcceleratorService; arrays and chunks are never parsed into messages."""
    methods: dict[str, Handler] = {}
    lists = list_codec(service.shortcuts)
    for name, method in _SERVICE.methods_by_name.items():
        parse, serialize = codec_of(method)
        match name:
            case "Execute" | "ExecuteStream":
                parse, serialize = lists.parse, lists.serialize
            case "WriteTensor":
                parse = parse_write
            case "ReadTensor":
                serialize = serialize_read
            case _:
                pass
        methods[name] = handler_of(method, getattr(service, name), parse, serialize)
    handler = grpc.method_handlers_generic_handler(SERVICE, methods)
    server.add_generic_rpc_handlers((handler,))
