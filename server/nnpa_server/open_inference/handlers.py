# SPDX-License-Identifier: Apache-2.0
"""Register the methods of GRPCInferenceService with the codecs of their messages."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc
from nnpa.oip import open_inference_grpc_pb2 as pb

from nnpa_server.open_inference import messages
from nnpa_server.open_inference.requests import not_offered
from nnpa_server.rpc import lazy
from nnpa_server.rpc.methods import Behaviour

if TYPE_CHECKING:
    from nnpa_server.open_inference.service import OpenInferenceService

_DESCRIPTOR = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"]
SERVICE = _DESCRIPTOR.full_name
_CODECS = {
    "ModelInfer": (messages.parse, messages.serialize),
    "ModelStreamInfer": (messages.parse, messages.serialize_for_stream),
}
"""Codecs of methods that keep raw contents beside their messages."""


def _refusing(extension: str, how: str) -> Behaviour:
    def refuse(_request: object, _context: object) -> None:
        raise not_offered(extension, how)

    return refuse


_NOT_OFFERED = {
    "CudaSharedMemoryStatus": _refusing("cuda_shared_memory", "there is no GPU"),
    "CudaSharedMemoryRegister": _refusing("cuda_shared_memory", "there is no GPU"),
    "CudaSharedMemoryUnregister": _refusing("cuda_shared_memory", "there is no GPU"),
    "TraceSetting": _refusing("trace", "the log has a line for each call"),
    "LogSettings": _refusing("logging", "the server's flags say what is logged"),
}
"""Methods of the protocol that are not offered."""


def add_to(server: grpc.Server, get_service: Callable[[], "OpenInferenceService"]) -> None:
    """Serve the protocol; the first call constructs the service."""
    lazy.add_to(server, _DESCRIPTOR, get_service, _CODECS, _NOT_OFFERED)
