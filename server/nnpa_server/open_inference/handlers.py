# SPDX-License-Identifier: Apache-2.0
"""Register the methods of GRPCInferenceService with the codecs of their messages."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc
from google.protobuf.descriptor import MethodDescriptor
from nnpa.oip import open_inference_grpc_pb2 as pb

from nnpa_server.open_inference import messages
from nnpa_server.open_inference.requests import not_offered
from nnpa_server.rpc.lazy import method_of
from nnpa_server.rpc.methods import Behaviour, Handler, codec_of, handler_of

if TYPE_CHECKING:
    from nnpa_server.open_inference.service import OpenInferenceService

_DESCRIPTOR = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
SERVICE = _DESCRIPTOR.full_name
# Methods of the protocol that are not offered: the extension, and the reason.
_NOT_OFFERED = {
    "CudaSharedMemoryStatus": ("cuda_shared_memory", "there is no GPU"),
    "CudaSharedMemoryRegister": ("cuda_shared_memory", "there is no GPU"),
    "CudaSharedMemoryUnregister": ("cuda_shared_memory", "there is no GPU"),
    "TraceSetting": ("trace", "the log has a line for each call"),
    "LogSettings": ("logging", "the server's flags say what is logged"),
}


def add_to(server: grpc.Server, get_service: Callable[[], "OpenInferenceService"]) -> None:
    """Serve the protocol; the first call constructs the service."""
    methods = {
        name: _handler(method, get_service) for name, method in _DESCRIPTOR.methods_by_name.items()
    }
    generic = grpc.method_handlers_generic_handler(SERVICE, methods)
    server.add_generic_rpc_handlers((generic,))


def _handler(
    method: MethodDescriptor, get_service: Callable[[], "OpenInferenceService"]
) -> Handler:
    if method.name in _NOT_OFFERED:
        return handler_of(method, _refusing(*_NOT_OFFERED[method.name]), *codec_of(method))
    codec = _CODECS.get(method.name, codec_of(method))
    return handler_of(method, method_of(method, get_service), *codec)


_CODECS = {
    "ModelInfer": (messages.parse, messages.serialize),
    "ModelStreamInfer": (messages.parse, messages.serialize_for_stream),
}
"""Codecs of methods that keep raw contents beside their messages."""


def _refusing(extension: str, how: str) -> Behaviour:
    def refuse(_request: object, _context: object) -> None:
        raise not_offered(extension, how)

    return refuse
