# SPDX-License-Identifier: Apache-2.0
"""Inject faults into the calls of one session by its rules.

`Faults` wraps the calls of a session's operations. A session without rules has none.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from nnpa.zdnn.v1 import fault_pb2
from nnpa_emulator import Outcome, ProgramCheck, Ztensor
from nnpa_emulator.machine import Guest, Machine
from nnpa_emulator.status import CheckKind, is_warning, status_name

from nnpa_server.errors import ConnectionLost
from nnpa_server.faults import effects
from nnpa_server.faults.rules import MAX_SECONDS, Rule
from nnpa_server.logs import as_text, flush
from nnpa_server.sessions.cancellation import CancellationCheck, Context
from nnpa_server.sessions.store import Session, session_tag

METADATA = "nnpa-fault"
_MAX_INJECTED = 1000
_MAX_RECORDED_IN_CALL = 16  # per gRPC call: clients take 8 KiB of metadata
_POLL_SECONDS = 0.02  # seconds of a delay between questions whether anybody still waits
_HOLDING = "faults"
_KINDS: Mapping[str, CheckKind] = {"data": "data", "access": "access", "operation": "operation"}
_log = logging.getLogger("nnpa.fault")


class WrittenAnyway(Outcome):
    """An error status with written outputs, which the library itself never returns."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class _ActiveRule:
    """A rule with its state: the count of calls that met its conditions, and random numbers."""

    rule: Rule
    random: Random
    passed: int = 0

    def is_due(
        self, call: int, operation: str, machine: str, tensors: Mapping[str, Ztensor]
    ) -> bool:
        """Count a call, and return True if the rule applies to it."""
        condition = self.rule.message
        if operation not in self.rule.operations or condition.call not in (0, call):
            return False
        if self.rule.machine not in ("", machine):
            return False
        if not _has_shape(tuple(condition.shape), tensors):
            return False
        self.passed += 1
        if condition.nth not in (0, self.passed) or (
            condition.every and self.passed % condition.every
        ):
            return False
        return not condition.HasField("probability") or self.random.random() < condition.probability


def _has_shape(shape: tuple[int, ...], tensors: Mapping[str, Ztensor]) -> bool:
    if not shape:
        return True
    dims = (1,) * (4 - len(shape)) + shape
    return any(
        dims in (tensor.pre_transformed_desc.dims, tensor.transformed_desc.dims)
        for tensor in tensors.values()
    )


class _Turn(NamedTuple):
    """A call to which the rule at `place` in the list applies; `run` runs its function."""

    place: int
    active: _ActiveRule
    operation: str
    tensors: Mapping[str, Ztensor]
    run: Callable[[], Outcome]


@dataclass(slots=True)
class _Move:
    """The move of a guest to another machine, for `left` more calls (None: for good)."""

    home: Machine
    target: Machine
    rule: int
    left: int | None


class Faults:
    """The rules of one session and the faults injected so far; used under the session's lock."""

    def __init__(self, tag: str, guest: Guest) -> None:
        self.injected: deque[fault_pb2.InjectedFault] = deque(maxlen=_MAX_INJECTED)
        self._tag = tag
        self._guest = guest
        self._rules: list[_ActiveRule] = []
        self._calls = 0
        self._sequence = 0
        self._moved: _Move | None = None
        self._lost = False
        self._context: Context | None = None
        self._recorded_in_call = 0
        self._require_waiting: Callable[[], object] = int

    def close(self) -> None:
        """Drop the rules."""
        self.change(())

    def change(self, rules: tuple[Rule, ...]) -> None:
        """Replace the rules; an unchanged rule at the same position continues to count.

        The guest is on its session's machine now; if a rule had moved it and no rule changed, it is
        moved again.
        """
        old = self._rules
        self._rules = [
            old[place]
            if place < len(old) and old[place].rule.message == rule.message
            else _ActiveRule(rule, Random(rule.message.seed))
            for place, rule in enumerate(rules)
        ]
        if old != self._rules:
            self._moved = None
        if self._moved is not None:
            self._moved.home, self._guest.machine = self._guest.machine, self._moved.target

    def attend(self, context: Context, go_on: Callable[[], object]) -> None:
        """Set the gRPC call of the operations; `go_on` raises once that is cancelled."""
        if context is not self._context:  # lists of one stream share a call, and its metadata
            self._recorded_in_call = 0
        self._context, self._require_waiting = context, go_on

    def call(
        self, operation: str, tensors: Mapping[str, Ztensor], run: Callable[[], Outcome]
    ) -> Outcome:
        """Run one call of the program with the effects of the rules."""
        self._calls += 1
        self._lost = False
        self._count_moved_call(operation)
        machine = self._guest.machine.name.removesuffix("-custom")
        turns = [
            (place, active)
            for place, active in enumerate(self._rules)
            if active.is_due(self._calls, operation, machine, tensors)
        ]
        deciding: _Turn | None = None
        for place, active in turns:
            match active.rule.effect:
                case "move":
                    self._move(place, active.rule, operation)
                case "delay":
                    self._delay(place, active, operation)
                case "note":
                    self._record(place, operation, "note", "")
                case _:
                    deciding = deciding or _Turn(place, active, operation, tensors, run)
        return run() if deciding is None else self._inject(deciding)

    def require_connection(self) -> None:
        """End the gRPC call if the last operation lost its connection after it ran."""
        if self._lost:
            self._lost = False
            raise ConnectionLost

    def _inject(self, turn: _Turn) -> Outcome:
        message = turn.active.rule.message
        match turn.active.rule.effect:
            case "status":
                return self._return_status(turn)
            case "program_check":
                self._record(turn.place, turn.operation, "program_check", message.program_check)
                refusal = effects.refused(0, turn.place, self._calls)
                raise ProgramCheck(_KINDS[message.program_check], refusal)
            case "lose_connection":
                return self._lose_connection(turn, message.lose_connection)
            case _:
                return self._corrupt(turn)

    def _return_status(self, turn: _Turn) -> Outcome:
        """Return a status; for a warning, run the function, whose own error takes precedence."""
        rule = turn.active.rule
        status, warning = rule.status, is_warning(rule.status)
        outcome = turn.run() if warning or rule.message.output_written else Outcome()
        if warning and not outcome.valid:
            return outcome
        self._record(turn.place, turn.operation, "status", status_name(status))
        refusal = None if warning else effects.refused(status, turn.place, self._calls)
        kind = WrittenAnyway if rule.message.output_written else Outcome
        value = outcome.value if rule.message.output_written or warning else None
        injected = kind(status, refusal, fp_flags=outcome.fp_flags, value=value)
        return effects.with_diagnostics(self._guest, turn.operation, turn.tensors, injected)

    def _lose_connection(self, turn: _Turn, moment: str) -> Outcome:
        outcome = Outcome() if moment == "before" else turn.run()
        self._record(turn.place, turn.operation, "lose_connection", moment)
        if moment == "before":
            raise ConnectionLost
        self._lost = True
        return outcome

    def _corrupt(self, turn: _Turn) -> Outcome:
        """Run a function and change its outputs, if it was valid."""
        outcome, effect, message = turn.run(), turn.active.rule.effect, turn.active.rule.message
        if not outcome.valid:
            return outcome
        called, random = (turn.operation, turn.tensors), turn.active.random
        if effect == "flip_bits":
            outcome, where = effects.flip(*called, outcome, message.flip_bits, random)
        else:
            outcome, where = effects.violate(*called, message.range_violation, random)
            outcome = effects.with_diagnostics(self._guest, *called, outcome)
        self._record(turn.place, turn.operation, effect, where)
        return outcome

    def _delay(self, place: int, active: _ActiveRule, operation: str) -> None:
        seconds = effects.draw_delay(active.rule.message.delay, active.random, MAX_SECONDS)
        self._record(place, operation, "delay", f"{seconds:.6g} s")
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _POLL_SECONDS))
            self._require_waiting()

    def _move(self, place: int, rule: Rule, operation: str) -> None:
        assert rule.target is not None
        home = self._guest.machine if self._moved is None else self._moved.home
        calls = rule.message.move.calls
        self._moved = _Move(home, rule.target, place, calls - 1 if calls else None)
        self._guest.machine = rule.target
        self._record(place, operation, "move", rule.target.name)

    def _count_moved_call(self, operation: str) -> None:
        """Count a call of a moved guest; move it back if it has made its calls."""
        moved = self._moved
        if moved is None or moved.left is None:
            return
        if moved.left:
            moved.left -= 1
            return
        self._moved, self._guest.machine = None, moved.home
        self._record(moved.rule, operation, "move", "back")

    def _record(self, place: int, operation: str, effect: str, detail: str) -> None:
        """Record a fault in the log, in the metadata of the call, and in the session."""
        self._sequence += 1
        facts: dict[str, Any] = {"call": self._calls, "operation": operation, "rule": place}
        facts |= {"effect": effect, "detail": detail}
        self.injected.append(fault_pb2.InjectedFault(sequence=self._sequence, **facts))
        whole = {"session": self._tag, **facts}
        _log.warning("%s", as_text(whole), extra={"facts": whole})
        flush()  # a test reads the log when the call has ended
        if self._context is not None and self._recorded_in_call < _MAX_RECORDED_IN_CALL:
            self._recorded_in_call += 1
            before = tuple(self._context.trailing_metadata() or ())
            self._context.set_trailing_metadata((*before, (METADATA, as_text(facts))))


def faults_of(session: Session) -> Faults | None:
    """Return the faults of a session, or None if it never had a rule."""
    held = session.holdings.get(_HOLDING)
    return held if isinstance(held, Faults) else None


def attend(session: Session, context: Context) -> None:
    """Tell the faults of a session the gRPC call of its operations."""
    if session.holdings and (faults := faults_of(session)) is not None:
        faults.attend(context, CancellationCheck(context, session))


def change_faults(session: Session, rules: tuple[Rule, ...]) -> None:
    """Set or replace the fault rules of a session."""
    faults = faults_of(session)
    if faults is None:
        if not rules:
            return
        faults = Faults(session_tag(session.name), session.guest)
        session.holdings[_HOLDING] = faults
    faults.change(rules)
