# SPDX-License-Identifier: Apache-2.0
"""Services that are imported and made when their first call comes, or before, when nobody calls."""

import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

Service = TypeVar("Service")


class Late(Generic[Service]):
    """Something that `make` makes once, when it is wanted; a failure is raised to each who asks."""

    def __init__(self, make: Callable[[], Service]) -> None:
        self._make = make
        self._made: Service | None = None
        self._lock = threading.Lock()

    def made(self) -> Service:
        """Return it, made if it must be; those who ask meanwhile wait."""
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = self._make()
        return self._made

    def made_already(self) -> Service | None:
        """Return it if it has been made."""
        return self._made


def add_to(server: grpc.Server, service: ServiceDescriptor, made: Callable[[], Any]) -> None:
    """Serve what `made` returns, which is asked for by calls."""
    handlers = {name: _handler(one, made) for name, one in service.methods_by_name.items()}
    handler = grpc.method_handlers_generic_handler(service.full_name, handlers)
    server.add_generic_rpc_handlers((handler,))


def method_of(method: MethodDescriptor, made: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    """Return the behaviour of a method whose service is asked for when it is called."""
    name = method.name

    def once(message: Any, context: Any) -> Any:
        return getattr(made(), name)(message, context)

    def stream(message: Any, context: Any) -> Generator[Any]:
        yield from getattr(made(), name)(message, context)

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


def _handler(method: MethodDescriptor, made: Callable[[], Any]) -> Any:
    request: Any = getattr(method.input_type, "_concrete_class")  # noqa: B009 - not in the stubs
    response: Any = getattr(method.output_type, "_concrete_class")  # noqa: B009
    behaviour = method_of(method, made)
    return make_handler(method, behaviour, request.FromString, response.SerializeToString)
