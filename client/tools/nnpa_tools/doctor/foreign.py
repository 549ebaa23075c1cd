# SPDX-License-Identifier: Apache-2.0
"""Run a program for s390x, which carries its own zDNN, by `nnpa run` on each machine.

Its instructions are observed: their response codes and exceptions, and the program's reaction.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from nnpa.zdnn.v1.fault_pb2 import FaultRule
from nnpa_client.trace.history import read

from nnpa_tools import s390x
from nnpa_tools.doctor.laboratory import AGAIN, Condition, Run, on_machines
from nnpa_tools.doctor.trials import EXCEPTION, RANGE_VIOLATION, Attempt, Trials
from nnpa_tools.faults.program import execute, write_rules
from nnpa_tools.faults.sweep import Verdict

_NNPA = (sys.executable, "-c", "from nnpa_tools.cli import main; main(prog_name='nnpa')", "run")
_QUERY = "NNPA_QAF"
_WITHOUT = "z15"
_EFFECTS = (
    ("response code 0012", FaultRule(status="ZDNN_EXCEEDS_MDIS")),
    (RANGE_VIOLATION, FaultRule(status="ZDNN_ELEMENT_RANGE_VIOLATION")),
    (EXCEPTION, FaultRule(program_check="data")),
)


def is_foreign(path: Path) -> bool:
    """Return True if a file is a program for s390x."""
    try:
        s390x.is_static(path)
    except s390x.CannotRun:
        return False
    return True


def conditions(machines: Sequence[str]) -> tuple[Condition, ...]:
    """Return the conditions for a program for these machines; the first one is the baseline."""
    first, *elsewhere = on_machines(machines)
    return (
        first,
        Condition(
            AGAIN, first.machine, what="the first run again, to see whether its output is the same"
        ),
        *elsewhere,
        Condition("without NNPA", _WITHOUT, what="on a machine that has none"),
    )


class Once(Protocol):
    """Runs a program for s390x once, under rules."""

    def __call__(self, condition: Condition, *rules: FaultRule) -> Run:
        """Return the run under a condition and rules."""
        ...


def runner(command: Sequence[str], timeout: float) -> Once:
    """Return the function that runs a program; each run ends after `timeout` seconds.

    Raises `CannotRun` if qemu-user or the library that answers instructions is missing.
    """
    s390x.find_emulator()
    s390x.find_library()

    def once(condition: Condition, *rules: FaultRule) -> Run:
        with tempfile.TemporaryDirectory(prefix="nnpa-") as folder:
            trace, faults = Path(folder) / "trace.nnpa", Path(folder) / "rules.json"
            write_rules(faults, rules)
            chosen = ("--machine", condition.machine, "--trace", str(trace))
            met = ("--faults", str(faults)) if rules else ()
            ended = execute([*_NNPA, *chosen, *met, "--", *command], timeout, {})
            return Run(condition, ended, read(trace))

    return once


def attempt_instructions(
    once: Once, measure: Run, is_steady: bool, progress: Callable[[int, int], None]
) -> Trials:
    """Run a program for each pair of a function's first instruction and an effect."""
    names = [name for name in dict.fromkeys(measure.names) if name != _QUERY]
    pairs = [(name, answer, effect) for name in names for answer, effect in _EFFECTS]
    attempts: list[Attempt] = []
    for name, answer, effect in pairs:
        rule = FaultRule(operation=name, nth=1)
        rule.MergeFrom(effect)
        run = once(measure.condition, rule)
        attempts.append(_attempt(measure, run, is_steady, name, answer))
        progress(len(attempts), len(pairs))
    return Trials(tuple(attempts))


def _attempt(measure: Run, run: Run, is_steady: bool, name: str, answer: str) -> Attempt:
    goes_on = (run.ended.code, run.names) == (measure.ended.code, measure.names)
    number = next(step.number for step in measure.steps if step.name == name)
    is_warning = answer == RANGE_VIOLATION
    verdict = _verdict(measure, run, goes_on, is_steady)
    return Attempt(name, number, answer, is_warning, verdict, run.ended.code, goes_on)


def _verdict(measure: Run, run: Run, goes_on: bool, is_steady: bool) -> Verdict:
    code = run.ended.code
    if code is None:
        return "hung"
    if code > 128:  # as `nnpa run` tells signals
        return "crashed"
    same = goes_on and (not is_steady or run.ended.output == measure.ended.output)
    return "ignored" if same else "handled"


def left_out() -> Iterator[str]:
    """Yield the examinations that do not apply to a program with its own library."""
    for what in ("the sanitizer", "zDNN 1.0 to 1.2", "allocations", "transforms made again"):
        yield f"{what}: not applicable, a program for s390x carries its own library"
