# SPDX-License-Identifier: Apache-2.0
"""The client's transport without a network: it calls the server's service directly."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, cast

from nnpa.zdnn.v1.sanitizer_pb2 import SanitizerReport
from nnpa_client._server.methods import READ_TENSOR, WRITE_TENSOR
from nnpa_client._server.shortcuts import out_of_band_arrays
from nnpa_client._server.transport import Ended, Method, Received, Request, Response, Sent
from nnpa_client.errors import NnpaError, ProgramCheck, TransportError
from nnpa_server.accelerator import TraceService
from nnpa_server.accelerator.service import AcceleratorService
from nnpa_server.accelerator.streaming import parse_write
from nnpa_server.config import Limits
from nnpa_server.errors import from_exception
from nnpa_server.mli.service import MliService
from nnpa_server.network.service import NetworkService
from nnpa_server.open_inference.repository import Repository
from nnpa_server.rpc import codec as server
from nnpa_server.sessions.store import Store

Answer = TypeVar("Answer")


class Waiting:
    """A call whose client waits without a deadline."""

    def is_active(self) -> bool:
        """Tell that the call still runs."""
        return True

    def time_remaining(self) -> float | None:
        """Tell that there is no deadline."""
        return None

    def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        """Tell that nothing follows the answer."""
        return ()

    def set_trailing_metadata(self, trailing_metadata: object) -> None:
        """Send nothing: there is no wire."""

    def peer(self) -> str:
        """Return where the client is."""
        return "in-process"


def as_client_error(error: Exception) -> NnpaError:
    """Return the error that a client raises for a service's error."""
    refused = from_exception(error)
    client_error: NnpaError = TransportError(
        refused.code.name, refused.message, refused.name, refused.metadata
    )
    if refused.name == "PROGRAM_CHECK":
        client_error = ProgramCheck(refused.message, refused.metadata)
    client_error.reports = [
        detail for detail in refused.details if isinstance(detail, SanitizerReport)
    ]
    return client_error


class InProcessTransport:
    """A server's service in this process; messages are still copied through their wire form."""

    target = "in-process"

    def __init__(self, store: Store) -> None:
        self.calls = 0
        self._service = AcceleratorService(store)
        self._services: dict[str, object] = {
            "nnpa.zdnn.v1.AcceleratorService": self._service,
            "nnpa.zdnn.v1.TraceService": TraceService(self._service.traces),
            "nnpa.mli.v1.MliService": MliService(Limits(), calls=1),
            "nnpa.network.v1.NetworkService": NetworkService(store, Repository(4), None),
        }

    def ticket(self, name: str) -> str:  # noqa: ARG002 - the seam's signature
        """Return nothing: no proxy is in between."""
        return ""

    def _call(self, method: Callable[..., Answer], request: object) -> Answer:
        self.calls += 1
        try:
            return method(request, Waiting())
        except Exception as error:
            raise as_client_error(error) from error

    def _handler(self, path: str) -> Callable[..., Any]:
        service, name = path.removeprefix("/").split("/")
        handler: Callable[..., Any] = getattr(self._services[service], name)
        return handler

    def unary(self, method: Method[Sent, Received], request: Sent) -> Received:
        """Send one message, and return the answer."""
        if isinstance(request, Request):
            return cast("Received", self.execute(request))
        copied = type(request).FromString(method.serialize(request))  # type: ignore[attr-defined] # a message
        answer: Received = self._call(self._handler(method.path), copied)
        return answer

    def execute(self, request: Request) -> Response:
        """Run operations in order."""
        parsed = server.parse(out_of_band_arrays.serialize(request))
        answered = self._call(self._service.Execute, parsed)
        return out_of_band_arrays.parse(server.serialize(answered))

    def send_stream(self, method: Method[Sent, Received], requests: Iterable[Sent]) -> Received:
        """Send messages, and return the answer to all of them."""
        parts: Iterable[object] = requests
        if method is WRITE_TENSOR:
            parts = (parse_write(method.serialize(part)) for part in requests)
        answer: Received = self._call(self._handler(method.path), iter(parts))
        return answer

    def receive_stream(self, method: Method[Sent, Received], request: Sent) -> Iterator[Received]:
        """Send one message, and return its answers."""
        handler = self._handler(method.path)
        if method is READ_TENSOR:
            return self._received(self._service.ReadTensor(cast("Any", request), Waiting()))
        return self._received(self._call(handler, request))

    def _received(self, stream: Any) -> Iterator[Any]:
        try:
            yield from stream
        except GeneratorExit:
            stream.close()
            raise
        except Exception as error:
            raise as_client_error(error) from error

    def hold(
        self,
        method: Method[Sent, Received],
        request: Sent,
        ended: Ended,
        is_again: bool,
    ) -> Callable[[], object]:
        """Hold nothing: the service and its client end together."""
        raise NotImplementedError(f"{method.path}: {request}")

    def close(self) -> None:
        """Do nothing: there is no connection."""
