# SPDX-License-Identifier: Apache-2.0
"""Lazy gRPC services: constructed by their first use."""

import threading
from collections.abc import Callable, Generator, Mapping
from typing import Generic, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from nnpa_server.rpc.methods import Behaviour, Parse, Serialize, codec_of, handler_of

Service = TypeVar("Service")


class Lazy(Generic[Service]):
    """An object that `construct` makes at its first use; if that fails, each use tries again."""

    def __init__(self, construct: Callable[[], Service]) -> None:
        self._construct = construct
        self._service: Service | None = None
        self._lock = threading.Lock()

    def get(self) -> Service:
        """Return the object, and construct it first if needed; other threads wait meanwhile."""
        if self._service is None:
            with self._lock:
                if self._service is None:
                    self._service = self._construct()
        return self._service

    def peek(self) -> Service | None:
        """Return the object if it has been constructed, else None."""
        return self._service


def add_to(
    server: grpc.Server,
    service: ServiceDescriptor,
    get_service: Callable[[], object],
    codecs: Mapping[str, tuple[Parse, Serialize]] | None = None,
    behaviours: Mapping[str, Behaviour] | None = None,
) -> None:
    """Serve a lazy service; `codecs` and `behaviours` replace the usual ones of methods by name."""
    own, codecs = behaviours or {}, codecs or {}
    handlers = {
        name: handler_of(
            method,
            own.get(name) or method_of(method, get_service),
            *(codecs.get(name) or codec_of(method)),
        )
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
