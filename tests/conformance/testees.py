# SPDX-License-Identifier: Apache-2.0
"""The SDKs that take part: what their testee needs, how it is built, how it is started."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests import vector_runner
from tests.conformance import java, typescript
from tests.libzdnn import toolchain
from tests.vector_runner import VECTORS

ROOT = Path(__file__).parents[2]
_PYTHONPATH = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
KNOWN_FAILING = Path(__file__).parent / "known_failing"


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


def known_failing(testee: str) -> dict[str, str]:
    """Return the vectors that a testee cannot pass, `stem/name` to reason.

    A line `*/name` stands for the vector of that name in every file that has one.
    """
    path = KNOWN_FAILING / f"{testee.removesuffix('-plain')}.txt"
    reasons: dict[str, str] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if text and not text.startswith("#"):
            pattern, _, reason = text.partition(": ")
            assert reason, f"{path.name}: {text!r}, expected `stem/name: reason`"
            for vector in _matching(pattern):
                assert vector not in reasons, f"{path.name}: {vector} twice"
                reasons[vector] = reason
    return reasons


def _matching(pattern: str) -> list[str]:
    stem, _, name = pattern.partition("/")
    if stem != "*":
        return [pattern]
    stems = [one.function for one in vector_runner.load(VECTORS) if one.line["name"] == name]
    assert stems, f"{pattern}: no vector of that name"
    return [f"{stem}/{name}" for stem in stems]
