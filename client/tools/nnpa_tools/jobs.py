# SPDX-License-Identifier: Apache-2.0
"""A job on all cores, or on a cluster: `python -m nnpa_tools.evaluation` as a child process."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from nnpa_client.config import environment_with
from nnpa_client.errors import TransportError

Progress = Callable[[int, int], None]
"""Is told how many of how many are done: rows of an evaluation, pieces of other work."""
_LAST_LINES, _STOP_SECONDS = 3, 10.0


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What an evaluation answers: its report as JSON and for people, and what is not in it."""

    json: str
    text: str
    html: str
    incomplete: str


def evaluate_rows(job: Mapping[str, Any], progress: Progress) -> Evaluated:
    """Have a child process do an evaluation, whose fields are those of `nnpa_tools.evaluation`.

    Raise ValueError for what does not fit, `TransportError` for a model that cannot be hosted, or a
    child that ends early.
    """
    return Evaluated(**_last_line({"evaluation": job}, progress))


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster by its address; `jobs` pieces at a time, None: two for each CPU."""

    address: str
    jobs: int | None

    def answers(
        self, kind: str, work: Mapping[str, Any], progress: Progress | None = None
    ) -> Iterator[Path | str]:
        """Have workers do the pieces of a kind of work, with the fields of `independent`.

        Yield for each piece, in order, a file with its answer, which is there until the next is
        taken, or why it ended every worker that had it. Raise ValueError for a cluster or a node
        that cannot do it, `TransportError` as a server's.
        """
        with tempfile.TemporaryDirectory(prefix="nnpa-") as folder:
            place = {"ray": self.address, "jobs": self.jobs, "folder": folder}
            job = {**place, **dict.fromkeys(("runs", "replays", "vectors")), kind: work}
            done = _last_line({"pieces": job}, progress or _ignore)
            for number in range(done["pieces"]):
                file = Path(folder) / str(number)
                yield done["lost"].get(str(number), file)
                file.unlink(missing_ok=True)


def _ignore(_done: int, _of: int) -> None:
    """Take no notice of progress."""


def _last_line(job: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Return what a child answers at last; raise ValueError, `TransportError`."""
    with tempfile.TemporaryFile() as log:
        for line in _lines(job, log):
            if "done" in line:
                progress(line["done"], line["of"])
            elif "failed" in line:
                raise TransportError(**line["failed"])
            elif "invalid" in line:
                raise ValueError(line["invalid"])
            else:
                return line
        log.seek(0)
        tail = log.read().decode(errors="replace").strip().splitlines()[-_LAST_LINES:]
    raise TransportError("UNAVAILABLE", f"the job ended early: {' / '.join(tail)}.")


def _lines(job: Mapping[str, Any], log: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the child's answers; it ends when nobody takes them any more."""
    command = [sys.executable, "-m", "nnpa_tools.evaluation"]
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,
        env=environment_with({"RAY_USAGE_STATS_ENABLED": "0"}),
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        with child.stdin, child.stdout:
            child.stdin.write(json.dumps(job) + "\n")
            child.stdin.flush()
            yield from map(json.loads, child.stdout)
    finally:
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
