# SPDX-License-Identifier: Apache-2.0
"""Lazily constructed gRPC services: built at first use or during idle warm-up."""

import threading
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from nnpa_server.rpc.methods import Behaviour, codec_of, handler_of

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


def add_to(
    server: grpc.Server, service: ServiceDescriptor, get_service: Callable[[], object]
) -> None:
    """Serve what `get_service` returns to each call."""
    handlers = {
        name: handler_of(method, method_of(method, get_service), *codec_of(method))
        for name, method in service.methods_by_name.items()
    }
    handler = grpc.method_handlers_generic_handler(service.full_name, handlers)
    server.add_generic_rpc_handlers((handler,))


def method_of(method: MethodDescriptor, get_service: Callable[[], object]) -> Behaviour:
    """Return the behaviour of a method of a lazy service."""
    name = method.name

    def once(message: object, context: object) -> object:
        return getattr(get_service(), name)(message, context)

    def stream(message: object, context: object) -> Generator[object]:
        yield from getattr(get_service(), name)(message, context)

    return stream if method.server_streaming else once
