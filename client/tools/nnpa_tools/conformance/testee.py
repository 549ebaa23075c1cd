# SPDX-License-Identifier: Apache-2.0
"""`zdnn-testee` runs vectors through libzdnn: deploy/docs/develop/sdk-contract.md, "Testee"."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from nnpa_client._server.private_server import PrivateServer
from nnpa_client.config import environment_with
from nnpa_client.libzdnn import NOT_INSTALLED, prefix

from nnpa_tools.evaluation.cluster import node_error

_SAID = 2000  # last characters of what it wrote on standard error


class TesteeError(Exception):
    """The testee is not installed, or cannot run vectors; the text says why."""


def installed_testee() -> Path:
    """Return the program of the wheel nnpa-libzdnn; raise `TesteeError`."""
    where = prefix()
    if where is None:
        raise TesteeError(NOT_INSTALLED)
    return where / "bin/zdnn-testee"


def vectors_of(file: Path) -> tuple[str, bytes]:
    """Return a file's function, which is its name, and its contents, for `run_vectors`."""
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


class NodeTestee:
    """A server at which a node's testee runs vectors."""

    def __init__(self) -> None:
        try:
            self._program = installed_testee()
        except TesteeError as error:
            raise node_error(error, "every node needs it") from error
        self._server = PrivateServer()

    def __call__(self, piece: tuple[str, bytes]) -> bytes:
        """Return the testee's answers to a function's vectors."""
        try:
            return run_vectors(self._program, self._server.target, *piece, environment_with({}))
        except (OSError, TesteeError) as error:
            raise node_error(error, f"vectors of {piece[0]}") from error
