# SPDX-License-Identifier: Apache-2.0
"""The instruction in frames over a plain socket: the machine's answers, and bad clients.

Bits of DLFLOAT16 and places in the parameter block are written by hand.
"""

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_server.sessions.store import Counts

from tests.server.instruction.instructions import (
    ADD,
    INPUT_1,
    INPUT_2,
    NOT_A_NUMBER,
    ONE,
    OUTPUT_1,
    OUTPUT_2,
    PAGE,
    QAF,
    SAVE_AREA,
    TWO,
    Program,
    block,
    memory_file,
    request,
    sticks,
    sums,
)
from tests.server.instruction.machine import EMPTY, Machine
from tests.server.plain import Plain, frame
from tests.server.process import wait_until
from tests.server.rpc.near import info_of

ROOT = Path(__file__).resolve().parents[3]
FOUR = 0x4200
SOFTMAX, MOMENTS = 52, 65
OPERANDS = ((INPUT_1, 0, PAGE), (INPUT_2, PAGE, PAGE), (OUTPUT_1, 2 * PAGE, PAGE))
SUM = request(ADD, sums(2), OPERANDS)


@pytest.fixture(scope="module")
def shared_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A server that takes memory."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    yield machine
    machine.stop()


@pytest.fixture
def machine(shared_machine: Machine) -> Iterator[Machine]:
    """The server, without the sessions that a test opened beside its own."""
    yield shared_machine
    for session in shared_machine.client.opened:
        session.delete()
    shared_machine.client.opened.clear()


@pytest.fixture
def machine_alone(tmp_path: Path) -> Iterator[Machine]:
    """A server whose calls, sessions and end are one test's."""
    machine = Machine(tmp_path)
    yield machine
    machine.stop()


def test_qaf_answers_for_the_machine(machine: Machine) -> None:
    """QAF stores 256 bytes: bit 16 for ADD on both Telums, bit 241 for REDUCE on the second one."""
    for model, installs_reduce in (
        (pb.MACHINE_MODEL_TELUM1, 0),
        (pb.MACHINE_MODEL_TELUM2, 1),
    ):
        with machine.program(machine.on(model)) as program:
            ended = program.ask_raw(request(QAF, bytes(256)))
        assert (ended.general_register_0, ended.condition_code, len(ended.stored)) == (0, 0, 256)
        assert ended.stored[2] >> 7 == 1
        assert ended.stored[30] >> 6 & 1 == installs_reduce


def test_no_facility(machine: Machine) -> None:
    """A machine without NNPA interrupts by an operation exception, and says why."""
    with machine.program(machine.on(pb.MACHINE_MODEL_Z15)) as program:
        ended = program.ask_raw(request(QAF, bytes(256)))
    assert (ended.interruption, ended.condition_code, ended.stored) == (1, 0, b"")
    assert "NNPA" in ended.text


def test_outputs_are_written_in_place(machine: Machine) -> None:
    """A sum is where the request says; register 0 keeps the function code; the call ends well."""
    with machine.program() as program:
        ended = program.ask_raw(SUM)
        assert (ended.general_register_0, ended.condition_code, ended.interruption) == (ADD, 0, 0)
        assert (ended.written, ended.text) == (1, "")
        assert program.get(2 * PAGE, 3) == [TWO, FOUR, 0]
        assert program.finish()["grpc-status"] == "0"


def test_exception_flags(machine: Machine) -> None:
    """A value that is no number is flagged in bits 24-31, and the output is there."""
    with machine.program() as program:
        program.put(0, sticks(NOT_A_NUMBER, ONE))
        ended = program.ask_raw(SUM)
        assert (ended.general_register_0, ended.condition_code) == (0x80 << 32 | ADD, 0)
        assert program.get(2 * PAGE + 2, 1) == [0x4100]


def test_two_outputs(machine: Machine) -> None:
    """MOMENTS writes both of its outputs: the mean of one and three is two, the variance one."""
    shapes = {
        INPUT_1: (1, 1, 2, 1, 0x10000),
        OUTPUT_1: (1, 1, 1, 1, 0x20000),
        OUTPUT_2: (1, 1, 1, 1, 0x30000),
    }
    operands = ((INPUT_1, 0, PAGE), (OUTPUT_1, 2 * PAGE, PAGE), (OUTPUT_2, 3 * PAGE, PAGE))
    with machine.program() as program:
        rows = sticks()
        rows[:2], rows[128:130] = (0x3E, 0x00), (0x41, 0x00)
        program.put(0, rows)
        ended = program.ask_raw(request(MOMENTS, block(shapes, version=1), operands))
        assert (ended.condition_code, ended.interruption, ended.written) == (0, 0, 3), ended.text
        assert program.get(2 * PAGE, 1) + program.get(3 * PAGE, 1) == [TWO, ONE]


ADDRESS = 0x10000
MISALIGNED = block(
    {role: (1, 1, 1, 2, ADDRESS * role + 8 * (role == 2)) for role in (INPUT_1, INPUT_2, OUTPUT_1)}
)
CONTRADICTING = block(
    {
        INPUT_1: (1, 1, 1, 2, ADDRESS),
        INPUT_2: (1, 1, 1, 3, ADDRESS * 2),
        OUTPUT_1: (1, 1, 1, 2, ADDRESS * OUTPUT_1),
    }
)
SHORT = ((INPUT_1, 0, PAGE), (INPUT_2, PAGE, 100), (OUTPUT_1, 2 * PAGE, PAGE))


@pytest.mark.parametrize(
    ("raw", "response_code", "interruption", "address"),
    [
        (request(99, b"", (), 0x8001), 0x0002, 0, 0),
        (request(ADD, b"", (), 0x8004), 0, 6, 0),
        (request(ADD, sums(2)[:4000], OPERANDS), 0, 4, 0x8000 + 4000),
        (request(QAF, bytes(255)), 0, 4, 0x8000 + 255),
        (request(ADD, block({}, version=9), OPERANDS), 0x0001, 0, 0),
        (request(ADD, MISALIGNED, SHORT), 0x0014, 0, 0),
        (request(ADD, CONTRADICTING, SHORT), 0, 7, 0),
        (request(ADD, sums(2), SHORT), 0, 4, ADDRESS * 2 + 100),
        (request(ADD, sums(2), OPERANDS[:2]), 0, 4, ADDRESS * OUTPUT_1),
    ],
    ids=["0002", "block", "access", "qaf", "0001", "0014", "data", "input", "output"],
)
def test_ladder(
    machine: Machine, raw: bytes, response_code: int, interruption: int, address: int
) -> None:
    """Each condition comes before those behind it, is explained, and leaves outputs untouched."""
    with machine.program() as program:
        ended = program.ask_raw(raw)
        assert ended.general_register_0 >> 48 == response_code
        assert ended.condition_code == (1 if response_code else 0)
        assert (ended.interruption, ended.address) == (interruption, address)
        assert (ended.written, ended.stored) == (0, b"")
        assert ended.text
        assert program.get(2 * PAGE, 1) == [EMPTY]
        assert program.ask_raw(SUM).written == 1


def test_save_area(machine: Machine) -> None:
    """SOFTMAX looks at its save area: off a page is 0015, too short an access exception."""
    shapes = {INPUT_1: (1, 1, 1, 2, ADDRESS), OUTPUT_1: (1, 1, 1, 2, ADDRESS * OUTPUT_1)}
    operands = ((INPUT_1, 0, PAGE), (OUTPUT_1, PAGE, PAGE), (SAVE_AREA, 2 * PAGE, 8191))
    with machine.program() as program:
        for address, ends in ((0x90008, (0x0015, 0, 0)), (0x90000, (0, 4, 0x90000 + 8191))):
            ended = program.ask_raw(request(SOFTMAX, block(shapes, save_area=address), operands))
            assert (ended.general_register_0 >> 48, ended.interruption, ended.address) == ends
        whole = (*operands[:2], (SAVE_AREA, 2 * PAGE, 8192))
        ended = program.ask_raw(request(SOFTMAX, block(shapes, save_area=0x90000), whole))
        assert (ended.condition_code, ended.interruption, ended.written & 1) == (0, 0, 1)


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (b"", "frame"),
        (SUM[:63], "frame"),
        (SUM[:-1], "frame"),
        (SUM + b"\0", "frame"),
        (SUM[:16] + b"\xff\xff\xff\xff" + SUM[20:], "frame.parameter_block"),
        (SUM[:20] + b"\xff\xff\xff\xff" + SUM[24:], "frame.operands"),
        (SUM[:30] + b"\1" + SUM[31:], "frame.reserved"),
        (SUM[:70] + b"\1" + SUM[71:], "frame.operands[0].reserved"),
        (request(ADD, sums(), [(4, 0, PAGE)]), "frame.operands[0].role"),
        (request(ADD, sums(), [(INPUT_1, 8, PAGE)]), "frame.operands[0].offset"),
        (request(ADD, sums(), [(INPUT_1, 0, 4 * PAGE + 1)]), "frame.operands[0]"),
        (request(ADD, sums(), [(INPUT_1, (1 << 64) - PAGE, PAGE)]), "frame.operands[0]"),
        (request(ADD, sums(), [(INPUT_1, 0, (1 << 64) - 1)]), "frame.operands[0]"),
        (request(ADD, sums(), [(INPUT_1, 0, PAGE)] * 2), "frame.operands"),
        (request(ADD, sums(), [(INPUT_1, 0, PAGE + 1), (OUTPUT_1, PAGE, 1)]), "frame.operands"),
    ],
)
def test_bad_frames(machine: Machine, raw: bytes, field: str) -> None:
    """A frame that lies ends its call by name, and no other one."""
    with machine.program() as program, machine.program() as bystander:
        program.socket.sendall(frame(0, raw))
        ended = program.end()
        info = info_of(ended)
        assert (ended["grpc-status"], info.reason) == ("3", "FIELD_INVALID")
        assert info.metadata["field"] == field
        assert program.get(2 * PAGE, 1) == [EMPTY]
        assert bystander.ask_raw(SUM).written == 1


def test_wrong_beginnings_are_refused(machine: Machine) -> None:
    """Another method, messages in place of frames, and unknown sessions are refused by reason."""
    with Plain(machine.path, ":path: /nnpa.zdnn.v1.AcceleratorService/Execute\r\n") as plain:
        ended = plain.end()
        assert ended["grpc-status"] == "12"
        assert "IssueStream" in unquote(ended["grpc-message"])
    with Program(machine.path, machine.client.session, kind="application/grpc") as program:
        assert info_of(program.end()).metadata["field"] == "content-type"
    with Program(machine.path, "sessions/none") as program:
        program.socket.sendall(frame(0, request(QAF, bytes(256))))
        ended = program.end()
        assert (ended["grpc-status"], info_of(ended).reason) == ("5", "SESSION_NOT_FOUND")
    with Program(machine.path, machine.client.session) as program:
        assert program.ask_raw(request(QAF, bytes(256))).condition_code == 0
        program.socket.sendall(frame(0, SUM))
        assert "0 bytes" in info_of(program.end()).metadata["limit"]


def test_only_memory_that_stays(machine: Machine) -> None:
    """Memory that its client could take away is refused."""
    file = memory_file(PAGE, 0)
    with Program(machine.path, machine.client.session, file) as program:
        assert info_of(program.end()).metadata["field"] == "memory"
    os.close(file)


def test_a_server_that_takes_no_memory(tmp_path: Path) -> None:
    """Without --shared-memory a descriptor is refused, and QAF is answered."""
    machine = Machine(tmp_path, shared_memory=False)
    with machine.program() as program:
        assert info_of(program.end()).metadata["field"] == "memory"
    with Program(machine.path, machine.client.session) as program:
        assert len(program.ask_raw(request(QAF, bytes(256))).stored) == 256
    machine.stop()


def test_a_session_that_ends(machine_alone: Machine) -> None:
    """A session deleted between two instructions ends the call; a drain ends what waits."""
    second = machine_alone.client.open_session()
    machine_alone.client.opened.clear()
    with machine_alone.program(second.session) as program, machine_alone.program() as waiting:
        assert program.ask_raw(SUM).written == 1
        assert waiting.ask_raw(SUM).written == 1
        second.delete()
        program.socket.sendall(frame(0, SUM))
        assert info_of(program.end()).reason == "SESSION_NOT_FOUND"
        machine_alone.server.refuse_calls()
        waiting.socket.sendall(frame(0, SUM))
        ended = waiting.end()
    assert (ended["grpc-status"], info_of(ended).reason) == ("14", "SERVER_DRAINING")


def mapped(pid: int) -> int:
    """Return how often memory of these tests is mapped into a process."""
    return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").count("memfd:operands")


def test_a_client_that_is_killed_leaves_nothing(machine_alone: Machine) -> None:
    """The kernel ends a program in the middle of a frame: its memory is mapped no more."""
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.server.instruction.instructions import *\n"
        "from tests.server.plain import frame\n"
        "program = Program(Path(sys.argv[1]), sys.argv[2], memory_file(4 * PAGE))\n"
        "program.ask_raw(request(QAF, bytes(256)))\n"
        "program.socket.sendall(frame(0, request(QAF, bytes(256)))[:70])\n"
        "print('ready', flush=True)\n"
        "program.receive()\n"
    )
    arguments = [sys.executable, "-c", code, str(machine_alone.path), machine_alone.client.session]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *sys.path)))}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"ready\n"
        assert mapped(os.getpid()) == 1
        client.send_signal(signal.SIGKILL)
    wait_until(lambda: mapped(os.getpid()) == 0)
    machine_alone.client.delete()
    assert machine_alone.server.store.counts() == Counts()


def test_instructions_that_end_early_keep_no_memory(machine: Machine) -> None:
    """After an interruption, a refusal and a bad frame, memory goes at once."""
    gc.collect()
    gc.disable()
    try:
        for last in (request(ADD, sums(2), SHORT), request(ADD, MISALIGNED, OPERANDS), b"?"):
            with machine.program() as program:
                program.socket.sendall(frame(0, last))
                program.receive()
            wait_until(lambda: mapped(os.getpid()) == 0)
    finally:
        gc.enable()


def test_threads_of_one_program(machine: Machine) -> None:
    """A connection for each of more threads than a session may have calls: none is refused."""
    wrong: list[object] = []

    def issue() -> None:
        with machine.program() as program:
            for _ in range(30):
                ended = program.ask_raw(SUM)
                if ended.written != 1 or program.get(2 * PAGE, 2) != [TWO, FOUR]:
                    wrong.append(ended)
            done.append(program.finish()["grpc-status"])

    done: list[str] = []
    threads = [threading.Thread(target=issue) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (wrong, done) == ([], ["0"] * 12)


def test_requests_may_be_sent_ahead(machine: Machine) -> None:
    """A client that does not wait has its responses in order, however the bytes arrive."""
    first, second = request(QAF, bytes(256)), request(99, b"")
    raw = b"".join(frame(0, payload) for payload in (first, second, SUM))
    with machine.program() as program:
        for start in range(0, len(raw), 777):
            program.socket.sendall(raw[start : start + 777])
        program.socket.shutdown(socket.SHUT_WR)
        answers = [program.receive()[1] for _ in range(3)]
        assert program.end()["grpc-status"] == "0"
    assert [int.from_bytes(answer[8:12]) for answer in answers] == [0, 1, 0]
    assert [int.from_bytes(answer[24:28]) for answer in answers] == [256, 0, 0]


def test_metrics(machine_alone: Machine) -> None:
    """Instructions are counted by function, with the status that the library makes of their end."""
    with machine_alone.program() as program:
        program.ask_raw(SUM)
        program.ask_raw(request(ADD, MISALIGNED, OPERANDS))
        program.ask_raw(request(ADD, CONTRADICTING, OPERANDS))
        program.ask_raw(request(99, b""))
    assert machine_alone.server.metrics is not None
    counted = machine_alone.server.metrics.read().operations
    assert {(name, status): count for (name, _, status), count in counted.items()} == {
        ("NNPA_ADD", "ZDNN_OK"): 1,
        ("NNPA_ADD", "ZDNN_MISALIGNED_TENSOR"): 1,
        ("NNPA_ADD", "PROGRAM_CHECK"): 1,
        ("NNPA", "ZDNN_UNAVAILABLE_FUNCTION"): 1,
    }
