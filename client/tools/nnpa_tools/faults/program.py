# SPDX-License-Identifier: Apache-2.0
"""Run programs under fault rules, and read the injected faults from the server's log."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from nnpa.zdnn.v1.fault_pb2 import FaultRule
from nnpa_client._server.private_server import PrivateServer
from nnpa_client.config import environment_with, library_path
from nnpa_client.libzdnn import library_folder

# A program that crashes or is killed leaves its session behind until that expires: permit many
# sessions with small caches.
FLAGS = (
    *("--allow-faults", "--log-format", "json", "--log-level", "warning"),
    *("--max-sessions", "100000", "--max-session-cache", "16MiB"),
)
_LOGGER = "nnpa.fault"


@dataclass(frozen=True, slots=True)
class Marked:
    """An injected fault in the server's log; `session` is the session's name in logs."""

    session: str
    call: int
    operation: str
    rule: int
    effect: str
    detail: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a program: its exit code, output, injected faults and duration.

    `code` is the exit code, negative for a signal, None for a program that did not end in time.
    """

    code: int | None
    output: bytes
    errors: bytes
    seconds: float
    marked: tuple[Marked, ...] = ()


class FaultServer(PrivateServer):
    """A private server that allows faults, with a reader of its log.

    Sessions expire after `idle` seconds without a call.
    """

    def __init__(self, idle: float = 900.0) -> None:
        super().__init__(flags=(*FLAGS, "--idle-timeout", f"{idle:.3f}s"))
        self._log_offset = 0
        self._past_sessions: set[str] = set()

    def marked(self) -> tuple[Marked, ...]:
        """Return the faults logged since the last call of this method, of new sessions only."""
        with self.log.open("rb") as log:
            log.seek(self._log_offset)
            text = log.read()
        complete = text[: text.rfind(b"\n") + 1]
        self._log_offset += len(complete)
        faults = [_parse_fault(line) for line in complete.splitlines()]
        past = self._past_sessions
        new = tuple(fault for fault in faults if fault is not None and fault.session not in past)
        past |= {fault.session for fault in new}
        return new


def _parse_fault(line: bytes) -> Marked | None:
    try:
        fields: dict[str, Any] = json.loads(line)
    except ValueError:
        return None  # not a log record: a traceback, for example
    if fields.get("logger") != _LOGGER:
        return None
    return Marked(**{name: fields[name] for name in Marked.__slots__})


def write_rules(path: Path, rules: Sequence[FaultRule]) -> None:
    """Write a rules file, as JSON, which is YAML."""
    documents = [MessageToDict(rule, preserving_proto_field_name=True) for rule in rules]
    for document in documents:
        document.update({name: int(document[name]) for name in _INT64_FIELDS if name in document})
    path.write_text(json.dumps({"rules": documents}), encoding="utf-8")


_INT64_FIELDS = ("call", "nth", "every", "seed")  # strings in protobuf's JSON


def execute(command: Sequence[str], timeout: float, variables: Mapping[str, str]) -> Ended:
    """Run a program without input, for at most `timeout` seconds; then kill its process group.

    `variables` are added to its environment. Raises OSError for a program that cannot be started.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=environment_with(variables),
            start_new_session=True,
        )
        code = _wait(process, timeout)
        seconds = time.monotonic() - started
        output.seek(0)
        errors.seek(0)
        return Ended(code, output.read(), errors.read(), seconds)


def run(
    server: FaultServer,
    command: Sequence[str],
    rules: Sequence[FaultRule],
    timeout: float,
    variables: Mapping[str, str],
) -> Ended:
    """Run a program under rules, as `execute` does, and read its injected faults."""
    with tempfile.TemporaryDirectory(prefix="nnpa-") as folder:
        path = Path(folder) / "rules.json"
        write_rules(path, rules)
        met = {"ZDNN_SERVER": server.target, "ZDNN_FAULTS": str(path)}
        added = {**library_path(library_folder()), **met, **variables}
        return replace(execute(command, timeout, added), marked=server.marked())


def _wait(process: "subprocess.Popen[bytes]", timeout: float) -> int | None:
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):  # all of its processes have ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
