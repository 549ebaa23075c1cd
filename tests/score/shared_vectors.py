# SPDX-License-Identifier: Apache-2.0
"""The shared vectors as cases of the score: the public functions of `nnpa_client` on a server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from nnpa_client.conformance import Case

from tests.conformance import answers, python_locals, python_testee
from tests.conformance.answers import SkippedError
from tests.conformance.known_failures import known_failing
from tests.vector_runner import Json, Vector

SDK = "python"
_LOCAL = "local"
_STORY = 500


class Testee:
    """The Python testee in this process; `answers` are kept as it gives them."""

    def __init__(self, target: str, kept: TextIO | None) -> None:
        self._target = target
        self._kept = kept

    def ask(self, request: Json) -> dict[str, Any]:
        """Return the answer to a vector."""
        vector = request["vector"]
        if "file" in request:
            kind, told = "file", python_testee.run(self._target, vector)
        else:
            kind = "local"
            told = python_locals.call(self._target, request["local"], vector["arguments"])
        answer = {kind: request[kind], "name": vector["name"], **told}
        if self._kept is not None:
            self._kept.write(json.dumps(answer) + "\n")
        return answer


def cases(folder: Path, target: str, kept: Path | None) -> tuple[int, Iterator[Case]]:
    """Return how many vectors there are, and their cases as they end."""
    files = [*sorted(folder.glob("*.jsonl")), *sorted((folder / _LOCAL).glob("*.jsonl"))]
    lines = [(file, text) for file in files for text in file.read_text("utf-8").splitlines()]
    return len(lines), _cases(lines, target, kept)


def _cases(lines: list[tuple[Path, str]], target: str, kept: Path | None) -> Iterator[Case]:
    known = known_failing(SDK)
    if kept is None:
        yield from (_case(*line, Testee(target, None), known) for line in lines)
        return
    with kept.open("w", encoding="utf-8") as out:
        yield from (_case(*line, Testee(target, out), known) for line in lines)


def _case(file: Path, text: str, testee: Testee, known: dict[str, str]) -> Case:
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
        reason = known.get(f"{file.stem}/{name}", "")
        if isinstance(error, SkippedError) or reason:
            return Case(file.stem, "refused", machine, name, reason or str(error))
        story = f"{type(error).__name__}: {error}"[:_STORY]
        return Case(file.stem, "failed", machine, name, story)
    if listed := known.get(f"{file.stem}/{name}"):
        return Case(file.stem, "failed", machine, name, f"passes, but is listed: {listed}")
    return Case(file.stem, "passed", machine, name)
