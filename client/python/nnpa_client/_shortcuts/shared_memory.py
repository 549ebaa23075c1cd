# SPDX-License-Identifier: Apache-2.0
"""Memory that a session shares with a server on the same host: arrays in it do not travel.

It is read and written as a file, so that a missing page is an error and never ends the process.
Source: shm_overview(7): objects of POSIX shared memory are files in /dev/shm.
"""

import contextlib
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
from nnpa.zdnn.v1.accelerator_pb2 import CreateSessionRequest, Session, SharedMemory
from nnpa.zdnn.v1.tensor_pb2 import Extent

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

_OBJECTS = "/dev/shm"
_SIZE = 1 << 26  # bytes of an object
_MAX_KEPT = 1 << 24  # bytes of its storage that stay between calls
_ALIGNMENT = 4096


class MemoryObject:
    """An object of this user's; extents are allocated from its beginning until `release`."""

    def __init__(self) -> None:
        """Make an object; raise OSError where the host has no such thing."""
        self._file, path = tempfile.mkstemp(prefix=f"nnpa-{os.getpid()}-", dir=_OBJECTS)
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

    def read(self, extent: Extent) -> memoryview:
        """Return a copy of what the server has written into an extent."""
        array = np.empty(extent.size, np.uint8).data
        if os.preadv(self._file, [array], extent.offset) != extent.size:
            raise OSError(f"shared memory: fewer than {extent.size} bytes at {extent.offset}")
        return array

    def release(self) -> None:
        """Free all extents; storage beyond what is kept goes back to the system."""
        if self._next > _MAX_KEPT and self._close.alive:
            os.ftruncate(self._file, _MAX_KEPT)
            os.ftruncate(self._file, _SIZE)
        self._next = 0


class SharedMemoryTransport(TransportWrapper):
    """A transport whose first session shares memory, if host and server have it."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
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
            memory = MemoryObject()
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

    def _execute(self, method: Method[Request, Response], request: Request) -> Response:
        memory = self._memory
        if memory is None or not (request.arrays or request.room):
            return self.inner.unary(method, request)
        try:
            response = self.inner.unary(method, _share(memory, request))
            arrays = dict(response.arrays)
            for index in request.room:
                if index < len(response.results) and response.results[index].HasField("shared"):
                    arrays[index] = memory.read(response.results[index].shared)
                    response.results[index].ClearField("shared")
            return Response(response.results, arrays)
        finally:
            memory.release()

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
    for index, size in request.room.items():
        extent = memory.allocate(size) if size >= OUT_OF_BAND_BYTES else None
        if extent is not None:
            shared[index] = [extent]
    if not shared:
        return request
    message = type(request.message)()
    message.CopyFrom(request.message)
    for index, places in shared.items():
        message.operations[index].shared_data.extend(places)
    return Request(message, arrays, request.room)
