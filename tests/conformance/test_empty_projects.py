# SPDX-License-Identifier: Apache-2.0
"""An empty project of Java, as the SDK's README makes one from a clone.

Those of Go and TypeScript are tests of these SDKs: client/go, client/typescript.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conformance import java

ROOT = Path(__file__).parents[2]
README = java.HOME / "README.md"
SECONDS = 900


def _block(language: str) -> str:
    """Return the first block of a language in the README."""
    block = re.search(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None, language
    return block[1]


@pytest.mark.conformance
def test_an_empty_project_of_java_runs_the_first_program(server: str, tmp_path: Path) -> None:
    """The README's commands install the SDK from a clone, and run its first program with it."""
    if missing := [tool for tool in java.TOOLS if shutil.which(tool) is None]:
        message = f"an empty project of Java: {', '.join(missing)} not installed"
        (pytest.fail if os.environ.get("NNPA_REQUIRE_TOOLCHAINS") == "1" else pytest.skip)(message)
    (tmp_path / "pom.xml").write_text(_block("xml"), encoding="utf-8")
    program = tmp_path / "src/main/java/Example.java"
    program.parent.mkdir(parents=True)
    program.write_text(_block("java"), encoding="utf-8")
    commands = re.findall("^    (mvn .*)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    output = ""
    for command in commands:
        words = command.replace("/path/to/nnpa", str(ROOT)).replace("localhost:50051", server)
        run = subprocess.run(
            words.split(), cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS
        )
        assert run.returncode == 0, run.stdout + run.stderr
        output = run.stdout
    assert len(commands) == 2
    assert "[2.0, 4.0, 6.0, 8.0]" in output
