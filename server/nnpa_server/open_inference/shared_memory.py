# SPDX-License-Identifier: Apache-2.0
"""System shared memory: regions of POSIX objects that clients on this host register.

A region belongs to the connection that registered it. It ends when it is unregistered or when the
connection ends, but never while a request uses it. Clients of one Unix socket with the same token,
or without tokens, share their regions, which last as long as any of their connections.

The server reads and writes the file and does not map it: a client that truncates its object
meanwhile gets an error, where a mapping would end the server.
Source: Triton, "System-Shared-Memory Extension".
"""

import os
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeAlias

from grpc_channelz.v1 import channelz, channelz_pb2
from nnpa.zdnn.v1 import status_pb2 as wire

from nnpa_server.config import MAX_REGIONS
from nnpa_server.errors import CallRefused, invalid
from nnpa_server.open_inference.requests import not_offered
from nnpa_server.open_inference.tensors import Buffer, wrong_size
from nnpa_server.rpc.callers import Shares, name_of
from nnpa_server.sessions.shared_objects import NAMES, Foreign, ObjectAccess, is_name
from nnpa_server.sessions.tokens import caller

_PERIOD = 1.0  # seconds after a connection's end until its regions end, at most
_CHUNK = 1 << 30  # bytes of one read or write, below Linux's limit
# A context for channelz that ignores errors: a server may just have ended.
_SILENCE = SimpleNamespace(set_code=bool, set_details=bool)
Connections: TypeAlias = frozenset[str]
Key: TypeAlias = tuple[str, str, str]
"""The key of a region: the name of its connection's peer, the holder of its token, its name."""


class Region:
    """A part of an object: `byte_size` bytes of the open `file` from `offset` on.

    The file is closed once the region is retired and no request holds it. `connections` are the ids
    of the client's connections.
    """

    def __init__(self, name: str, key: str, offset: int, byte_size: int, file: int) -> None:
        self.name, self.key, self.offset, self.byte_size = name, key, offset, byte_size
        self.connections = Connections()
        self._file = file
        self._lock = threading.Lock()
        self._holders, self._retired = 0, False
        try:
            self._require(offset + byte_size, f"region {name}: offset + byte_size")
        except CallRefused:
            os.close(self._file)
            raise

    def _require(self, end: int, path: str) -> None:
        size = os.fstat(self._file).st_size
        if end > size:
            raise invalid(path, end, f"at most {size}, the size of object {self.key}")

    @contextmanager
    def held(self) -> Generator[None]:
        """Keep the object open while the context lasts."""
        with self._lock:
            if self._retired:
                raise not_found(self.name)
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                self._close_if_done()

    def retire(self) -> None:
        """Refuse new holders, and close the file after the last one."""
        with self._lock:
            self._retired = True
            self._close_if_done()

    def _close_if_done(self) -> None:
        if self._retired and self._holders == 0 and self._file >= 0:
            os.close(self._file)
            self._file = -1

    def require(self, offset: int, size: int, path: str) -> None:
        """Raise CallRefused for a place that is not inside the region."""
        if offset < 0 or size < 0 or offset + size > self.byte_size:
            limit = f"inside the {self.byte_size} bytes of region {self.name}"
            raise invalid(f"{path}: shared memory", f"{size} bytes at {offset}", limit)

    def read(self, offset: int, size: int, path: str) -> Buffer:
        """Return a copy of bytes; the region must be held."""
        self.require(offset, size, path)
        target = memoryview(bytearray(size))
        if (got := _all(os.preadv, self._file, target, self.offset + offset)) < size:
            raise wrong_size(path, f"{got} bytes in region {self.name}", f"{size}")
        return target

    def write(self, offset: int, data: Buffer, path: str) -> None:
        """Write bytes, without growing the object; the region must be held."""
        self.require(offset, len(data), path)
        start = self.offset + offset
        self._require(start + len(data), f"{path}: shared memory ends at")
        _all(os.pwritev, self._file, memoryview(data), start)


def _all(
    move: Callable[[int, Sequence[memoryview], int], int], file: int, data: memoryview, at: int
) -> int:
    """Read or write all data by repeated calls of `move`; return the number of bytes moved."""
    moved = 0
    while moved < len(data):
        count = move(file, [data[moved : moved + _CHUNK]], at + moved)
        if count == 0:
            break
        moved += count
    return moved


def _open(key: str, peer: str, access: ObjectAccess) -> int:
    """Open a shared memory object that the caller at `peer` may use."""
    if not access.reaches(peer):
        how = "use a Unix socket, or start the server with --shared-memory-over-tcp"
        raise not_offered("system_shared_memory over TCP", how)
    name = key.removeprefix("/")
    if not is_name(name):
        raise invalid("key", repr(key[:80]), f"{NAMES}, at most one slash in front")
    if not access.is_of_caller(name):
        raise invalid("key", name, f"{caller().name}. and a name without a dot, by the token")
    try:
        return access.open(peer, name)
    except Foreign as error:
        raise invalid("key", name, "a shared memory object of the server's own user") from error
    except OSError as error:
        text = f"key {name}: there is no such shared memory object of this user"
        raise CallRefused(wire.ERROR_REASON_REGION_NOT_FOUND, text, region=name) from error


def require_regions(regions: "Regions | None") -> "Regions":
    """Return the regions of a server that offers shared memory; raise CallRefused without."""
    if regions is None:
        raise not_offered("system_shared_memory", "start the server with --shared-memory")
    return regions


def not_found(name: str) -> CallRefused:
    """Return the error for a region that the connection does not have."""
    text = f"region {name[:64]}: this connection has not registered it, or has unregistered it"
    return CallRefused(wire.ERROR_REASON_REGION_NOT_FOUND, text, region=name[:64])


def _connections() -> dict[str, set[str]]:
    """Return the ids of this process's open connections, by the name of their peer."""
    sockets: dict[str, set[str]] = {}
    ask: Any = vars(channelz)["ChannelzServicer"]  # public, and missing in its stubs
    for server in ask.GetServers(channelz_pb2.GetServersRequest(), _SILENCE).server:
        start = 0
        while start >= 0:
            request = channelz_pb2.GetServerSocketsRequest(
                server_id=server.ref.server_id, start_socket_id=start
            )
            answer = ask.GetServerSockets(request, _SILENCE)
            if answer is None:
                break
            for socket in answer.socket_ref:
                sockets.setdefault(socket.name.rpartition(" ")[2], set()).add(str(socket.socket_id))
            start = -1 if answer.end else answer.socket_ref[-1].socket_id + 1
    return sockets


class Regions:
    """The regions of all connections; a thread ends regions whose connections have ended."""

    def __init__(self, access: ObjectAccess, max_regions: int = MAX_REGIONS) -> None:
        self._access = access
        self._shares = Shares(
            "max_regions",
            max_regions,
            "regions",
            "unregister some, or retry with a pause",
            wire.ERROR_REASON_MODEL_QUOTA_EXCEEDED,
        )
        self._lock = threading.Lock()
        self._regions: dict[Key, Region] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def register(self, peer: str, name: str, key: str, offset: int, byte_size: int) -> None:
        """Open a region for the connection with `peer`."""
        if not name:
            raise invalid("name", "empty", "the name of a region")
        region = Region(name, key, offset, byte_size, _open(key, peer, self._access))
        try:
            self._add(peer, region)
        except CallRefused:
            region.retire()
            raise

    def _add(self, peer: str, region: Region) -> None:
        region.connections = frozenset(_connections().get(peer, ()))
        with self._lock:
            key = peer, caller().name, region.name
            if key in self._regions:
                text = f"region {region.name[:64]} is registered already: unregister it first"
                facts = {"region": region.name[:64]}
                raise CallRefused(wire.ERROR_REASON_REGION_IN_USE, text, **facts)
            self._shares.take(name_of(caller().name, peer))
            self._regions[key] = region
            if self._thread is None:
                self._thread = threading.Thread(target=self._reap, name="regions", daemon=True)
                self._thread.start()

    def find(self, peer: str, name: str) -> Region:
        """Return a region of the connection with `peer`."""
        with self._lock:
            region = self._regions.get((peer, caller().name, name))
        if region is None:
            raise not_found(name)
        return region

    def of(self, peer: str) -> list[Region]:
        """Return the regions of the connection with `peer`."""
        with self._lock:
            owner = peer, caller().name
            return [region for key, region in self._regions.items() if key[:2] == owner]

    def unregister(self, peer: str, name: str) -> None:
        """End a region, or for an empty name all of the connection; ignore unknown names."""
        owner = peer, caller().name
        self._end(lambda key, _: key[:2] == owner and name in ("", key[2]))

    def count(self) -> int:
        """Return the number of regions."""
        with self._lock:
            return len(self._regions)

    def close(self) -> None:
        """End all regions."""
        self._stopped.set()
        self._end_abandoned({})

    def _reap(self) -> None:
        while not self._stopped.wait(_PERIOD):
            if self.count():
                self._end_abandoned(_connections())

    def _end_abandoned(self, alive: dict[str, set[str]]) -> None:
        """End the regions of connections that are not in `alive`."""
        self._end(lambda key, region: not region.connections & alive.get(key[0], set()))

    def _end(self, is_chosen: Callable[[Key, Region], bool]) -> None:
        """End the chosen regions, and give their places back."""
        with self._lock:
            ended = {key: region for key, region in self._regions.items() if is_chosen(key, region)}
            for key in ended:
                del self._regions[key]
        for (peer, holder, _), region in ended.items():
            region.retire()
            self._shares.give(name_of(holder, peer))
