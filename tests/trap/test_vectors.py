# SPDX-License-Identifier: Apache-2.0
"""The shared vectors through a zDNN for s390x that issues the instruction itself."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conformance.conversation import Conversation
from tests.conformance.testees import SDKS
from tests.libzdnn import toolchain
from tests.score.cases_of_pytest import CASES
from tests.trap import variants
from tests.trap import vectors as through
from tests.trap.conftest import Runner
from tests.trap.vectors import CODES, MACHINES, GuestTestee, Outcome, chosen, key_of
from tests.vector_runner import Json, Vector

EACH_CODE = 5
WHOLE = 500
REACH = 260
"""At least this many vectors issue an instruction beyond the query; 265 did when it was written."""


@pytest.fixture(scope="module")
def program(trap_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The testee for s390x, with the small library beside it."""
    assert trap_library.exists()
    return through.built(tmp_path_factory.mktemp("zdnn"))


@pytest.fixture(scope="module")
def outcome(runner: Runner, program: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The answers to all vectors under `nnpa run`."""
    outcome, folder = Outcome(), tmp_path_factory.mktemp("vectors")
    for machine in MACHINES:
        mine = [vector for vector in chosen() if vector.line.get("machine", "telum2") == machine]
        with GuestTestee(runner, program, machine, folder).running() as testee:
            through.run(mine, testee, outcome)
    return outcome


@pytest.fixture(scope="module")
def comparisons(runner: Runner, program: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The answers to calls drawn from a seed under `nnpa run`."""
    outcome, folder = Outcome(), tmp_path_factory.mktemp("comparisons")
    with GuestTestee(runner, program, "telum2", folder).running() as testee:
        through.run(variants.asked_for(), testee, outcome)
    return outcome


@pytest.fixture
def talk(request: pytest.FixtureRequest, server: str, tmp_path: Path) -> Iterator[Conversation]:
    """A second testee: libzdnn on this machine, or Python."""
    sdk = next(candidate for candidate in SDKS if candidate.name == request.param)
    toolchain.require(*sdk.tools)
    variables = {**sdk.variables, "ZDNN_SERVER": server}
    with Conversation(sdk.build(tmp_path), variables, tmp_path / "log") as running:
        yield running


def _reaching(outcome: Outcome) -> list[Vector]:
    keys = set(outcome.reached())
    return [vector for vector in chosen() if key_of(vector) in keys]


def _seen(reply: Json) -> list[Json]:
    """Return an answer's steps without IEEE flags."""
    return [
        {key: value for key, value in step.items() if key != "fp_flags"} for step in reply["steps"]
    ]


def test_vectors_that_reach_the_instruction(
    outcome: Outcome, record_property: Callable[[str, object], None]
) -> None:
    """Every status, bit, value and flag of a vector is what its source says."""
    print(f"\n{len(outcome.replies)} vectors, {len(outcome.reached())} beyond the query:")
    print("\n".join(outcome.table()))
    for reason, count in Counter(outcome.skipped.values()).items():
        print(f"{count} skipped: {reason}")
    skipped = [["refused", count, why] for why, count in Counter(outcome.skipped.values()).items()]
    record_property(CASES, [["passed", len(outcome.replies), ""], *skipped])
    assert not outcome.differences, outcome.differences
    assert len(outcome.reached()) >= REACH


def test_comparisons_agree_with_the_emulator(
    comparisons: Outcome, record_property: Callable[[str, object], None]
) -> None:
    """Calls beyond the vectors give the bits and statuses of the emulator in this process."""
    print(f"\n{len(comparisons.replies)} comparisons, which are not vectors:")
    print("\n".join(comparisons.table()))
    record_property(CASES, [["passed", len(comparisons.replies), ""]])
    assert not comparisons.differences, comparisons.differences
    assert comparisons.reached()


def test_each_function_code(outcome: Outcome, comparisons: Outcome) -> None:
    """Every code of Telum II is issued by at least five calls, vectors and comparisons."""
    calls = Counter(
        code for part in (outcome, comparisons) for codes in part.issued.values() for code in codes
    )
    assert {code: calls[code] for code in CODES if calls[code] < EACH_CODE} == {}
    if variants.whole():
        assert len(outcome.reached()) + len(comparisons.reached()) >= WHOLE


@pytest.mark.parametrize("talk", ["libzdnn"], indirect=True)
def test_libzdnn_answers_the_same(outcome: Outcome, talk: Conversation) -> None:
    """The same testee with libzdnn on this machine gives the same answers, to the last bit.

    Flags are compared with the vectors' sources only: the instruction that converts a scale raises
    flags that no source mentions and libzdnn does not raise.
    """
    native = Outcome()
    through.run(_reaching(outcome), talk, native)
    assert not native.differences, native.differences
    assert native.replies
    for key, reply in native.replies.items():
        assert _seen(outcome.replies[key]) == _seen(reply), key


@pytest.mark.parametrize("talk", ["python"], indirect=True)
def test_python_gives_the_same_bits(outcome: Outcome, talk: Conversation) -> None:
    """Python answers the same vectors as their sources say, but for misaligned buffers."""
    python = Outcome()
    through.run(_reaching(outcome), talk, python)
    assert not python.differences, python.differences
    assert len(python.replies) + len(python.skipped) == len(outcome.reached())
    assert all("misaligned" in key for key in python.skipped), python.skipped
