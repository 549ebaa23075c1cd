# SPDX-License-Identifier: Apache-2.0
"""Run a program under conditions: a machine, a version of zDNN, the sanitizer, counted calls.

All runs are at one private server, each recorded in a trace with contents.
"""

import signal
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from nnpa.zdnn.v1.fault_pb2 import FaultRule
from nnpa.zdnn.v1.trace_pb2 import TracedInstruction
from nnpa_client._guest.custom_machine import find_machine
from nnpa_client._server.transport import GrpcTransport
from nnpa_client._values.availability import LIBRARIES, MACHINES, TELUMS
from nnpa_client.config import endpoint
from nnpa_client.trace.history import Trace, TracedOperation, read
from nnpa_client.trace.record import Recording

from nnpa_tools.faults.program import Ended, FaultServer, run
from nnpa_tools.traces.instructions import ending as instruction_ending
from nnpa_tools.traces.instructions import function_name, is_done

TITLES = {name: MACHINES[name].aliases[0] for name in TELUMS}
"""The machines that programs are for, by the server's names, with IBM's."""
AGAIN, SANITIZED = "the same again", "sanitizer"
"""Runs under the first condition: a second one, and one with the sanitizer."""
_OLDER_LIBRARIES = ("1.0.1", "1.1.2")  # the last of each minor version before this one
INSTRUCTION = "NNPA_"
"""How names of instructions begin."""
_NOT_RUN = "did not run"
_RETRIED = "CACHE_MISS"  # the client repeats such a call by itself
_MEASURE = "the run that the others are compared with"
_COUNTED = (
    "the first run again, to see whether its output is the same; allocations, which libzdnn makes "
    "by itself otherwise, count as operations here"
)
_SANITIZER = "misused ztensors are reported; padding and what nothing has written are NaN"
_OF_SHELL = 128  # which a shell adds to a signal's number
_NOTE = FaultRule(note=True)


@dataclass(frozen=True, slots=True)
class Condition:
    """The environment of a run; `what` describes it to a reader, `machine` is as in ZDNN_MACHINE.

    With `counts_calls` the server also sees allocations and frees, which libzdnn otherwise does
    without the server.
    """

    title: str
    machine: str
    library: str = LIBRARIES[-1]
    sanitize: bool = False
    counts_calls: bool = False
    what: str = field(kw_only=True)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that make the program's client meet the condition."""
        sanitize = {"ZDNN_SANITIZE": "1"} if self.sanitize else {}
        return {
            "ZDNN_MACHINE": self.machine,
            "ZDNN_LIBRARY_VERSION": self.library,
            "ZDNN_LOGLEVEL": "off",  # what is printed is then the program's own
            **sanitize,
        }


class Step(NamedTuple):
    """An operation or an instruction: its number, its name, and its answer."""

    number: int
    name: str
    answer: str
    is_refused: bool = False
    is_warning: bool = False

    def __str__(self) -> str:
        """Return it as "operation 3, zdnn_add: ZDNN_OK"."""
        kind = "instruction" if self.name.startswith(INSTRUCTION) else "operation"
        return f"{kind} {self.number}, {self.name}: {self.answer}"


@dataclass(frozen=True)
class Run:
    """A run of a program: its end, and its trace."""

    condition: Condition
    ended: Ended
    trace: Trace

    @cached_property
    def operations(self) -> tuple[TracedOperation, ...]:
        """The operations of the program, without its client's housekeeping."""
        return tuple(
            operation
            for operation in self.trace.operations
            if not operation.is_housekeeping and operation.failure != _RETRIED
        )

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The operations, and the instructions of the program's own library."""
        return (
            *map(_step_of_operation, self.operations),
            *(
                _step_of_instruction(number, instruction)
                for number, instruction in enumerate(self.trace.instructions)
            ),
        )

    @property
    def refused(self) -> tuple[Step, ...]:
        """The steps that answered an error."""
        return tuple(step for step in self.steps if step.is_refused)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the steps, in order."""
        return tuple(step.name for step in self.steps)

    @property
    def ending(self) -> str:
        """How the program ended, for people."""
        return ending(self.ended.code)

    @property
    def chose_machine(self) -> bool:
        """Whether the program opened a session on another machine than the condition's."""
        names = {session.machine.name for session in self.trace.sessions.values()}
        machine = find_machine(self.condition.machine)
        return bool(names - {"" if machine.base else f"machines/{machine.name}"})


def _step_of_operation(operation: TracedOperation) -> Step:
    is_refused = not operation.is_valid and operation.status != _NOT_RUN
    is_warning = operation.is_valid and operation.status != "ZDNN_OK"
    name = f"zdnn_{operation.name}"
    return Step(operation.index, name, operation.status, is_refused, is_warning)


def _step_of_instruction(number: int, instruction: TracedInstruction) -> Step:
    end, is_refused = instruction_ending(instruction), not is_done(instruction)
    return Step(number, function_name(instruction), end, is_refused, not is_refused and end != "ok")


def ending(code: int | None) -> str:
    """Return an exit code in words; a negative one is a signal, None a program that hung."""
    if code is None:
        return "does not end"
    if code < 0:
        return signal.Signals(-code).name
    is_signal = code - _OF_SHELL in set(signal.Signals)
    return f"exit code {code}" + (f", {signal.Signals(code - _OF_SHELL).name}" if is_signal else "")


def is_crash(code: int | None) -> bool:
    """Return True if a signal other than SIGABRT, of a failed assert, ended a program."""
    if code is None or code in (-signal.SIGABRT, _OF_SHELL + signal.SIGABRT):
        return False
    return code < 0 or code > _OF_SHELL


def title_of(machine: str) -> str:
    """Return IBM's name of a machine, or of the base of a custom one."""
    host = find_machine(machine)
    return "custom " * bool(host.base) + TITLES[host.model]


def on_machines(machines: Sequence[str]) -> Iterator[Condition]:
    """Yield the baseline of a program for these machines, then the conditions on others."""
    measure = "telum2" if "telum2" in machines else machines[0]
    for machine in dict.fromkeys((measure, *machines, *TITLES)):
        title = title_of(machine)
        where = f"on a {title}" if machine in TITLES else f"on the machine {machine}"
        what = f"{_MEASURE}, {where}" if machine == measure else where
        yield Condition(title, machine, what=what)


def conditions(machines: Sequence[str]) -> tuple[Condition, ...]:
    """Return the conditions for a program for these machines; the first one is the baseline."""
    first, *elsewhere = on_machines(machines)
    measure = first.machine
    without = f"{find_machine(measure).model}-nonnpa"
    return (
        first,
        Condition(AGAIN, measure, counts_calls=True, what=_COUNTED),
        *elsewhere,
        Condition("without NNPA", without, what="on a machine whose NNPA is off"),
        Condition(SANITIZED, measure, sanitize=True, what=_SANITIZER),
        *(
            Condition(f"zDNN {version}", measure, version, what="with this older library")
            for version in _OLDER_LIBRARIES
        ),
    )


@contextmanager
def laboratory(command: Sequence[str], timeout: float) -> Generator[Callable[[Condition], Run]]:
    """Start a server, and yield the function that runs a program at it, for `timeout` seconds.

    Raises OSError for a program that cannot be started, `TransportError` without a server.
    """
    server = FaultServer(idle=2 * timeout)
    transport = GrpcTransport(endpoint(server.target))
    with tempfile.TemporaryDirectory(prefix="nnpa-") as folder:

        def once(condition: Condition) -> Run:
            recording = Recording(transport, Path(folder) / "trace.nnpa", contents=True)
            try:
                variables = {"ZDNN_TRACE": recording.name, **condition.variables}
                rules = [_NOTE] if condition.counts_calls else []
                ended = run(server, command, rules, timeout, variables)
            finally:
                recording.stop()
            return Run(condition, ended, read(recording.path))

        try:
            yield once
        finally:
            transport.close()
            server.stop()
