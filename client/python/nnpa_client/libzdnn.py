# SPDX-License-Identifier: Apache-2.0
"""The paths of the C library, for compilers and build systems."""

import importlib
from pathlib import Path

_PACKAGE = "nnpa_libzdnn"
NOT_INSTALLED = (
    "libzdnn is not installed: pip install client/libzdnn/wheel in a clone of nnpa, "
    "which takes Rust and a C compiler"
)


def prefix() -> Path | None:
    """Return the folder with include/ and lib/ of the wheel nnpa-libzdnn; None if not installed."""
    try:
        path: Path = importlib.import_module(_PACKAGE).PREFIX
    except ModuleNotFoundError:
        return None
    return path


def library_folder() -> Path | None:
    """Return the folder of libzdnn.so.0, None without the wheel."""
    where = prefix()
    return None if where is None else where / "lib"


def cflags(where: Path) -> str:
    """Return the flags with which a compiler finds zdnn.h."""
    return f"-I{where / 'include'}"


def libs(where: Path, library: str = "zdnn") -> str:
    """Return the flags with which a linker, and the program at run time, find a library."""
    return f"-L{where / 'lib'} -Wl,-rpath,{where / 'lib'} -l{library}"
