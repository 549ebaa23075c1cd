# SPDX-License-Identifier: Apache-2.0
"""Long runs: a file of state from which they go on, and the background."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BACKGROUND = "--background"


def save(path: Path, text: str) -> None:
    """Write a file whole: a concurrent reader gets the previous contents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def load(path: Path | None) -> dict[str, Any]:
    """Return what a file of state holds, nothing where there is none."""
    if path is None:
        return {}
    with suppress(FileNotFoundError):
        state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return state
    return {}


def go_to_background(arguments: Sequence[str], state: Path) -> None:
    """Run the same command in the background; its output goes into a file beside its state."""
    output = state.with_name(state.name + ".log")
    state.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.hostile", *arguments]
    command.remove(BACKGROUND)
    with output.open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    print(f"process {process.pid}, state {state}, output {output}")
