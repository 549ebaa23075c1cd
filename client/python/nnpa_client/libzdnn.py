# SPDX-License-Identifier: Apache-2.0
"""Where the C library is, for compilers and build systems."""

import importlib
from pathlib import Path

_PACKAGE = "nnpa_libzdnn"
NOT_INSTALLED = (
    "libzdnn is not installed: pip install client/libzdnn/wheel in a clone of nnpa, "
    "which takes Rust and a C compiler"
)


def prefix() -> Path | None:
    """Return the folder with include/ and lib/ of the wheel nnpa-libzdnn, None without it."""
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
    """Return what a compiler needs to find zdnn.h."""
    return f"-I{where / 'include'}"


def libs(where: Path, library: str = "zdnn") -> str:
    """Return what a linker needs, and the program at run time."""
    return f"-L{where / 'lib'} -Wl,-rpath,{where / 'lib'} -l{library}"
