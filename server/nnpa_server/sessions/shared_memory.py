# SPDX-License-Identifier: Apache-2.0
"""Memory that a session shares with its client on the same host, of two kinds.

The client names an object of POSIX shared memory, which the server opens once. The server reads and
writes the file and does not map it: a client that changes or truncates its object meanwhile spoils
its own data or gets an error. The server copies contents before it looks at them.

Or the client sends a descriptor over a plain socket. Its memory has a sealed size, so it cannot be
truncated under the server, which maps it.
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
_PIECE = 1 << 30  # bytes of one read or write, below Linux's limit


class _Shared:
    """The memory of a session that its client shares, used and closed under the session's lock."""

    name = ""
    size: int

    def require(self, offset: int, size: int, path: str) -> None:
        """Refuse a place that is not in the memory."""
        if offset + size > self.size:
            limit = f"inside the {self.size} bytes of shared memory"
            raise invalid(path, f"{size} bytes at {offset}", limit)

    def view(self, offset: int, size: int, path: str) -> Memory | None:
        """Return None: nothing is read in place."""

    place = view
    """Return None: no results are computed in place."""


class SharedMemory(_Shared):
    """An object of POSIX shared memory, which may be truncated; it owns the open `file`."""

    def __init__(self, name: str, size: int, file: int) -> None:
        self.name, self.size, self._file = name, size, file
        held = os.fstat(self._file).st_size
        if held < size:
            self.close()
            raise invalid("session.shared_memory.size", size, f"at most {held}, the object's size")

    def close(self) -> None:
        """Close the object."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def read(self, offset: int, target: Memory, path: str) -> None:
        """Fill `target`; refuse an object that was truncated since it was opened."""
        self.require(offset, target.nbytes, path)
        for start in range(0, target.nbytes, _PIECE):
            piece = target[start : start + _PIECE]
            if (got := os.preadv(self._file, [piece.data], offset + start)) < piece.nbytes:
                limit = f"{piece.nbytes}: the object is too short"
                raise invalid(path, f"{got} bytes at {offset + start}", limit)

    def write(self, offset: int, source: Memory, path: str) -> bool:
        """Write `source`, and return False if there is no storage for all of it."""
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


class MappedMemory(_Shared):
    """Memory of a descriptor, which it closes: at most `most` bytes, without a name."""

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
        """Release the memory as soon as no array views it any more."""
        self.size, self.contents = 0, np.empty(0, np.uint8)

    def read(self, offset: int, target: Memory, path: str) -> None:
        """Fill `target`."""
        self.require(offset, target.nbytes, path)
        np.copyto(target, self.contents[offset : offset + target.nbytes])

    def write(self, offset: int, source: Memory, path: str) -> bool:
        """Write `source`, and return True: the kernel provides the pages."""
        self.require(offset, source.nbytes, path)
        np.copyto(self.contents[offset : offset + source.nbytes], source)
        return True


Sharing: TypeAlias = SharedMemory | MappedMemory


def shared_of(session: Session) -> Sharing | None:
    """Return the memory that a session shares with its client, or None."""
    memory = session.holdings.get(HOLDING)
    return memory if isinstance(memory, SharedMemory | MappedMemory) else None


def open_for(access: ObjectAccess, peer: str, name: str, size: int) -> SharedMemory | None:
    """Open the object that the client at `peer` names; None if the server cannot open it.

    Only clients on a Unix socket share memory.
    """
    if not peer.startswith("unix:") or not size:
        return None
    try:
        return SharedMemory(name, size, access.open(peer, name))
    except (CallRefused, OSError):
        return None
