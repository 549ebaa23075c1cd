# SPDX-License-Identifier: Apache-2.0
"""Programs under ThreadSanitizer get no reports about the library with its suppressions."""

import subprocess
from pathlib import Path

import pytest

from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import Prefix

PROGRAMS = Path(__file__).parent / "programs"
REPORT = "WARNING: ThreadSanitizer"


@pytest.fixture(scope="module")
def program(prefix: Prefix, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight threads that use the library at once, instrumented."""
    threads = tmp_path_factory.mktemp("tsan") / "threads"
    flags = ("-std=gnu11", "-fsanitize=thread")
    return toolchain.compiled(PROGRAMS / "threads.c", threads, prefix, *flags)


def run(program: Path, server: str, options: str) -> "subprocess.CompletedProcess[str]":
    """Run the program with options of ThreadSanitizer."""
    environment = toolchain.environment(ZDNN_SERVER=server, TSAN_OPTIONS=options)
    return subprocess.run(
        [str(program)], env=environment, capture_output=True, text=True, timeout=300
    )


def test_suppressions_silence_reports_about_the_library(
    prefix: Prefix, program: Path, server: str
) -> None:
    """The installed suppressions leave no report of a program without races."""
    answer = run(program, server, f"suppressions={prefix.path}/share/zdnn/zdnn.tsan")
    assert REPORT not in answer.stderr, answer.stderr[:4000]
    assert answer.returncode == 0
    assert answer.stdout.startswith("right")


def test_suppressions_are_needed(program: Path, server: str) -> None:
    """ThreadSanitizer reports the library without them; else the file can go."""
    assert REPORT in run(program, server, "").stderr
