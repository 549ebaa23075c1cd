# SPDX-License-Identifier: Apache-2.0
"""The shared vectors as cases of the score: the public functions of `nnpa_client` on a server."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

from nnpa_tools.conformance.counts import Case

from tests.conformance import answers, python_locals, python_testee
from tests.conformance.answers import SkippedError
from tests.conformance.known_failures import known_failing
from tests.vector_runner import Json, Vector

SDK = "python"
C = "libzdnn"
_LOCAL = "local"
_STORY = 500


class Testee:
    """The Python testee in this process.

    It keeps its answers for a comparison with a program in C, except answers that C cannot give.
    """

    def __init__(self, target: str, kept: TextIO | None) -> None:
        self._target = target
        self._kept = kept
        self._left_out = known_failing(C)

    def ask(self, request: Json) -> dict[str, Any]:
        """Return the answer to a vector."""
        vector = request["vector"]
        if "file" in request:
            kind, steps = "file", python_testee.run(self._target, vector)
        else:
            kind = "local"
            steps = python_locals.call(self._target, request["local"], vector["arguments"])
        answer = {kind: request[kind], "name": vector["name"], **steps}
        if self._kept is not None and f"{request[kind]}/{vector['name']}" not in self._left_out:
            self._kept.write(json.dumps(answer) + "\n")
        return answer


def cases(folder: Path, target: str, kept: Path | None) -> tuple[int, Iterator[Case]]:
    """Return the number of vectors, and their cases as they end."""
    files = [*sorted(folder.glob("*.jsonl")), *sorted((folder / _LOCAL).glob("*.jsonl"))]
    lines = [(file, text) for file in files for text in file.read_text("utf-8").splitlines()]
    return len(lines), _cases(lines, target, kept)


def _cases(lines: list[tuple[Path, str]], target: str, kept: Path | None) -> Iterator[Case]:
    listed = known_failing(SDK)
    with nullcontext() if kept is None else kept.open("w", encoding="utf-8") as out:
        testee = Testee(target, out)
        yield from (_case(*line, testee, listed) for line in lines)


def _case(file: Path, text: str, testee: Testee, listed: dict[str, str]) -> Case:
    is_local = file.parent.name == _LOCAL
    name, machine = text[:60], "any" if is_local else "telum2"
    try:
        vector = Vector(file.stem, json.loads(text))
        name, machine = vector.line["name"], vector.line.get("machine", machine)
        if is_local:
            answers.run_local(vector, testee)
        else:
            answers.run(vector, testee, frozenset())
    except Exception as error:  # of any kind, as the vector may be broken
        reason = listed.get(f"{file.stem}/{name}", "")
        if isinstance(error, SkippedError) or reason:
            return Case(file.stem, "refused", machine, name, reason or str(error))
        story = f"{type(error).__name__}: {error}"[:_STORY]
        return Case(file.stem, "failed", machine, name, story)
    if f"{file.stem}/{name}" in listed:
        return Case(file.stem, "failed", machine, name, "passes, but is listed as failing")
    return Case(file.stem, "passed", machine, name)
