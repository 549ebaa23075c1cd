# SPDX-License-Identifier: Apache-2.0
"""System calls that Python does not offer, and their numbers on x86-64 and AArch64.

Sources: Linux, arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h,
include/uapi/linux/prctl.h, include/uapi/linux/audit.h; prctl(2), syscall(2).
"""

import ctypes
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38


@dataclass(frozen=True, slots=True)
class Architecture:
    """A processor's number in seccomp's data, and its system calls by name."""

    audit: int
    numbers: Mapping[str, int]


_X86_64 = {
    "read": 0, "write": 1, "close": 3, "fstat": 5, "poll": 7, "lseek": 8, "mmap": 9, "mprotect": 10,
    "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15,
    "sched_yield": 24, "mremap": 25, "madvise": 28, "nanosleep": 35, "getpid": 39, "exit": 60,
    "uname": 63, "fcntl": 72, "gettimeofday": 96, "getrusage": 98, "sysinfo": 99, "times": 100,
    "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110, "capset": 126,
    "sigaltstack": 131, "gettid": 186, "futex": 202, "sched_getaffinity": 204,
    "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230,
    "exit_group": 231, "tgkill": 234, "ppoll": 271, "set_robust_list": 273, "getcpu": 309,
    "getrandom": 318, "membarrier": 324, "rseq": 334,
    "landlock_create_ruleset": 444, "landlock_restrict_self": 446,
}  # fmt: skip
_AARCH64 = {
    "read": 63, "write": 64, "close": 57, "fstat": 80, "lseek": 62, "mmap": 222, "mprotect": 226,
    "munmap": 215, "brk": 214, "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139,
    "sched_yield": 124, "mremap": 216, "madvise": 233, "nanosleep": 101, "getpid": 172, "exit": 93,
    "uname": 160, "fcntl": 25, "gettimeofday": 169, "getrusage": 165, "sysinfo": 179, "times": 153,
    "getuid": 174, "getgid": 176, "geteuid": 175, "getegid": 177, "getppid": 173, "capset": 91,
    "sigaltstack": 132, "gettid": 178, "futex": 98, "sched_getaffinity": 123,
    "restart_syscall": 128, "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115,
    "exit_group": 94, "tgkill": 131, "ppoll": 73, "set_robust_list": 99, "getcpu": 168,
    "getrandom": 278, "membarrier": 283, "rseq": 293,
    "landlock_create_ruleset": 444, "landlock_restrict_self": 446,
}  # fmt: skip
_ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, _X86_64),
    "aarch64": Architecture(0xC00000B7, _AARCH64),
}


def architecture() -> Architecture | None:
    """Return this processor's entry on 64-bit Linux; None for any other processor or system."""
    if not sys.platform.startswith("linux") or sys.maxsize <= 1 << 32:
        return None
    return _ARCHITECTURES.get(platform.machine())


def control_process(option: int, *arguments: int | object) -> None:
    """Call prctl(2); raise OSError."""
    numbers = [
        ctypes.c_ulong(argument) if isinstance(argument, int) else argument
        for argument in (*arguments, 0, 0, 0, 0)[:4]
    ]
    _require(ctypes.CDLL(None, use_errno=True).prctl(option, *numbers))


def syscall(number: int, *arguments: int | object) -> int:
    """Make a system call by its number; raise OSError."""
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    longs = [
        ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments
    ]
    return _require(library.syscall(ctypes.c_long(number), *longs))


def _require(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
