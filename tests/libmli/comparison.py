# SPDX-License-Identifier: Apache-2.0
"""Calls made in C and in Python, compared byte by byte."""

from dataclasses import dataclass, field
from pathlib import Path

from mli_emulator import Options

from tests.libmli import calls, toolchain
from tests.libmli.calls import Answer, Call

_QUESTIONS = frozenset(calls.FUNCTIONS[-5:])  # what they return is a number


@dataclass(slots=True)
class Comparison:
    """Calls under one build of the library: Python makes each at once, and C all at the end."""

    options: Options
    folder: Path
    expected: list[tuple[str, bytes]] = field(default_factory=list)
    encoded: list[bytes] = field(default_factory=list)

    def make(self, call: Call) -> Answer:
        """Make a call in Python, and keep it for C."""
        self.encoded.append(calls.encode(call))
        answered = calls.answer(call, self.options)
        self.expected.append((call.function, answered.encoded))
        return answered

    def differences(self) -> list[str]:
        """Make all calls in C; list the differences, the call's number first."""
        source = toolchain.PROGRAMS / "calls.c"
        program = toolchain.sanitized(source, self.folder / "calls", self.options)
        calls_file, answers_file = self.folder / "calls.bin", self.folder / "answers.bin"
        calls_file.write_bytes(b"".join(self.encoded))
        toolchain.runs_sanitized(program, self.options, str(calls_file), str(answers_file))
        answers = calls.split(answers_file.read_bytes())
        assert len(answers) == len(self.expected)
        listed: list[str] = []
        for number, (function, expected) in enumerate(self.expected):
            actual = answers[number]
            if calls.promised(actual) != calls.promised(expected):
                texts = f"{calls.text_of(actual)} instead of {calls.text_of(expected)}"
                listed.append(f"call {number}, {function}: {texts}")
        return listed

    def refusals(self) -> int:
        """Count the calls of kernels and conversions that were refused or aborted."""
        kernels = [encoded for name, encoded in self.expected if name not in _QUESTIONS]
        return sum(calls.returned(encoded) != 0 for encoded in kernels)
