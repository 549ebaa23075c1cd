# SPDX-License-Identifier: Apache-2.0
"""Replays of traces on the nodes of a cluster."""

from pathlib import Path
from tempfile import TemporaryDirectory

from nnpa_client.connection import ConnectOptions, open_transport
from nnpa_client.trace import read

from nnpa_tools.traces.replay import play


class Replayer:
    """A worker with its own server; `machine` and `library`, if any, replace the traces'."""

    def __init__(self, machine: str | None, library: str | None) -> None:
        self._machine, self._library = machine, library
        self._transport, self._server = open_transport(ConnectOptions())

    def __call__(self, trace: bytes) -> bytes:
        """Return the trace of a trace's replay."""
        with TemporaryDirectory(prefix="nnpa-") as folder:
            recorded, replayed = Path(folder) / "recorded", Path(folder) / "replayed"
            recorded.write_bytes(trace)
            play(read(recorded), self._transport, replayed, self._machine, self._library)
            return replayed.read_bytes()
