# SPDX-License-Identifier: Apache-2.0
"""The command that messages name to add an extra, for each way of installing the package."""

import json
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from nnpa_wire.installation import pip_install

ROOT = Path(__file__).parents[2]


class Installed(metadata.Distribution):
    """A distribution with the record of where it came from, or without."""

    def __init__(self, origin: dict[str, Any] | None) -> None:
        self._origin = origin

    def read_text(self, filename: str) -> str | None:
        """Return the record, the only file that is read."""
        assert filename == "direct_url.json"
        return None if self._origin is None else json.dumps(self._origin)

    def locate_file(self, path: object) -> Any:
        """Return no file: no test locates one."""
        raise NotImplementedError


CASES: dict[str, tuple[dict[str, Any] | None, str]] = {
    "index": (None, "pip install 'nnpa[server,onnx]'"),
    "clone": ({"url": f"file://{ROOT}", "dir_info": {}}, f"pip install '{ROOT}[server,onnx]'"),
    "editable clone": (
        {"url": f"file://{ROOT}", "dir_info": {"editable": True}},
        f"pip install -e '{ROOT}[server,onnx]'",
    ),
    "clone that is gone": (
        {"url": "file:///no/such/place", "dir_info": {}},
        "pip install '.[server,onnx]' in a clone of nnpa",
    ),
    "repository": (
        {
            "url": "https://git.example.org/nnpa",
            "vcs_info": {"vcs": "git", "commit_id": "0f" * 20},
        },
        f"pip install 'nnpa[server,onnx] @ git+https://git.example.org/nnpa@{'0f' * 20}'",
    ),
    "archive": (
        {"url": "https://example.org/nnpa.whl", "archive_info": {}},
        "pip install 'nnpa[server,onnx] @ https://example.org/nnpa.whl'",
    ),
}


def record_origin(monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None) -> None:
    """Have the installed distribution record where it came from."""

    def distribution(_name: str) -> Installed:
        return Installed(origin)

    monkeypatch.setattr(metadata, "distribution", distribution)


@pytest.mark.parametrize("case", CASES)
def test_the_advice_is_true_of_the_installation(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command names the clone, the archive, the repository or the index that served it."""
    origin, command = CASES[case]
    record_origin(monkeypatch, origin)
    assert pip_install("server", "onnx") == command


def test_a_path_with_a_space_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder's name that is quoted in the record is written for a shell."""
    clone = tmp_path / "my clone"
    clone.mkdir()
    origin = {"url": clone.as_uri(), "dir_info": {}}
    record_origin(monkeypatch, origin)
    assert pip_install("otel") == f"pip install '{clone}[otel]'"


def test_no_message_and_no_manual_makes_up_a_command() -> None:
    """Nothing that users read names the package on an index, which has none yet."""
    listed = subprocess.run(
        ["git", "ls-files", "client", "server", "emulator", "protos", "deploy", "README.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    texts = [ROOT / name for name in listed.stdout.splitlines() if name.endswith((".py", ".md"))]
    pattern = re.compile(r"pip install [^\n`]*'nnpa\[")
    assert [path.name for path in texts if pattern.search(path.read_text("utf-8"))] == []
