# SPDX-License-Identifier: Apache-2.0
"""How programs of the Java SDK are built and started."""

import os
import subprocess
from functools import cache
from pathlib import Path

HOME = Path(__file__).parents[2] / "client/java"
TOOLS = ("java", "mvn")


@cache
def _classpath() -> str:
    """Compile the SDK, its testee and its examples; return where they and what they need are."""
    command = ["mvn", "-q", "-B", "process-test-classes"]
    subprocess.run(command, cwd=HOME, check=True, stdin=subprocess.DEVNULL)
    target = HOME / "target"
    needed = (target / "test.classpath").read_text(encoding="utf-8").strip()
    return os.pathsep.join([str(target / "test-classes"), str(target / "classes"), needed])


def program(main: str) -> list[str]:
    """Return the command that runs a compiled program, such as "dev.nnpa.testee.Testee"."""
    return ["java", "-cp", _classpath(), main]
