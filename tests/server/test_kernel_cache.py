# SPDX-License-Identifier: Apache-2.0
"""The cache of compiled kernels: where it is, and what is said when it cannot serve."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from nnpa_server.tuning.kernel_cache import choose

llvmlite = pytest.importorskip("llvmlite.binding", reason="no Numba here: no kernels to cache")

COMPILE = """
import os, sys
from nnpa_server.tuning.kernel_cache import choose
print(choose(os.environ))
import numpy as np
from nnpa_emulator.kernels import convert
codes = np.empty(4, np.uint16)
convert.encode_fp64(np.zeros(4, np.uint64), codes)
stats = convert.encode_fp64.stats
print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def test_the_environment_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's directory comes first, then XDG's, then the temporary one."""
    wanted, home, temporary = tmp_path / "mine", tmp_path / "xdg", tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    environment = {"NUMBA_CACHE_DIR": str(wanted), "XDG_CACHE_HOME": str(home)}
    assert choose(environment) == ""
    assert environment["NUMBA_CACHE_DIR"] == str(wanted)
    environment = {"XDG_CACHE_HOME": str(home)}
    assert choose(environment) == ""
    assert environment["NUMBA_CACHE_DIR"] == str(home / "nnpa")
    (tmp_path / "file").write_text("no directory")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "file")}
    assert choose(environment) == ""
    assert Path(environment["NUMBA_CACHE_DIR"]).parent == temporary


def compiled(cache: Path) -> list[str]:
    """Compile one kernel, or load it, in a process of its own; return what it says."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    run = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, check=True, capture_output=True, text=True
    )
    return run.stdout.splitlines()


@pytest.mark.skipif(os.getuid() != 0, reason="a bind mount makes a directory read-only to root")
def test_a_read_only_cache_is_read(tmp_path: Path) -> None:
    """Kernels of a cache that cannot be written are loaded, and that is said in one line."""
    cache = tmp_path / "kernels"
    assert compiled(cache) == ["", "0 1"]
    assert compiled(cache) == ["", "1 0"]
    script = f"mount --bind {cache} {cache} && mount -o remount,ro,bind {cache} && exec "
    command = f"{script} {sys.executable} -c '{COMPILE}'"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    run = subprocess.run(
        ["unshare", "-m", "sh", "-c", command], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if "unshare" in run.stderr or "mount:" in run.stderr:
        pytest.skip(f"no mounts here: {run.stderr.strip()}")
    notice, counts = run.stdout.splitlines()
    assert "is read-only" in notice
    assert counts == "1 0"


def test_kernels_for_other_processors_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache for features that this processor lacks is not used, and that is said in one line."""
    host = {"avx2": True, "fma": False}
    monkeypatch.setattr(llvmlite, "get_host_cpu_features", lambda: host)
    environment = {
        "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx2,+fma",
    }  # fmt: skip
    notice = choose(environment)
    assert notice == (
        "the kernel cache is for processors with fma, which this one lacks: it compiles anew"
    )
    assert environment == {"NUMBA_CACHE_DIR": str(tmp_path)}
    host["fma"] = True
    wanted = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"}
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), **wanted}
    assert choose(environment) == ""
    assert environment == {"NUMBA_CACHE_DIR": str(tmp_path), **wanted}


def test_scipy_is_left_out(tmp_path: Path) -> None:
    """A kernel is compiled and run without SciPy's linear algebra, though that is here."""
    pytest.importorskip("scipy", reason="scipy comes with the extra `check`")
    script = (
        "from nnpa_server.tuning.kernel_cache import leave_out_scipy\nleave_out_scipy()\n"
        f"{COMPILE}\nassert codes.any() == 0\nprint('scipy.linalg' in sys.modules)"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
    )
    assert run.stdout.splitlines() == ["", "0 1", "False"]
