# SPDX-License-Identifier: Apache-2.0
"""`zdnn-testee`, which runs vectors through libzdnn: `client/README.md`, "Testee"."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from nnpa_client.libzdnn import NOT_INSTALLED, prefix

_SAID = 2000  # last characters of what it wrote on standard error


class TesteeError(Exception):
    """The testee is not there, or cannot run vectors; the text says why."""


def installed_testee() -> Path:
    """Return the program of the wheel nnpa-libzdnn; raise `TesteeError`."""
    where = prefix()
    if where is None:
        raise TesteeError(NOT_INSTALLED)
    return where / "bin/zdnn-testee"


def vectors_of(file: Path) -> tuple[str, bytes]:
    """Return what `run_vectors` takes of a file: the function, by its name, and its contents."""
    return file.name.partition(".")[0], file.read_bytes()


def run_vectors(
    testee: Path, target: str, function: str, vectors: bytes, environment: Mapping[str, str]
) -> bytes:
    """Return the answers, JSON lines, to a function's vectors at a server; raise `TesteeError`."""
    command = [str(testee), "--server", target, "--file", function]
    answered = subprocess.run(
        command, input=vectors, capture_output=True, env=environment, check=False
    )
    if answered.returncode:
        raise TesteeError(answered.stderr.decode(errors="replace")[-_SAID:])
    return answered.stdout
