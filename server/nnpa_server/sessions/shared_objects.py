# SPDX-License-Identifier: Apache-2.0
"""Open objects of POSIX shared memory for callers, with the rights of a caller.

The server opens an object only for a caller on a Unix socket, and only if the object's mode gives
access to everybody whom the socket's mode lets connect: gRPC does not name the user of a
connection. On a server with tokens, the name of an object begins with the name of its token, or
with a hash of the token, and a dot.
Sources: shm_overview(7): objects are files in /dev/shm; unix(7): who may write to a socket may
connect to it.
"""

import os
import re
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from nnpa_server.config import Config
from nnpa_server.sessions.tokens import caller

_FOLDER = "/dev/shm"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_OF_CLIENT = re.compile(r"(?:[0-9a-f]{16}\.)?nnpa-([0-9]{1,10})-[A-Za-z0-9_]+")
_ORPHAN_SECONDS = 5.0  # a process of another container is not seen: it has this long
_OTHERS, _GROUP = stat.S_IROTH | stat.S_IWOTH, stat.S_IRGRP | stat.S_IWGRP
NAMES = "1 to 64 of A-Z a-z 0-9 . _ -"


def is_name(name: str) -> bool:
    """Return True if a text may name an object; it cannot be a path into another folder."""
    return _NAME.fullmatch(name) is not None


class Foreign(PermissionError):
    """The file of this name belongs to another user, or is no regular file."""


def open_object(name: str) -> int:
    """Open an object of this user for reading and writing; raise OSError."""
    folder = os.open(_FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(name, flags, dir_fd=folder)
    finally:
        os.close(folder)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(file)
        raise Foreign(name)
    return file


def remove_orphans() -> None:
    """Remove objects whose clients ended before a server opened them.

    A client removes the name itself once it is served. A client that still lives only loses the
    shortcut: its arrays travel.
    """
    with suppress(OSError), os.scandir(_FOLDER) as entries:
        for entry in entries:
            named = _OF_CLIENT.fullmatch(entry.name)
            if named is not None and not _is_alive(int(named[1])):
                with suppress(OSError):
                    _remove_if_old(entry)


def _remove_if_old(entry: "os.DirEntry[str]") -> None:
    status = entry.stat(follow_symlinks=False)
    is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
    if is_ours and time.time() - status.st_mtime > _ORPHAN_SECONDS:
        Path(entry.path).unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


class ObjectAccess:
    """Decides which objects callers may use; `sockets` are the paths of the Unix sockets."""

    def __init__(self, sockets: Sequence[Path] = (), *, over_tcp: bool = False) -> None:
        self._sockets = sockets
        self._over_tcp = over_tcp

    @classmethod
    def of(cls, config: Config) -> "ObjectAccess | None":
        """Return the access that the operator allows; None without --shared-memory."""
        if not config.shared_memory:
            return None
        sockets = [Path(address[5:]) for address in config.listen if address.startswith("unix:")]
        return cls(sockets, over_tcp=config.shared_memory_over_tcp)

    def reaches(self, peer: str) -> bool:
        """Return True if the client at `peer` may name objects at all."""
        return self._over_tcp or peer.startswith("unix:")

    def is_of_caller(self, name: str) -> bool:
        """Return True if an object of this name belongs to the caller's token."""
        token = caller()
        return not token.name or any(
            name.startswith(f"{owner}.") and "." not in name[len(owner) + 1 :]
            for owner in (token.name, token.object_owner)
        )

    def allows(self, file: int, peer: str) -> bool:
        """Return True if everybody who may connect like `peer` could open the object."""
        if not peer.startswith("unix:"):
            return self._over_tcp
        status = os.fstat(file)
        return all(_allows(status, path) for path in self._sockets)

    def open(self, peer: str, name: str) -> int:
        """Open an object for the client at `peer`; raise OSError if it may not use it."""
        if not (self.reaches(peer) and is_name(name) and self.is_of_caller(name)):
            raise PermissionError(name)
        file = open_object(name)
        if not self.allows(file, peer):
            os.close(file)
            raise PermissionError(name)
        return file


def _allows(status: os.stat_result, path: Path) -> bool:
    """Return True if an object is open to group and others as far as a socket is."""
    is_open = status.st_mode & _OTHERS == _OTHERS
    try:
        socket = path.stat()
    except OSError:  # it was moved, and its rights are unknown
        return is_open
    in_group = socket.st_gid == status.st_gid
    is_group_open = status.st_mode & _GROUP == _GROUP if in_group else is_open
    is_public, is_shared = socket.st_mode & stat.S_IWOTH, socket.st_mode & stat.S_IWGRP
    return (is_open or not is_public) and (is_group_open or not is_shared)
