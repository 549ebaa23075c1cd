# SPDX-License-Identifier: Apache-2.0
"""Models of other frameworks: the examples of the site's page run, with the named versions."""

import ast
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGE = (TOP / "deploy/docs/frameworks.md").read_text(encoding="utf-8")
VERSIONS = dict(
    line.split("==")
    for line in (TOP / ".ci/frameworks.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)
SECTIONS = {
    section.partition("\n")[0]: re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)
    for section in PAGE.split("\n## ")[1:]
}
PATHS = [
    pytest.param(block, id=f"{name}-{number}")
    for name, blocks in SECTIONS.items()
    for number, block in enumerate(blocks)
]


def imports(code: str) -> set[str]:
    """Return the packages that a block imports."""
    nodes = list(ast.walk(ast.parse(code)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in names}


def installed(name: str) -> str | None:
    """Return the version of a package, None where it is missing."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@pytest.fixture(scope="module")
def frameworks() -> None:
    """Skip where not all named versions are installed; fail if NNPA_REQUIRE_TOOLCHAINS says so."""
    differing = [name for name, number in VERSIONS.items() if installed(name) != number]
    if differing:
        reason = f"pip install -r .ci/frameworks.txt: not as named are {', '.join(differing)}"
        assert os.environ.get("NNPA_REQUIRE_TOOLCHAINS") != "1", reason
        pytest.skip(reason)


def test_each_framework_has_a_path() -> None:
    """A framework has a block that imports it and compares, and a link in the table above."""
    frameworks = {"scikit-learn": "sklearn", "JAX": "jax"}
    names = [name for name, blocks in SECTIONS.items() if blocks]
    assert names == ["scikit-learn", "LightGBM", "XGBoost", "CatBoost", "Keras", "JAX"]
    for name in names:
        assert f"| [{name}](#{name.lower()}) " in PAGE
        for block in SECTIONS[name]:
            assert {frameworks.get(name, name.lower()), "nnpa_client"} <= imports(block)
            assert re.search(r"assert np\.abs\(.* - .*\)\.max\(\) < ", block)


def test_the_page_names_the_versions_that_are_tried() -> None:
    """The versions in the table are those that .ci/full installs."""
    named = dict(re.findall(r"`([\w-]+)` (\d[\d.]*\d)", PAGE))
    assert named == VERSIONS


@pytest.mark.frameworks
@pytest.mark.usefixtures("frameworks")
@pytest.mark.parametrize("block", PATHS)
def test_a_path_runs(block: str, tmp_path: Path) -> None:
    """A block trains, converts, runs on a server of its own, and has the framework's answers."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, env=environment, capture_output=True,
        text=True, check=False, timeout=600,
    )  # fmt: skip
    assert ended.returncode == 0, f"{block}\n{ended.stdout}\n{ended.stderr}"
