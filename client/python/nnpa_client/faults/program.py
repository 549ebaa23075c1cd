# SPDX-License-Identifier: Apache-2.0
"""Programs under fault rules: started, watched, ended, and what the server's log says of them."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from nnpa.zdnn.v1.fault_pb2 import FaultRule

from nnpa_client._server import PrivateServer
from nnpa_client.config import environment_with

# A program that crashes or is killed leaves its session behind, until that expires: there may be
# many of them, and none keeps much.
FLAGS = (
    *("--allow-faults", "--log-format", "json", "--log-level", "warning"),
    *("--max-sessions", "100000", "--max-session-cache", "16MiB"),
)
_LOGGER = "nnpa.fault"


@dataclass(frozen=True, slots=True)
class Marked:
    """A fault as the server's log has it; `session` is what logs call the session."""

    session: str
    call: int
    operation: str
    rule: int
    effect: str
    detail: str


@dataclass(frozen=True, slots=True)
class Ended:
    """What a run of a program came to.

    `code` is its exit code, negative for a signal, None for a program that did not end in time.
    """

    code: int | None
    output: bytes
    errors: bytes
    marked: tuple[Marked, ...]
    seconds: float


class FaultServer:
    """A private server that allows faults, and reads its own log.

    A session ends that nobody uses for `idle` seconds.
    """

    def __init__(self, idle: float = 900.0) -> None:
        self._server = PrivateServer(flags=(*FLAGS, "--idle-timeout", f"{idle:.3f}s"))
        self._read = 0
        self._old: set[str] = set()

    @property
    def target(self) -> str:
        """The server's address."""
        return self._server.target

    def marked(self) -> tuple[Marked, ...]:
        """Return the faults that were logged since the last look, of sessions begun since then."""
        with self._server.log.open("rb") as log:
            log.seek(self._read)
            lines = log.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read += len(whole)
        found = [_marked(line) for line in whole.splitlines()]
        new = tuple(one for one in found if one is not None and one.session not in self._old)
        self._old |= {one.session for one in new}
        return new

    def stop(self) -> None:
        """End the server."""
        self._server.stop()


def _marked(line: bytes) -> Marked | None:
    try:
        facts: dict[str, Any] = json.loads(line)
    except ValueError:
        return None  # what a thread's end prints, say
    if facts.get("logger") != _LOGGER:
        return None
    return Marked(**{name: facts[name] for name in Marked.__slots__})


def write_rules(path: Path, rules: Sequence[FaultRule]) -> None:
    """Write a file of rules, as JSON, which is YAML."""
    told = [MessageToDict(rule, preserving_proto_field_name=True) for rule in rules]
    for rule in told:
        rule.update({name: int(rule[name]) for name in _WIDE if name in rule})
    path.write_text(json.dumps({"rules": told}), encoding="utf-8")


_WIDE = ("call", "nth", "every", "seed")  # 64-bit numbers, which protobuf's JSON has as texts


def run(
    server: FaultServer,
    command: Sequence[str],
    rules: Sequence[FaultRule],
    timeout: float,
    more: Mapping[str, str],
) -> Ended:
    """Run a program under rules, for at most `timeout` seconds; its processes end with it.

    `more` is what its environment has besides. Raises OSError for a program that cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="nnpa-") as folder:
        path, output, errors = (Path(folder) / name for name in ("rules.json", "out", "err"))
        write_rules(path, rules)
        chosen = {"ZDNN_SERVER": server.target, "ZDNN_FAULTS": str(path), **more}
        started = time.monotonic()
        with output.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment_with(chosen),
                start_new_session=True,
            )
            code = _wait(process, timeout)
        seconds = time.monotonic() - started
        return Ended(code, output.read_bytes(), errors.read_bytes(), server.marked(), seconds)


def _wait(process: "subprocess.Popen[bytes]", timeout: float) -> int | None:
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):  # all of its processes have ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
