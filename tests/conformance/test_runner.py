# SPDX-License-Identifier: Apache-2.0
"""The suite itself: it finds what is wrong with an answer, and survives what a testee does."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import answers, conversation, known_failures
from tests.conformance.answers import SkippedError
from tests.conformance.conversation import BrokenProtocolError, Conversation
from tests.conformance.plain import plain, words_of
from tests.vector_runner import Vector, little_endian

DESC = {"layout": "ZDNN_NHWC", "format": "ZDNN_FORMAT_4DFEATURE", "type": "ZDNN_DLFLOAT16"}
ONE = {"dim4": 1, "dim3": 1, "dim2": 1, "dim1": 2}
TENSOR = {
    "pre_transformed_desc": {"layout": "ZDNN_1D", "type": "FP32", "dim1": 2},
    "transformed_desc": {**DESC, **ONE},
}
LINE = {
    "name": "hand",
    "tensors": {"1": TENSOR},
    "steps": [
        {
            "operation": {"transform_ztensor": {"ztensor": {"id": 1}}},
            "data": ["3F800000 7F800000"],
            "status": "ZDNN_ELEMENT_RANGE_VIOLATION",
            "outputs": {"ztensor": {"is_transformed": True, "codes": "3E00 7FFF"}},
            "fp_flags": ["OVERFLOW"],
            "violation": {"ztensor": [[0, 0, 0, 1, "7FFF", 1.5]]},
        },
        {
            "operation": {"transform_origtensor": {"ztensor": {"id": 1}}},
            "data_out": "3F800000 7FC00000",
            "status": 0x00100003,
            "refusal": "transform_origtensor_c7",
        },
        {"operation": {"get_max_for_dim": {"dimension": 1}}, "value": 2097152},
    ],
}
ANSWER: dict[str, Any] = {
    "file": "hand",
    "name": "hand",
    "steps": [
        {
            "status": 0x00020001,
            "outputs": {"ztensor": {"is_transformed": True, "memory": "3E00 7FFF 0000*2046"}},
            "fp_flags": ["OVERFLOW"],
            "violation": {"ztensor": [[0, 0, 0, 1, "7FFF", 1.5]]},
        },
        {
            "status": 0x00100003,
            "data_out": "3F800000 7FC00000",
            "refusal": "transform_origtensor_c7",
        },
        {"value": 2097152},
    ],
}
VECTOR = Vector("hand", LINE)
ECHO = "import sys; h = sys.stdin.buffer.read(4); "
GONE = object()


class CannedTestee(Conversation):
    """A testee that gives the same prepared answer to any request."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__((), {}, Path("/dev/null"))
        self._answer = answer

    def ask(self, request: object) -> dict[str, Any]:
        """Return the answer to any request."""
        assert request
        return self._answer


def changed(place: tuple[str | int, ...], value: object) -> dict[str, Any]:
    """Return the answer with one place of its steps changed."""
    answer: dict[str, Any] = copy.deepcopy(ANSWER)
    inner: Any = answer["steps"]
    for key in place[:-1]:
        inner = inner[key]
    if value is GONE:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return answer


def test_the_right_answer_passes() -> None:
    """An answer with every status, bit, value and flag as expected is no difference."""
    answers.run(VECTOR, CannedTestee(ANSWER), frozenset())


# Where the answer is changed, and to what; GONE: the key is taken away.
CHANGES: tuple[tuple[tuple[str | int, ...], object], ...] = (
    ((0, "status"), 0),
    ((0, "fp_flags"), []),
    ((0, "fp_flags"), ["OVERFLOW", "NO_FLAG"]),
    ((0, "violation"), GONE),
    ((0, "violation", "ztensor", 0, 5), 1.25),
    ((0, "outputs", "ztensor", "is_transformed"), False),
    ((0, "outputs", "ztensor", "memory"), "3E01 7FFF 0000*2046"),
    ((0, "outputs", "ztensor", "memory"), "3E00 7FFF 0000*2045 0001"),
    ((0, "outputs", "ztensor", "memory"), "3E00 7FFF"),
    ((0, "outputs", "ztensor", "memory"), "no words"),
    ((0, "outputs"), {}),
    ((0, "error"), "PROGRAM_CHECK"),
    ((1, "data_out"), "3F800000 7FC00001"),
    ((1, "data_out"), GONE),
    ((1, "refusal"), "transform_origtensor_c6"),
    ((2, "value"), 32768),
    ((2, "value"), True),
    ((2, "value"), "2097152"),
    ((2, "value"), GONE),
    ((2,), GONE),
)


@pytest.mark.parametrize(("place", "value"), CHANGES)
def test_every_wrong_answer_is_found(place: tuple[str | int, ...], value: object) -> None:
    """An answer that is wrong in one key, one bit, or one step is a difference."""
    with pytest.raises(AssertionError):
        answers.run(VECTOR, CannedTestee(changed(place, value)), frozenset())


def test_unseen_expectations_are_not_compared() -> None:
    """A vector is judged without the expectations that an SDK cannot observe, and only those."""
    blind = changed((0, "violation"), GONE)
    del blind["steps"][1]["refusal"]
    answers.run(VECTOR, CannedTestee(blind), frozenset(("violation", "refusal")))
    with pytest.raises(AssertionError):
        answers.run(VECTOR, CannedTestee(blind), frozenset(("violation",)))


def test_a_skip_is_no_failure_and_a_mistaken_answer_is() -> None:
    """A skip raises SkippedError; an answer to another vector is a failure."""
    skip = {"file": "hand", "name": "hand", "skipped": "why"}
    with pytest.raises(SkippedError, match="why"):
        answers.run(VECTOR, CannedTestee(skip), frozenset())
    for wrong in ({"name": "other"}, {"file": "other"}, {"failed": "signal"}):
        with pytest.raises(AssertionError):
            answers.run(VECTOR, CannedTestee({**ANSWER, **wrong}), frozenset())


def test_vectors_travel_without_what_is_expected() -> None:
    """A testee gets names as numbers, whole buffers, and no expectation that it could repeat."""
    sent = plain(VECTOR)
    assert [set(step) for step in sent["steps"]] == [
        {"operation", "data"}, {"operation"}, {"operation"}
    ]  # fmt: skip
    assert sent["tensors"]["1"]["memory"] == "0000*2048"
    assert sent["tensors"]["1"]["transformed_desc"] == {"layout": 8, "format": 0, "type": 0, **ONE}
    assert (sent["machine"], sent["library"], sent["precheck"]) == ("telum2", "1.2.0", False)


@pytest.mark.parametrize("text", ["3E00*3 0000 7FFF*2044", "05*4095 06", "0000FFFF*1024"])
def test_words_there_and_back(text: str) -> None:
    """Words of any width come back from memory as they went there, repetitions counted."""
    width = len(text.split("*")[0].split()[0]) // 2
    assert words_of(little_endian(text), width) == text


@pytest.mark.heavy
@pytest.mark.parametrize(
    "program",
    [
        "",
        "import os; os.abort()",
        f"{ECHO}sys.stdout.buffer.write(b'ab')",
        f"{ECHO}sys.stdout.buffer.write(bytes([255] * 4))",
        f"{ECHO}sys.stdout.buffer.write(bytes([2, 0, 0, 0]) + b'[]')",
        f"{ECHO}sys.stdout.buffer.write(bytes([1, 0, 0, 0]) + b'{{')",
        f"{ECHO}sys.stdout.flush(); import time; time.sleep(60)",
    ],
)
def test_a_testee_that_breaks_the_protocol(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each breach raises BrokenProtocolError, and the next vector gets a new testee."""
    monkeypatch.setattr(conversation, "ANSWER_SECONDS", 2.0)
    command = [sys.executable, "-c", program]
    with Conversation(command, {}, tmp_path / "stderr.txt") as broken:
        for _ in range(2):
            with pytest.raises(BrokenProtocolError):
                broken.ask({"file": "hand"})


def test_a_testee_must_end_well(tmp_path: Path) -> None:
    """A code other than 0 at the end of input is a failure, with what was said on stderr."""
    program = (
        "import sys; n = int.from_bytes(sys.stdin.buffer.read(4), 'little'); "
        "sys.stdin.buffer.read(n); sys.stdout.buffer.write(bytes([2, 0, 0, 0]) + b'{}'); "
        "sys.stdout.flush(); sys.stdin.read(); sys.exit('some story')"
    )
    command = [sys.executable, "-c", program]
    ended = Conversation(command, {}, tmp_path / "stderr.txt")
    with pytest.raises(BrokenProtocolError, match="some story"), ended:
        assert ended.ask({"file": "hand"}) == {}


def test_lists_of_known_failures_need_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line without a reason, or a vector named twice, is refused."""
    monkeypatch.setattr(known_failures, "KNOWN_FAILING", tmp_path)
    (tmp_path / "c.txt").write_text("# a comment\n\nadd/new_output: C has none\n")
    assert known_failures.known_failing("c") == {"add/new_output": "C has none"}
    (tmp_path / "c.txt").write_text("*/new_output: C has none\n")
    assert {"add/new_output", "exp/new_output"} <= known_failures.known_failing("c").keys()
    for text in ("add/new_output\n", "add/a: b\nadd/a: c\n", "*/no_such_vector: c\n"):
        (tmp_path / "c.txt").write_text(text)
        with pytest.raises(AssertionError):
            known_failures.known_failing("c")
