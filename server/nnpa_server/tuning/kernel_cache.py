# SPDX-License-Identifier: Apache-2.0
"""Choose the folder of compiled kernels and their processors, before Numba is imported.

Kernels are kept under a digest of all their sources: clones and environments with the same sources
share them, and a change of any source compiles them again. The server runs the code in the cache,
so the folder belongs to this user alone.

The emulator applies changes to Numba itself when it imports it.
"""

import fcntl
import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Generator, MutableMapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

Environment = MutableMapping[str, str]

_PREFIX = "kernels-"
_OLD_NAME = re.compile(r"kernels[-_][0-9a-f]{16,40}")  # Numba's own folders have an underscore
_KEPT, _KEPT_SECONDS = 3, 7 * 86400.0
# What kernels are made of; the reference and the formats have constants that they hold.
_SOURCES = ("kernels/*.py", "reference/*.py", "dlfloat.py", "ztensor.py")


def choose(environment: Environment) -> str:
    """Choose the cache of compiled kernels; return a note for the operator, or "". Never fatal.

    It is NUMBA_CACHE_DIR, else a folder in $XDG_CACHE_HOME/nnpa or ~/.cache/nnpa, else one of this
    user in the temporary directory. A cache with kernels that cannot be written, as in a container
    image, is only read. NUMBA_CPU_NAME and NUMBA_CPU_FEATURES name its processors; another
    processor does not use it.
    """
    notices = [_leave_foreign_kernels(environment)]
    key = key_by_sources()
    if not (named := environment.get("NUMBA_CACHE_DIR")):
        home = environment.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
        place = _own_folder(Path(home) / "nnpa", key)
    elif _is_writable(Path(named)):
        place = Path(named).absolute()  # Numba may look after a change of directory
    elif has_kernels(Path(named)):
        only_read()
        if not _complete_mark(Path(named), key).exists():
            notices.append(
                f"{named} is read-only: kernels that it lacks are compiled at each start"
            )
        return "; ".join(filter(None, notices))
    else:
        place = None
    if place is None:
        with suppress(FileNotFoundError):  # a read-only root may have no temporary directory
            place = _own_folder(Path(tempfile.gettempdir()) / f"nnpa-{os.getuid()}", key)
    if place is not None:
        environment["NUMBA_CACHE_DIR"] = str(place)
    else:
        environment.pop("NUMBA_CACHE_DIR", None)
        # Numba would refuse to start without a place for files.
        _replace("numba.core.dispatcher", "Dispatcher", enable_caching=_do_nothing)
        notices.append("no writable directory for compiled kernels: each start compiles them anew")
    return "; ".join(filter(None, notices))


def mark_complete(place: Path) -> None:
    """Write the file that marks a cache as complete for these sources."""
    _complete_mark(place, sources_digest()).touch()


@contextmanager
def one_compiler(place: Path) -> Generator[None]:
    """Hold the lock of a cache, so that one process at a time compiles into it."""
    with (place / "compiler.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def has_kernels(place: Path) -> bool:
    """Return True if a directory has compiled kernels of Numba."""
    return next(place.glob("**/*.nbi"), None) is not None


def _complete_mark(place: Path, key: str) -> Path:
    return place / f"{key}.complete"


def key_by_sources() -> str:
    """Make Numba key kernels by a digest of all their sources, not by paths; return the digest.

    Processes that compile at the same time save in turn. Call it before a kernel is loaded.
    """
    key = sources_digest()
    locator = "UserProvidedCacheLocator"

    def stamp(_locator: object) -> str:
        return key

    def folder(_path: str) -> str:
        return "kernels"

    _replace("numba.core.caching", locator, get_source_stamp=stamp)
    _replace("numba.core.caching", locator, get_suitable_cache_subpath=staticmethod(folder))
    _lock_saves()
    return key


@cache
def _lock_saves() -> None:
    """Make processes save kernels in turn. Only the first call has an effect: locks do not nest.

    Numba reads an index, adds a kernel and writes the index: two processes at a time would lose a
    kernel, or give two kernels the same file.
    """
    from nnpa_emulator.kernels.jit import when_loaded  # imports the emulator

    def adjust() -> None:
        files: Any = importlib.import_module("numba.core.caching").IndexDataCacheFile
        save = files.save

        def locked(file: Any, key: object, kernel: object) -> None:
            with (Path(file._cache_path) / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                save(file, key, kernel)

        files.save = locked

    when_loaded(adjust)


def sources_digest() -> str:
    """Return a digest of the kernels' sources and the versions of Numba, llvmlite and Python."""
    spec = importlib.util.find_spec("nnpa_emulator")
    digest = hashlib.sha256(sys.version.encode())
    for name in ("numba", "llvmlite"):
        with suppress(metadata.PackageNotFoundError):
            digest.update(f"{name} {metadata.version(name)}".encode())
    for root in spec.submodule_search_locations or () if spec is not None else ():
        for path in sorted(path for pattern in _SOURCES for path in Path(root).glob(pattern)):
            digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _own_folder(base: Path, key: str) -> Path | None:
    """Return this user's folder for kernels of a key, created if needed; None if it cannot be used.

    A base folder of another user, or a symbolic link, is not used.
    """
    place = base / f"{_PREFIX}{key}"
    try:
        is_new = not place.exists()
        if not (_is_writable(base) and _is_private(base)):
            return None
        if not (_is_writable(place) and _is_private(place)):
            return None
        os.utime(place)  # says when it was used last
        if is_new:
            _prune(base, place)
    except OSError:
        return None
    return place


def _is_private(folder: Path) -> bool:
    """Return True if a folder was always this user's alone; remove access for all others."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        return False
    if status.st_mode & 0o022 and any(folder.iterdir()):
        return False  # somebody else may have put something there
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return True


def _prune(base: Path, current: Path) -> None:
    """Remove the folders of kernels that were not used for a week, except the last few."""
    old = [place for place in base.iterdir() if _OLD_NAME.fullmatch(place.name)]
    by_use = sorted(old, key=lambda place: place.stat().st_mtime, reverse=True)
    for place in by_use[_KEPT:]:
        if place != current and time.time() - place.stat().st_mtime > _KEPT_SECONDS:
            shutil.rmtree(place, ignore_errors=True)


def leave_out_scipy() -> None:
    """Keep Numba from importing SciPy, which takes a third of the time to a first answer.

    Numba looks there for linear algebra, which no kernel uses, and works without it. Call it before
    a kernel is loaded.
    """
    _replace("numba.np.linalg", ensure_blas=_refuse_blas)


def _refuse_blas() -> None:
    raise ImportError("kernels use no linear algebra of SciPy")


def _leave_foreign_kernels(environment: Environment) -> str:
    """Compile for this processor if the cache is for processors with more features."""
    features = environment.get("NUMBA_CPU_FEATURES", "")
    required = [name[1:] for name in features.split(",") if name.startswith("+")]
    if not required:
        return ""
    binding: Any = importlib.import_module("llvmlite.binding")
    host: dict[str, bool] = binding.get_host_cpu_features()
    missing = [name for name in required if not host.get(name)]
    if not missing:
        return ""
    for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
        environment.pop(name, None)
    lacks = ", ".join(missing)
    return (
        f"the kernel cache is for processors with {lacks}, which this one lacks: it compiles anew"
    )


def only_read() -> None:
    """Make Numba read a cache without a check for write access, and write nothing."""
    for locator in ("_CacheLocator", "UserProvidedCacheLocator"):
        _replace("numba.core.caching", locator, ensure_cache_path=_do_nothing)
    _replace("numba.core.caching", "Cache", save_overload=_do_nothing)


def _replace(module: str, owner: str = "", **names: Callable[..., object]) -> None:
    """Replace names of a module or class of Numba when Numba is imported."""
    from nnpa_emulator.kernels.jit import when_loaded  # imports the emulator

    def replace() -> None:
        loaded: Any = importlib.import_module(module)
        for name, function in names.items():
            setattr(getattr(loaded, owner) if owner else loaded, name, function)

    when_loaded(replace)


def _do_nothing(*_arguments: object) -> None:
    """Do nothing, in place of a method of Numba."""


def _is_writable(place: Path) -> bool:
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False
