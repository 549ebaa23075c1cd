# SPDX-License-Identifier: Apache-2.0
"""A proxy's ticket goes with every call of its session, and with no other call."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_client._server.methods import CREATE_SESSION, DELETE_SESSION, GET_SESSION
from nnpa_client._server.shortcuts import with_shortcuts
from nnpa_client._server.tickets import HEADER
from nnpa_client._server.transport import EXECUTE, GrpcTransport, Request, Transport
from nnpa_client.config import Endpoint

TICKET = "aG9zdA=="


class Proxied:
    """A service behind a proxy: it gives a ticket with a session, and notes returning tickets."""

    def __init__(self) -> None:
        self.tickets: list[tuple[str, str]] = []

    def _note(self, call: str, context: grpc.ServicerContext) -> None:
        metadata = {pair[0]: str(pair[1]) for pair in context.invocation_metadata() or ()}
        self.tickets.append((call, metadata.get(HEADER, "")))

    def create(self, raw: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer with a session, and a ticket for it."""
        self._note("create", context)
        context.send_initial_metadata(((HEADER, TICKET),))
        request = pb.CreateSessionRequest.FromString(raw)
        return pb.Session(name=request.session.library_version).SerializeToString()

    def get(self, _raw: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer with a session."""
        self._note("get", context)
        return b""

    def delete(self, _raw: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer with nothing."""
        self._note("delete", context)
        return b""

    def execute(self, _raw: bytes, context: grpc.ServicerContext) -> bytes:
        """Answer with no results."""
        self._note("execute", context)
        return b""

    def stream(self, lists: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer each list with no results."""
        self._note("stream", context)
        for _list in lists:
            yield b""

    @property
    def handler(self) -> "grpc.GenericRpcHandler[bytes, bytes]":
        """The service's rpcs, their messages as bytes."""
        unary = grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            "nnpa.zdnn.v1.AcceleratorService",
            {
                "CreateSession": unary(self.create),
                "GetSession": unary(self.get),
                "DeleteSession": unary(self.delete),
                "Execute": unary(self.execute),
                "ExecuteStream": grpc.stream_stream_rpc_method_handler(self.stream),
            },
        )


@pytest.fixture
def proxied() -> Iterator[tuple[Proxied, GrpcTransport]]:
    """The service, and a connection to it."""
    service, server = Proxied(), grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((service.handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    connection = GrpcTransport(Endpoint(f"127.0.0.1:{port}"))
    yield service, connection
    connection.close()
    server.stop(None)


def create(transport: Transport, name: str) -> None:
    """Create a session of a name."""
    session = pb.Session(library_version=name)
    transport.unary(CREATE_SESSION, pb.CreateSessionRequest(session=session))


@pytest.mark.parametrize(("plain", "call"), [(True, "execute"), (False, "stream")])
def test_a_ticket_goes_with_the_calls_of_its_session(
    proxied: tuple[Proxied, GrpcTransport], plain: bool, call: str
) -> None:
    """Lists carry the ticket, alone and over a stream; calls of another session do not."""
    service, connection = proxied
    transport = with_shortcuts(connection, plain)
    create(transport, "sessions/a")
    assert transport.ticket("sessions/a") == TICKET
    transport.unary(EXECUTE, Request(pb.ExecuteRequest(session="sessions/a")))
    transport.unary(GET_SESSION, pb.GetSessionRequest(name="sessions/b"))
    assert service.tickets == [("create", ""), (call, TICKET), ("get", "")]


def test_a_deleted_session_leaves_no_ticket(proxied: tuple[Proxied, GrpcTransport]) -> None:
    """The call that deletes a session carries its ticket, which is forgotten then."""
    service, connection = proxied
    create(connection, "sessions/a")
    connection.unary(DELETE_SESSION, pb.DeleteSessionRequest(name="sessions/a"))
    connection.unary(GET_SESSION, pb.GetSessionRequest(name="sessions/a"))
    assert service.tickets == [("create", ""), ("delete", TICKET), ("get", "")]


def test_a_session_joins_a_trace_by_its_ticket(proxied: tuple[Proxied, GrpcTransport]) -> None:
    """The call that creates a session carries its trace's ticket, so both are on one server."""
    service, connection = proxied
    connection.tickets.keep("traces/t", "dHJhY2U=")
    session = pb.Session(library_version="sessions/a", trace="traces/t")
    connection.unary(CREATE_SESSION, pb.CreateSessionRequest(session=session))
    assert service.tickets == [("create", "dHJhY2U=")]
