# SPDX-License-Identifier: Apache-2.0
"""`nnpa run`: a program for s390x, with the zDNN that it carries, on an emulated Telum."""

import contextlib
import dataclasses
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from nnpa.zdnn.v1.accelerator_pb2 import (
    CreateSessionRequest,
    DeleteSessionRequest,
    GetSessionRequest,
    Session,
)

from nnpa_client import s390x
from nnpa_client._methods import CREATE_SESSION, DELETE_SESSION, GET_SESSION
from nnpa_client._server import PrivateServer
from nnpa_client._transport import GrpcTransport, Transport
from nnpa_client.commands.exit_codes import reported
from nnpa_client.commands.outputs import new_file_option
from nnpa_client.commands.reaching import token_option
from nnpa_client.commands.run_stats import Stats
from nnpa_client.config import Endpoint, endpoint
from nnpa_client.errors import TransportError
from nnpa_client.options import session_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nnpa_client.faults import FaultRule
    from nnpa_client.trace import Recording

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
# A connection for each thread of the program, of which a server has four for a worker.
_FLAGS = ("--shared-memory", "--workers", "64", "--max-sessions", "256")
_KEPT_ALIVE = 3  # times in each idle timeout


@click.command(
    epilog="The exit code is the program's, 128 and the number for a signal; 2 usage, 3 server "
    "unreachable. Needs qemu-user; example: nnpa run --machine z16 --stats -- ./program args"
)
@click.option("--machine", default="z17", show_default=True,
              type=click.Choice(list(s390x.MACHINES), case_sensitive=False),
              help="Machine that the program finds: z16 is Telum I, z17 Telum II, z15 has "
              "no NNPA.")  # fmt: skip
@click.option("--sysroot", type=_FOLDER,
              help="Folder with lib/ld64.so.1 and the program's libraries; else QEMU_LD_PREFIX, "
              "else Debian's /usr/s390x-linux-gnu.")  # fmt: skip
@click.option("--precheck", is_flag=True, help="Have the program's zDNN verify its operands: sets "
              "ZDNN_ENABLE_PRECHECK.")  # fmt: skip
@click.option("--faults", type=_FILE, help="File of fault rules that the program meets.")
@new_file_option("--trace", help="File in which the run is recorded.")
@click.option("--server", "target", help="Server on this host, unix:/path; else a private one.")
@token_option
@click.option("--container", is_flag=True, help="The command starts a container of the other "
              "architecture: it runs here as it is, with NNPA_TRAP_* set for what it "
              "starts.")  # fmt: skip
@click.option("--patch", "patched", multiple=True, metavar="NAME",
              help="Make what looks like STFLE in NAME trap, though nothing proves it: a program's "
              "or library's file name, or NAME+0xOFFSET as --stats prints it. May be "
              "repeated.")  # fmt: skip
@click.option("--no-patch", "kept", multiple=True, metavar="NAME",
              help="Leave what looks like STFLE in NAME as it is. May be repeated.")  # fmt: skip
@click.option("--stats", "with_stats", is_flag=True,
              help="Print what happened at the end: instructions, traps, time.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the --stats as JSON.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    machine: str,
    sysroot: Path | None,
    precheck: bool,
    faults: Path | None,
    trace: Path | None,
    target: str | None,
    token: str | None,
    container: bool,
    patched: tuple[str, ...],
    kept: tuple[str, ...],
    with_stats: bool,
    as_json: bool,
    program: tuple[str, ...],
) -> None:
    """Run a program for s390x, with its own zDNN, on an emulated Telum: nnpa run -- ./program.

    qemu-user runs the program on this machine. Its NNPA instructions are answered by a server,
    a private one without --server; so are the vector conversions, and the questions whether
    there is NNPA. Threads, forks, and programs that it starts are included.
    """
    try:
        prepare = _prepare_container if container else _prepare_program
        rules = s390x.StfleRules(patched, kept)
        setup, command = prepare(machine, sysroot, program)
    except s390x.CannotRun as error:
        raise click.UsageError(str(error)) from error
    if target is not None and not target.startswith("unix:"):
        raise click.UsageError(f"--server: {target!r}, expected unix:/path of a server here")
    fault_rules = reported(lambda: _rules(faults))
    with contextlib.ExitStack() as stack:
        server = reported(lambda: _server(stack, target, token, with_faults=bool(fault_rules)))
        transport = GrpcTransport(server)
        stack.callback(transport.close)
        session = reported(lambda: _open(stack, transport, machine, fault_rules, trace))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nnpa-run-"))
        notes = Path(folder) / "stats"
        notes.touch()
        chosen = dataclasses.replace(setup, stats=notes, stfle=rules)
        place = s390x.Place(_plain_socket(session, server), session.name, server.token)
        started = time.monotonic()
        more = {"ZDNN_ENABLE_PRECHECK": "true"} if precheck else {}
        code = _wait(transport, session, command, chosen.environment(place, more))
        stats = Stats.of(notes, time.monotonic() - started)
        for warning in stats.warnings(rules):
            click.echo(warning, err=True)
        if with_stats or as_json:
            click.echo(stats.as_json() if as_json else "\n".join(stats.lines()), err=True)
    sys.exit(128 - code if code < 0 else code)


def _prepare_program(
    machine: str, sysroot: Path | None, program: tuple[str, ...]
) -> tuple[s390x.Setup, list[str]]:
    """Find what runs a program, and return the command that does."""
    path = Path(program[0])
    s390x.is_static(path)  # what is no program for s390x is named before what is missing
    emulator = s390x.find_emulator()
    setup = s390x.Setup(machine, s390x.find_library(), emulator, s390x.find_sysroot(sysroot))
    return setup, s390x.start(setup, path, program[1:])


def _prepare_container(
    machine: str, sysroot: Path | None, program: tuple[str, ...]
) -> tuple[s390x.Setup, list[str]]:
    """Return a command of this host, which starts a container, as it is."""
    if sysroot is not None:
        raise s390x.CannotRun("--sysroot: a container has files of its own, leave it out")
    if shutil.which(program[0]) is None:
        raise s390x.CannotRun(f"{program[0]}: no program of this host")
    return s390x.Setup(machine, s390x.find_library()), list(program)


def _rules(faults: Path | None) -> "Sequence[FaultRule]":
    """Read the fault rules of a file."""
    if faults is None:
        return ()
    from nnpa_client.faults import read_rules  # seldom needed, and needs NumPy

    return read_rules(faults)


def _server(
    stack: contextlib.ExitStack, target: str | None, token: str | None, with_faults: bool
) -> Endpoint:
    """Return where the server is; a private one ends with the stack."""
    if target is None:
        server = PrivateServer(flags=(*_FLAGS, *(("--allow-faults",) if with_faults else ())))
        stack.callback(server.stop)
        target = server.target
    return endpoint(target, token=token)


def _open(
    stack: contextlib.ExitStack,
    transport: Transport,
    machine: str,
    rules: "Sequence[FaultRule]",
    trace: Path | None,
) -> Session:
    """Open the session that the program's instructions run in; it ends with the stack.

    It has no ztensors here, so this is not `connect`, which a program would wait for: NumPy
    is half of what that imports.
    """
    options, _fields = session_options(transport, s390x.MACHINES[machine])
    options.fault_rules.extend(rules)
    if trace is not None:
        from nnpa_client.trace import Recording  # seldom needed, and needs NumPy

        recording = Recording(transport, trace)
        stack.callback(_stop, recording)
        options.trace = recording.name
    session = transport.unary(CREATE_SESSION, CreateSessionRequest(session=options))
    stack.callback(_delete, transport, session.name)
    if not session.plain_socket.takes_memory:
        raise ValueError("--server: it shares no memory; start nnpa-server with --shared-memory")
    return session


def _stop(recording: "Recording") -> None:
    recording.stop()
    if recording.problem is not None:
        problem = f"--trace: {recording.path} is not complete: {recording.problem}"
        click.echo(problem, err=True)


def _delete(transport: Transport, name: str) -> None:
    with contextlib.suppress(TransportError):  # a server that has gone has deleted it
        transport.unary(DELETE_SESSION, DeleteSessionRequest(name=name))


def _plain_socket(session: Session, server: Endpoint) -> str:
    """Return the path of the server's plain socket."""
    return server.target.removeprefix("unix:") + session.plain_socket.suffix


def _wait(
    transport: Transport, session: Session, command: list[str], environment: dict[str, str]
) -> int:
    """Run a program to its end; keep the session alive meanwhile. Return its exit code."""
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
