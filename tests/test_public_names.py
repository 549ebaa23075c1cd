# SPDX-License-Identifier: Apache-2.0
"""Names that programs and people rely on may come, and never go."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.public_names import ROOT, exported, names_of, promised

HOW_TO_ADD = "python -m tests.public_names > tests/public_names.txt"
_IMPORT = re.compile(
    r"\bfrom ((?:nnpa|mli)_[\w.]+) import (?:\(([^)]*)\)|(.*))|\bimport ((?:nnpa|mli)_[\w.]+)"
)
_MENTION = re.compile(r"\bnnpa_(?:client|jobs)(?:\.[A-Za-z]\w*)+")
_DEFINITION = """
class Kept:
    def __init__(self, size, *, limit=3): self.size = size
    def grow(self, by=1): ...
    def __call__(self, value): ...
def make(size): ...
LIMIT = 3
"""
_FORWARDS = """
from importlib import import_module
__all__ = ["LIMIT", "Kept", "make"]
def __getattr__(name): return getattr(import_module("nnpa_new_home"), name)
"""


@pytest.fixture(scope="module")
def names() -> set[str]:
    """Return the tool's list, from a process that can import the torch room without PyTorch."""
    command = [sys.executable, "-m", "tests.public_names"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return {line for line in ended.stdout.splitlines() if not line.startswith("#")}


def test_no_public_name_is_lost(names: set[str]) -> None:
    """Every promised name, parameter and value is still what it was."""
    missing = sorted(promised() - names)
    assert not missing, "no longer there, or changed:\n" + "\n".join(missing)


def test_new_public_names_are_promised(names: set[str]) -> None:
    """A new name joins the list, so that it cannot be lost either."""
    added = sorted(names - promised())
    assert not added, f"new; `{HOW_TO_ADD}` promises:\n" + "\n".join(added)


def test_forwarded_names_are_promised_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that moved and is forwarded lazily has the same lines as at its first place."""
    (tmp_path / "nnpa_new_home.py").write_text(_DEFINITION)
    (tmp_path / "nnpa_old_home.py").write_text(_FORWARDS)
    monkeypatch.syspath_prepend(tmp_path)
    old_home = import_module("nnpa_old_home")
    lines = names_of(old_home, exported(old_home))
    assert {line.removeprefix("python nnpa_old_home.") for line in lines} == {
        "LIMIT", "LIMIT = 3", "make", "make(size) 0", "Kept", "Kept(size) 0", "Kept(limit=3)",
        "Kept.size", "Kept.grow", "Kept.grow(by=1) 1", "Kept.__call__", "Kept.__call__(value) 1",
    }  # fmt: skip


def documents() -> Iterator[tuple[str, str]]:
    """Yield pages, notebooks and examples.

    The changelog may name modules that are gone, and pages for developers inner ones.
    """
    left_out = (":!CHANGELOG.md", ":!deploy/docs/develop/*")
    kinds = ("*.md", "*.ipynb", "client/python/examples/*.py", *left_out)
    listed = subprocess.run(
        ["git", "ls-files", *kinds], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        text = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".ipynb"):
            text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
        yield name, text


def documented(text: str) -> Iterator[str]:
    """Yield the modules and names of this project that a document imports or mentions."""
    for module, several, rest, plain in _IMPORT.findall(text):
        yield plain or module
        for entry in (several or rest).split(","):
            if name := re.match(r"\s*(\w+)", entry):
                yield f"{module}.{name[1]}"
    yield from _MENTION.findall(text)


def test_what_documents_name_is_promised() -> None:
    """Modules and names that a page, a notebook or an example uses are on the list."""
    public = {
        line.partition(" ")[2] for line in promised() if line.startswith(("import", "python"))
    }
    unpromised = {
        f"{path}: {name}"
        for path, text in documents()
        for name in documented(text)
        if name not in public
    }
    assert not unpromised


def test_the_plugin_of_pytest_loads_no_numpy() -> None:
    """Every run of pytest imports the plugin: it brings neither NumPy nor gRPC nor protobuf."""
    code = "import sys, nnpa_client.pytest_plugin; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "grpc", "google.protobuf", "nnpa_client.session"}
    assert not heavy & set(ended.stdout.split())


def test_the_wire_keeps_its_promise() -> None:
    """`buf breaking` finds nothing in the contract that `baseline.binpb` does not allow."""
    buf = Path(sys.executable).with_name("buf")
    breaking = [str(buf), "breaking", "--against", "baseline.binpb"]
    result = subprocess.run(breaking, cwd=ROOT / "protos", capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
