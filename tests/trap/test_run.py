# SPDX-License-Identifier: Apache-2.0
"""`nnpa run`: its messages, its refusals, and the processes and memory that outlive it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from nnpa_client._server.private_server import PrivateServer
from nnpa_client.trace import read

from tests.trap.conftest import SECONDS, Runner

SIGILL = 128 + 4
QAF, ADD = 0, 16


@contextmanager
def private_server() -> Generator[PrivateServer]:
    """A server that nothing else uses."""
    server = PrivateServer(flags=("--shared-memory",))
    try:
        yield server
    finally:
        server.stop()


def children_of(process: int) -> dict[int, str]:
    """Return the command lines of all descendants of a process."""
    answer = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True)
    rows = [line.split(None, 2) for line in answer.stdout.splitlines()]
    below, commands = {process}, dict[int, str]()
    for _ in rows:
        for pid, parent, command in rows:
            if int(parent) in below and int(pid) not in below:
                below.add(int(pid))
                commands[int(pid)] = command
    return commands


def test_stats_count_instructions(runner: Runner) -> None:
    """--stats counts instructions by function, traps, and patched places; --json is the same."""
    program = runner.compile("add.c")
    lines = runner.run(program, flags=("--stats",)).errors.splitlines()
    assert lines[0] == "NNPA instructions: 4 (QAF 1, ADD 3)"
    assert lines[1] == "traps: 5, of them vector conversions 0"
    assert re.fullmatch(r"patched places: 0 conversions, \d+ STFLE", lines[2])
    assert re.fullmatch(r"time: [\d.]+ s; of all threads in NNPA: [\d.]+ s", lines[3])
    assert lines[4] == "processes: 1"
    stats = json.loads(runner.run(program, flags=("--json",)).errors)
    assert stats["instructions"] == {"QAF": 1, "ADD": 3}
    patched = stats["stfle"]["patched"]
    assert stats["stfle_places"] == len(patched)
    assert len([place for place in patched if place.startswith("add+0x")]) == 1


def test_stats_count_all_processes(runner: Runner) -> None:
    """A child that leaves by _exit, and a program that is started, are counted."""
    life = runner.compile("life.c", "-lpthread", "-ldl")
    forked = json.loads(runner.run(life, "fork", flags=("--json",)).errors)
    assert (forked["processes"], forked["instructions"]) == (2, {"ADD": 43})
    command = (life, "start", "spawn", runner.compile("add.c"))
    started = json.loads(runner.run(*command, flags=("--json",)).errors)
    assert (started["processes"], started["instructions"]) == (2, {"QAF": 1, "ADD": 4})


def test_precheck(runner: Runner) -> None:
    """--precheck tells the program's own zDNN to verify operands."""
    life = runner.compile("life.c", "-lpthread", "-ldl")
    command = (life, "start", "exec", "sh", "-c", "echo [$ZDNN_ENABLE_PRECHECK]")
    assert runner.run(*command, flags=("--precheck",)).output.splitlines()[1] == "[true]"
    assert runner.run(*command).output.splitlines()[1] == "[]"


def test_faults_inject_a_response_code(runner: Runner, tmp_path: Path) -> None:
    """--faults has an instruction end with the response code of a rule."""
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{operation: NNPA_ADD, nth: 1, status: ZDNN_EXCEEDS_MDIS}]")
    program = runner.compile("add.c")
    assert "add 4100" in runner.run(program).output
    for flags in (("--faults", str(rules)), ("--private", "--faults", str(rules))):
        ended = runner.run(program, flags=flags)
        assert "add dead" in ended.output
        assert "overflow cc 0" in ended.output


def test_trace_records_instructions(runner: Runner, tmp_path: Path) -> None:
    """--trace records the instructions of a program, in order."""
    path = tmp_path / "trace.nnpa"
    runner.run(runner.compile("add.c"), flags=("--trace", str(path)))
    issued = read(path).instructions
    codes = [instruction.general_register_0 & 0xFF for instruction in issued]
    assert codes == [QAF, ADD, ADD, ADD]
    assert [instruction.condition_code for instruction in issued] == [0, 0, 0, 1]


def test_private_server(runner: Runner) -> None:
    """Without --server the program gets a server of its own, which ends with it."""
    life = runner.compile("life.c", "-lpthread", "-ldl")
    ended = runner.run(life, "threads", flags=("--private",))
    assert (ended.code, ended.output, ended.errors) == (0, "400 right\n", "")


def test_z15_has_neither(runner: Runner) -> None:
    """On a z15 the facility is absent, and the instruction an operation exception."""
    ended = runner.run(runner.compile("add.c"), flags=("--machine", "z15"))
    assert ended.code == SIGILL
    assert "nnpa-trap: a z15 has no such instruction: operation exception" in ended.errors


def test_custom_machine(runner: Runner, tmp_path: Path) -> None:
    """--machine takes JSON of a custom machine, or a file of it; ZDNN_MACHINE holds without it."""
    text = '{"base": "z16", "removed_functions": ["NNPA_SUB"], "max_dim1": 32768}'
    (tmp_path / "machine.json").write_text(text)
    program = runner.compile("add.c")
    expected = "query cc 0 functions 80 00 bc 00 c0 00"  # a z16 has fc: bit 1 is SUB's
    for name in (text, str(tmp_path / "machine.json")):
        ended = runner.run(program, flags=("--machine", name))
        assert ended.output.splitlines()[1].startswith(expected)
        assert runner.run(program, ZDNN_MACHINE=name).output == ended.output
        assert (ended.code, ended.errors) == (7, "")


def test_machine_that_is_none(runner: Runner) -> None:
    """An unknown machine, or field, is a usage error that is reported before anything starts."""
    program = runner.compile("add.c")
    for name, words in (
        ("z18", "machine: 'z18', expected one of telum1 (z16)"),
        ('{"max_dim9": 1}', "machine: max_dim9: unknown, expected base or"),
        ("telum1-nonnpa", "has conversions and no NNPA"),
    ):
        ended = runner.run(program, flags=("--machine", name))
        assert ended.code == 2
        assert words in ended.errors


def test_function_that_telum_1_lacks(runner: Runner) -> None:
    """SQRT is response code 0002 on a z16, and computed on a z17."""
    life = runner.compile("life.c", "-lpthread", "-ldl")
    for machine, line in (("z16", "cc 1 response 0002\n"), ("z17", "cc 0 response 0000\n")):
        assert runner.run(life, "asks", "34", flags=("--machine", machine)).output == line


def test_function_that_all_lack(runner: Runner) -> None:
    """A code of no function is response code 0002, and counted as undefined."""
    life = runner.compile("life.c", "-lpthread", "-ldl")
    ended = runner.run(life, "asks", "200", flags=("--json",))
    assert ended.output == "cc 1 response 0002\n"
    assert json.loads(ended.errors)["instructions"] == {"undefined": 1}


def test_starts_without_numpy() -> None:
    """`nnpa run` imports no NumPy: that import takes as long as the rest of the start."""
    check = "import sys, nnpa_tools.commands.run; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0


def test_server_that_dies(runner: Runner, tmp_path: Path) -> None:
    """If its server is killed a program gets SIGILL, and lines name the cause and the cut trace."""
    life = runner.compile("life.c", "-lpthread", "-ldl")
    trace = tmp_path / "trace.nnpa"
    with subprocess.Popen(
        runner.command(life, "waits", flags=("--private", "--trace", str(trace))),
        env=runner.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "4100\n"
        servers = [pid for pid, command in children_of(process.pid).items()
                   if "nnpa_server" in command]  # fmt: skip
        for pid in servers:
            os.kill(pid, signal.SIGKILL)
        output, errors = process.communicate("\n", timeout=SECONDS)
    assert servers
    assert (process.returncode, output) == (SIGILL, "")
    assert "nnpa-trap: the server cannot be reached, or it died, instruction at 0x" in errors
    assert f"--trace: {trace} is not complete: UNAVAILABLE" in errors


def shared_memories(server: int) -> int:
    """Count the memory of programs that a server has mapped, and its descriptors of it."""
    maps = Path(f"/proc/{server}/maps").read_text()
    links = [str(path.readlink()) for path in Path(f"/proc/{server}/fd").iterdir()]
    return maps.count("memfd:nnpa-trap") + sum("nnpa-trap" in link for link in links)


def test_killed_program_leaves_nothing(runner: Runner) -> None:
    """After kill -9 of a program the server keeps none of the program's memory."""
    life = runner.compile("life.c", "-lpthread", "-ldl")
    with private_server() as server:
        with subprocess.Popen(
            runner.command(life, "waits", flags=("--server", server.target)),
            env=runner.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "4100\n"
            assert shared_memories(server.pid) > 0
            programs = [
                pid for pid, command in children_of(process.pid).items() if "qemu" in command
            ]
            for pid in programs:
                os.kill(pid, signal.SIGKILL)
            process.communicate(timeout=SECONDS)
        assert programs
        assert process.returncode == 128 + 9
        deadline = time.monotonic() + 10
        while shared_memories(server.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert shared_memories(server.pid) == 0


def test_missing_qemu(runner: Runner, tmp_path: Path) -> None:
    """Without qemu-user the command says how to get it."""
    ended = runner.run(runner.compile("add.c"), PATH=str(tmp_path))
    assert ended.code == 2
    assert "qemu-s390x is not installed: apt-get install qemu-user" in ended.errors


def test_missing_library(runner: Runner) -> None:
    """Without the library the command says how to get it."""
    ended = runner.run(runner.compile("add.c"), NNPA_TRAP_LIBRARY="")
    assert ended.code == 2
    assert "libnnpa-trap.so is not installed" in ended.errors
    ended = runner.run(runner.compile("add.c"), NNPA_TRAP_LIBRARY="/no/such/file")
    assert "NNPA_TRAP_LIBRARY: /no/such/file is no file" in ended.errors


def test_files_that_are_no_programs_are_refused(runner: Runner, tmp_path: Path) -> None:
    """A file that is no program for s390x or this machine is refused by name."""
    text = tmp_path / "text"
    text.write_text("#!/bin/sh\n" * 20)
    alien = tmp_path / "alien"
    alien.write_bytes(b"\x7fELF\x02\x01" + bytes(12) + b"\xf3\x00" + bytes(60))
    for path, words in (
        (text, "not an ELF file, expected a program for s390x or this machine"),
        (alien, "a program for riscv, expected s390x or this machine"),
        (tmp_path / "missing", "No such file or directory"),
    ):
        ended = runner.run(path)
        assert ended.code == 2
        assert words in ended.errors


def test_server_elsewhere(runner: Runner) -> None:
    """A server on another host shares no memory: refused before anything is started."""
    ended = runner.run(runner.compile("add.c"), flags=("--server", "example.org:50051"))
    assert ended.code == 2
    assert "expected unix:/path" in ended.errors
