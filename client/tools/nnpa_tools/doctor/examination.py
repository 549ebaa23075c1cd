# SPDX-License-Identifier: Apache-2.0
"""Examine a program: runs under all conditions, trials, and the report on them."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from nnpa_tools.doctor import foreign
from nnpa_tools.doctor.laboratory import Condition, Run, conditions, laboratory
from nnpa_tools.doctor.report import Report, seen, times_of
from nnpa_tools.doctor.rules import Evidence, judge
from nnpa_tools.doctor.trials import Trials, attempt_all
from nnpa_tools.doctor.waste import gains
from nnpa_tools.faults.sweep import Unusable
from nnpa_tools.s390x import CannotRun

Progress = Callable[[str, int, int], None]
"""Is called with the present step, the number of parts that are done, and of all parts."""
_NO_SESSION = (
    "it opened no session at ZDNN_SERVER: is it linked with libzdnn, or does it call connect() "
    "without a target?"
)
_NO_INSTRUCTION = "it issued no NNPA instruction"
_TRIALS = "statuses and range violations"


def examine(
    command: Sequence[str], machines: Sequence[str], timeout: float, quick: bool, progress: Progress
) -> Report:
    """Run a program that should work on `machines` under all conditions, and return the report.

    `quick` leaves the trials out. Raises `Unusable` for a program that never calls zDNN or cannot
    run here, OSError for a program that cannot be started, `TransportError` without a server.
    """
    if foreign.is_foreign(Path(shutil.which(command[0]) or command[0])):
        return _examine_foreign(command, machines, timeout, quick, progress)
    with laboratory(command, timeout) as once:
        runs = _runs(conditions(machines), once, progress)
    measure, left_out = runs[0], list[str]()
    if not measure.trace.sessions and measure.ended.code == 0:
        raise Unusable(_NO_SESSION)
    trials = Trials()
    if not _leaves_out_trials(measure, quick, left_out):
        machine = measure.condition.machine
        try:
            trials = attempt_all(command, machine, timeout, _of(progress))
        except Unusable as error:
            left_out.append(f"{_TRIALS}: {error}")
    if trials.skipped:
        left_out.append(f"{trials.skipped} further calls of functions that were tried 8 times")
    return _report(command, Evidence(measure, runs, trials, tuple(machines)), left_out)


def _examine_foreign(
    command: Sequence[str], machines: Sequence[str], timeout: float, quick: bool, progress: Progress
) -> Report:
    """Examine a program for s390x, which carries its own library."""
    try:
        once = foreign.runner(command, timeout)
    except CannotRun as error:
        raise Unusable(str(error)) from error
    runs = _runs(foreign.conditions(machines), once, progress)
    measure, left_out = runs[0], list(foreign.left_out())
    if not measure.steps and measure.ended.code == 0:
        raise Unusable(_NO_INSTRUCTION)
    evidence = Evidence(measure, runs, Trials(), tuple(machines))
    if not _leaves_out_trials(measure, quick, left_out):
        steady = evidence.is_steady
        trials = foreign.attempt_instructions(once, measure, steady, _of(progress))
        evidence = Evidence(measure, runs, trials, tuple(machines))
    return _report(command, evidence, left_out)


def _runs(
    chosen: Sequence[Condition], once: Callable[[Condition], Run], progress: Progress
) -> tuple[Run, ...]:
    """Return the runs under all conditions.

    The first run alone is returned if the program does not end, or ends well without a call.
    """
    runs: list[Run] = []
    for number, condition in enumerate(chosen):
        progress(condition.title, number, len(chosen))
        runs.append(once(condition))
        if runs[0].ended.code is None or (runs[0].ended.code == 0 and not runs[0].steps):
            break
    return tuple(runs)


def _leaves_out_trials(measure: Run, quick: bool, left_out: list[str]) -> bool:
    """Return True if trials are left out, and add the reason to `left_out`."""
    if quick:
        left_out.append(f"{_TRIALS}: --quick")
    elif measure.ended.code != 0:
        left_out.append(f"{_TRIALS}: it fails without ({measure.ending})")
    return quick or measure.ended.code != 0


def _of(progress: Progress) -> Callable[[int, int], None]:
    return lambda done, total: progress(_TRIALS, done, total)


def _report(command: Sequence[str], evidence: Evidence, left_out: Sequence[str]) -> Report:
    measure = evidence.measure
    return Report(
        program=tuple(command),
        machines=evidence.machines,
        findings=judge(evidence),
        runs=tuple(seen(run, measure) for run in evidence.runs),
        trials=evidence.trials,
        times=times_of(measure.trace, evidence.machines),
        gains=gains(measure.trace),
        functions=tuple(dict.fromkeys(operation.name for operation in measure.operations)),
        left_out=tuple(left_out),
    )
