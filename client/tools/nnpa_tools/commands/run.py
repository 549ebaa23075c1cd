# SPDX-License-Identifier: Apache-2.0
"""`nnpa run`: run a program for s390x, or a program that uses libzdnn, on an emulated Telum."""

import contextlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from nnpa_client._guest.custom_machine import find_machine
from nnpa_client._server.private_server import server_at
from nnpa_client._values.availability import MACHINES, TELUMS
from nnpa_client.config import Endpoint, endpoint, guest_settings

from nnpa_tools import s390x
from nnpa_tools.commands.exit_codes import reported
from nnpa_tools.commands.outputs import new_file_option
from nnpa_tools.commands.reaching import FILE, token_option
from nnpa_tools.commands.run_guest import GuestProgram
from nnpa_tools.commands.run_native import NativeProgram
from nnpa_tools.commands.terminal import echo, json_option

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
# A connection for each thread of the program, of which a server has four for a worker.
_FLAGS = ("--shared-memory", "--workers", "64", "--max-sessions", "256")


def _machine(_context: click.Context, _option: click.Parameter, text: str | None) -> str:
    """Return the machine of --machine or of the environment; refuse an unknown one."""
    chosen = text or guest_settings().machine or "z17"
    try:
        machine = find_machine(chosen)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return chosen if machine.base else machine.name


@click.command(
    epilog="The exit code is the program's, 128 and the number for a signal; 2 usage, 3 server "
    "unreachable. Programs for s390x need qemu-user; example: nnpa run --machine z16 --stats -- "
    "./program args"
)
@click.option("--machine", callback=_machine, metavar="NAME",
              help="Machine of the program: z16 is Telum I, z17 Telum II, z15 has no NNPA; or JSON "
              "of a custom machine, or its file. Default: ZDNN_MACHINE, else z17.")  # fmt: skip
@click.option("--sysroot", type=_FOLDER,
              help="Folder with lib/ld64.so.1 and the program's libraries. Default: "
              "QEMU_LD_PREFIX, else Debian's /usr/s390x-linux-gnu.")  # fmt: skip
@click.option("--precheck", is_flag=True, help="Make the program's zDNN verify its operands: sets "
              "ZDNN_ENABLE_PRECHECK.")  # fmt: skip
@click.option("--faults", type=FILE, help="File of fault rules for the program.")
@new_file_option("--trace", help="File for a trace of the run.")
@click.option("--server", "target", help="Server instead of a private one: unix:/path on this "
              "host; for a program of this machine also host:port.")  # fmt: skip
@token_option
@click.option("--container", is_flag=True, help="PROGRAM is a command of this host that starts a "
              "container for s390x: it runs as it is, with NNPA_TRAP_* set for the "
              "container.")  # fmt: skip
@click.option("--patch", "patched", multiple=True, metavar="NAME",
              help="Make unproven STFLE instructions in NAME trap: the file name of a program or "
              "library, or NAME+0xOFFSET as --stats prints it. Repeatable.")  # fmt: skip
@click.option("--no-patch", "kept", multiple=True, metavar="NAME",
              help="Leave unproven STFLE instructions in NAME alone. Repeatable.")  # fmt: skip
@click.option("--stats", "with_stats", is_flag=True,
              help="Print counts at the end: instructions or operations, traps, time.")  # fmt: skip
@json_option("Print the --stats as JSON.")
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
    """Run a program on an emulated Telum: nnpa run -- ./program.

    A program for s390x has its own zDNN, and qemu-user runs it on this machine. A server answers
    its NNPA instructions, its vector conversions, and its queries for NNPA; without --server it is
    a private one. This includes threads, forks, and programs that it starts.

    A program of this machine uses libzdnn, which gets server, machine and options from environment
    variables.
    """
    prepared: GuestProgram | NativeProgram
    try:
        stfle = s390x.StfleRules(patched, kept)
        if container:
            prepared = _in_container(machine, sysroot, program, stfle)
        elif s390x.is_native(Path(program[0])):
            prepared = _native(machine, sysroot, program, stfle)
        else:
            prepared = _guest(machine, sysroot, program, stfle)
    except s390x.CannotRun as error:
        raise click.UsageError(str(error)) from error
    if target is not None and not target.startswith("unix:") and prepared.needs_unix:
        raise click.UsageError(f"--server: {target!r}, expected unix:/path of a server here")
    with reported(), contextlib.ExitStack() as stack:
        server = _server(stack, target, token, with_faults=faults is not None)
        is_counted = with_stats or as_json
        code, stats = prepared.run(stack, server, faults, trace, precheck, is_counted)
        if stats is not None:
            echo(stats.as_json() if as_json else "\n".join(stats.lines()), err=True)
    sys.exit(128 - code if code < 0 else code)


def _guest(
    machine: str, sysroot: Path | None, command: Sequence[str], stfle: s390x.StfleRules
) -> GuestProgram:
    """Return a program for s390x, with the paths of emulator, loader and library."""
    path = Path(command[0])
    s390x.is_static(path)  # what is no program for s390x is named before what is missing
    _require_guest_machine(machine)
    emulator = s390x.find_emulator()
    sysroot = s390x.find_sysroot(sysroot)
    setup = s390x.Setup(s390x.find_library(), emulator, sysroot, stfle=stfle)
    return GuestProgram(setup, s390x.start(setup, path, tuple(command[1:])), machine)


def _in_container(
    machine: str, sysroot: Path | None, command: Sequence[str], stfle: s390x.StfleRules
) -> GuestProgram:
    """Return a command of this host that starts a container for s390x."""
    if sysroot is not None:
        raise s390x.CannotRun("--sysroot: a container has files of its own, leave it out")
    if shutil.which(command[0]) is None:
        raise s390x.CannotRun(f"{command[0]}: no program of this host")
    _require_guest_machine(machine)
    setup = s390x.Setup(s390x.find_library(), stfle=stfle)
    return GuestProgram(setup, list(command), machine)


def _require_guest_machine(machine: str) -> None:
    """Refuse a Telum with NNPA off: its vector conversions are not emulated for s390x."""
    if machine.endswith("-nonnpa"):
        raise s390x.CannotRun(
            f"--machine: {machine} has conversions and no NNPA, which is not emulated for s390x; "
            f"give z15, {' or '.join(MACHINES[name].aliases[0] for name in TELUMS)}"
        )


def _native(
    machine: str, sysroot: Path | None, command: Sequence[str], stfle: s390x.StfleRules
) -> NativeProgram:
    """Return a program of this machine; refuse options that are for s390x only."""
    chosen = {"--sysroot": sysroot, "--patch": stfle.patched, "--no-patch": stfle.kept}
    for flag, value in chosen.items():
        if value:
            raise s390x.CannotRun(
                f"{flag}: {command[0]} is a program of this machine, and {flag} is for s390x; "
                f"leave it out"
            )
    return NativeProgram(Path(command[0]), command, machine)


def _server(
    stack: contextlib.ExitStack, target: str | None, token: str | None, with_faults: bool
) -> Endpoint:
    """Return the endpoint of the server; a private server ends with the stack."""
    flags = (*_FLAGS, "--allow-faults") if with_faults else _FLAGS
    return endpoint(stack.enter_context(server_at(target, flags)), token=token)
