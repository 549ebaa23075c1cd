# SPDX-License-Identifier: Apache-2.0
"""libzdnn inside host processes: forks, threads, loaders, dead servers, signals, sanitizers."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.server_process import serving
from tests.libzdnn import toolchain
from tests.libzdnn.relay import relaying
from tests.libzdnn.toolchain import Prefix

PROGRAMS = Path(__file__).parent / "programs"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
QUICK_SECONDS = 10.0
Compile = Callable[..., str]


@pytest.fixture
def compile_program(prefix: Prefix, tmp_path: Path) -> Compile:
    """A function that compiles one of the programs."""

    def compiled(name: str, *flags: str) -> str:
        source = PROGRAMS / f"{name}.c"
        program = toolchain.compiled(source, tmp_path / name, prefix, "-std=gnu11", *flags)
        return str(program)

    return compiled


def _run(program: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    variables = toolchain.environment(**environment)
    return subprocess.run(program, env=variables, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("flags", [(), SANITIZERS])
def test_processes_fork_before_and_after_first_use(
    compile_program: Compile, server: str, flags: tuple[str, ...]
) -> None:
    """A process may fork before and after first use; parent and children go on."""
    program = compile_program("forks", *flags)
    assert toolchain.run([program], ZDNN_SERVER=server) == "right\n"


@pytest.mark.parametrize("flags", [(), SANITIZERS])
def test_eight_threads_use_the_library(
    compile_program: Compile, server: str, flags: tuple[str, ...]
) -> None:
    """Eight threads use the library at once; the library starts no thread."""
    program = compile_program("threads", "-pthread", *flags)
    assert toolchain.run([program], ZDNN_SERVER=server) == "right, threads 1, 1\n"


@pytest.mark.parametrize("name", ["libzdnn.so.0", "libzdnn.so"])
def test_reloads_leak_nothing(
    compile_program: Compile, server: str, prefix: Prefix, name: str
) -> None:
    """The library may be opened by either name and closed many times; it leaks nothing."""
    program = compile_program("reload", "-Wl,--as-needed")
    library = str(prefix.path / "lib" / name)
    printed = toolchain.run([program, library], ZDNN_SERVER=server)
    assert printed == "right, files steady\n"


def test_buffers_are_memory(compile_program: Compile, server: str) -> None:
    """Buffers are memory: shared, sliced, copied, indexed; descriptors are read at every call."""
    program = compile_program("alias", *SANITIZERS)
    environment = {"ZDNN_SERVER": server, "ZDNN_LOGLEVEL": "off"}
    assert toolchain.run([program], **environment) == "right\n"


def test_calls_leave_the_program_s_state_alone(
    compile_program: Compile, server: str, tmp_path: Path
) -> None:
    """Calls change nothing of the program's; texts stay valid; queries are answered from memory."""
    program = compile_program("traps", *SANITIZERS)
    with relaying(tmp_path / "relay", server) as relay:
        environment = {"ZDNN_SERVER": relay.address, "ZDNN_LOGLEVEL": "off"}
        assert toolchain.run([program], **environment) == "right\n"
        assert relay.sent < 64 << 10


def test_conversions_set_the_thread_s_flags(compile_program: Compile, server: str) -> None:
    """A conversion clears its thread's flags and leaves those raised that it met."""
    program = compile_program("flags", "-lm")
    environment = {"ZDNN_SERVER": server, "ZDNN_LOGLEVEL": "off"}
    assert toolchain.run([program], **environment).splitlines() == [
        "00000000 1",
        "00100003 invalid 0",
        "00100003 overflow 0",
        "00000000 underflow 1",
    ]


def test_large_tensors_travel_in_chunks(compile_program: Compile, server: str) -> None:
    """Tensors beyond the size of a message travel in chunks, with the same results."""
    program = compile_program("large")
    assert toolchain.run([program], ZDNN_SERVER=server) == "right\n"


def test_nothing_happens_before_first_use(compile_program: Compile) -> None:
    """Loading the library opens no socket: a program that does not use it never connects."""
    program = compile_program("once")
    answer = _run([program], ZDNN_SERVER="unix:/nonexistent")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


def _closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def test_no_server(compile_program: Compile) -> None:
    """Without a server answers come quickly, and one line of the process says why."""
    program, start = compile_program("once"), time.monotonic()
    address = f"127.0.0.1:{_closed_port()}"
    process = subprocess.run(
        [program, "2"],
        env={**os.environ, "ZDNN_SERVER": address, "ZDNN_LOGLEVEL": "off"},
        input="\n\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert time.monotonic() - start < QUICK_SECONDS
    assert process.stdout == "0 000c0002\n" * 2
    (line,) = process.stderr.splitlines()
    assert line.startswith(f"nnpa: zdnn_is_nnpa_installed: no server at {address}: ")
    assert line.endswith(". Check that nnpa-server listens there, ZDNN_SERVER, and TLS")


@pytest.mark.parametrize(
    "address", ["localhost", "localhost:", "127.0.0.1:65536", "::1/path", "http://localhost:50051"]
)
def test_address_without_a_port(compile_program: Compile, address: str) -> None:
    """An address that is not host:port is refused, and the line gives the required form."""
    answer = _run([compile_program("clash")], ZDNN_SERVER=address, ZDNN_LOGLEVEL="off")
    text = f"no server at {address}: ZDNN_SERVER must be host:port or unix:/path"
    assert answer.stderr == f"nnpa: zdnn_init_ztensor_with_malloc: {text}\n"


def test_required_server(compile_program: Compile) -> None:
    """With ZDNN_REQUIRE_SERVER=1 a missing server ends the process, and the line says why."""
    address = f"127.0.0.1:{_closed_port()}"
    program = compile_program("clash")
    answer = _run([program], ZDNN_SERVER=address, ZDNN_REQUIRE_SERVER="1")
    assert answer.returncode == -signal.SIGABRT
    assert f"no server at {address}: " in answer.stderr
    assert answer.stderr.endswith("; ZDNN_REQUIRE_SERVER=1: aborting\n")


def test_server_that_goes_and_comes_back(compile_program: Compile, tmp_path: Path) -> None:
    """A server that ends between calls is a status, no SIGPIPE; a new one is found again."""
    program, path = compile_program("once"), tmp_path / "nnpa.sock"
    environment = {**os.environ, "ZDNN_SERVER": f"unix:{path}"}
    with subprocess.Popen(
        [program, "3"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True, bufsize=1,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None

        def ask() -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("\n")
            return process.stdout.readline()

        with serving([f"unix:{path}"]):
            assert ask() == "1 00000000\n"
        assert ask() == "0 000c0002\n"
        with serving([f"unix:{path}"]):
            assert ask() == "1 00000000\n"
        process.stdin.close()
        assert process.wait(30) == 0


def test_program_check(compile_program: Compile, server: str) -> None:
    """A program check is SIGILL, or with ZDNN_PROGRAM_CHECK=status what precheck would say."""
    program = compile_program("clash")
    aborted = _run([program], ZDNN_SERVER=server)
    assert aborted.returncode == -signal.SIGILL
    assert "PROGRAM_CHECK" in aborted.stderr
    ended = _run([program], ZDNN_SERVER=server, ZDNN_PROGRAM_CHECK="status")
    assert (ended.returncode, ended.stdout) == (0, "00040001\n")


def test_log_lines_and_precheck(compile_program: Compile, server: str) -> None:
    """Errors are logged on stderr and precheck prints on stdout, in the library's form."""
    program = compile_program("clash")
    environment = {"ZDNN_SERVER": server, "ZDNN_ENABLE_PRECHECK": "TRUE"}
    answer = _run([program], **environment)
    assert answer.stdout.splitlines()[-1] == "00040001"
    assert "Operation zdnn_add availability: True" in answer.stdout
    assert re.match(r"ERROR: zdnn_add\(\) \(nnpa\): ZDNN_INVALID_SHAPE: ", answer.stderr)
    quiet = _run([program], **environment, ZDNN_LOGLEVEL="off")
    assert quiet.stderr == ""


def test_status_diagnosis(compile_program: Compile, server: str) -> None:
    """ZDNN_STATUS_DIAG prints banner, status and a backtrace where the status is met."""
    program = compile_program("clash")
    environment = {"ZDNN_SERVER": server, "ZDNN_ENABLE_PRECHECK": "true"}
    diagnosed = _run([program], **environment, ZDNN_STATUS_DIAG="0x00040001")
    assert "zDNN Diagnostic" in diagnosed.stdout
    assert "status = 0x00040001, ZDNN_INVALID_SHAPE" in diagnosed.stdout
    assert "libzdnn.so.0" in diagnosed.stdout
    undiagnosed = _run([program], **environment, ZDNN_STATUS_DIAG="0x00040001x")
    assert "zDNN Diagnostic" not in undiagnosed.stdout


def test_sessions_end_with_their_process(compile_program: Compile, tmp_path: Path) -> None:
    """A hundred programs, one after the other, leave no sessions behind."""
    program, path = compile_program("once"), tmp_path / "nnpa.sock"
    with serving([f"unix:{path}"], "--max-sessions", "8"):
        for _ in range(100):
            answer = subprocess.run(
                [program, "1"], env={**os.environ, "ZDNN_SERVER": f"unix:{path}"}, input="\n",
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            assert answer.stdout == "1 00000000\n", answer.stderr
