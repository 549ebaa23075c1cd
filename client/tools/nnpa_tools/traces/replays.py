# SPDX-License-Identifier: Apache-2.0
"""Replays of traces on the nodes of a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from nnpa_client.connection import ConnectOptions, open_transport
from nnpa_client.trace import read

from nnpa_tools.traces.replay import play


@dataclass(frozen=True, slots=True)
class ReplayWork:
    """Traces to replay, and the machine and library that replace the traces', or None."""

    files: Sequence[Path]
    machine: str | None
    library: str | None

    def __len__(self) -> int:
        return len(self.files)

    def piece(self, number: int) -> bytes:
        """Return a trace."""
        return self.files[number].read_bytes()

    def begin(self) -> "_Player":
        """Return a worker that returns the trace of a replay."""
        return _Player(self.machine, self.library)


class _Player:
    """A worker that replays traces at its own server."""

    def __init__(self, machine: str | None, library: str | None) -> None:
        self._machine, self._library = machine, library
        self._transport, self._server = open_transport(ConnectOptions())

    def __call__(self, trace: bytes) -> bytes:
        with TemporaryDirectory(prefix="nnpa-") as folder:
            recorded, replayed = Path(folder) / "recorded", Path(folder) / "replayed"
            recorded.write_bytes(trace)
            play(read(recorded), self._transport, replayed, self._machine, self._library)
            return replayed.read_bytes()
