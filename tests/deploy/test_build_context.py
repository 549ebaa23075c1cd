# SPDX-License-Identifier: Apache-2.0
"""The build of the image gets the files that the Dockerfile copies, even from a used clone."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COPY = re.compile(r"^COPY (?!--from)(.+) \S+$", re.M)
USED = (
    ".git/objects/pack/pack-0.pack", ".venv/lib/python3.13/site-packages/numpy/core.so",
    "client/libzdnn/target/release/libzdnn.so", "client/typescript/node_modules/eslint/index.js",
    "client/java/target/nnpa.jar", "build/site/index.html", "client/go/nnpa", "dist/nnpa.whl",
    "emulator/nnpa_emulator/kernels/__pycache__/jit.nbi", "tests/.pytest_cache/v/lastfailed",
    "deploy/docs/index.html", ".mypy_cache/3.13/nnpa.json", "core", "models/large.onnx",
    "tests/trap/build/program", "token.txt",
)  # fmt: skip


def is_sent(path: str) -> bool:
    """Tell whether Docker sends a file: the last pattern that matches it decides."""
    sent = True
    parents = [path, *map(str, Path(path).parents)][:-1]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        if any(matches(pattern, name) for name in parents):
            sent = line.startswith("!")
    return sent


def matches(pattern: str, name: str) -> bool:
    """Tell whether a pattern is of a path: * is of one folder, **/ of any number of them."""
    if pattern.startswith("**/"):
        return fnmatchcase(name.rpartition("/")[2], pattern[3:])
    parts, names = pattern.split("/"), name.split("/")
    return len(parts) == len(names) and all(map(fnmatchcase, names, parts))


def test_what_is_copied_is_sent() -> None:
    """Every file that the Dockerfile copies reaches the build."""
    text = (ROOT / "deploy/Dockerfile").read_text()
    sources = [source for line in COPY.findall(text) for source in line.split()]
    assert len(sources) >= 12
    files = [path for source in sources for place in ROOT.glob(source)
             for path in (place.rglob("*.py") if place.is_dir() else [place])]  # fmt: skip
    assert len(files) > 500
    lost = [path for path in files if not is_sent(str(path.relative_to(ROOT)))]
    assert [path for path in lost if not {"build", "target"} & {*path.parts}] == []


@pytest.mark.parametrize("path", USED)
def test_what_a_used_clone_has_is_not_sent(path: str) -> None:
    """Environments, builds, caches and users' own files are not sent."""
    assert not is_sent(path)
