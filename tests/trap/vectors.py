# SPDX-License-Identifier: Apache-2.0
"""The shared vectors through a program for s390x that issues the instruction itself.

The testee of libzdnn, built for s390x with the small library of `zdnn`, runs under `nnpa run`. The
library notes each function code that it issues in the file of NNPA_TEST_ISSUED.
"""

import subprocess
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpa.zdnn.v1.operation_pb2 import NnpaFunctionCode

from tests import vector_runner
from tests.conformance import answers
from tests.conformance.answers import SkippedError
from tests.conformance.conversation import BrokenProtocolError, Conversation
from tests.trap.conftest import CROSS_COMPILER, SECONDS, Runner
from tests.vector_runner import Json, Vector

SMALL = Path(__file__).parent / "zdnn"
MACHINES = {"telum1": "z16", "telum2": "z17"}
UNSEEN = frozenset(("violation", "refusal"))
"""What C does not show."""
QAF = 0
CODES = frozenset(NnpaFunctionCode.values()) - {QAF}
"""The function codes of Telum II, without the query."""
_STORY = 300


def chosen() -> list[Vector]:
    """Return the vectors without precheck that Telum I and II run with this library's version.

    C passes no sizes of arrays, so it cannot pass a wrong one.
    """
    return [
        vector
        for vector in vector_runner.load()
        if vector.line.get("machine", "telum2") in MACHINES
        and vector.line.get("library", "1.2.0") == "1.2.0"
        and not vector.line.get("precheck", False)
        and not any(step.get("error") == "DATA_SIZE_MISMATCH" for step in vector.line["steps"])
    ]


def built(folder: Path) -> Path:
    """Build the small library and return the testee with it."""
    command = ["make", "-C", str(SMALL), f"OUT={folder}", f"CROSS={CROSS_COMPILER[: -len('gcc')]}"]
    build = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert build.returncode == 0, build.stderr
    return folder / "zdnn-testee"


@dataclass(slots=True)
class Outcome:
    """The results of a run of vectors."""

    issued: dict[str, Counter[int]] = field(default_factory=dict[str, Counter[int]])
    """The function codes that each vector issued."""
    replies: dict[str, Json] = field(default_factory=dict[str, Json])
    """The testee's answer to each vector."""
    differences: dict[str, str] = field(default_factory=dict[str, str])
    skipped: dict[str, str] = field(default_factory=dict[str, str])

    def reached(self) -> list[str]:
        """Return the vectors that issued more than the query."""
        return [key for key, codes in self.issued.items() if codes.keys() - {QAF}]

    def table(self) -> list[str]:
        """Return a line for each function code: vectors, instructions, and functions of zDNN."""
        lines = ["code function              vectors instructions  by"]
        for code in sorted(CODES | {QAF}):
            issuing = [key for key, codes in self.issued.items() if codes[code]]
            total = sum(self.issued[key][code] for key in issuing)
            verbs = Counter(key.partition("/")[0] for key in issuing)
            by = f"{len(verbs)} functions" if code == QAF else _listed(verbs)
            name = NnpaFunctionCode.Name(NnpaFunctionCode.ValueType(code)).removeprefix("NNPA_")
            lines.append(f"{code:4} {name:21} {len(issuing):6} {total:12}  {by}")
        return lines


def _listed(verbs: Counter[str]) -> str:
    return ", ".join(f"{verb} {count}" for verb, count in sorted(verbs.items()))


def key_of(vector: Vector) -> str:
    """Return the unique name of a vector."""
    return f"{vector.function}/{vector.line['name']}"


class GuestTestee:
    """The testee under `nnpa run` on one machine; it counts the codes that each vector issued."""

    def __init__(self, runner: Runner, program: Path, machine: str, folder: Path) -> None:
        self._issued = folder / f"{machine}.issued"
        flags = ("--machine", MACHINES[machine])
        command = runner.command(program, "--frames", "--machine", machine, flags=flags)
        variables = runner.environment(NNPA_TEST_ISSUED=str(self._issued))
        self._talk = Conversation(command, variables, folder / f"{machine}.log")

    @contextmanager
    def running(self) -> Generator["GuestTestee"]:
        """Run the program for the block."""
        with self._talk:
            yield self

    def ask(self, request: Json) -> dict[str, Any]:
        """Send a vector and return the answer."""
        self._issued.write_text("")
        return self._talk.ask(request)

    def issued(self) -> Counter[int]:
        """Return the function codes that were issued since the last vector."""
        return Counter(map(int, self._issued.read_text().split()))


class _Recorded:
    """A conversation that keeps the answer."""

    def __init__(self, testee: answers.Testee) -> None:
        self._testee = testee
        self.reply: Json = {}

    def ask(self, request: Json) -> dict[str, Any]:
        """Send a vector to the testee, keep the answer and return it."""
        reply = self._testee.ask(request)
        self.reply = reply
        return reply


def run(vectors: list[Vector], testee: answers.Testee, outcome: Outcome) -> None:
    """Run vectors through a testee; compare with what their sources say."""
    for vector in vectors:
        key, recorded = key_of(vector), _Recorded(testee)
        try:
            answers.run(vector, recorded, UNSEEN)
        except SkippedError as skipped:
            outcome.skipped[key] = str(skipped)
            continue
        except (AssertionError, BrokenProtocolError) as error:
            outcome.differences[key] = f"{type(error).__name__}: {error}"[:_STORY]
        outcome.replies[key] = recorded.reply
        if isinstance(testee, GuestTestee):
            outcome.issued[key] = testee.issued()
