# SPDX-License-Identifier: Apache-2.0
"""Tune the process: C's allocator and locales, the cycle collector, BLAS threads, scheduling."""

import ctypes
import gc
import os
import platform
import resource
import struct
import sys
from contextlib import suppress
from functools import lru_cache

from nnpa_emulator import scratch

# Numbers of <malloc.h>: M_TRIM_THRESHOLD -1, M_TOP_PAD -2, M_MMAP_THRESHOLD -3, M_MMAP_MAX -4,
# M_ARENA_MAX -8; glibc takes no threshold of mmap above 32 MiB.
_MALLOC = ((-1, 256 << 20), (-2, 16 << 20), (-3, 32 << 20), (-4, 0), (-8, 1))
# Seconds that a thread may keep the interpreter while others wait. Kernels release it and take it
# again for each operation; behind a busy thread each waits this long (Python's default: 5 ms).
_SWITCH_INTERVAL = 0.0005

# System calls: Linux, arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_TURN_NS = 100_000  # the shortest that Linux grants

# Locales in converted models, and ONNX Runtime's default; a locale's mask is 1 << LC_ALL.
_LOCALES, _ALL_CATEGORIES = (b"C.UTF-8", b"en_US.UTF-8"), 1 << 6


@lru_cache(maxsize=1)
def glibc() -> ctypes.CDLL | None:
    """Return the C library if it is glibc, whose malloc has options, else None."""
    try:
        library = ctypes.CDLL("libc.so.6")
        return library if hasattr(library, "malloc_trim") else None
    except OSError:
        return None


def tune_malloc() -> None:
    """Keep freed memory for the next message instead of returning each to the kernel.

    All memory comes from one heap, for all sizes and threads, so that a call reuses what the call
    before it freed, without page faults. Measured: transfers of 1 to 64 MiB take half the time.
    """
    if (library := glibc()) is not None:
        for option, value in _MALLOC:
            library.mallopt(option, value)


def give_back() -> None:
    """Return free memory to the system, including the scratch memory of threads."""
    scratch.release()
    if (library := glibc()) is not None:
        library.malloc_trim(0)


def keep_locales() -> None:
    """Load the locales that text nodes use, if the system has them, until the process ends.

    A confined process can open no files, and so can use no other locales.
    """
    if (library := glibc()) is not None:
        library.newlocale.restype = ctypes.c_void_p
        for name in _LOCALES:
            library.newlocale(_ALL_CATEGORIES, name, None)


def raise_descriptor_limit() -> int:
    """Raise the limit of file descriptors to the most that the system allows; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # Linux gives no process more than fs.nr_open
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft >= 0 else sys.maxsize


def pin_blas() -> None:
    """Run each matrix product on the thread that calls it: same call, same bits."""
    from threadpoolctl import threadpool_limits  # of the extra server: a sentence says so

    threadpool_limits(limits=1, user_api="blas")


def tune_interpreter() -> None:
    """Switch between threads more often than Python's default."""
    sys.setswitchinterval(_SWITCH_INTERVAL)


def tune_scheduler() -> None:
    """Take short turns of the processor, so that the process runs soon after it wakes.

    Beside busy processes a call waits for each of its wake-ups. Threads and processes that are
    started later inherit it, and their share of the processors stays as it is. Linux before 6.12
    ignores it. Source: Linux, include/uapi/linux/sched/types.h, struct sched_attr: size, policy,
    flags, nice, priority, runtime (the turn in ns), deadline, period, two clamps.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None or (libc := glibc()) is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    libc.syscall(number, 0, struct.pack("IIQiIQQQII", 56, 0, 0, nice, 0, _TURN_NS, 0, 0, 0, 0), 0)


def tune_collector() -> None:
    """Turn on the cycle collector, without the imported objects and with high thresholds.

    Messages make many objects and hardly any cycles; sessions break their cycles when they end.
    Measured: lists of 100 small operations take a third of the time.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 100)
