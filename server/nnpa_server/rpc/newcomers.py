# SPDX-License-Identifier: Apache-2.0
"""Bound newcomers: connections of which no call was let in yet.

gRPC has one bound for all connections, and closes a silent one after seconds only. Newcomers have
half of a listener's room. If there are too many, connections of the network with the most
newcomers are shut down first, and within a network the connections that were silent for longest. So
a client that keeps thousands of connections open keeps nobody else out.
Sources: gRPC, "naming.md"; Linux, "struct tcp_info" in linux/tcp.h.
"""

import os
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote

from nnpa_server.rpc.sockets import borrowed, files, port_of

_PERIOD = 0.1  # seconds between looks at the connections, at least
_PERIOD_OF_ONE = 0.0005  # seconds, for each connection that a listener takes: few are soon taken
_BRIEF = 0.02  # seconds, while newcomers have half of their room, or more
_CALM, _WATCHFUL, _FLOODED = 50, 4, 0  # pauses in durations of a look, by its findings
_MAX_NAMES = 4096  # of connections that are remembered without a look at which are open
_SILENCE = struct.Struct("=52xI")  # tcpi_last_data_recv: milliseconds since anything came


class _Connection(NamedTuple):
    """A connection: gRPC's name of its peer, the peer's network, our port and file descriptor.

    A network is an IPv4 address or the first 64 bits of an IPv6 address: the part that one
    subscriber has.
    """

    peer: str
    network: bytes
    port: int
    file: int


class Newcomers:
    """Keeps newcomers to at most half of a listener's `most` connections.

    `let_in` takes gRPC's name of a call's peer: its connection is no newcomer any more. Connections
    that were let in may have all of the room. gRPC accepts up to twice `most` for moments.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = max(1, most // 2)
        self._period = min(_PERIOD, _PERIOD_OF_ONE * most)
        self._ports: frozenset[int] = frozenset()
        self._let_in: set[str] = set()
        self.let_in = self._let_in.add
        self._stopped = threading.Event()

    def watch(self, *addresses: str) -> None:
        """Begin to bound the newcomers of TCP listeners; Unix sockets have file permissions."""
        ports = map(port_of, addresses)
        self._ports = frozenset(port for port in ports if port is not None)
        if self._ports and sys.platform == "linux":
            threading.Thread(target=self._run, name="newcomers", daemon=True).start()

    def close(self) -> None:
        """Stop the thread that looks at connections."""
        self._stopped.set()

    def _run(self) -> None:
        pause = self._period
        while not self._stopped.wait(pause):
            started, share = time.thread_time(), _CALM
            with suppress(OSError):
                if len(files()) > self._limit // 2 or len(self._let_in) > _MAX_NAMES:
                    share = self._close_excess()
            least = self._period if share == _CALM else min(_BRIEF, self._period)
            pause = max(least, share * (time.thread_time() - started))

    def _close_excess(self) -> int:
        """Shut down excess newcomers; return the pause before the next look, in looks."""
        let_in = self._let_in.copy()
        connections = {connection.peer: connection for connection in self._connections()}
        self._let_in.difference_update(let_in - connections.keys())
        excess, are_many = list[_Connection](), False
        for port in self._ports:
            peers = {peer for peer, end in connections.items() if end.port == port}
            room = min(self._limit, self._most - len(peers & let_in))
            newcomers = [connections[peer] for peer in peers - let_in]
            are_many |= 2 * len(newcomers) >= self._limit
            excess += _excess(newcomers, max(1, room))
        for newcomer in excess:
            with suppress(OSError), socket.socket(fileno=os.dup(newcomer.file)) as connection:
                is_same = _look(connection, newcomer.file) == newcomer  # and not yet another one
                if is_same and newcomer.peer not in self._let_in:
                    connection.shutdown(socket.SHUT_RDWR)
        return _FLOODED if excess else _WATCHFUL if are_many else _CALM

    def _connections(self) -> Generator[_Connection]:
        """Yield the connections of the listeners."""
        for file in files():
            with suppress(OSError), borrowed(file) as connection:
                looked = _look(connection, file)
                if looked.port in self._ports:
                    yield looked


def _excess(newcomers: list[_Connection], limit: int) -> list[_Connection]:
    """Return the newcomers that one listener has above the limit."""
    if len(newcomers) <= limit:
        return []
    ranks, networks = dict[_Connection, int](), Counter[bytes]()
    for newcomer in sorted(newcomers, key=_silence):
        networks[newcomer.network] += 1
        ranks[newcomer] = networks[newcomer.network]
    return sorted(newcomers, key=ranks.__getitem__)[limit:]


def _silence(newcomer: _Connection) -> int:
    """Return the milliseconds since the connection last received anything."""
    with suppress(OSError), borrowed(newcomer.file) as connection:
        facts = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SILENCE.size)
        silence: int = _SILENCE.unpack(facts)[0]
        return silence
    return 0


def _look(connection: socket.socket, file: int) -> _Connection:
    """Return the facts of a TCP connection; raise OSError for any other socket."""
    local, remote = connection.getsockname(), connection.getpeername()
    if not isinstance(remote, tuple):
        raise OSError("a Unix socket")
    host, port, *rest = remote
    host = host.removeprefix("::ffff:")
    if ":" not in host:
        return _Connection(f"ipv4:{host}:{port}", socket.inet_aton(host), local[1], file)
    scope = f"%{rest[1]}" if rest[1] else ""
    name = quote(f"[{host}{scope}]", safe=":")
    network = socket.inet_pton(socket.AF_INET6, host)[:8]
    return _Connection(f"ipv6:{name}:{port}", network, local[1], file)
