# SPDX-License-Identifier: Apache-2.0
"""Confine a process for good, before it reads input that is not trusted."""

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

from nnpa_server.sandbox import landlock, seccomp
from nnpa_server.sandbox.kernel import (
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    architecture,
    control_process,
    syscall,
)

LANDLOCK, SECCOMP = "Landlock", "seccomp"
_CAPABILITY_VERSION = 0x20080522  # source: capset(2), _LINUX_CAPABILITY_VERSION_3
_MAX_DESCRIPTORS = 16
_EMPTY_LIMITS = (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_MEMLOCK)


class NotConfined(RuntimeError):
    """A process cannot be confined, or the kernel lacks a confinement that is required."""


def missing() -> tuple[str, ...]:
    """Return the names of the confinements that this kernel lacks."""
    processor = architecture()
    if processor is None:
        return (LANDLOCK, SECCOMP)
    lacks = {LANDLOCK: not landlock.version(processor), SECCOMP: not seccomp.is_supported()}
    return tuple(name for name, is_missing in lacks.items() if is_missing)


def is_linux() -> bool:
    """Return True on Linux: workers need its sealed memory and process limits."""
    return sys.platform.startswith("linux")


def die_with(parent: int) -> None:
    """Make the kernel end this process with its parent; raise SystemExit if that has ended."""
    control_process(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        raise SystemExit(1)


def require_one_thread() -> None:
    """Raise `NotConfined` if other threads run: a confinement would not cover them."""
    if len(list(Path("/proc/self/task").iterdir())) != 1:
        raise NotConfined("a process with several threads cannot be confined")


def confine() -> tuple[str, ...]:
    """Give up files, network, processes and privileges; return missing confinements."""
    require_one_thread()
    with suppress(OSError):  # where memory runs out, a worker goes before its server
        Path("/proc/self/oom_score_adj").write_text("1000")
    for limit in _EMPTY_LIMITS:
        resource.setrlimit(limit, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_DESCRIPTORS, _MAX_DESCRIPTORS))
    control_process(PR_SET_DUMPABLE, 0)
    control_process(PR_SET_NO_NEW_PRIVS, 1)
    lacking = missing()
    processor = architecture()
    if processor is None:
        return lacking
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    syscall(processor.numbers["capset"], header, (ctypes.c_uint32 * 6)())
    if LANDLOCK not in lacking:
        landlock.restrict(processor)
    if SECCOMP not in lacking:
        seccomp.install(processor)
    return lacking
