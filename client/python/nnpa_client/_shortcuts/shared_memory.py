# SPDX-License-Identifier: Apache-2.0
"""Memory that a session shares with a server on the same host: arrays in it do not travel.

It is read and written as a file, so that a missing page is an error and never ends the process.
Source: shm_overview(7): objects of POSIX shared memory are files in /dev/shm.
"""

import contextlib
import hashlib
import os
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from nnpa.zdnn.v1.accelerator_pb2 import CreateSessionRequest, Session, SharedMemory
from nnpa.zdnn.v1.operation_pb2 import Operation
from nnpa.zdnn.v1.tensor_pb2 import Extent

from nnpa_client._call import Call, copy_arrays
from nnpa_client._methods import CREATE_SESSION
from nnpa_client._shortcuts.wrapper import TransportWrapper
from nnpa_client._transport import (
    OUT_OF_BAND_BYTES,
    Method,
    Received,
    Request,
    Response,
    Sent,
    Transport,
)

__tracebackhide__ = True  # pytest shows the line that called, not these

_OBJECTS = "/dev/shm"
_SIZE = 1 << 26  # bytes of an object
_MAX_KEPT = 1 << 24  # bytes of its storage that stay between calls
_ALIGNMENT = 4096
_OWNER_DIGITS = 16


class MemoryObject:
    """An object of this user's; extents are allocated from its beginning until `release`.

    Its name says whose `token` it is for, if there is one; see `SharedMemory` of the protocol.
    """

    def __init__(self, token: str = "") -> None:
        """Make an object; raise OSError where the host has no such thing."""
        prefix = f"{_owner(token)}nnpa-{os.getpid()}-"
        self._file, path = tempfile.mkstemp(prefix=prefix, dir=_OBJECTS)
        self._path, self._next = Path(path), 0
        self._close = weakref.finalize(self, os.close, self._file)
        try:
            os.ftruncate(self._file, _SIZE)
        except OSError:
            self.unlink()
            raise

    @property
    def message(self) -> SharedMemory:
        """What the server is asked to open."""
        return SharedMemory(name=self._path.name, size=_SIZE)

    @property
    def is_empty(self) -> bool:
        """Whether no extent is allocated."""
        return self._next == 0

    def unlink(self) -> None:
        """Remove the name: who has opened the object keeps it, nobody else can open it."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def close(self) -> None:
        """Close the object."""
        self._close()

    def allocate(self, size: int) -> Extent | None:
        """Return an extent of so many bytes, None where there is no room."""
        offset, end = self._next, self._next + size
        if not self._close.alive or end > _SIZE:
            return None
        self._next = -(-end // _ALIGNMENT) * _ALIGNMENT
        return Extent(offset=offset, size=size)

    def write(self, arrays: Sequence[memoryview]) -> list[Extent] | None:
        """Return extents that hold copies of arrays, None where there is no storage for them."""
        extents: list[Extent] = []
        for array in arrays:
            extent = self.allocate(array.nbytes)
            if extent is None:
                return None
            try:
                written = os.pwrite(self._file, array, extent.offset)
            except OSError:
                return None
            if written < array.nbytes:
                return None
            extents.append(extent)
        return extents

    def read(self, extent: Extent, place: memoryview) -> None:
        """Copy what the server has written into an extent to a place of its size."""
        if os.preadv(self._file, [place], extent.offset) != extent.size:
            raise OSError(f"shared memory: fewer than {extent.size} bytes at {extent.offset}")

    def release(self) -> None:
        """Free all extents; storage beyond what is kept goes back to the system."""
        if self._next > _MAX_KEPT and self._close.alive:
            os.ftruncate(self._file, _MAX_KEPT)
            os.ftruncate(self._file, _SIZE)
        self._next = 0


def _owner(token: str) -> str:
    """Return what an object's name begins with where the server asks for tokens."""
    if not token:
        return ""
    digest = hashlib.sha256(token.strip().encode()).digest()
    return f"{hashlib.sha256(digest).hexdigest()[:_OWNER_DIGITS]}."


class SharedMemoryTransport(TransportWrapper):
    """A transport whose first session shares memory, if host and server have it."""

    def __init__(self, inner: Transport, token: str = "") -> None:
        super().__init__(inner)
        self._token = token
        self._memory: MemoryObject | None = None
        self._session = ""

    def unary(self, method: Method[Sent, Received], request: Sent) -> Received:
        """Send one message, arrays of a list through shared memory, and return the answer."""
        if method is CREATE_SESSION and self._memory is None:
            return cast("Received", self._create_session(cast("CreateSessionRequest", request)))
        if isinstance(request, Request) and request.message.session == self._session:
            return cast(
                "Received", self._execute(cast("Method[Request, Response]", method), request)
            )
        return self.inner.unary(method, request)

    def _create_session(self, request: CreateSessionRequest) -> Session:
        """Create a session, with memory to share where server and host have it."""
        try:
            memory = MemoryObject(self._token)
        except OSError:
            return self.inner.unary(CREATE_SESSION, request)
        sharing = Session(shared_memory=memory.message)
        sharing.MergeFrom(request.session)
        try:
            session = self.inner.unary(CREATE_SESSION, CreateSessionRequest(session=sharing))
        except BaseException:
            memory.close()
            raise
        finally:
            memory.unlink()
        if session.HasField("shared_memory"):
            self._memory, self._session = memory, session.name
        else:
            memory.close()
        return session

    def keep_arrays(self, session: str, call: Call) -> Call:
        """Return a call whose arrays are in shared memory already, as far as there is room.

        They stay there until an answer comes: a list that is sent again has them still.
        """
        memory = self._memory if session == self._session else None
        extents = memory.write(call.arrays) if memory is not None and call.arrays else None
        if extents is None:
            return copy_arrays(session, call)
        operation = Operation()
        operation.CopyFrom(call.operation)
        operation.shared_data.extend(extents)
        return replace(call, operation=operation, arrays=())

    def _execute(self, method: Method[Request, Response], request: Request) -> Response:
        memory = self._memory
        if memory is None or (memory.is_empty and not (request.arrays or request.sinks)):
            return self.inner.unary(method, request)
        response = self.inner.unary(method, _share(memory, request))
        arrays = dict(response.arrays)
        for index, sink in request.sinks.items():
            if index < len(response.results) and response.results[index].HasField("shared"):
                extent = response.results[index].shared
                arrays[index] = sink.place(extent.size)
                memory.read(extent, arrays[index])
                response.results[index].ClearField("shared")
        memory.release()
        return Response(response.results, arrays)

    def close(self) -> None:
        """Close the connection and the memory."""
        self.inner.close()
        if self._memory is not None:
            self._memory.close()


def _share(memory: MemoryObject, request: Request) -> Request:
    """Return a list whose large arrays are in shared memory, as far as there is room for them."""
    shared, arrays = dict[int, Sequence[Extent]](), dict(request.arrays)
    for index, travelling in request.arrays.items():
        extents = memory.write(travelling)
        if extents is not None:
            shared[index] = extents
            del arrays[index]
    for index, sink in request.sinks.items():
        extent = memory.allocate(sink.room) if sink.room >= OUT_OF_BAND_BYTES else None
        if extent is not None:
            shared[index] = [extent]
    if not shared:
        return request
    message = type(request.message)()
    message.CopyFrom(request.message)
    for index, places in shared.items():
        message.operations[index].shared_data.extend(places)
    return Request(message, arrays, request.sinks)
