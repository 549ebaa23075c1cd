# SPDX-License-Identifier: Apache-2.0
"""The process: memory that goes back to the system, locales, descriptors, BLAS threads."""

import ctypes
import resource
import sys
from contextlib import suppress
from functools import lru_cache

from nnpa_emulator import scratch

# What converters write for text, and ONNX Runtime's default; a locale's mask is 1 << LC_ALL.
_LOCALES, _ALL_CATEGORIES = (b"C.UTF-8", b"en_US.UTF-8"), 1 << 6


@lru_cache(maxsize=1)
def glibc() -> ctypes.CDLL | None:
    """Return the C library where it is glibc, whose malloc gives memory back, else None."""
    try:
        library = ctypes.CDLL("libc.so.6")
        return library if hasattr(library, "malloc_trim") else None
    except OSError:
        return None


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
