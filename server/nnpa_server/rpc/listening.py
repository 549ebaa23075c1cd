# SPDX-License-Identifier: Apache-2.0
"""Listeners of gRPC: their addresses, TLS, and bounds on connections.

Sources: gRPC core channel arguments (grpc/impl/channel_arg_names.h).
"""

import errno
import socket
import ssl
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc

from nnpa_server.config import OVERSIZE_BYTES, Config, is_local, join_address, split_address
from nnpa_server.rpc.sockets import IS_KERNEL_ASKED, KEEPALIVE_SECONDS, LOST_SECONDS

MAX_PENDING_CALLS = 5_000  # that Python has not taken; of more, gRPC cancels anybody's
FIRST_WINDOW = 512 << 10  # bytes of a call that gRPC takes before anybody reads them
_NEVER = (1 << 31) - 1  # milliseconds
_HANDSHAKE_TIMEOUT_MS = 10_000  # until a connection has said that it speaks HTTP/2


class CannotListen(Exception):
    """A listener could not be opened; the text says which and why."""


def server_options(config: Config) -> Sequence[tuple[str, int]]:
    """Return the channel arguments of every gRPC server of this process."""
    idle = int(min(1e3 * max(60.0, config.limits.idle_timeout), _NEVER))
    return (
        ("grpc.max_receive_message_length", config.limits.max_message + OVERSIZE_BYTES),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", config.max_connection_calls),
        ("grpc.http.overload_protection", 0),  # else clients learn of it after a call
        ("grpc.max_allowed_incoming_connections", 2 * config.max_accepted),
        ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", 2 * MAX_PENDING_CALLS),
        ("grpc.http2.lookahead_bytes", FIRST_WINDOW),
        ("grpc.http2.bdp_probe", 0),  # it would widen the window before a token is checked
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
        ("grpc.max_connection_idle_ms", idle),
        ("grpc.keepalive_time_ms", _NEVER if IS_KERNEL_ASKED else KEEPALIVE_SECONDS * 1000),
        ("grpc.keepalive_timeout_ms", LOST_SECONDS * 1000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    )


def tls_context(address: str, config: Config) -> ssl.SSLContext | None:
    """Return the TLS context for an HTTP address; None for plain HTTP on a local address."""
    if config.tls is None or is_local(address):
        return None
    certificate, key, client_ca = config.tls.files
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(str(certificate), None if key is None else str(key))
    if client_ca is not None:
        context.load_verify_locations(str(client_ca))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextmanager
def serving_over_http(what: str, address: str) -> Generator[None]:
    """Raise CannotListen, which names the service and the address, in place of OSError."""
    try:
        yield
    except OSError as error:
        text = error.strerror or "is it in use?"
        raise CannotListen(f"cannot serve {what} on {address}: {text}") from error


def make_way(address: str) -> None:
    """Remove the Unix socket of a dead server; raise CannotListen if its server lives."""
    path = Path(address.removeprefix("unix:"))
    if not address.startswith("unix:") or not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise CannotListen(f"cannot listen on {address}: another server does")


def require_free(address: str) -> str:
    """Return the first address of a host name that can be bound; raise CannotListen.

    Remove the Unix socket of a dead server.
    """
    make_way(address)
    if address.startswith("unix:"):
        folder = Path(address.removeprefix("unix:")).parent
        if not folder.is_dir():
            raise CannotListen(f"cannot listen on {address}: there is no folder {folder}")
        return address
    host, port = split_address(address)
    try:
        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise CannotListen(f"cannot listen on {address}: {error.strerror}") from error
    failures = {join_address(str(place[4][0]), port): _bind_failure(place) for place in resolved}
    reasons = [failure for failure in failures.values() if failure is not None]
    if any(reason.errno == errno.EADDRINUSE for reason in reasons):
        text = "the port is in use; choose another, or 0 for any"
        raise CannotListen(f"cannot listen on {address}: {text}")
    for place, failure in failures.items():
        if failure is None:  # a host may have addresses that this machine lacks
            return place
    raise CannotListen(f"cannot listen on {address}: {reasons[0].strerror}")


def _bind_failure(place: tuple[int, int, int, str, tuple[object, ...]]) -> OSError | None:
    """Return why a resolved address cannot be bound, None if it can."""
    family, kind, protocol, _name, address = place
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None


def listen(server: grpc.Server, address: str, config: Config) -> str:
    """Make a server listen, by TLS on TCP if configured; return the address with its real port."""
    require_free(address)  # before gRPC's core logs a line of its own about it
    try:
        if config.tls is None or address.startswith("unix:"):
            port = server.add_insecure_port(address)
        else:
            pairs, ca = [(config.tls.key, config.tls.certificate)], config.tls.client_ca
            credentials = grpc.ssl_server_credentials(pairs, ca, ca is not None)
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise CannotListen(f"cannot listen on {address}: gRPC could not open it") from error
    if address.startswith("unix:"):
        return address
    return f"{address.rpartition(':')[0]}:{port}"
