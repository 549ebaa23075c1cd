# SPDX-License-Identifier: Apache-2.0
"""A job on all cores, or on a cluster: `python -m nnpa_jobs` as a child process."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from nnpa_client.config import environment_with
from nnpa_client.errors import TransportError

Progress = Callable[[int, int], None]
"""Is told how many rows of how many were measured."""
_LAST_LINES, _STOP_SECONDS = 3, 10.0


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What an evaluation answers: its report as JSON and for people, and what is not in it."""

    json: str
    text: str
    html: str
    incomplete: str


def evaluate_rows(job: Mapping[str, Any], progress: Progress) -> Evaluated:
    """Have a child process do an evaluation, whose fields are those of `nnpa_jobs`.

    Raise ValueError for what does not fit, `TransportError` for a model that cannot be hosted, or a
    child that ends early.
    """
    with tempfile.TemporaryFile() as log:
        for line in _lines(job, log):
            if "done" in line:
                progress(line["done"], line["rows"])
            elif "refused" in line:
                raise TransportError("INVALID_ARGUMENT", line["refused"], "MODEL_INVALID")
            elif "invalid" in line:
                raise ValueError(line["invalid"])
            else:
                return Evaluated(**line)
        log.seek(0)
        tail = log.read().decode(errors="replace").strip().splitlines()[-_LAST_LINES:]
    raise TransportError("UNAVAILABLE", f"the evaluation ended early: {' / '.join(tail)}.")


def _lines(job: Mapping[str, Any], log: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the child's answers; it ends when nobody takes them any more."""
    command = [sys.executable, "-m", "nnpa_jobs"]
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
