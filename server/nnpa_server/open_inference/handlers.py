# SPDX-License-Identifier: Apache-2.0
"""What the methods of GRPCInferenceService look like on the wire."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from nnpa.oip import open_inference_grpc_pb2 as pb

from nnpa_server.open_inference import messages
from nnpa_server.open_inference.requests import not_offered
from nnpa_server.rpc.lazy import method_of
from nnpa_server.rpc.methods import Behaviour, Handler, codec_of, handler_of

if TYPE_CHECKING:
    from nnpa_server.open_inference.service import OpenInferenceService

_DESCRIPTOR = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
SERVICE = _DESCRIPTOR.full_name
# Methods of the protocol that are not offered, and why.
_NOT_OFFERED = {
    "CudaSharedMemoryStatus": ("cuda_shared_memory", "there is no GPU"),
    "CudaSharedMemoryRegister": ("cuda_shared_memory", "there is no GPU"),
    "CudaSharedMemoryUnregister": ("cuda_shared_memory", "there is no GPU"),
    "TraceSetting": ("trace", "the log has a line for each call"),
    "LogSettings": ("logging", "the server's flags say what is logged"),
}


def handlers_of(service: Callable[[], "OpenInferenceService"]) -> dict[str, Handler]:
    """Return a service's handlers by method; the service is constructed by the first call."""
    methods: dict[str, Handler] = {}
    for name, method in _DESCRIPTOR.methods_by_name.items():
        parse, serialize = codec_of(method)
        if name in ("ModelInfer", "ModelStreamInfer"):
            streams = method.client_streaming
            serialize = messages.serialize_for_stream if streams else messages.serialize
            parse = messages.parse
        behaviour = method_of(method, service)
        if name in _NOT_OFFERED:
            behaviour = _refusing(*_NOT_OFFERED[name])
        methods[name] = handler_of(method, behaviour, parse, serialize)
    return methods


def _refusing(extension: str, how: str) -> Behaviour:
    def refuse(_request: object, _context: object) -> None:
        raise not_offered(extension, how)

    return refuse
