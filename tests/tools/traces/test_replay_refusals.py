# SPDX-License-Identifier: Apache-2.0
"""Replays on machines that refuse an operation: one difference, and all else is compared."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from nnpa_client import ProgramCheck, Session, ZdnnError, connect, trace, zdnn
from nnpa_client.ztensor import Ztensor
from nnpa_tools.cli import main

A = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
OK, UNAVAILABLE = "ZDNN_OK", "ZDNN_UNAVAILABLE_FUNCTION"
DID_NOT_RUN = "did not run"


@pytest.fixture
def session(server_target: str) -> Iterator[Session]:
    """A session on Telum II."""
    with connect(server_target, machine="telum2") as opened:
        yield opened


def _program(session: Session) -> None:
    """Use a function of Telum II, its result, and much that is independent of it."""
    a, out = session.ztensor(A), np.empty_like(A)
    with session.pipeline():
        gelu = zdnn.gelu(a)
        total = zdnn.add(a, a)
        power = zdnn.exp(total)
        less = zdnn.sub(gelu, a)
        zdnn.mul(less, total)
    zdnn.transform_origtensor(power, out)
    zdnn.max(session.ztensor(A + 1), a)
    zdnn.tanh(gelu)


@pytest.fixture
def recorded(session: Session, tmp_path: Path) -> trace.Trace:
    """The program's trace."""
    with session.trace(tmp_path / "program", contents=True) as recording:
        _program(session)
    return recording.read()


def _statuses(recorded: trace.Trace) -> list[tuple[str, str]]:
    return [(each.name, each.status) for each in recorded.operations if not each.is_housekeeping]


@pytest.mark.parametrize(
    ("machine", "library", "refusal"),
    [("z16", None, UNAVAILABLE), (None, "1.0.0", "FUNCTION_NOT_IN_LIBRARY")],
)
def test_a_refusal_is_one_difference(
    session: Session, recorded: trace.Trace, machine: str | None, library: str | None, refusal: str
) -> None:
    """The refused function is the one difference; others run, and have the recorded values."""
    transport = session.transport
    comparison, replayed = trace.replay(recorded, transport, machine=machine, library=library)
    assert [(each.name, each.left, each.right) for each in comparison.differences] == [
        ("gelu", OK, refusal)
    ]
    cut_off = {"sub", "mul", "tanh"}
    statuses = _statuses(replayed)
    assert [name for name, _ in statuses] == [name for name, _ in _statuses(recorded)]
    assert [status for name, status in statuses if name not in {"gelu", *cut_off}] == [OK] * 8
    assert comparison.cut_off == len(cut_off)
    assert (comparison.statuses, comparison.values) == (9, 6)
    ran = ("add", "exp", "max", "transform_origtensor")
    for side in (recorded, replayed):
        outputs = [each.contents[-1].digest for each in side.operations if each.name in ran]
        assert len(outputs) == len(set(outputs)) == len(ran)


def test_the_command_says_what_is_cut_off(recorded: trace.Trace, tmp_path: Path) -> None:
    """The report counts the operations that a refusal cut off in one line, without a row each."""
    assert recorded.ending == ""
    replayed = ("replay", str(tmp_path / "program"), "--machine", "z16")
    shown = CliRunner().invoke(main, ("trace", *replayed, "-o", str(tmp_path / "again")))
    assert shown.exit_code == 1
    assert f"zdnn_gelu: status {OK} and {UNAVAILABLE}" in shown.output
    assert "cut off: 3 operations, which need the output of a refused one" in shown.output
    assert DID_NOT_RUN not in shown.output
    assert "TENSOR_NOT_FOUND" not in shown.output
    files = (str(tmp_path / "program"), str(tmp_path / "again"))
    compared = CliRunner().invoke(main, ("trace", "diff", *files))
    assert "cut off: 3 operations" in compared.output


def _failing_list(session: Session, a: Ztensor) -> None:
    with session.pipeline():
        zdnn.add(a, a)
        zdnn.matmul_op(a, a, a, zdnn.MATMUL_OP_ADDITION)
        zdnn.sub(a, a)


def test_a_call_that_failed_when_it_was_recorded_fails_alike(
    session: Session, tmp_path: Path
) -> None:
    """A program check ends its list in the replay too: the rest of the list does not run."""
    with session.trace(tmp_path / "t", contents=True) as recording:
        a = session.ztensor(A)
        with pytest.raises(ProgramCheck):
            _failing_list(session, a)
        zdnn.mul(a, a)
    comparison, replayed = trace.replay(recording.read(), session.transport, machine="z16")
    assert comparison.is_equal
    assert comparison.cut_off == 0
    assert [status for _, status in _statuses(replayed)][-4:] == [
        OK, "PROGRAM_CHECK", DID_NOT_RUN, OK
    ]  # fmt: skip


def test_a_recorded_refusal_is_one_difference(server_target: str, tmp_path: Path) -> None:
    """A trace of a machine that refuses, replayed on one that does not, has one difference."""
    with connect(server_target, machine="telum1") as session:
        with session.trace(tmp_path / "t", contents=True) as recording:
            with pytest.raises(ZdnnError):
                _program(session)
            zdnn.tanh(session.ztensor(A))
        comparison, _ = trace.replay(recording.read(), session.transport, machine="telum2")
    assert [(each.name, each.left, each.right) for each in comparison.differences] == [
        ("gelu", UNAVAILABLE, OK)
    ]
    assert comparison.cut_off > 0


COMMON: tuple[Callable[[Ztensor, Ztensor, Ztensor | None], Ztensor], ...] = (
    zdnn.add,
    zdnn.sub,
    zdnn.max,
    zdnn.min,
)


@dataclass
class _Programs:
    """A random program, and its expected replay on a machine without gelu.

    For each tensor `same` tells whether both machines hold the same contents, and `exists` whether
    the machine without gelu has the tensor at all.
    """

    session: Session
    rng: random.Random
    tensors: list[Ztensor]
    same: list[bool]
    exists: list[bool]
    refused: list[int] = field(default_factory=list[int])
    cut_off: int = 0
    count: int = 0

    def step(self) -> None:
        """Run an operation, into a new tensor or over an old one."""
        a, b = (self.rng.randrange(len(self.tensors)) for _ in range(2))
        output = self.rng.choice([None, self.rng.randrange(len(self.tensors))])
        is_gelu = self.rng.random() < 0.2
        target = None if output is None else self.tensors[output]
        read = [a] if is_gelu else [a, b]
        if is_gelu:
            result = zdnn.gelu(self.tensors[a], target)
        else:
            result = self.rng.choice(COMMON)(self.tensors[a], self.tensors[b], target)
        if output is None:
            self.tensors.append(result)
        self._note(read, output, is_gelu=is_gelu)

    def _note(self, read: list[int], output: int | None, *, is_gelu: bool) -> None:
        depends = not all(self.same[number] for number in read)
        runs = not is_gelu and all(self.exists[number] for number in read)
        if output is not None:
            runs = runs and self.exists[output]
            depends = depends or (not self.same[output] and not runs)
        self.cut_off += depends
        if is_gelu and not depends:
            self.refused.append(self.count)
        self.count += 1
        is_same = runs and not depends
        if output is None:
            self.same.append(is_same)
            self.exists.append(runs)
        else:
            self.same[output] = is_same


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_are_compared_wherever_they_may(
    session: Session, tmp_path: Path, seed: int
) -> None:
    """A gelu of equal operands is a difference; only operations that need it are cut off."""
    rng = random.Random(seed)
    first = [session.ztensor(rng.random() * A) for _ in range(4)]
    program = _Programs(session, rng, first, [True] * 4, [True] * 4)
    with session.trace(tmp_path / "t", contents=True) as recording:
        for _ in range(8):
            with session.pipeline():
                for _ in range(rng.randrange(1, 7)):
                    program.step()
    recorded = recording.read()
    comparison, replayed = trace.replay(recorded, session.transport, machine="z16")
    computed = [each for each in recorded.operations if not each.is_housekeeping]
    assert len(computed) == program.count
    assert [each.index for each in comparison.differences] == [
        computed[number].index for number in program.refused
    ]
    assert {(each.name, each.right) for each in comparison.differences} <= {("gelu", UNAVAILABLE)}
    assert comparison.cut_off == program.cut_off
    assert comparison.statuses == program.count - program.cut_off
    assert DID_NOT_RUN not in [status for _, status in _statuses(replayed)]
