# SPDX-License-Identifier: Apache-2.0
"""How programs of the Java SDK are built and started."""

import fcntl
import os
import subprocess
from functools import cache
from pathlib import Path

HOME = Path(__file__).parents[2] / "client/java"
# Apart from `target`, where `mvn verify` may be at work.
WORK = HOME / "target/programs"
TOOLS = ("java", "mvn")


@cache
def _classpath() -> str:
    """Compile the SDK, its testee and its examples; return where they and what they need are."""
    command = ["mvn", "-q", "-B", f"-Dwork={WORK}", "process-test-classes"]
    with (HOME / "pom.xml").open(encoding="utf-8") as only_one:  # of the processes that run tests
        fcntl.flock(only_one, fcntl.LOCK_EX)
        subprocess.run(command, cwd=HOME, check=True, stdin=subprocess.DEVNULL)
    needed = (WORK / "test.classpath").read_text(encoding="utf-8").strip()
    return os.pathsep.join([str(WORK / "test-classes"), str(WORK / "classes"), needed])


def program(main: str) -> list[str]:
    """Return the command that runs a compiled program, such as "dev.nnpa.testee.Testee"."""
    return ["java", "-cp", _classpath(), main]
