# SPDX-License-Identifier: Apache-2.0
"""Objects of POSIX shared memory, and which of them a caller may have the server open.

A caller gets what it could open itself, were it any of those who may connect: only over a Unix
socket, which nobody elsewhere reaches, and only objects whose mode allows whomever the socket's
mode lets connect. (gRPC tells no user of a connection.) Where tokens are asked for, an object
belongs to the token with whose name, or with a hash of which, and a dot its own name begins.
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
NAMES = "1 to 64 of A-Z a-z 0-9 . _ -"


def is_name(name: str) -> bool:
    """Tell whether a text may name an object: it leads nowhere but to folders, which are none."""
    return _NAME.fullmatch(name) is not None


class Foreign(PermissionError):
    """What has the name is another user's, or no object."""


def open_object(name: str) -> int:
    """Open an object of this user for reading and writing; raise OSError where there is none."""
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
    """Remove objects whose clients ended between making them and being served.

    A client that is served removes the name itself. One that still lives loses nothing but the
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
    """Decides which objects callers may use, by `sockets`, the paths of the Unix sockets."""

    def __init__(self, sockets: Sequence[Path] = (), *, over_tcp: bool = False) -> None:
        self._sockets = sockets
        self._over_tcp = over_tcp

    @classmethod
    def of(cls, config: Config) -> "ObjectAccess | None":
        """Return what the operator allows; None where no memory is shared."""
        if not config.shared_memory:
            return None
        sockets = [Path(address[5:]) for address in config.listen if address.startswith("unix:")]
        return cls(sockets, over_tcp=config.shared_memory_over_tcp)

    def reaches(self, peer: str) -> bool:
        """Tell whether the client at `peer` may name objects at all."""
        return self._over_tcp or peer.startswith("unix:")

    def is_of_caller(self, name: str) -> bool:
        """Tell whether an object of this name is the caller's."""
        token = caller()
        return not token.name or any(
            name.startswith(f"{owner}.") and "." not in name[len(owner) + 1 :]
            for owner in (token.name, token.object_owner)
        )

    def allows(self, file: int, peer: str) -> bool:
        """Tell whether all who may connect as `peer` did could open an object themselves."""
        if not peer.startswith("unix:"):
            return self._over_tcp
        status = os.fstat(file)
        return all(_allows(status, path) for path in self._sockets)

    def open(self, peer: str, name: str) -> int:
        """Open an object for the client at `peer`; raise OSError where it may have none."""
        if not (self.reaches(peer) and is_name(name) and self.is_of_caller(name)):
            raise PermissionError(name)
        file = open_object(name)
        if not self.allows(file, peer):
            os.close(file)
            raise PermissionError(name)
        return file


def _allows(status: os.stat_result, path: Path) -> bool:
    """Tell whether an object is open to the group and to others, if a socket is."""
    try:
        socket = path.stat()
    except OSError:  # it was moved: who reaches it now is not known
        socket = None
    is_public = socket is None or socket.st_mode & stat.S_IWOTH
    is_shared = socket is None or socket.st_mode & stat.S_IWGRP
    if is_public and not _has(status, stat.S_IROTH | stat.S_IWOTH):
        return False
    in_group = socket is not None and socket.st_gid == status.st_gid
    needed = stat.S_IRGRP | stat.S_IWGRP if in_group else stat.S_IROTH | stat.S_IWOTH
    return not is_shared or _has(status, needed)


def _has(status: os.stat_result, bits: int) -> bool:
    return status.st_mode & bits == bits
