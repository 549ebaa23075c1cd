# SPDX-License-Identifier: Apache-2.0
"""The SDKs that take part: what their testee needs, how it is built, how it is started."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.conformance import java, typescript
from tests.libzdnn import toolchain

ROOT = Path(__file__).parents[2]
_PYTHONPATH = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


@dataclass(frozen=True, slots=True)
class Sdk:
    """One SDK.

    `build` gets a folder of its own, and returns the command that starts the testee. `tools` are
    programs that it takes. `unseen` are expectations that the SDK has no way to observe.
    `variables` are added to the testee's environment.
    """

    name: str
    build: Callable[[Path], list[str]]
    tools: tuple[str, ...] = ()
    unseen: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


def _python(_folder: Path) -> list[str]:
    return [sys.executable, "-m", "tests.conformance.python_testee"]


def _libzdnn(_folder: Path) -> list[str]:
    return [str(toolchain.installed().path / "bin/zdnn-testee"), "--frames", "--emulated"]


def _go(folder: Path) -> list[str]:
    testee = str(folder / "testee")
    subprocess.run(["go", "build", "-o", testee, "./testee"], cwd=ROOT / "client/go", check=True)
    return [testee]


def _java(_folder: Path) -> list[str]:
    return java.program("dev.nnpa.testee.Testee")


def _typescript(_folder: Path) -> list[str]:
    return typescript.program("testee/main.js")


SDKS = (
    Sdk("python", _python, variables={"PYTHONPATH": _PYTHONPATH}),
    Sdk(
        "libzdnn",
        _libzdnn,
        tools=("cargo", "gcc", "make"),
        unseen=frozenset(("violation", "refusal")),
    ),
    Sdk("go", _go, tools=("go",)),
    Sdk("java", _java, tools=java.TOOLS),
    Sdk("typescript", _typescript, tools=typescript.TOOLS),
)

PLAIN = tuple(
    replace(sdk, name=f"{sdk.name}-plain", variables={"ZDNN_PLAIN": "1"})
    for sdk in SDKS
    if sdk.name in ("go", "java", "typescript")
)
"""SDKs whose lists go over a stream, without it: each list is a call."""
