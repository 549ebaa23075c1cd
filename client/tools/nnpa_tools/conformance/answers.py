# SPDX-License-Identifier: Apache-2.0
"""Compare two machines' answers to the same vectors bit by bit.

Answers are JSON lines as `zdnn-testee` writes them; deploy/docs/develop/sdk-contract.md,
"Testee", is their format.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
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
_BUCKET_NAMES = tuple(name for _, name in BUCKETS)
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
    """The comparison of one function's vectors: the cases that both answered, and differences.

    `elements` counts cells of sticks and of user arrays; `ulps` is their histogram by distance in
    units in the last place, `worst` the largest distance. `others` are differences in fields that
    are neither statuses nor elements.
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
    """Read answers; ValueError names file, line and fault."""
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
    """Compare the vectors that both have answered, by function in alphabetical order."""
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
    comparer = _Comparer()
    for name, answers in cases.items():
        comparer.compare(name, *answers)
    return Report(
        function=function,
        cases=len(cases),
        not_compared=len(pairs) - len(cases),
        statuses=tuple(comparer.statuses),
        others=tuple(comparer.others),
        elements=sum(comparer.ulps.values()),
        ulps=comparer.ulps,
        worst=comparer.worst,
        first=comparer.first,
    )


@dataclass(slots=True)
class _Comparer:
    """Compares the answers to a function's vectors, and collects the differences."""

    statuses: list[Difference] = field(default_factory=list[Difference])
    others: list[Difference] = field(default_factory=list[Difference])
    ulps: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys((*_BUCKET_NAMES, BEYOND, NOT_A_NUMBER), 0)
    )
    worst: int = 0
    first: Difference | None = None

    def compare(self, name: str, ours: Answer, theirs: Answer) -> None:
        """Compare the answers to one vector; an answer without steps is one step itself."""
        our_steps, their_steps = ours.get("steps", [ours]), theirs.get("steps", [theirs])
        if len(our_steps) != len(their_steps):
            counts = (str(len(our_steps)), str(len(their_steps)))
            self.others.append(Difference(name, "steps", *counts))
        for number, pair in enumerate(zip(our_steps, their_steps, strict=False)):
            self._step(name, f"step {number}", *pair)

    def _step(self, name: str, where: str, ours: Answer, theirs: Answer) -> None:
        if _status(ours) != _status(theirs):
            self.statuses.append(Difference(name, where, _status(ours), _status(theirs)))
        self._fields(name, where, ours, theirs, _STEP_KEYS)
        self._words(name, f"{where} data_out", ours.get("data_out"), theirs.get("data_out"), False)
        our_outputs, their_outputs = ours.get("outputs", {}), theirs.get("outputs", {})
        for operand in sorted({*our_outputs, *their_outputs}):
            our_tensor = our_outputs.get(operand) or {}
            their_tensor = their_outputs.get(operand) or {}
            place = f"{where} {operand}"
            self._fields(name, place, our_tensor, their_tensor, _TENSOR_KEYS)
            self._words(name, place, our_tensor.get("memory"), their_tensor.get("memory"), True)

    def _fields(
        self, name: str, where: str, ours: Answer, theirs: Answer, keys: Sequence[str]
    ) -> None:
        for key in keys:
            left, right = ours.get(key), theirs.get(key)
            if _plain(key, left) != _plain(key, right):
                self.others.append(Difference(name, f"{where} {key}", str(left), str(right)))

    def _words(
        self, name: str, where: str, ours: str | None, theirs: str | None, sticks: bool
    ) -> None:
        """Compare two texts of hexadecimal words element by element."""
        if ours is None or theirs is None:
            if ours != theirs:
                present = ("none" if text is None else "present" for text in (ours, theirs))
                self.others.append(Difference(name, where, *present))
            return
        (left, width), (right, their_width) = _parse_words(ours), _parse_words(theirs)
        if left.size != right.size or width != their_width:
            pairs = ((left, width), (right, their_width))
            sizes = (f"{words.size} words of {digits} digits" for words, digits in pairs)
            self.others.append(Difference(name, where, *sizes))
            return
        differs = left != right
        if differs.any() and self.first is None:
            at = int(np.flatnonzero(differs)[0])
            bits = (f"{int(words[at]):0{width}X}" for words in (left, right))
            self.first = Difference(name, f"{where}[{at}]", *bits)
        distance = np.abs(_ordinals(left, width, sticks) - _ordinals(right, width, sticks))
        numberless = _not_numbers(left, width, sticks) | _not_numbers(right, width, sticks)
        self._count(distance[~(differs & numberless)], int((differs & numberless).sum()))

    def _count(self, distances: npt.NDArray[np.int64], not_numbers: int) -> None:
        """Add distances of elements, and how many others have no distance, to the histogram."""
        limits = [limit for limit, _ in BUCKETS]
        places = np.searchsorted(limits, distances)  # the first bucket whose limit is not below
        counts = np.bincount(places, minlength=len(BUCKETS) + 1)
        for name, count in zip((*_BUCKET_NAMES, BEYOND), counts.tolist(), strict=True):
            self.ulps[name] += count
        self.ulps[NOT_A_NUMBER] += not_numbers
        self.worst = max(self.worst, int(distances.max(initial=0)))


def _status(step: Answer) -> str:
    if "status" in step:
        return f"0x{step['status']:08X}"
    return str(step.get("error", "none"))


def _plain(key: str, value: Any) -> Any:
    """Return what is compared: FP32 whatever its digits, descriptors without fields that are 0."""
    if key in _FP32_KEYS and isinstance(value, int | float):
        return float(np.float32(value))
    if key == "result" and isinstance(value, dict):
        return {name: field for name, field in value.items() if field != 0}
    return value


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
