# SPDX-License-Identifier: Apache-2.0
"""nnpa.network.v1.NetworkService: hosted networks.

What it runs on is imported when the first call comes: a server without the packages of the extra
`onnx` serves everything else, and one that hosts no network starts as quickly.
"""

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

import grpc
from nnpa.network.v1 import network_pb2 as pb
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.errors import CallRefused
from nnpa_server.open_inference import Loader
from nnpa_server.repository import Repository
from nnpa_server.store import Store

_DESCRIPTOR = pb.DESCRIPTOR.services_by_name["NetworkService"]
SERVICE = _DESCRIPTOR.full_name

__all__ = ["SERVICE", "add_to", "make_service"]


def make_service(store: Store, repository: Repository, loader: Loader | None) -> Any:
    """Return the service; `loader` lets clients publish. Raises CallRefused without onnx."""
    try:
        module = import_module("nnpa_server.network.service")
    except ImportError as error:
        text = "this server was installed without the packages for ONNX: pip install 'nnpa[onnx]'"
        raise CallRefused(wire.ERROR_REASON_EXTENSION_NOT_OFFERED, text, field="onnx") from error
    return module.NetworkService(store, repository, loader)


def add_to(
    server: grpc.Server, store: Store, repository: Repository, loader: Loader | None
) -> None:
    """Serve hosted networks; the service is made by the first call."""
    made: list[Any] = []
    lock = threading.Lock()

    def service() -> Any:
        with lock:
            if not made:
                made.append(make_service(store, repository, loader))
            return made[0]

    handlers = {name: _handler(name, service) for name in _DESCRIPTOR.methods_by_name}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))


def _handler(name: str, service: Callable[[], Any]) -> Any:
    """Return the handler of a method, which asks for the service when it is called."""
    method = _DESCRIPTOR.methods_by_name[name]
    request: Any = getattr(method.input_type, "_concrete_class")  # noqa: B009 - not in the stubs
    response: Any = getattr(method.output_type, "_concrete_class")  # noqa: B009

    def once(message: Any, context: Any) -> Any:
        return getattr(service(), name)(message, context)

    def stream(message: Any, context: Any) -> Any:
        yield from getattr(service(), name)(message, context)

    kind = ("stream" if method.client_streaming else "unary") + (
        "_stream" if method.server_streaming else "_unary"
    )
    make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(
        stream if method.server_streaming else once,
        request_deserializer=request.FromString,
        response_serializer=response.SerializeToString,
    )
