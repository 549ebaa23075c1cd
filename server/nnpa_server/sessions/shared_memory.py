# SPDX-License-Identifier: Apache-2.0
"""Memory that a session shares with its client on the same host.

The client makes an object of POSIX shared memory and names it; the server opens it once. Contents
are read and written through the file, not mapped: what a client does to its object meanwhile can
spoil its own data, or be an error, and nothing else. What is read is a copy before it is looked at.
Or the client sends a descriptor over a plain socket, of memory whose size is sealed: it cannot be
taken away from under the server, which maps it.
Source: memfd_create(2), "File sealing".
"""

import fcntl
import mmap
import os
from typing import TypeAlias

import numpy as np
from nnpa_emulator.machine import Memory

from nnpa_server.errors import CallRefused, invalid
from nnpa_server.sessions.shared_objects import ObjectAccess
from nnpa_server.sessions.store import Session

HOLDING = "shared memory"
_PIECE = 1 << 30  # bytes of one read or write, below what Linux does at once


class SharedMemory:
    """An object of POSIX shared memory, whose open `file` is taken over.

    Used and closed under its session's lock, as all memory that a session shares.
    """

    def __init__(self, name: str, size: int, file: int) -> None:
        self.name, self.size, self._file = name, size, file
        held = os.fstat(self._file).st_size
        if held < size:
            self.close()
            raise invalid("session.shared_memory.size", size, f"at most {held}, the object's size")

    def close(self) -> None:
        """Release the object."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def require(self, offset: int, size: int, path: str) -> None:
        """Refuse a place that is not in the memory."""
        _require(self, offset, size, path)

    def view(self, offset: int, size: int, path: str) -> None:
        """Return None, for no numbers to be read where they are: the object may be shortened."""

    place = view
    """Return None, for no place that results can be written to."""

    def read(self, offset: int, target: Memory, path: str) -> None:
        """Fill `target`; the object may have been shortened since it was opened."""
        self.require(offset, target.nbytes, path)
        for start in range(0, target.nbytes, _PIECE):
            piece = target[start : start + _PIECE]
            if (got := os.preadv(self._file, [piece.data], offset + start)) < piece.nbytes:
                limit = f"{piece.nbytes}: the object is too short"
                raise invalid(path, f"{got} bytes at {offset + start}", limit)

    def write(self, offset: int, source: Memory, path: str) -> bool:
        """Write `source`, and tell whether there was storage for all of it; nothing grows."""
        self.require(offset, source.nbytes, path)
        if os.fstat(self._file).st_size < offset + source.nbytes:
            return False
        try:
            return all(
                os.pwritev(self._file, [piece.data], offset + start) == piece.nbytes
                for start in range(0, source.nbytes, _PIECE)
                for piece in (source[start : start + _PIECE],)
            )
        except OSError:
            return False


class MappedMemory:
    """Memory that came as a descriptor, which is taken over; at most `most` bytes, no name."""

    name = ""

    def __init__(self, file: int, most: int) -> None:
        path = "memory"
        try:
            status = os.fstat(file)
            seals = fcntl.fcntl(file, fcntl.F_GET_SEALS)
            is_ordinary = status.st_blksize <= mmap.PAGESIZE  # huge pages can be taken away
            if not seals & fcntl.F_SEAL_SHRINK or status.st_uid != os.geteuid() or not is_ordinary:
                limit = "of this user, of ordinary pages, and sealed by F_SEAL_SHRINK"
                raise invalid(path, "of another kind", limit)
            if not 0 < status.st_size <= most:
                raise invalid(path, f"{status.st_size} bytes", f"1 to {most} bytes")
            self.size = status.st_size
            self.contents = np.frombuffer(mmap.mmap(file, self.size), np.uint8)
        except OSError as error:
            text = error.strerror or "unusable"
            raise invalid(path, text, "memory of memfd_create, sealed by F_SEAL_SHRINK") from error
        finally:
            os.close(file)

    def close(self) -> None:
        """Release the memory, once nobody looks at it any more."""
        self.size, self.contents = 0, np.empty(0, np.uint8)

    def require(self, offset: int, size: int, path: str) -> None:
        """Refuse a place that is not in the memory."""
        _require(self, offset, size, path)

    def read(self, offset: int, target: Memory, path: str) -> None:
        """Fill `target`."""
        self.require(offset, target.nbytes, path)
        np.copyto(target, self.contents[offset : offset + target.nbytes])

    def view(self, offset: int, size: int, path: str) -> Memory | None:
        """Return numbers to be read where they are; None where they must be copied first."""

    place = view

    def write(self, offset: int, source: Memory, path: str) -> bool:
        """Write `source`: there is storage, or the system finds some."""
        self.require(offset, source.nbytes, path)
        np.copyto(self.contents[offset : offset + source.nbytes], source)
        return True


Sharing: TypeAlias = SharedMemory | MappedMemory


def shared_of(session: Session) -> Sharing | None:
    """Return the memory that a session shares with its client."""
    memory = session.holdings.get(HOLDING)
    return memory if isinstance(memory, SharedMemory | MappedMemory) else None


def _require(memory: Sharing, offset: int, size: int, path: str) -> None:
    if offset + size > memory.size:
        limit = f"inside the {memory.size} bytes of shared memory"
        raise invalid(path, f"{size} bytes at {offset}", limit)


def open_for(access: ObjectAccess, peer: str, name: str, size: int) -> SharedMemory | None:
    """Open what the client at `peer` wants to share; none where the server cannot reach it.

    Only clients on a Unix socket, which the system lets near, share anything.
    """
    if not peer.startswith("unix:") or not size:
        return None
    try:
        return SharedMemory(name, size, access.open(peer, name))
    except (CallRefused, OSError):
        return None
