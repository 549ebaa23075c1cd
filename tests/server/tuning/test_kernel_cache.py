# SPDX-License-Identifier: Apache-2.0
"""The cache of compiled kernels: its place, and the notices when it cannot serve."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nnpa_emulator
import pytest
from nnpa_server.tuning.kernel_cache import choose, mark_complete, sources_digest

from tests.server.process import PATIENCE

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
    chosen, home, temporary = tmp_path / "mine", tmp_path / "xdg", tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    environment = {"NUMBA_CACHE_DIR": str(chosen), "XDG_CACHE_HOME": str(home)}
    assert choose(environment) == ""
    assert environment["NUMBA_CACHE_DIR"] == str(chosen)
    monkeypatch.chdir(tmp_path)
    environment = {"NUMBA_CACHE_DIR": chosen.name}
    assert choose(environment) == ""
    assert environment["NUMBA_CACHE_DIR"] == str(chosen)
    environment = {"XDG_CACHE_HOME": str(home)}
    assert choose(environment) == ""
    assert environment["NUMBA_CACHE_DIR"] == str(home / f"nnpa/kernels-{sources_digest()}")
    (tmp_path / "file").write_text("no directory")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "file")}
    assert choose(environment) == ""
    assert Path(environment["NUMBA_CACHE_DIR"]).parent.parent == temporary


def test_the_cache_is_this_users_alone(tmp_path: Path) -> None:
    """A folder that others may enter is closed; one that they may have filled is not used."""
    base = tmp_path / "nnpa"
    base.mkdir(mode=0o777)
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    choose(environment)
    place = Path(environment["NUMBA_CACHE_DIR"])
    assert [folder.stat().st_mode & 0o777 for folder in (base, place)] == [0o700, 0o700]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/nnpa").symlink_to(base)
    (tmp_path / "open/nnpa/kernels-0").mkdir(parents=True)
    (tmp_path / "open/nnpa").chmod(0o777)
    environment = {"XDG_CACHE_HOME": str(tmp_path / "open")}
    choose(environment)
    assert str(tmp_path / "open") not in environment["NUMBA_CACHE_DIR"]
    environment = {"XDG_CACHE_HOME": str(tmp_path / "elsewhere")}
    choose(environment)
    assert str(tmp_path / "elsewhere") not in environment["NUMBA_CACHE_DIR"]


def test_the_key_follows_from_the_sources(tmp_path: Path) -> None:
    """A copy of the emulator elsewhere has the same key, and another one when a kernel changes."""
    copy = tmp_path / "nnpa_emulator"
    shutil.copytree(Path(nnpa_emulator.__path__[0]), copy)
    assert digest_at(tmp_path) == sources_digest()
    with (copy / "kernels/convert.py").open("a") as kernel:
        kernel.write("# changed\n")
    assert digest_at(tmp_path) != sources_digest()


def digest_at(folder: Path) -> str:
    """Return the key of the emulator in a folder."""
    code = (
        "from nnpa_server.tuning.kernel_cache import sources_digest as d\n"
        "import nnpa_emulator as e\n"
        f"assert e.__path__[0].startswith({str(folder)!r}); print(d())"
    )
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    return run.stdout.strip()


@pytest.mark.heavy
def test_a_copy_of_the_sources_compiles_nothing(tmp_path: Path) -> None:
    """Kernels that one clone has compiled are loaded by another with the same sources."""
    shutil.copytree(Path(nnpa_emulator.__path__[0]), tmp_path / "clone/nnpa_emulator")
    cache = tmp_path / "kernels"
    assert compiled(cache) == ["", "0 1"]
    environment = {
        **os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(tmp_path / "clone"),
    }  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, check=True, capture_output=True, text=True
    )
    assert run.stdout.splitlines() == ["", "1 0"]


def test_old_kernels_are_removed(tmp_path: Path) -> None:
    """Folders unused for a week go when new ones are made, but the last three, and nothing else."""
    base, now = tmp_path / "nnpa", time.time()
    days = {"a": 30, "b": 20, "c": 10, "d": 9, "e": 8, "f": 1}
    for name, age in days.items():
        (base / f"kernels-{name * 16}").mkdir(parents=True)
        used = now - 86400 * age
        os.utime(base / f"kernels-{name * 16}", (used, used))
    (base / "models").mkdir()
    os.utime(base / "models", (0, 0))
    choose({"XDG_CACHE_HOME": str(tmp_path)})
    left = {place.name for place in base.iterdir()}
    kept = {f"kernels-{name * 16}" for name in "ef"} | {"models", f"kernels-{sources_digest()}"}
    assert left == kept


def compiled(cache: Path) -> list[str]:
    """Compile one kernel, or load it, in a process of its own; return its report."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    run = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, check=True, capture_output=True, text=True
    )
    return run.stdout.splitlines()


@pytest.mark.heavy
@pytest.mark.skipif(os.getuid() != 0, reason="a bind mount makes a directory read-only to root")
def test_a_read_only_cache_is_read(tmp_path: Path) -> None:
    """Kernels of a cache that cannot be written are loaded; one that may lack some says so."""
    cache = tmp_path / "kernels"
    assert compiled(cache) == ["", "0 1"]
    assert compiled(cache) == ["", "1 0"]
    notice, counts = compiled_read_only(cache)
    assert "is read-only" in notice
    assert counts == "1 0"
    mark_complete(cache)
    assert compiled_read_only(cache) == ["", "1 0"]


def compiled_read_only(cache: Path) -> list[str]:
    """Do as `compiled` where the cache cannot be written."""
    script = f"mount --bind {cache} {cache} && mount -o remount,ro,bind {cache} && exec "
    command = f"{script} {sys.executable} -c '{COMPILE}'"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    run = subprocess.run(
        ["unshare", "-m", "sh", "-c", command], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if "unshare" in run.stderr or "mount:" in run.stderr:
        pytest.skip(f"no mounts here: {run.stderr.strip()}")
    return run.stdout.splitlines()


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
    processor = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"}
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), **processor}
    assert choose(environment) == ""
    assert environment == {"NUMBA_CACHE_DIR": str(tmp_path), **processor}


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


@pytest.mark.heavy
def test_kernels_are_compiled_first_and_once(tmp_path: Path) -> None:
    """`--compile-first` tells its steps before the server listens, and takes them once."""
    command = [sys.executable, "-m", "nnpa_server", "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("NUMBA_CACHE_DIR", None)
    firsts: list[list[str]] = []
    for _ in range(2):
        with subprocess.Popen(
            [*command, "--compile-first=add,relu", "--exit-with-parent"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment, text=True,
        ) as server:  # fmt: skip
            assert server.stdout is not None
            lines = [server.stdout.readline().strip()]
            while "listening" not in lines[-1]:
                lines.append(server.stdout.readline().strip())
            firsts.append(lines[:-1])
            server.terminate()
    steps = [f"nnpa-server compiling {done} of 2" for done in range(3)]
    assert firsts == [steps, []]


@pytest.mark.heavy
@pytest.mark.shortcut
def test_a_process_that_chooses_twice_saves_kernels(tmp_path: Path) -> None:
    """Choosing the cache again, as a second server in a process does, leaves saves as they are."""
    code = """
import numpy as np
from nnpa_server.config import kernel_cache
kernel_cache(), kernel_cache()
from nnpa_emulator.kernels import comparison
comparison.classes(np.zeros(8, np.float32), np.zeros(2, np.int64))
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, timeout=PATIENCE, check=True)
    assert list(tmp_path.rglob("*.nbi"))
