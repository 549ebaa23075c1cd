# SPDX-License-Identifier: Apache-2.0
"""Connections of which no call was let in yet: they have some of a listener's room, no more.

gRPC bounds all connections alike, and closes a silent one after seconds only. Here newcomers are
bounded apart: of too many, those go first whose network has the most, and of one network those of
which nothing came for the longest time. Who keeps thousands of connections open keeps nobody out.
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
_BRIEF = 0.02  # seconds, while newcomers have half of what they may have, or more
_CALM, _WATCHFUL, _FLOODED = 50, 4, 0  # times as long as a look takes, by what was seen
_MAX_NAMES = 4096  # of connections that are remembered without a look at which are open
_SILENCE = struct.Struct("=52xI")  # tcpi_last_data_recv: milliseconds since anything came


class _Connection(NamedTuple):
    """A connection: gRPC's name of its other end, that end's network, our port and descriptor.

    The network is what one subscriber has: an address of IPv4, the first 64 bits of one of IPv6.
    """

    peer: str
    network: bytes
    port: int
    file: int


class Newcomers:
    """At most half of a listener's `most` connections; `let_in` notes that a connection is none.

    `let_in` takes gRPC's name of a call's peer. Connections that were let in have the rest, or all.
    gRPC accepts more meanwhile.
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
        """Bound the newcomers of listeners; those of Unix sockets are bounded by who may open."""
        ports = map(port_of, addresses)
        self._ports = frozenset(port for port in ports if port is not None)
        if self._ports and sys.platform == "linux":
            threading.Thread(target=self._run, name="newcomers", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
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
        """Shut down the newcomers that are too many; return how soon to look again."""
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
    """Return for how many milliseconds nothing came."""
    with suppress(OSError), borrowed(newcomer.file) as connection:
        facts = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SILENCE.size)
        silence: int = _SILENCE.unpack(facts)[0]
        return silence
    return 0


def _look(connection: socket.socket, file: int) -> _Connection:
    """Return what is known of a connection; raise OSError where it is none of TCP."""
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
