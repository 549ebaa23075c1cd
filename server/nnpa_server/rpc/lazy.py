# SPDX-License-Identifier: Apache-2.0
"""Lazily constructed gRPC services: built at first use or during idle warm-up."""

import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

Service = TypeVar("Service")


class Lazy(Generic[Service]):
    """An object that `construct` makes once, at its first use; each use raises its failure."""

    def __init__(self, construct: Callable[[], Service]) -> None:
        self._construct = construct
        self._service: Service | None = None
        self._lock = threading.Lock()

    def get(self) -> Service:
        """Return it, constructed if it is not yet; other threads wait meanwhile."""
        if self._service is None:
            with self._lock:
                if self._service is None:
                    self._service = self._construct()
        return self._service

    def peek(self) -> Service | None:
        """Return it if it was constructed."""
        return self._service


def add_to(server: grpc.Server, service: ServiceDescriptor, get_service: Callable[[], Any]) -> None:
    """Serve what `get_service` returns to each call."""
    handlers = {
        name: _handler(method, get_service) for name, method in service.methods_by_name.items()
    }
    handler = grpc.method_handlers_generic_handler(service.full_name, handlers)
    server.add_generic_rpc_handlers((handler,))


def method_of(
    method: MethodDescriptor, get_service: Callable[[], Any]
) -> Callable[[Any, Any], Any]:
    """Return the behaviour of a method of a lazy service."""
    name = method.name

    def once(message: Any, context: Any) -> Any:
        return getattr(get_service(), name)(message, context)

    def stream(message: Any, context: Any) -> Generator[Any]:
        yield from getattr(get_service(), name)(message, context)

    return stream if method.server_streaming else once


def make_handler(
    method: MethodDescriptor, behaviour: Any, parse: Callable[..., Any], serialize: Any
) -> Any:
    """Return a method's handler, of the kind that its descriptor says."""
    kind = ("stream" if method.client_streaming else "unary") + (
        "_stream" if method.server_streaming else "_unary"
    )
    make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(behaviour, request_deserializer=parse, response_serializer=serialize)


def _handler(method: MethodDescriptor, get_service: Callable[[], Any]) -> Any:
    request: Any = getattr(method.input_type, "_concrete_class")  # noqa: B009 - not in the stubs
    response: Any = getattr(method.output_type, "_concrete_class")  # noqa: B009
    behaviour = method_of(method, get_service)
    return make_handler(method, behaviour, request.FromString, response.SerializeToString)
