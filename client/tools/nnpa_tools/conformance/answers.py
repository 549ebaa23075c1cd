# SPDX-License-Identifier: Apache-2.0
"""Compare two machines' answers to the same vectors bit by bit.

Answers are JSON lines as `zdnn-testee` writes them; `client/README.md`, "Testee", is their format.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Answer = Mapping[str, Any]
Key = tuple[str, str]
NOT_A_NUMBER = "not a number"
BUCKETS = ((0, "0"), (1, "1"), (2, "2"), (4, "3-4"), (16, "5-16"))
BEYOND = ">16"
_STEP_KEYS = ("value", "range", "fp_flags", "result", "failed")
_FP32_KEYS = ("rec_scale", "offset")
_TENSOR_KEYS = ("is_transformed", "buffer_size", "rec_scale", "offset")
_NINF = 0x7FFF  # of either sign; source: zDNN API Reference 1.2.0, "Data types", DLFLOAT16
_INFINITE32 = 0x7F800000  # IEEE 754, binary32
_WIDEST = 8  # digits of the widest element, FP32 or INT32
_MOST_WORDS = 1 << 26  # of one tensor; a testee gets no buffer of more bytes


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two answers: `place` is step and operand, or step and key."""

    vector: str
    place: str
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True)
class Report:
    """One function's vectors: how many cases both answered, and how the answers differ.

    `elements` counts cells of sticks and of user arrays; `ulps` is their histogram by distance in
    units of the last place, `worst` the largest distance.
    """

    function: str
    cases: int
    not_compared: int
    statuses: tuple[Difference, ...]
    others: tuple[Difference, ...]
    elements: int
    ulps: Mapping[str, int]
    worst: int
    first: Difference | None

    @property
    def equal(self) -> bool:
        """Whether both machines agree in every status and every bit."""
        return not self.statuses and not self.others and self.first is None


def read_answers(path: Path) -> dict[Key, Answer]:
    """Read answers; ValueError names file, line, and what is wrong with it."""
    return parse_answers(path.read_text(encoding="utf-8").splitlines(), path.name)


def parse_answers(lines: Iterable[str], name: str, first: int = 1) -> dict[Key, Answer]:
    """Return the answers in lines of the file `name`, from line `first`; raise ValueError."""
    answers: dict[Key, Answer] = {}
    for number, text in enumerate(lines, first):
        where = f"{name}, line {number}"
        try:
            answer = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{where}: no JSON, {error}") from error
        if not isinstance(answer, dict) or "name" not in answer:
            raise ValueError(f"{where}: no answer, `name` is missing")
        function = answer.get("file", answer.get("local"))
        if not isinstance(function, str):
            raise ValueError(f"{where}: no answer, `file` is missing")
        key = (function, str(answer["name"]))
        if key in answers:
            raise ValueError(f"{where}: {function}/{answer['name']} is answered twice")
        answers[key] = answer
    return answers


def compare(ours: Mapping[Key, Answer], theirs: Mapping[Key, Answer]) -> list[Report]:
    """Compare what both have answered, function by function in alphabetical order."""
    functions = sorted({key[0] for key in (*ours, *theirs)})
    return [_function(function, ours, theirs) for function in functions]


def _function(function: str, ours: Mapping[Key, Answer], theirs: Mapping[Key, Answer]) -> Report:
    keys = [key for key in sorted({*ours, *theirs}) if key[0] == function]
    pairs = {key[1]: (ours.get(key), theirs.get(key)) for key in keys}
    cases = {
        name: (our, their)
        for name, (our, their) in pairs.items()
        if our and their and "skipped" not in our and "skipped" not in their
    }
    parts = [part for name, (our, their) in cases.items() for part in _case(name, our, their)]
    counts: Counter[str] = sum((part.ulps for part in parts), Counter())
    firsts = [part.first for part in parts if part.first is not None]
    return Report(
        function=function,
        cases=len(cases),
        not_compared=len(pairs) - len(cases),
        statuses=tuple(status for part in parts for status in part.statuses),
        others=tuple(difference for part in parts for difference in part.fields),
        elements=sum(counts.values()),
        ulps={name: counts[name] for name in (*(b[1] for b in BUCKETS), BEYOND, NOT_A_NUMBER)},
        worst=max((part.worst for part in parts), default=0),
        first=firsts[0] if firsts else None,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """The contribution of a step, or of one of its arrays, to a report."""

    statuses: tuple[Difference, ...] = ()
    fields: tuple[Difference, ...] = ()
    ulps: Counter[str] = field(default_factory=Counter[str])
    worst: int = 0
    first: Difference | None = None


def _case(name: str, ours: Answer, theirs: Answer) -> Iterator[_Part]:
    """Yield the parts of one vector; an answer without steps is one step itself."""
    our_steps, their_steps = ours.get("steps", [ours]), theirs.get("steps", [theirs])
    if len(our_steps) != len(their_steps):
        counts = (str(len(our_steps)), str(len(their_steps)))
        yield _Part(fields=(Difference(name, "steps", *counts),))
    for number, pair in enumerate(zip(our_steps, their_steps, strict=False)):
        yield from _step(name, f"step {number}", *pair)


def _step(name: str, where: str, ours: Answer, theirs: Answer) -> Iterator[_Part]:
    if _status(ours) != _status(theirs):
        difference = Difference(name, where, _status(ours), _status(theirs))
        yield _Part(statuses=(difference,))
    yield _Part(fields=tuple(_unequal(name, where, ours, theirs, _STEP_KEYS)))
    if "data_out" in ours or "data_out" in theirs:
        yield _words(name, f"{where} data_out", ours.get("data_out"), theirs.get("data_out"), False)
    our_outputs, their_outputs = ours.get("outputs", {}), theirs.get("outputs", {})
    for operand in sorted({*our_outputs, *their_outputs}):
        our_tensor, their_tensor = our_outputs.get(operand) or {}, their_outputs.get(operand) or {}
        place = f"{where} {operand}"
        yield _Part(fields=tuple(_unequal(name, place, our_tensor, their_tensor, _TENSOR_KEYS)))
        yield _words(name, place, our_tensor.get("memory"), their_tensor.get("memory"), True)


def _status(step: Answer) -> str:
    if "status" in step:
        return f"0x{step['status']:08X}"
    return str(step.get("error", "none"))


def _unequal(
    name: str, where: str, ours: Answer, theirs: Answer, keys: Sequence[str]
) -> Iterator[Difference]:
    for key in keys:
        if _plain(key, ours.get(key)) != _plain(key, theirs.get(key)):
            yield Difference(name, f"{where} {key}", str(ours.get(key)), str(theirs.get(key)))


def _plain(key: str, value: Any) -> Any:
    """Return what is compared: FP32 whatever its digits, descriptors without fields that are 0."""
    if key in _FP32_KEYS and isinstance(value, int | float):
        return float(np.float32(value))
    if key == "result" and isinstance(value, dict):
        return {name: field for name, field in value.items() if field != 0}
    return value


def _words(name: str, where: str, ours: str | None, theirs: str | None, sticks: bool) -> _Part:
    """Compare two texts of hexadecimal words element by element."""
    if ours is None or theirs is None:
        if ours == theirs:
            return _Part()
        present = ("none" if text is None else "present" for text in (ours, theirs))
        return _Part(fields=(Difference(name, where, *present),))
    (our_words, width), (their_words, their_width) = _parse_words(ours), _parse_words(theirs)
    if our_words.size != their_words.size or width != their_width:
        pairs = ((our_words, width), (their_words, their_width))
        sizes = (f"{words.size} words of {digits} digits" for words, digits in pairs)
        return _Part(fields=(Difference(name, where, *sizes),))
    distance = np.abs(_ordinals(our_words, width, sticks) - _ordinals(their_words, width, sticks))
    differs = our_words != their_words
    numberless = _not_numbers(our_words, width, sticks) | _not_numbers(their_words, width, sticks)
    not_numbers = differs & numberless
    first = None
    if differs.any():
        at = int(np.flatnonzero(differs)[0])
        bits = (f"{int(our_words[at]):0{width}X}", f"{int(their_words[at]):0{width}X}")
        first = Difference(name, f"{where}[{at}]", *bits)
    distances = distance[~not_numbers]
    worst = int(distances.max(initial=0))
    return _Part(ulps=_histogram(distances, int(not_numbers.sum())), worst=worst, first=first)


def _parse_words(text: str) -> tuple[npt.NDArray[np.int64], int]:
    """Return the words of a text as numbers, and the digits of each; raise ValueError."""
    tokens = [token.partition("*") for token in text.split()]
    widths = {len(word) for word, _, _ in tokens}
    if len(widths) > 1:
        raise ValueError(f"words of {sorted(widths)} digits in one text")
    if max(widths, default=0) > _WIDEST:
        raise ValueError(f"words of {max(widths)} digits, at most {_WIDEST}")
    total = sum(int(count or 1) for _, _, count in tokens)
    if total > _MOST_WORDS:
        raise ValueError(f"a text of {total} words, at most {_MOST_WORDS}")
    values = np.array([int(word, 16) for word, _, _ in tokens], np.int64)
    counts = np.array([int(count or 1) for _, _, count in tokens], np.int64)
    return np.repeat(values, counts), widths.pop() if widths else 0


def _ordinals(words: npt.NDArray[np.int64], width: int, sticks: bool) -> npt.NDArray[np.int64]:
    """Return numbers whose distance is units of the last place.

    Sticks of one or four bytes are integers, as are arrays of one; the rest is sign and magnitude.
    """
    sign = np.int64(1) << (4 * width - 1) if width else np.int64(1)
    magnitude = words & (sign - 1)
    if width == 2 or (sticks and width == 8):
        return magnitude - (words & sign)
    return np.where(words & sign, -magnitude, magnitude)


def _not_numbers(words: npt.NDArray[np.int64], width: int, sticks: bool) -> npt.NDArray[np.bool_]:
    """Mark the words that are not numbers."""
    if sticks and width == 4:
        magnitude, limit = words & _NINF, _NINF
    elif not sticks and width == 8:
        magnitude, limit = words & 0x7FFFFFFF, _INFINITE32
    else:
        magnitude, limit = words, 1 << 62
    not_numbers: npt.NDArray[np.bool_] = magnitude >= limit
    return not_numbers


def _histogram(distance: npt.NDArray[np.int64], not_numbers: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    below = -1
    for limit, name in BUCKETS:
        counts[name] = int(((distance > below) & (distance <= limit)).sum())
        below = limit
    counts[BEYOND] = int((distance > below).sum())
    counts[NOT_A_NUMBER] = not_numbers
    return counts
