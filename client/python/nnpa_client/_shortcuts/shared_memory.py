# SPDX-License-Identifier: Apache-2.0
"""Memory that a session shares with a server on the same host: what is there does not travel.

It is read and written as a file, so that a missing page is an error and never ends the process.
Source: shm_overview(7): objects of POSIX shared memory are files in /dev/shm.
"""

import contextlib
import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt
from nnpa.zdnn.v1.accelerator_pb2 import CreateSessionRequest, Session, SharedMemory
from nnpa.zdnn.v1.tensor_pb2 import Extent

from nnpa_client._transport import Transport

_OBJECTS = "/dev/shm"
_SIZE, _KEPT = 1 << 26, 1 << 24  # bytes of an object, and of its storage that stays between calls
_ALIGNMENT = 4096


class Shared:
    """An object of this user's; places in it are given out from its beginning until `release`."""

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
        """Take the name away: who has opened the object keeps it, nobody else will."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def close(self) -> None:
        """Let go of the object."""
        self._close()

    def place(self, size: int) -> Extent | None:
        """Return a place for so many bytes, None where there is no room."""
        offset, end = self._next, self._next + size
        if not self._close.alive or end > _SIZE:
            return None
        self._next = -(-end // _ALIGNMENT) * _ALIGNMENT
        return Extent(offset=offset, size=size)

    def put(self, array: memoryview) -> Extent | None:
        """Return a place that holds a copy of bytes, None where there is no storage for them."""
        extent = self.place(array.nbytes)
        if extent is None:
            return None
        try:
            written = os.pwrite(self._file, array, extent.offset)
        except OSError:
            return None
        return extent if written == array.nbytes else None

    def take(self, extent: Extent, target: npt.NDArray[np.uint8]) -> None:
        """Fill `target` with what the server has put into a place."""
        if os.preadv(self._file, [target.data], extent.offset) != extent.size:
            raise OSError(f"shared memory: fewer than {extent.size} bytes at {extent.offset}")

    def release(self) -> None:
        """Take all places back; storage beyond what is kept goes back to the system."""
        if self._next > _KEPT and self._close.alive:
            os.ftruncate(self._file, _KEPT)
            os.ftruncate(self._file, _SIZE)
        self._next = 0


def create_session(transport: Transport, options: Session | None) -> tuple[Session, Shared | None]:
    """Create a session, with memory to share where server and host have it."""
    shared = _for(transport.target)
    if shared is None:
        return transport.create_session(CreateSessionRequest(session=options)), None
    wanted = Session(shared_memory=shared.message)
    if options is not None:
        wanted.MergeFrom(options)
    try:
        created = transport.create_session(CreateSessionRequest(session=wanted))
    except BaseException:
        shared.close()
        raise
    finally:
        shared.unlink()
    if created.HasField("shared_memory"):
        return created, shared
    shared.close()
    return created, None


def _for(target: str) -> Shared | None:
    """Return memory for a server that may be on this host."""
    if not target.startswith("unix:"):
        return None
    try:
        return Shared()
    except OSError:
        return None
