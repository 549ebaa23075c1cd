# SPDX-License-Identifier: Apache-2.0
"""Results of real machines: files that people send in, compared with the emulator.

`NAME.jsonl` is what `zdnn-testee --results` writes. `NAME.nnpa` is a trace of any program, with
`NAME.nnpa.json` beside it, a heading that says where it was recorded: `tests/results/README.md`.
"""

import datetime
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from nnpa_client._server.transport import Transport
from nnpa_client._values.availability import LIBRARIES, TELUMS, find_host
from nnpa_client.trace import Comparison, Trace, read, replay
from nnpa_client.trace.format import is_trace

from nnpa_tools.conformance.answers import Answer, Key, compare, parse_answers

VERSION: Final = 1
"""Version of a heading: its `results`."""
_PATTERNS = ("*.jsonl", "*.nnpa")
_LONGEST_NOTE = 200
_MOST_BYTES = 1 << 28  # of a file; all vectors answer in 20 MB
_KEYS = {"machine": str, "library": str, "date": str}


@dataclass(frozen=True, slots=True)
class Heading:
    """The origin of a file: machine, library, date and a note."""

    machine: str
    library: str
    date: str
    note: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """A file of a real machine: its heading, and its answers or its trace."""

    file: str
    heading: Heading
    answers: Mapping[Key, Answer] | None = None
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """The differences of a function on a real machine from the emulator.

    `statuses` and `others` count differences, `worst` is the largest distance in units in the last
    place, `ulps` the histogram of distances, None for a trace, which has only the largest.
    """

    function: str
    cases: int
    statuses: int
    others: int
    worst: int
    ulps: Mapping[str, int] | None

    @property
    def is_equal(self) -> bool:
        """Whether every status and bit is the emulator's."""
        unlike = sum(count for name, count in (self.ulps or {}).items() if name != "0")
        return not (self.statuses or self.others or self.worst or unlike)


@dataclass(frozen=True, slots=True)
class Measured:
    """A row for a real machine; without `file` there is no result yet."""

    machine: str
    file: str = ""
    library: str = ""
    date: str = ""
    note: str = ""
    functions: tuple[Function, ...] = ()

    @property
    def title(self) -> str:
        """The machine's names."""
        return find_host(self.machine).title

    @property
    def is_equal(self) -> bool:
        """Whether every status and bit is the emulator's."""
        return all(line.is_equal for line in self.functions)

    def as_data(self) -> dict[str, Any]:
        """Return the row as plain data for JSON."""
        return {**asdict(self), "equal": self.is_equal if self.file else None}


def recorded(paths: Iterable[Path]) -> list[Recorded]:
    """Read files and the files of folders, sorted by name.

    Raises ValueError that names file and line, OSError for a file that is not there.
    """
    files = [file for path in paths for file in _files(path)]
    names = Counter(file.name for file in files)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]}: two files of this name, and names tell rows apart")
    return [_read(file) for file in sorted(files, key=lambda file: file.name)]


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for pattern in _PATTERNS:
        yield from path.glob(pattern)


def _read(file: Path) -> Recorded:
    size = file.stat().st_size
    if size > _MOST_BYTES:
        raise ValueError(f"{file.name}: {size} bytes, at most {_MOST_BYTES}")
    try:
        return _read_trace(file) if is_trace(file) else _read_answers(file)
    except UnicodeDecodeError as error:
        raise ValueError(f"{file.name}: neither a trace nor text in UTF-8") from error


def _read_answers(file: Path) -> Recorded:
    lines = file.read_text(encoding="utf-8").splitlines()
    heading = _heading(_object(lines[0], f"{file.name}, line 1") if lines else {}, file.name)
    last = _object(lines[-1], f"{file.name}, line {len(lines)}, is the file cut off?")
    answers = lines[1:-1]
    if last.get("end") != len(answers):
        raise ValueError(
            f'{file.name}: {len(answers)} answers and no line {{"end": {len(answers)}}} behind '
            "them: is the file cut off?"
        )
    return Recorded(file.name, heading, answers=parse_answers(answers, file.name, 2))


def _read_trace(file: Path) -> Recorded:
    beside = file.with_name(f"{file.name}.json")
    if not beside.exists():
        raise ValueError(f"{file.name}: a trace does not say where it was recorded, so that it "
                         f"takes a heading in {beside.name}")  # fmt: skip
    heading = _heading(_object(beside.read_text(encoding="utf-8"), beside.name), beside.name)
    trace = read(file)
    if trace.ending:
        raise ValueError(f"{file.name}: not complete, {trace.ending}")
    if not trace.start.contents:
        raise ValueError(f"{file.name}: has no contents to compare, record with --contents")
    return Recorded(file.name, heading, trace=trace)


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where}: no JSON, {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {type(value).__name__}, expected an object")
    return value


def _heading(line: Mapping[str, Any], where: str) -> Heading:
    version = line.get("results")
    if not isinstance(version, int) or isinstance(version, bool):
        raise ValueError(f"{where}: begins without a heading {{\"results\": {VERSION}, ...}}: "
                         "zdnn-testee --results writes it")  # fmt: skip
    if version != VERSION:
        raise ValueError(f"{where}: results of version {version}, expected version {VERSION}: "
                         "a newer zdnn-testee wrote it")  # fmt: skip
    for key, kind in _KEYS.items():
        if not isinstance(line.get(key), kind):
            raise ValueError(f"{where}: {key}: {line.get(key)!r}, expected text")
    note = line.get("note", "")
    if not isinstance(note, str) or len(note) > _LONGEST_NOTE:
        raise ValueError(f"{where}: note: expected text of at most {_LONGEST_NOTE} characters")
    machine, library = _machine(line["machine"], where), _library(line["library"], where)
    return Heading(machine, library, _date(line["date"], where), note)


def _machine(name: str, where: str) -> str:
    expected = ", ".join(f"{machine} ({find_host(machine).aliases[0]})" for machine in TELUMS)
    try:
        machine = find_host(name).name
    except ValueError:
        machine = ""
    if machine not in TELUMS:
        raise ValueError(f"{where}: machine: {name[:40]!r}, expected one of {expected}")
    return machine


def _library(version: str, where: str) -> str:
    if version not in LIBRARIES:
        expected = ", ".join(LIBRARIES)
        raise ValueError(f"{where}: library: {version[:40]!r}, expected one of {expected}")
    return version


def _date(text: str, where: str) -> str:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        raise ValueError(f"{where}: date: {text[:40]!r}, expected YYYY-MM-DD")
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise ValueError(f"{where}: date: {text!r}, {error}") from error


def measured(
    files: Iterable[Recorded], ours: Mapping[Key, Answer], transport: Transport | None
) -> tuple[Measured, ...]:
    """Compare files with our answers to the vectors, and traces with their replay.

    A machine without a file has an empty row. Raises ValueError for malformed answers.
    """
    rows = [_row(file, ours, transport) for file in files]
    missing = (Measured(machine) for machine in TELUMS if all(r.machine != machine for r in rows))
    return tuple(sorted((*rows, *missing), key=lambda row: (row.machine, row.file)))


def _row(file: Recorded, ours: Mapping[Key, Answer], transport: Transport | None) -> Measured:
    heading = file.heading
    if file.trace is not None:
        assert transport is not None
        comparison, _ = replay(file.trace, transport, None, heading.machine, heading.library)
        functions = tuple(_replayed(file.trace, comparison))
    else:
        functions = tuple(_compared(file, ours))
    return Measured(file=file.file, functions=functions, **asdict(heading))


def _compared(file: Recorded, ours: Mapping[Key, Answer]) -> Iterator[Function]:
    answers = {key: answer for key, answer in (file.answers or {}).items() if key in ours}
    try:
        answers = {key: _seen(ours[key], answer) for key, answer in answers.items()}
        reports = [report for report in compare(ours, answers) if report.cases]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{file.file}: an answer out of shape, {error}") from error
    if not reports:
        raise ValueError(f"{file.file}: no answered vector in common with those here")
    for report in reports:
        counts = (report.cases, len(report.statuses), len(report.others), report.worst)
        yield Function(report.function, *counts, dict(report.ulps))


def _seen(ours: Answer, theirs: Answer) -> Answer:
    """Return an answer without flags of the steps whose flags our program does not see."""
    if "steps" not in ours or "steps" not in theirs:
        return theirs
    hidden = [number for number, step in enumerate(ours["steps"]) if "fp_flags" not in step]
    steps = [dict(step) for step in theirs["steps"]]
    for number in hidden:
        if number < len(steps):
            steps[number].pop("fp_flags", None)
    return {**theirs, "steps": steps}


def _replayed(trace: Trace, comparison: Comparison) -> Iterator[Function]:
    calls = Counter(step.name for step in trace.operations if not step.is_housekeeping)
    for name in sorted(calls):
        unlike = [entry for entry in comparison.differences if entry.name == name]
        distances = [entry.values.ulp or 0 for entry in unlike if entry.values is not None]
        statuses = sum(entry.kind == "status" for entry in unlike)
        counts = (calls[name], statuses, len(unlike) - statuses)
        yield Function(name, *counts, max(distances, default=0), None)
