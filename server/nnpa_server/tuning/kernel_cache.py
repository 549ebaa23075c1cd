# SPDX-License-Identifier: Apache-2.0
"""Where compiled kernels are kept, and for which processors: chosen before Numba is imported.

What is to be changed in Numba itself is left to the emulator, which imports it when it must.
"""

import importlib
import os
import tempfile
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

Environment = MutableMapping[str, str]


def choose(environment: Environment) -> str:
    """Choose the cache of compiled kernels; return what an operator should know, or nothing.

    The operator's NUMBA_CACHE_DIR, else $XDG_CACHE_HOME/nnpa or ~/.cache/nnpa, else a directory of
    this user under the temporary one. A cache that holds kernels and cannot be written, as that of
    a container image, is only read. NUMBA_CPU_NAME and NUMBA_CPU_FEATURES say for which processors
    it is; on another one it is left alone. Never fatal.
    """
    notices = [_leave_foreign_kernels(environment)]
    home = environment.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    temporary = Path(tempfile.gettempdir() if _has_temporary() else "/") / f"nnpa-{os.getuid()}"
    chosen = Path(environment.get("NUMBA_CACHE_DIR") or f"{home}/nnpa")
    for place in (chosen, temporary):
        if _is_writable(place) and (place != temporary or place.stat().st_uid == os.getuid()):
            environment["NUMBA_CACHE_DIR"] = str(place)
            break
        if place == chosen and _holds_kernels(place):
            only_read()
            notices.append(
                f"{place} is read-only: kernels that it lacks are compiled at each start"
            )
            break
    else:
        environment.pop("NUMBA_CACHE_DIR", None)
        _keep_nothing()
        notices.append("no writable directory for compiled kernels: each start compiles them anew")
    return "; ".join(filter(None, notices))


def leave_out_scipy() -> None:
    """Have Numba not import SciPy where that is installed: a third of the time to a first answer.

    Numba looks in it for linear algebra, which no kernel uses; without, it goes on as where SciPy
    is not installed. Call it before a kernel is loaded.
    """
    _replace("numba.np.linalg", ensure_blas=_refuse_blas)


def _refuse_blas() -> None:
    raise ImportError("kernels use no linear algebra of SciPy")


def _leave_foreign_kernels(environment: Environment) -> str:
    """Have Numba compile for this processor where the cache was made for one that can do more."""
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


def _keep_nothing() -> None:
    """Have Numba compile without keeping: it refuses to start where it finds no place for files."""
    _replace("numba.core.dispatcher", "Dispatcher", enable_caching=_do_nothing)


def only_read() -> None:
    """Have Numba read a cache without asking whether it could write there, and write nothing."""
    for locator in ("_CacheLocator", "UserProvidedCacheLocator"):
        _replace("numba.core.caching", locator, ensure_cache_path=_do_nothing)
    _replace("numba.core.caching", "Cache", save_overload=_do_nothing)


def _replace(module: str, owner: str = "", **names: Callable[..., None]) -> None:
    """Have names of a module of Numba, or of a class there, replaced when Numba is imported."""
    from nnpa_emulator.kernels.jit import when_loaded  # imports the emulator

    def replace() -> None:
        loaded: Any = importlib.import_module(module)
        for name, function in names.items():
            setattr(getattr(loaded, owner) if owner else loaded, name, function)

    when_loaded(replace)


def _do_nothing(*_arguments: object) -> None:
    """Stand in for a method of Numba."""


def _has_temporary() -> bool:
    """Tell whether there is a temporary directory: a read-only root may have none."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        return False
    return True


def _holds_kernels(place: Path) -> bool:
    """Tell whether Numba has kept anything in a directory."""
    return next(place.glob("**/*.nbi"), None) is not None


def _is_writable(place: Path) -> bool:
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False
