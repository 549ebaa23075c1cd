# SPDX-License-Identifier: Apache-2.0
"""`nnpa run` of a program for s390x: this process opens the session of its instructions."""

import contextlib
import dataclasses
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nnpa.zdnn.v1.accelerator_pb2 import (
    CreateSessionRequest,
    DeleteSessionRequest,
    GetSessionRequest,
    MachineModel,
    Session,
)
from nnpa_client._guest.options import session_options
from nnpa_client._server.lease import Lease
from nnpa_client._server.methods import CREATE_SESSION, DELETE_SESSION, GET_SESSION
from nnpa_client._server.transport import GrpcTransport, Transport
from nnpa_client._values.availability import MACHINES
from nnpa_client.config import Endpoint
from nnpa_client.errors import TransportError

from nnpa_tools import s390x
from nnpa_tools.commands.run_stats import Stats
from nnpa_tools.commands.terminal import echo

if TYPE_CHECKING:
    from nnpa_client.faults import FaultRule
    from nnpa_client.trace import Recording

_KEPT_ALIVE = 3  # times in each idle timeout


@dataclass(frozen=True, slots=True)
class GuestProgram:
    """A program for s390x: its environment, its command and its machine."""

    setup: s390x.Setup
    command: Sequence[str]
    machine: str
    needs_unix: bool = True

    def run(
        self,
        stack: contextlib.ExitStack,
        server: Endpoint,
        faults: Path | None,
        trace: Path | None,
        precheck: bool,
        is_counted: bool,
    ) -> tuple[int, Stats | None]:
        """Run it at a server; return its exit code, negative for a signal, and what it did."""
        rules = _rules(faults)
        transport = GrpcTransport(server)
        stack.callback(transport.close)
        session = _open(stack, transport, self.machine, rules, trace)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nnpa-run-"))
        notes = Path(folder) / "stats"
        notes.touch()
        setup = dataclasses.replace(self.setup, stats=notes)
        socket = server.target.removeprefix("unix:") + session.plain_socket.suffix
        place = s390x.Place(socket, session.name, _machine_of(session), server.token)
        started = time.monotonic()
        more = {"ZDNN_ENABLE_PRECHECK": "true"} if precheck else {}
        code = _wait(transport, session, self.command, setup.environment(place, more))
        stats = Stats.of(notes, time.monotonic() - started)
        for warning in stats.warnings(setup.stfle):
            echo(warning, err=True)
        return code, stats if is_counted else None


def _rules(faults: Path | None) -> Sequence["FaultRule"]:
    """Read the fault rules of a file."""
    if faults is None:
        return ()
    from nnpa_client.faults import read_rules  # seldom needed, and needs NumPy

    return read_rules(faults)


def _open(
    stack: contextlib.ExitStack,
    transport: Transport,
    machine: str,
    rules: Sequence["FaultRule"],
    trace: Path | None,
) -> Session:
    """Open the session of the program's instructions; it ends with the stack.

    The session has no ztensors in this process, so `connect` is not used: its import of NumPy would
    delay the program.
    """
    options, _fields = session_options(transport, machine)
    options.fault_rules.extend(rules)
    if trace is not None:
        from nnpa_client.trace import Recording  # seldom needed, and needs NumPy

        recording = Recording(transport, trace)
        stack.callback(_stop, recording)
        options.trace = recording.name
    options.lease = True
    session = transport.unary(CREATE_SESSION, CreateSessionRequest(session=options))
    stack.callback(_delete, transport, session.name)
    if session.lease:
        stack.callback(Lease(transport, session.name).close)
    if not session.plain_socket.takes_memory:
        raise ValueError("--server: it shares no memory; start nnpa-server with --shared-memory")
    return session


def _stop(recording: "Recording") -> None:
    recording.stop()
    if recording.problem is not None:
        problem = f"--trace: {recording.path} is not complete: {recording.problem}"
        echo(problem, err=True)


def _delete(transport: Transport, name: str) -> None:
    with contextlib.suppress(TransportError):  # a server that has gone has deleted it
        transport.unary(DELETE_SESSION, DeleteSessionRequest(name=name))


def _machine_of(session: Session) -> str:
    """Return the machine's name for the library in the program: z15 without NNPA, z16 or z17."""
    if not session.machine.nnpa_installed:
        return "z15"
    model = MachineModel.Name(session.machine.model).removeprefix("MACHINE_MODEL_")
    return MACHINES[model.lower()].aliases[0]


def _wait(
    transport: Transport, session: Session, command: Sequence[str], environment: dict[str, str]
) -> int:
    """Run a program to its end, keep the session alive meanwhile, and return the exit code."""
    idle = session.limits.idle_timeout.ToNanoseconds() / 1e9 or None
    with subprocess.Popen(command, env=environment) as process:
        while True:
            try:
                return process.wait(None if idle is None else idle / _KEPT_ALIVE)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(TransportError):  # the program says so, if it matters
                    transport.unary(GET_SESSION, GetSessionRequest(name=session.name))
            except KeyboardInterrupt:
                continue  # the program got it too, and decides
