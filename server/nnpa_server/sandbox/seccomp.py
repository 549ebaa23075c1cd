# SPDX-License-Identifier: Apache-2.0
"""A seccomp filter that lets a process compute and use its open descriptors.

Every system call that is not listed fails with EPERM, such as open, connect, fork and execve.
Sources: Linux, Documentation/userspace-api/seccomp_filter.rst, include/uapi/linux/filter.h.
"""

import ctypes
import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nnpa_server.sandbox.kernel import PR_SET_SECCOMP, Architecture, control_process

_MODE_FILTER = 2
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _AND, _EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06  # BPF: LD W ABS, ALU AND, JMP JEQ, RET
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_GROWSDOWN = 0x01, 0x20, 0x100
_F_GETFD, _F_DUPFD_CLOEXEC = 1, 1030
_FREE = (
    "read", "write", "close", "fstat", "poll", "lseek", "mprotect", "munmap", "brk", "rt_sigaction",
    "rt_sigprocmask", "rt_sigreturn", "sched_yield", "mremap", "madvise", "nanosleep", "getpid",
    "exit", "uname", "gettimeofday", "getrusage", "sysinfo", "times", "getuid", "getgid", "geteuid",
    "getegid", "getppid", "sigaltstack", "gettid", "futex", "sched_getaffinity", "restart_syscall",
    "clock_gettime", "clock_getres", "clock_nanosleep", "exit_group", "ppoll", "set_robust_list",
    "getcpu", "getrandom", "membarrier", "rseq",
)  # fmt: skip

Instruction: TypeAlias = tuple[int, int, int, int]
"""Code, jump if true, jump if false, constant."""


class _SockFilter(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_SockFilter)))


@dataclass(frozen=True, slots=True)
class Argument:
    """A condition on a system call: an argument's bits must, or must not, be one of `values`."""

    call: str
    index: int
    mask: int
    values: tuple[int, ...]
    allowed: bool = True


def conditions() -> tuple[Argument, ...]:
    """Return the conditions on the system calls of this process that are allowed in part."""
    shared = _MAP_SHARED | _MAP_ANONYMOUS
    kinds = (0, _MAP_SHARED, _MAP_ANONYMOUS, shared)
    uncounted = shared, *(kind | _MAP_GROWSDOWN for kind in kinds)  # by RLIMIT_DATA
    return (
        Argument("mmap", 3, shared | _MAP_GROWSDOWN, uncounted, allowed=False),
        Argument("fcntl", 1, 0xFFFFFFFF, (_F_GETFD, _F_DUPFD_CLOEXEC)),
        Argument("tgkill", 0, 0xFFFFFFFF, (os.getpid(),)),
    )


def program(architecture: Architecture, checked: Sequence[Argument]) -> list[Instruction]:
    """Return the instructions of the filter: first the checked calls, then the free ones."""
    instructions: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for argument in checked:
        body = list(_conditional(argument))
        instructions += [(_EQUAL, 0, len(body), architecture.numbers[argument.call]), *body]
    for name in _FREE:
        if name in architecture.numbers:
            number = architecture.numbers[name]
            instructions += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    return [*instructions, (_RETURN, 0, 0, _ERRNO | errno.EPERM)]


def _conditional(argument: Argument) -> Iterable[Instruction]:
    """Yield the instructions that decide over one call; each path returns from the filter."""
    matches, differs = _ALLOW, _ERRNO | errno.EPERM
    if not argument.allowed:
        matches, differs = differs, matches
    yield (_LOAD, 0, 0, _ARGUMENTS + 8 * argument.index)  # the low half, on little-endian hosts
    yield (_AND, 0, 0, argument.mask)
    for value in argument.values:
        yield (_EQUAL, 0, 1, value)
        yield (_RETURN, 0, 0, matches)
    yield (_RETURN, 0, 0, differs)


def is_supported() -> bool:
    """Return True if the kernel takes filters: it then reports the missing one as EFAULT."""
    try:
        control_process(PR_SET_SECCOMP, _MODE_FILTER, None)
    except OSError as error:
        return error.errno == errno.EFAULT
    return False


def install(architecture: Architecture) -> None:
    """Install the filter in this thread for good; raise OSError."""
    instructions = program(architecture, conditions())
    table = (_SockFilter * len(instructions))(*(_SockFilter(*step) for step in instructions))
    filters = ctypes.cast(table, ctypes.POINTER(_SockFilter))
    control_process(
        PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(_SockFprog(len(instructions), filters))
    )
