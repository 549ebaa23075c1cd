# SPDX-License-Identifier: Apache-2.0
"""The shortcuts of this client, each a wrapper around the plain transport.

A shortcut makes calls quicker; without it a client gets the same results.
"""

import sys
from collections.abc import Sequence

from nnpa_client._server.shortcuts.out_of_band_arrays import OutOfBandArrays
from nnpa_client._server.shortcuts.stream import HttpRoute, Route, StreamTransport
from nnpa_client._server.transport import GrpcTransport, Transport

SHORTCUTS = ("stream", "plain-socket", "out-of-band-arrays")
"""Every shortcut of this client, by its name in `connect(plain=[...])` and ZDNN_PLAIN."""

NAMES = ("stream", "plain-socket", "out-of-band-arrays", "content-cache", "shared-memory")
"""The names of the shortcuts of all SDKs."""


def left_out(plain: bool | Sequence[str]) -> frozenset[str]:
    """Return the names of the shortcuts to leave out: all, none, or the named ones.

    A name of `NAMES` that this client has no shortcut for has no effect; others are a ValueError.
    """
    if isinstance(plain, bool):
        return frozenset(SHORTCUTS if plain else ())
    names = (plain,) if isinstance(plain, str) else tuple(plain)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"plain: {unknown[0]!r}, expected some of {', '.join(NAMES)}")
    return frozenset(names)


def with_shortcuts(grpc: GrpcTransport, plain: bool | Sequence[str]) -> Transport:
    """Return a transport with every shortcut that `plain` does not leave out."""
    names = left_out(plain)
    transport: Transport = grpc
    if grpc.timeouts["call"] is None:  # a stream has no timeout for each list
        routes: list[Route] = []
        is_plain = "plain-socket" in names or not grpc.target.startswith("unix:")
        if sys.platform != "win32" and not is_plain:
            from nnpa_client._server.shortcuts.plain_socket import PlainSocketRoute

            routes.append(PlainSocketRoute(grpc.target, grpc.metadata))
        if "stream" not in names:
            routes.append(HttpRoute(grpc))
        if routes:
            transport = StreamTransport(transport, routes, grpc.tickets)
    if "out-of-band-arrays" not in names:
        transport = OutOfBandArrays(transport)
    return transport
