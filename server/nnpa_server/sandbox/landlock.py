# SPDX-License-Identifier: Apache-2.0
"""Landlock with an empty ruleset: no file, no TCP port, no foreign socket or process.

Source: Linux, Documentation/userspace-api/landlock.rst, include/uapi/linux/landlock.h.
"""

import ctypes
import os

from nnpa_server.sandbox.kernel import Architecture, syscall

_CREATE_RULESET_VERSION = 1
_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # abstract sockets, signals


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


def version(architecture: Architecture) -> int:
    """Return the version of Landlock's interface; 0 if the kernel has none."""
    number = architecture.numbers["landlock_create_ruleset"]
    try:
        return syscall(number, None, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def restrict(architecture: Architecture) -> None:
    """Forbid this thread files, ports and other processes for good; raise OSError."""
    latest = version(architecture)
    files = {1: 13, 2: 14, 3: 15, 4: 15}.get(latest, 16)  # kinds of access that are known
    rules = _Ruleset((1 << files) - 1, _TCP if latest >= 4 else 0, _SCOPES if latest >= 6 else 0)
    size = 24 if latest >= 6 else 16 if latest >= 4 else 8
    numbers = architecture.numbers
    descriptor = syscall(numbers["landlock_create_ruleset"], ctypes.byref(rules), size, 0)
    try:
        syscall(numbers["landlock_restrict_self"], descriptor, 0)
    finally:
        os.close(descriptor)
