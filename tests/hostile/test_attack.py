# SPDX-License-Identifier: Apache-2.0
"""The attacks and their bystander: the table is whole, and a server's faults are seen."""

from pathlib import Path

import pytest

from tests.hostile import attack, http2, known_answers
from tests.hostile.broken_server import executable
from tests.hostile.bystander import Phase
from tests.hostile.calls import Answer
from tests.hostile.methods import FAILURE
from tests.hostile.scene import Row, Scene
from tests.hostile.target import OWN_SERVER, SESSION_BYTES, SESSIONS

QUICK = ("--plain=warm-up",)


def _nothing(scene: Scene) -> None:
    scene.stay(8.0)  # a bystander of a busy machine makes ten calls at least


def _attack(monkeypatch: pytest.MonkeyPatch, server: Path) -> attack.Verdict:
    """Make no attack on a server for some seconds."""
    monkeypatch.setattr(attack, "IDLE_SECONDS", 0.5)
    return attack.attack(server, Row("0", "nothing", _nothing, flags=QUICK))


def test_every_row_is_there() -> None:
    """The table has attacks for each of its rows."""
    numbers = {int("".join(filter(str.isdigit, number))) for number in attack.load_rows()}
    assert numbers == set(range(1, 18))


def test_rows_are_chosen_by_number() -> None:
    """A number alone chooses all its kin, with a letter itself."""
    assert [row.number for row in attack.choose(["13", "10a"])] == ["10a", "13"]
    assert {row.number[0] for row in attack.choose(["4"])} == {"4"}
    with pytest.raises(SystemExit, match="no row 99"):
        attack.choose(["99"])


def test_lists_of_the_bystander() -> None:
    """Forty lists have known answers, at least thirty of them tensors."""
    lists = known_answers.lists()
    assert len(lists) == known_answers.LISTS
    assert sum(map(known_answers.has_tensors, lists)) >= known_answers.MIN_TENSORS


def test_complaints_of_the_bystander() -> None:
    """A failure, a call of more than two seconds, and no call at all are complaints."""
    assert Phase(seconds=[0.1] * 9).complaints() == []
    assert Phase(seconds=[0.1, 2.5]).complaints() == ["bystander: a call took 2.5 s"]
    assert Phase().complaints() == ["bystander: no call ended"]
    phase = Phase(seconds=[0.1])
    phase.fail("list 3: INTERNAL")
    assert phase.complaints() == ["bystander: list 3: INTERNAL"]


def test_answers_of_a_server_that_fails(tmp_path: Path) -> None:
    """INTERNAL, UNKNOWN and a failure that an answer names break a row; a refusal does not."""
    scene = Scene(OWN_SERVER, tmp_path, Row("0", "nothing", _nothing))
    scene.require_documented("refused", Answer("INVALID_ARGUMENT", "MODEL_INVALID", "no model"))
    assert scene.broken == []
    scene.require_documented("a", Answer("INTERNAL", "INTERNAL", "it failed"))
    scene.require_documented("b", Answer("UNKNOWN", details="Exception calling"))
    scene.require_documented("c", Answer("OK", messages=(b"..." + FAILURE + b"...",)))
    assert scene.broken == [
        "a: INTERNAL it failed", "b: UNKNOWN Exception calling", "c: a failure inside the answer"
    ]  # fmt: skip


@pytest.mark.parametrize(("load", "word"), [(attack.MAX_LOAD, "broken"), (9e9, "unsure")])
def test_a_row_that_needs_an_idle_machine(tmp_path: Path, load: float, word: str) -> None:
    """Late bystanders break such a row on an idle machine; on a busy one it is unsure."""
    scene = Scene(OWN_SERVER, tmp_path, Row("0", "nothing", _nothing, idle_machine=True))
    verdict = attack.Verdict("0", "nothing", scene.broken, scene.seen)
    judge = vars(attack)["_judge_times"]
    judge(scene, verdict, [], load)
    assert verdict.word == "held"
    judge(scene, verdict, ["bystander: a call took 3.0 s"], load)
    assert verdict.word == word
    scene.require(False, "memory: 9 MiB, at most 1")
    assert verdict.word == "broken"


def test_headers_are_literals() -> None:
    """A header block is a sequence of literals with lengths of seven bits, or more where needed."""
    block = http2.header_block("/s/M", extra=[("x", "y" * 300)])
    assert block.startswith(b"\x00\x07:method\x04POST")
    assert block.endswith(b"\x00\x01x\x7f\xad\x01" + b"y" * 300)


@pytest.mark.heavy
def test_a_right_server_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is not attacked holds."""
    verdict = _attack(monkeypatch, OWN_SERVER)
    assert verdict.broken == []
    assert verdict.attack_p99 > 0
    assert min(verdict.peak_memory, verdict.idle_memory) > 0


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("fault", "complaint"),
    [("wrong-bits", "wrong answer"), ("internal", "a planted failure"), ("slow", "a call took 3"),
     ("leak", "memory: ")],
)  # fmt: skip
def test_a_fault_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, complaint: str
) -> None:
    """A planted fault breaks the row, and the verdict says which."""
    if fault == "leak":  # of which these seconds are too few to reach the quotas
        monkeypatch.setattr(attack, "SPARE", -SESSIONS * SESSION_BYTES)
    verdict = _attack(monkeypatch, executable(tmp_path, fault))
    assert verdict.word == "broken"
    assert complaint in " ".join(verdict.broken)
