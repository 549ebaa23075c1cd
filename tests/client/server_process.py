# SPDX-License-Identifier: Apache-2.0
"""A real `nnpa-server` process for tests, on the listeners that they ask for."""

import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from tests.server.process import PLAIN_FLAGS

_READY = "nnpa-server listening on "


@contextmanager
def serving(listen: Sequence[str], *flags: str) -> Generator[list[str]]:
    """Run a server, yield the addresses of its ready lines, and end it."""
    command = [sys.executable, "-m", "nnpa_server", "--exit-with-parent", *PLAIN_FLAGS, *flags]
    for address in listen:
        command += ["--listen", address]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        output = process.stdout
        assert output is not None
        try:
            lines = [output.readline() for _ in listen]
            assert all(line.startswith(_READY) for line in lines), lines
            yield [line.removeprefix(_READY).strip() for line in lines]
        finally:
            process.terminate()
            process.wait(30)
