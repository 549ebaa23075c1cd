# SPDX-License-Identifier: Apache-2.0
"""Independent pieces of work on a cluster: runs under faults, traces, files of vectors.

Each worker has a private server on its own node. Programs are those of the node; traces and vectors
travel by value, as answers do.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from nnpa_client._server.private_server import PrivateServer
from nnpa_client.config import environment_with
from nnpa_client.connection import Reach, open_transport
from nnpa_client.trace import read
from nnpa_network.reporting.records import encode

from nnpa_tools.conformance.testee import TesteeError, installed_testee, run_vectors, vectors_of
from nnpa_tools.evaluation.cluster import RayCluster, Worker, node_error
from nnpa_tools.evaluation.rows import Rows, partition
from nnpa_tools.evaluation.survival import MAX_DEATHS, Done, Survival
from nnpa_tools.faults.sweep import Program, Site, Unusable
from nnpa_tools.traces.replay import play

_CONNECT_SECONDS = 10.0
_HAS_PROGRAM = "every node needs the program, under the same path"


class Work(Protocol):
    """Pieces of work, each a row, and what does them."""

    def __len__(self) -> int: ...

    def piece(self, rows: Rows) -> object:
        """Return what a worker is given."""
        ...

    def begin(self) -> Worker[bytes]:
        """Return a worker on its node; raise `ClusterError`."""
        ...


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of a program in which a call answers a status; without faults it makes `calls`."""

    program: Program
    calls: list[list[str]]
    sites: list[Site]
    statuses: list[int]

    def __len__(self) -> int:
        return len(self.sites) * len(self.statuses)

    def piece(self, rows: Rows) -> tuple[Site, int]:
        """Return a call and its status."""
        site, status = divmod(rows.first, len(self.statuses))
        return self.sites[site], self.statuses[status]

    def begin(self) -> Worker[bytes]:
        """Return what answers with trials, as JSON."""
        return _Runner(self)


class _Runner:
    """A server at which the program of a node runs."""

    def __init__(self, runs: Runs) -> None:
        self._kept = ExitStack()
        try:
            self._bench = self._kept.enter_context(runs.program.bench())
        except (OSError, Unusable) as error:
            raise node_error(error, _HAS_PROGRAM) from error
        if list(map(list, self._bench.clean.calls)) != runs.calls:
            text = "without faults the program makes other calls than where the sweep began"
            raise node_error(text, _HAS_PROGRAM)

    def __call__(self, piece: tuple[Site, int]) -> bytes:
        return json.dumps(encode(self._bench.attempt(*piece))).encode()


@dataclass(frozen=True, slots=True)
class Replays:
    """Traces that run again, on another machine or library where one is named."""

    files: list[str]
    machine: str | None
    library: str | None

    def __len__(self) -> int:
        return len(self.files)

    def piece(self, rows: Rows) -> bytes:
        """Return a trace."""
        return Path(self.files[rows.first]).read_bytes()

    def begin(self) -> Worker[bytes]:
        """Return what answers with the trace of a replay."""
        return _Player(self)


class _Player:
    """A server at which traces run."""

    def __init__(self, replays: Replays) -> None:
        self._replays = replays
        reach = Reach(None, None, None, None, None, None, _CONNECT_SECONDS)
        self._transport, self._server = open_transport(reach)

    def __call__(self, piece: bytes) -> bytes:
        with TemporaryDirectory(prefix="nnpa-") as folder:
            recorded, replayed = Path(folder) / "recorded", Path(folder) / "replayed"
            recorded.write_bytes(piece)
            chosen = (self._replays.machine, self._replays.library)
            play(read(recorded), self._transport, replayed, *chosen)
            return replayed.read_bytes()


@dataclass(frozen=True, slots=True)
class Vectors:
    """Files of vectors for zdnn-testee."""

    files: list[str]

    def __len__(self) -> int:
        return len(self.files)

    def piece(self, rows: Rows) -> tuple[str, bytes]:
        """Return a function and its vectors."""
        return vectors_of(Path(self.files[rows.first]))

    def begin(self) -> Worker[bytes]:
        """Return what answers with lines of the testee."""
        return _Testee()


class _Testee:
    """A server at which a node's testee runs vectors."""

    def __init__(self) -> None:
        try:
            self._program = installed_testee()
        except TesteeError as error:
            raise node_error(error, "every node needs it") from error
        self._server = PrivateServer()

    def __call__(self, piece: tuple[str, bytes]) -> bytes:
        try:
            return run_vectors(self._program, self._server.target, *piece, environment_with({}))
        except (OSError, TesteeError) as error:
            raise node_error(error, f"vectors of {piece[0]}") from error


@dataclass(frozen=True, slots=True)
class Request:
    """The only work that is not None, for the cluster at `ray`, `jobs` pieces at a time.

    Answers go to files of `folder`, whose names are the numbers of pieces.
    """

    ray: str
    jobs: int | None
    folder: str
    runs: Runs | None
    replays: Replays | None
    vectors: Vectors | None

    def work(self) -> Work:
        """Return the work; raise ValueError where there is none."""
        for work in (self.runs, self.replays, self.vectors):
            if work is not None:
                return work
        raise ValueError("no work")


def work_on_cluster(request: Request, progress: Callable[[int, int], None]) -> dict[str, object]:
    """Have a cluster do all pieces; return how many, and why some are lost, by number.

    Raise ValueError, `TransportError` where a server refuses a piece.
    """
    work, lost, folder = request.work(), dict[int, str](), Path(request.folder)
    with RayCluster(request.ray, request.jobs, work.begin, work.piece) as cluster:
        parts = partition(len(work), size=1) if len(work) else []
        for done, outcome in enumerate(Survival(cluster, 1, parts).outcomes(), 1):
            number = outcome.rows.first
            if isinstance(outcome, Done):
                (folder / str(number)).write_bytes(outcome.result)
            else:
                lost[number] = f"it ended {MAX_DEATHS} workers, the last by {outcome.why}"
            progress(done, len(work))
    return {"pieces": len(work), "lost": lost}
