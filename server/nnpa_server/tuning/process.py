# SPDX-License-Identifier: Apache-2.0
"""Tune the process: C's allocator and locales, the cycle collector, BLAS threads, switching."""

import ctypes
import gc
import resource
import sys
from contextlib import suppress
from functools import lru_cache

from nnpa_emulator import scratch

# Numbers of <malloc.h>: M_TRIM_THRESHOLD -1, M_TOP_PAD -2, M_MMAP_THRESHOLD -3, M_MMAP_MAX -4,
# M_ARENA_MAX -8; glibc takes no threshold of mmap above 32 MiB.
_MALLOC = ((-1, 256 << 20), (-2, 16 << 20), (-3, 32 << 20), (-4, 0), (-8, 1))
# Seconds that a thread may keep the interpreter while others wait. Kernels let go of it and want
# it back for each operation; behind a busy thread each waits this long (Python's default: 5 ms).
_SWITCH_INTERVAL = 0.0005

# What converters write for text, and ONNX Runtime's default; a locale's mask is 1 << LC_ALL.
_LOCALES, _ALL_CATEGORIES = (b"C.UTF-8", b"en_US.UTF-8"), 1 << 6


@lru_cache(maxsize=1)
def glibc() -> ctypes.CDLL | None:
    """Return the C library where it is glibc, whose malloc has options, else None."""
    try:
        library = ctypes.CDLL("libc.so.6")
        return library if hasattr(library, "malloc_trim") else None
    except OSError:
        return None


def tune_malloc() -> None:
    """Keep freed memory for the next message instead of returning each to the kernel.

    All of it comes from one heap, however large it is and whatever thread wants it: what one call
    freed the next one has, without a page fault. Measured: transfers of 1 to 64 MiB take about half
    the time.
    """
    if (library := glibc()) is not None:
        for option, value in _MALLOC:
            library.mallopt(option, value)


def give_back() -> None:
    """Return free memory to the system: what ended sessions held, and the scratch of threads."""
    scratch.release()
    if (library := glibc()) is not None:
        library.malloc_trim(0)


def keep_locales() -> None:
    """Load the locales that text nodes ask for, where the system has them, for as long as it runs.

    A process that can open no files can use those alone.
    """
    if (library := glibc()) is not None:
        library.newlocale.restype = ctypes.c_void_p
        for name in _LOCALES:
            library.newlocale(_ALL_CATEGORIES, name, None)


def raise_descriptor_limit() -> int:
    """Have the system give as many file descriptors as it may; return how many."""
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
    """Switch between threads sooner than Python does."""
    sys.setswitchinterval(_SWITCH_INTERVAL)


def tune_collector() -> None:
    """Have the cycle collector leave alone what was imported, and come seldom; it was off.

    Messages make many objects and hardly a cycle; sessions break their own when they end.
    Measured: lists of 100 small operations take a third of the time.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 100)
