# SPDX-License-Identifier: Apache-2.0
"""Faults in C programs: the rules of ZDNN_FAULTS, every effect that C can see."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.server_process import serving
from tests.libzdnn import toolchain
from tests.libzdnn.toolchain import Prefix

PROGRAMS = Path(__file__).parent / "programs"
CLEAN = [
    "describe 00000000",
    "allocate a 00000000",
    "allocate out 00000000",
    "transform 00000000",
    "add 00000000",
    "back 00000000",
    "sum 0 2 4 6 8 10 12 14",
    "refresh 00000000",
    "installed 1",
    "free a 00000000",
    "free out 00000000",
]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def program(prefix: Prefix, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that adds."""
    folder = tmp_path_factory.mktemp("faults")
    return toolchain.compiled(PROGRAMS / "faults.c", folder / "faults", prefix, "-std=gnu11")


@pytest.fixture(scope="module")
def allowing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that allows faults."""
    socket = Path(tmp_path_factory.mktemp("faults")) / "nnpa.sock"
    with serving([f"unix:{socket}"], "--allow-faults", "--shared-memory") as targets:
        yield targets[0]


@pytest.fixture
def run(program: Path, allowing: str, tmp_path: Path) -> Run:
    """A function that runs the program, or another one, under rules."""

    def running(
        *rules: dict[str, Any], adds: int = 1, server: str = allowing, text: str = "", **more: str
    ) -> "subprocess.CompletedProcess[str]":
        path = tmp_path / "rules.yaml"
        path.write_text(text or json.dumps({"rules": rules}))
        variables = {"ZDNN_SERVER": server, "ZDNN_FAULTS": str(path), "ZDNN_LOGLEVEL": "off"}
        return subprocess.run(
            [str(program), str(adds)],
            env=toolchain.environment(**variables | more),
            capture_output=True,
            text=True,
            timeout=60,
        )

    return running


def _changed(answer: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    """Return the lines that differ from a run without faults, by their first words."""
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert len(lines) == len(CLEAN), answer.stdout
    return {
        clean.rsplit(" ", 1)[0] if not clean.startswith("sum") else "sum": line
        for clean, line in zip(CLEAN, lines, strict=True)
        if line != clean
    }


@pytest.mark.parametrize("transfer", toolchain.TRANSFERS)
def test_no_rules_change_nothing(run: Run, transfer: str) -> None:
    """An empty list of rules, and no file of rules, change nothing."""
    assert _changed(run(ZDNN_TRANSFER=transfer)) == {}
    assert _changed(run(ZDNN_FAULTS="")) == {}


@pytest.mark.parametrize("transfer", toolchain.TRANSFERS)
@pytest.mark.parametrize("written", [False, True])
def test_a_status_is_injected(run: Run, transfer: str, written: bool) -> None:
    """A function answers a status, with its output or without."""
    rule = {"operation": "zdnn_add", "status": "ZDNN_EXCEEDS_MDIS", "output_written": written}
    changed = _changed(run(rule, ZDNN_TRANSFER=transfer))
    assert changed.pop("add") == "add 000c0012"
    if written:
        assert changed == {}
    else:
        assert changed == {"back": "back 00100004", "sum": "sum 0 0 0 0 0 0 0 0"}


def test_the_library_says_so(run: Run) -> None:
    """An injected status is logged as the library logs one, and marked as what it is."""
    rule = {"operation": "add", "status": "0x000C0012", "output_written": True}
    answer = run(rule, ZDNN_LOGLEVEL="error")
    assert "ERROR: zdnn_add() (nnpa): ZDNN_EXCEEDS_MDIS" in answer.stderr


def test_a_warning_keeps_the_output(run: Run) -> None:
    """A warning's output is valid."""
    rule = {"operation": "add", "status": "ZDNN_ELEMENT_RANGE_VIOLATION"}
    assert _changed(run(rule)) == {"add": "add 00020001"}


@pytest.mark.parametrize("transfer", toolchain.TRANSFERS)
def test_range_violation(run: Run, transfer: str) -> None:
    """Elements become NINF, and the transform back meets them."""
    changed = _changed(run({"operation": "add", "range_violation": 2}, ZDNN_TRANSFER=transfer))
    assert changed["add"] == "add 00020001"
    assert changed["back"] == "back 00100003"
    assert changed["sum"].count("nan") == 2


@pytest.mark.parametrize(
    ("kind", "number"),
    [("data", signal.SIGILL), ("access", signal.SIGSEGV), ("operation", signal.SIGILL)],
)
def test_program_check(run: Run, kind: str, number: int) -> None:
    """A program check ends the program as on the machine, or is a status if so configured."""
    rule = {"operation": "add", "program_check": kind}
    assert run(rule).returncode == -number
    changed = _changed(run(rule, ZDNN_PROGRAM_CHECK="status"))
    assert changed["add"] == "add 00100005"


@pytest.mark.parametrize("transfer", toolchain.TRANSFERS)
def test_wrong_bits(run: Run, transfer: str) -> None:
    """A bit of the output is wrong and nothing says so; the same one each time."""
    rule = {"operation": "add", "flip_bits": 1, "seed": 4}
    first = _changed(run(rule, ZDNN_TRANSFER=transfer))
    assert first.keys() == {"sum"}
    values = zip(first["sum"].split()[1:], CLEAN[6].split()[1:], strict=True)
    assert sum(changed != clean for changed, clean in values) == 1
    assert _changed(run(rule, ZDNN_TRANSFER=transfer)) == first


def test_wrong_bits_of_an_array(run: Run) -> None:
    """A rule may flip bits of the array that the transform back writes."""
    assert _changed(run({"operation": "transform_origtensor", "flip_bits": 3})).keys() == {"sum"}


@pytest.mark.parametrize(
    "delay", [{"seconds": 0.5}, {"seconds": 0.5, "distribution": "uniform", "spread": 0.1}]
)
def test_a_delay_changes_no_answer(run: Run, delay: dict[str, Any]) -> None:
    """A delayed call takes longer and gives the same answer."""
    start = time.monotonic()
    assert _changed(run({"operation": "add", "delay": delay})) == {}
    assert time.monotonic() - start >= 0.4


@pytest.mark.parametrize("name", ["allochelper_ztensor", "zdnn_init_ztensor_with_malloc"])
def test_allocation_failure(run: Run, name: str) -> None:
    """The second allocation fails, although the library makes it by itself."""
    rule = {"operation": name, "status": "ZDNN_ALLOCATION_FAILURE", "nth": 2}
    ended = run(rule)
    assert ended.stdout.splitlines()[1:] == [CLEAN[1], "allocate out 00100001", CLEAN[3]]
    assert ended.returncode == -signal.SIGSEGV
    assert _changed(run(rule, ZDNN_PROGRAM_CHECK="status"))["add"] == "add 00100005"


def test_an_allocation_that_succeeds_and_fails(run: Run) -> None:
    """With its output written, an allocation answers an error and has a buffer."""
    rule = {"operation": "allochelper_ztensor", "status": "ZDNN_INVALID_TYPE"}
    changed = _changed(run({**rule, "output_written": True}))
    expected = {name: f"{name} 00040003" for name in ("allocate a", "allocate out")}
    assert changed == expected


def test_free_fails(run: Run) -> None:
    """Freeing a buffer may fail, and the buffer stays."""
    rule = {"operation": "free_ztensor_buffer", "status": "ZDNN_INVALID_BUFFER", "nth": 2}
    assert _changed(run(rule)) == {"free out": "free out 00100002"}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_lost_connection(run: Run, moment: str) -> None:
    """A lost connection is an exception without a name; nothing of the output is touched."""
    answer = run({"operation": "add", "lose_connection": moment})
    changed = _changed(answer)
    assert changed["add"] == "add 00100005"
    assert changed["sum"] == "sum 0 0 0 0 0 0 0 0"
    assert "nnpa: zdnn_add: connection lost" in answer.stderr


def test_the_machine_disappears(run: Run) -> None:
    """Without NNPA functions are unavailable, and the query for it fails."""
    changed = _changed(run({"operation": "add", "move": {"machine": "telum2-nonnpa"}}))
    assert changed["add"] == "add 000c0002"
    assert changed["refresh"] == "refresh 000c0002"
    assert changed["installed"] == "installed 0"


def test_the_machine_comes_back(run: Run) -> None:
    """A guest without NNPA for three calls, zdnn_init included, then works as before."""
    rule = {"operation": "add", "nth": 1, "move": {"machine": "z15", "calls": 3}}
    answer = run(rule, adds=4)
    adds = [line for line in answer.stdout.splitlines() if line.startswith("add")]
    assert adds == ["add 000c0002"] * 2 + ["add 00000000"] * 2


def test_refresh_fails(run: Run) -> None:
    """The query fails as on a machine without NNPA, although the machine has it."""
    rule = {"operation": "zdnn_refresh_nnpa_query_result", "status": "ZDNN_UNAVAILABLE_FUNCTION"}
    assert _changed(run(rule)) == {"refresh": "refresh 000c0002"}


def test_rules_apply_by_count_shape_and_machine(run: Run) -> None:
    """Rules apply by count, number, shape and machine; zdnn_init does not start counts anew."""
    status: dict[str, Any] = {"operation": "add", "status": "ZDNN_INVALID_SHAPE"}
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"nth": 3}, [3]),
        ({"every": 2}, [2, 4]),
        ({"call": 5}, [1]),
        ({"shape": [8]}, [1, 2, 3, 4]),
        ({"shape": [7]}, []),
        ({"machine": "telum1"}, []),
        ({"machine": "z17", "probability": 1}, [1, 2, 3, 4]),
    ]
    for rule, met in cases:
        lines = run({**status, **rule}, adds=4).stdout.splitlines()
        adds = [line for line in lines if line.startswith("add")]
        assert [place for place, line in enumerate(adds, 1) if line != "add 00000000"] == met, rule


def test_refused_without_the_flag(run: Run, server: str) -> None:
    """A server that allows no faults refuses the rules, and runs no call without them."""
    answer = run({"note": True}, server=server)
    assert "FAULTS_NOT_ALLOWED" in answer.stderr
    assert "--allow-faults" in answer.stderr
    assert "allocate a 00100005" in answer.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rules: [", "no YAML"),
        ("rules: 3", "must be a mapping with one key, rules, a list"),
        ("rules: [{operatoin: x}]", "rules[0].operatoin: unknown, must be one of operation,"),
        ("rules: [{note: true}, 3]", "rules[1]: Integer(3), must be a mapping"),
        ("rules: [{nth: many}]", 'rules[0].nth: String("many"), must be a number from 0'),
        ("rules: [{note: true, flip_bits: 2}]", "a second effect, must be one"),
        ("rules: [{delay: {secs: 2}}]", "rules[0].delay.secs: unknown, must be one of seconds,"),
        ("rules: [{operation: zdnn_no, note: true}]", "operation is 'zdnn_no', must be one of"),
        ("rules: [{status: ZDNN_NO}]", "status is 'ZDNN_NO', must be a name of zdnn_status"),
        ("rules: [{note: true, machine: z14}]", "machine is 'z14', must be one of telum1"),
    ],
)
def test_bad_rules_are_refused(run: Run, text: str, words: str) -> None:
    """The refusal of a bad rule names its place, whether the library or the server finds it."""
    answer = run(text=text)
    assert "allocate a 00100005" in answer.stdout
    assert words in answer.stderr
    assert "FIELD_INVALID" in answer.stderr
