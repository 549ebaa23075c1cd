# SPDX-License-Identifier: Apache-2.0
"""Find the sockets that gRPC opened by their descriptors, and set their keepalive options.

The kernel, not gRPC, asks silent TCP clients for a sign of life. A lost host answers neither. A
client whose process is stopped, or which has no thread of its own for gRPC, answers the kernel.
Sources: socket(7); tcp(7): accepted sockets inherit these options of the listening one.
"""

import os
import socket
import sys
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager, suppress

IS_KERNEL_ASKED = sys.platform == "linux"
KEEPALIVE_SECONDS = 60  # of silence, until the other end is asked
LOST_SECONDS = 20  # without an answer, until the connection has ended
_PROBE_SECONDS = 5
_FILES = "/dev/fd"


def files() -> list[int]:
    """Return the descriptors of this process."""
    return [int(name) for name in os.listdir(_FILES)]  # noqa: PTH208 - numbers, not paths


@contextmanager
def borrowed(file: int) -> Generator[socket.socket]:
    """Use a descriptor as a socket without closing it; it may be of any kind."""
    looked_at = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, file)
    try:
        yield looked_at
    finally:
        looked_at.detach()


def port_of(address: str) -> int | None:
    """Return the port of a TCP address; None for a Unix socket or an empty address."""
    is_tcp = address and not address.startswith("unix:")
    return int(address.rpartition(":")[2]) if is_tcp else None


def keepalive() -> Sequence[tuple[int, int, int]]:
    """Return keepalive options of a listening socket (level, name, value); empty beyond Linux."""
    if not IS_KERNEL_ASKED:
        return ()
    return (
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS),
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_SECONDS * 1000),
    )


def find_lost_hosts(addresses: Collection[str]) -> None:
    """Make the kernel end connections of these listeners whose peer is gone."""
    ports = {port_of(address) for address in addresses} - {None}
    if not (IS_KERNEL_ASKED and ports):
        return
    for file in files():
        with suppress(OSError), borrowed(file) as listening:
            if (
                listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                and listening.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL)
                == socket.IPPROTO_TCP
                and listening.getsockname()[1] in ports
            ):
                for option in keepalive():
                    listening.setsockopt(*option)
