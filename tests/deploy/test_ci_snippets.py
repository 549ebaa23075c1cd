# SPDX-License-Identifier: Apache-2.0
"""Lines for hosted CI: what they run runs, and the folder that they keep is the kernel cache."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from nnpa_server.tuning.kernel_cache import choose

TOP = Path(__file__).parents[2]
PAGE = (TOP / "deploy/docs/ci.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r'^```\w+ title="(\S+)"\n(.*?)^```$', re.M | re.S)
SNIPPETS = dict(_BLOCK.findall(PAGE))
TUTORIAL = (TOP / "deploy/docs/tutorials/fixture.md").read_text(encoding="utf-8")


def workflow() -> list[dict[str, Any]]:
    """Return the steps of the first snippet."""
    steps: list[dict[str, Any]] = yaml.safe_load(SNIPPETS[".github/workflows/telum.yml"])["jobs"][
        "test"
    ]["steps"]
    return steps


def cache(environment: dict[str, str]) -> str:
    """Return the kernel cache of a server in an environment."""
    choose(environment)
    return environment["NUMBA_CACHE_DIR"]


@pytest.mark.heavy
def test_the_first_snippet_runs(tmp_path: Path) -> None:
    """Its steps of shell test the tutorial's suite in a fresh Python, and fill the kept folder."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "python")], check=True)
    (tmp_path / "work").mkdir()
    (tmp_path / "work/nnpa").symlink_to(TOP)
    (tmp_path / "work/test_model.py").write_text(dict(_BLOCK.findall(TUTORIAL))["test_model.py"])
    environment = {
        "PATH": f"{tmp_path}/python/bin:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "PIP_CACHE_DIR": str(tmp_path / "pip"),
    }
    environment |= {name: text for name, text in os.environ.items() if name.startswith("PIP_")}
    commands = [step["run"] for step in workflow() if "run" in step]
    assert len(commands) == 2
    for command in commands:
        done = subprocess.run(
            ["bash", "-e", "-c", command], cwd=tmp_path / "work", env=environment,
            capture_output=True, text=True, check=False, timeout=1200,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    (kept,) = [step["with"]["path"] for step in workflow() if "cache" in step.get("uses", "")]
    assert list(Path(kept.replace("~", str(tmp_path / "home"))).glob("kernels-*"))


def test_the_folders_that_are_kept_are_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that each snippet names holds the kernels of a server in that job."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (kept,) = [step["with"]["path"] for step in workflow() if "cache" in step.get("uses", "")]
    assert Path(cache({})).parent == Path(kept).expanduser()
    job = yaml.safe_load(SNIPPETS[".gitlab-ci.yml"])["telum"]
    home = job["variables"]["XDG_CACHE_HOME"].replace("$CI_PROJECT_DIR", str(tmp_path))
    (path,) = job["cache"]["paths"]
    assert Path(cache({"XDG_CACHE_HOME": home})).parent == tmp_path / path
    assert 'XDG_CACHE_HOME = "${WORKSPACE}@cache"' in SNIPPETS["Jenkinsfile"]


def test_all_snippets_run_the_same() -> None:
    """Every snippet installs the same packages and runs the suite by the same commands."""
    commands = [step["run"] for step in workflow() if "run" in step]
    script = yaml.safe_load(SNIPPETS[".gitlab-ci.yml"])["telum"]["script"]
    assert script[1:] == commands
    for command in commands:
        assert f".venv/bin/{command}" in SNIPPETS["Jenkinsfile"]


def test_the_cache_is_keyed_by_what_it_is_made_of() -> None:
    """The key of the first snippet is made of every source of the kernels, and of the processor."""
    (key,) = [step["with"]["key"] for step in workflow() if "cache" in step.get("uses", "")]
    (pattern,) = re.findall(r"hashFiles\('nnpa/(\S+)'\)", key)
    hashed = {str(path) for path in TOP.glob(pattern)}
    emulator = TOP / "emulator/nnpa_emulator"
    assert {str(path) for path in (emulator / "kernels").glob("*.py")} <= hashed
    assert {str(path) for path in (emulator / "reference").glob("*.py")} <= hashed
    assert "runner.arch" in key
