# SPDX-License-Identifier: Apache-2.0
"""The rules that judge a program by its runs and trials.

A rule has a name, a title and a remedy. It judges what a program prints and calls, how it ends, and
the reports of the sanitizer and of the lint of its trace.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nnpa_client._guest.custom_machine import find_machine
from nnpa_client._values.availability import verdict
from nnpa_client._values.display import counted

from nnpa_tools.doctor.engine import Rule, apply
from nnpa_tools.doctor.laboratory import AGAIN, INSTRUCTION, SANITIZED, Run, ending, is_crash
from nnpa_tools.doctor.trials import RANGE_VIOLATION, Attempt, Trials
from nnpa_tools.doctor.waste import transformed_again
from nnpa_tools.faults.sweep import printed

_MAX_NAMED = 4  # operations that a sentence names
# Functions whose status nobody needs: nothing can be done about it.
_UNCHECKED = frozenset(("zdnn_free_ztensor_buffer", "zdnn_reset_ztensor"))
# Words of a program that speaks of a warning it got.
_SPEAKS = re.compile(rb"(?i)warn|error|violat|fail|status|range|20001")
# What Python prints of a warning that nobody catches, with the line of the source behind it.
_PYTHON_WARNING = re.compile(rb"(?m)^.*: (?:Zdnn|Sanitizer)Warning: .*\n(?:  .*\n?)?")
_REPORT = re.compile(r"(zdnn_\w+ at .+)")
_ALLOCATES, _FREES = "zdnn_allochelper_ztensor", "zdnn_free_ztensor_buffer"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a program: the rule's name and title, a sentence, and the remedy."""

    rule: str
    title: str
    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """The observed behaviour of a program: the baseline run, all runs, and the trials.

    `machines` are the machines that the program must run on.
    """

    measure: Run
    runs: tuple[Run, ...]
    trials: Trials
    machines: tuple[str, ...]

    @property
    def compared(self) -> Iterator[Run]:
        """The runs, without the baseline."""
        return (run for run in self.runs if run is not self.measure)

    @property
    def elsewhere(self) -> Iterator[Run]:
        """The runs on other machines than the baseline's."""
        machine = self.measure.condition.machine
        return (run for run in self.compared if run.condition.machine != machine)

    def run_of(self, title: str) -> Run | None:
        """Return the run under a condition."""
        return next((run for run in self.runs if run.condition.title == title), None)

    @property
    def is_steady(self) -> bool:
        """Whether two runs under the same condition print the same."""
        second = self.run_of(AGAIN)
        return second is not None and printed(second.ended) == printed(self.measure.ended)


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    """Return the findings of all rules."""
    return tuple(
        Finding(rule.name, rule.title, text, rule.advice) for rule, text in apply(RULES, evidence)
    )


def _named(texts: Iterable[str]) -> str:
    """Join distinct texts, the first ones by name."""
    distinct = list(dict.fromkeys(texts))
    more = len(distinct) - _MAX_NAMED
    return "; ".join(distinct[:_MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _hangs(evidence: Evidence) -> Iterator[str]:
    for run in evidence.runs:
        if run.ended.code is None:
            last = f"; its last call was {run.steps[-1]}" if run.steps else ""
            yield (
                f"{run.condition.title}: killed with all its processes after "
                f"{run.ended.seconds:.0f} s{last}"
            )
    yield from _when(evidence, "hung")


def _when(evidence: Evidence, kind: str) -> Iterator[str]:
    """Yield a sentence for each function on the trials of a verdict."""
    functions: dict[tuple[str, str], list[str]] = {}
    for attempt in evidence.trials.attempts:
        if attempt.conduct == kind:
            key = attempt.function, ending(attempt.code)
            functions.setdefault(key, []).append(f"{attempt.answer} (call {attempt.call})")
    for (function, end), answers in functions.items():
        yield f"when {function} answers {_named(answers)}: {end}"


def _fails(evidence: Evidence) -> Iterator[str]:
    run = evidence.measure
    if run.ended.code:
        yield f"{run.condition.title}: {run.ending}{_reasons(run)}{_last_words(run)}"


def _reasons(run: Run) -> str:
    """Return a clause on the operations that answered errors, with reasons of the machine."""
    if not run.refused:
        return ""
    host = find_machine(run.condition.machine)
    texts: list[str] = []
    for step in run.refused:
        lacking = verdict(step.name.removeprefix("zdnn_"), host, run.condition.library).reason
        is_said = lacking and not step.name.startswith(INSTRUCTION)
        texts.append(f"{step} ({lacking})" if is_said else str(step))
    return f"; {_named(texts)}"


def _last_words(run: Run) -> str:
    lines = run.ended.errors.decode(errors="replace").strip().splitlines()
    return f"; it says: {lines[-1].strip()}" if lines else ""


def _fails_on_its_machines(evidence: Evidence) -> Iterator[str]:
    for run in evidence.elsewhere:
        code, is_its = run.ended.code, run.condition.machine in evidence.machines
        if is_its and code is not None and code != evidence.measure.ended.code:
            yield f"{run.condition.title}: {run.ending}{_reasons(run)}{_last_words(run)}"


def _crashes(evidence: Evidence) -> Iterator[str]:
    for run in evidence.compared:
        is_its = run.condition.machine in evidence.machines
        if is_crash(run.ended.code) and not is_its and not evidence.measure.ended.code:
            yield f"{run.condition.title}: {run.ending}{_reasons(run)}"
    yield from _when(evidence, "crashed")


def _passes_over_errors(evidence: Evidence) -> Iterator[str]:
    measure = evidence.measure
    reported: set[str] = set()
    for run in (measure, *(run for run in evidence.compared if not run.condition.sanitize)):
        same = (run.ended.code, run.names) == (measure.ended.code, measure.names)
        errors = [f"{step.name}: {step.answer}" for step in run.refused]
        fresh = [error for error in errors if error not in reported]
        if fresh and run.ended.code == 0 and same:
            reported.update(fresh)
            yield f"{run.condition.title}: it goes on, and ends with 0, in spite of {_named(fresh)}"
    ignored = [
        attempt
        for attempt in evidence.trials.attempts
        if attempt.verdict == "ignored"
        and not attempt.is_warning
        and attempt.function not in _UNCHECKED
    ]
    for function, calls in _by_function(ignored).items():
        answers = _named(attempt.answer for attempt in calls)
        numbers = _numbers(calls)
        yield f"{function}, {numbers}: it goes on as if nothing were wrong after {answers}"


def _by_function(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    functions: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        functions.setdefault(attempt.function, []).append(attempt)
    return functions


def _numbers(attempts: Iterable[Attempt]) -> str:
    numbers = sorted({attempt.call for attempt in attempts})
    return ("call " if len(numbers) == 1 else "calls ") + ", ".join(map(str, numbers))


def _passes_over_warnings(evidence: Evidence) -> Iterator[str]:
    run = evidence.measure
    warned = [step for step in run.steps if step.is_warning]
    if warned and run.ended.code == 0 and not _SPEAKS.search(_words(run)):
        where = _named(map(str, warned))
        yield f"{run.condition.title}: it ends with 0, and does not mention {where}"
        return
    attempts = evidence.trials.attempts
    carried = {each.call for each in attempts if each.answer == RANGE_VIOLATION and each.goes_on}
    ignored = [
        attempt
        for attempt in attempts
        if attempt.is_warning and attempt.verdict == "ignored" and attempt.call in carried
    ]
    for function, calls in _by_function(ignored).items():
        yield (
            f"{function}, {_numbers(calls)}: values that are no numbers go on to the next "
            "call and to the output, and the program ends with 0"
        )


def _words(run: Run) -> bytes:
    """Return the program's own output, without its client's and Python's lines on warnings."""
    output, lines = printed(run.ended)
    return output + _PYTHON_WARNING.sub(b"", b"\n".join(lines) + b"\n")


def _misuses(evidence: Evidence) -> Iterator[str]:
    run = evidence.run_of(SANITIZED)
    if run is None:
        return
    yield from dict.fromkeys((*_recorded(run), *_told(run)))


def _recorded(run: Run) -> Iterator[str]:
    """Yield the texts of the sanitizer's reports in a trace."""
    for operation in run.operations:
        for line in operation.result.diagnostics if operation.result is not None else ():
            if line.HasField("report"):
                yield line.report.text


def _told(run: Run) -> Iterator[str]:
    """Yield the texts of the reports that the program's client printed."""
    for line in run.ended.errors.decode(errors="replace").splitlines():
        report = _REPORT.search(line)
        if report is not None:
            yield report[1]


def _reads_what_nobody_wrote(evidence: Evidence) -> Iterator[str]:
    """Find output that depends on padding or on fresh sticks, though nothing was reported."""
    run = evidence.run_of(SANITIZED)
    if run is None or not evidence.is_steady or any(_misuses(evidence)):
        return
    ours, theirs = evidence.measure.ended, run.ended
    if theirs.code is not None and (ours.code, ours.output) != (theirs.code, theirs.output):
        yield (
            f"with NaN in padding and in fresh sticks it ends with {ending(theirs.code)} and "
            f"prints {_first_difference(ours.output, theirs.output)}"
        )


def _first_difference(ours: bytes, theirs: bytes) -> str:
    pairs = zip(ours.splitlines(), theirs.splitlines(), strict=False)
    for number, (left, right) in enumerate(pairs, 1):
        if left != right:
            texts = (line.decode(errors="replace")[:60] for line in (right, left))
            return "{!r} in the place of {!r}, line {}".format(*texts, number)
    return "another number of lines" if ours != theirs else "the same"


def _leaks(evidence: Evidence) -> Iterator[str]:
    """Find ztensors that a C program does not free; other clients allocate at the server."""
    run = evidence.run_of(AGAIN)
    if run is None or run.ended.code != 0 or _ALLOCATES in evidence.measure.names:
        return
    allocated = run.names.count(_ALLOCATES)
    freed = run.names.count(_FREES)
    if freed < allocated:
        yield f"{counted(allocated, 'ztensor')} allocated, {freed} freed"


def _transforms_again(evidence: Evidence) -> Iterator[str]:
    for finding in transformed_again(evidence.measure.trace):
        yield f"{finding.text} ({finding.rule})"


RULES: tuple[Rule[Evidence, str], ...] = (
    Rule("hang", _hangs, "It does not end", "Wait with a limit, and end after an error."),
    Rule("failure", _fails, "It fails", "Without a run that ends with 0 little can be compared."),
    Rule(
        "machine",
        _fails_on_its_machines,
        "It does not run on a machine that it is for",
        "Ask zdnn_is_nnpa_function_installed or zdnn_is_nnpa_parmblk_fmt_installed first and have "
        "another way, or say --machine for the machines that it is for.",
    ),
    Rule("crash", _crashes, "It crashes", "Look at each status before its output is used."),
    Rule(
        "ignored-error",
        _passes_over_errors,
        "It passes over errors",
        "Look at the status of each call before its output is used.",
    ),
    Rule(
        "ignored-warning",
        _passes_over_warnings,
        "It passes over a range violation",
        "Look for ZDNN_ELEMENT_RANGE_VIOLATION: the output has values that are no numbers.",
    ),
    Rule(
        "misuse",
        _misuses,
        "It misuses a ztensor",
        "See `Misused ztensors` in the manual; addr2line -e PROGRAM OFFSET gives the line in C.",
    ),
    Rule(
        "unwritten",
        _reads_what_nobody_wrote,
        "Its output depends on what nothing has written",
        "Read elements only, by zdnn_transform_origtensor; fill ztensors before they are used.",
    ),
    Rule("leak", _leaks, "It does not free ztensors", "Call zdnn_free_ztensor_buffer for each."),
    Rule(
        "transformed-twice",
        _transforms_again,
        "It transforms what is transformed",
        "Keep the ztensor: it may be an input as often as it is needed.",
    ),
)
"""All rules, in the order in which a verdict has them."""
