# SPDX-License-Identifier: Apache-2.0
"""Faults of one session: which call meets which rule, and what then happens.

`Faults` stands between a session's operations and the emulator. A session without rules has none,
and then one look at its holdings is all that faults cost.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from nnpa.zdnn.v1 import fault_pb2
from nnpa_emulator import Outcome, ProgramCheck, Ztensor
from nnpa_emulator.machine import Guest, Machine
from nnpa_emulator.status import CheckKind, is_warning, status_name

from nnpa_server.errors import ConnectionLost
from nnpa_server.faults import effects
from nnpa_server.faults.rules import MOST_SECONDS, Rule
from nnpa_server.sessions.cancellation import Context, Patience
from nnpa_server.sessions.log_text import as_text
from nnpa_server.sessions.store import Session, session_tag

METADATA = "nnpa-fault"
_MOST_KEPT = 1000
_MOST_TOLD = 16  # per gRPC call: clients take 8 KiB of metadata
_SLICE = 0.02  # seconds of a delay between questions whether anybody still waits
_HOLDING = "faults"
_KINDS: Mapping[str, CheckKind] = {"data": "data", "access": "access", "operation": "operation"}
_log = logging.getLogger("nnpa.fault")


class WrittenAnyway(Outcome):
    """An error status whose outputs were written, as no function of the library answers."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class _Counting:
    """A rule at work: how many calls its conditions have let through, and its random numbers."""

    rule: Rule
    passed: int = 0
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.rule.message.seed)

    def is_due(
        self, call: int, operation: str, machine: str, tensors: Mapping[str, Ztensor]
    ) -> bool:
        """Count a call, and tell whether it is this rule's turn."""
        wanted = self.rule.message
        if operation not in self.rule.operations or wanted.call not in (0, call):
            return False
        if self.rule.machine not in ("", machine) or not _has_shape(tuple(wanted.shape), tensors):
            return False
        self.passed += 1
        if wanted.nth not in (0, self.passed) or (wanted.every and self.passed % wanted.every):
            return False
        return not wanted.HasField("probability") or self.random.random() < wanted.probability


def _has_shape(shape: tuple[int, ...], tensors: Mapping[str, Ztensor]) -> bool:
    if not shape:
        return True
    dims = (1,) * (4 - len(shape)) + shape
    return any(
        dims in (one.pre_transformed_desc.dims, one.transformed_desc.dims)
        for one in tensors.values()
    )


@dataclass(slots=True)
class _Away:
    """A guest that was moved: from where, to where, by which rule, for how many more calls."""

    home: Machine
    there: Machine
    rule: int
    left: int | None


class Faults:
    """The rules of one session and what they have done; touched under the session's lock only.

    `tag` is what logs call the session, `guest` its guest.
    """

    def __init__(self, tag: str, guest: Guest) -> None:
        self.injected: deque[fault_pb2.InjectedFault] = deque(maxlen=_MOST_KEPT)
        self._tag = tag
        self._guest = guest
        self._rules: list[_Counting] = []
        self._calls = 0
        self._sequence = 0
        self._away: _Away | None = None
        self._lost = False
        self._context: Context | None = None
        self._told = 0
        self._go_on: Callable[[], object] = int

    def close(self) -> None:
        """Forget the rules."""
        self.change(())

    def change(self, rules: tuple[Rule, ...]) -> None:
        """Take other rules; those that stay the same at the same place go on counting.

        The guest is where its session wants it to be; one that a rule moved goes there again, or
        stays when the rules are others.
        """
        old = self._rules
        self._rules = [
            old[place]
            if place < len(old) and old[place].rule.message == rule.message
            else _Counting(rule)
            for place, rule in enumerate(rules)
        ]
        if old != self._rules:
            self._away = None
        if self._away is not None:
            self._away.home, self._guest.machine = self._guest.machine, self._away.there

    def attend(self, context: Context, go_on: Callable[[], object]) -> None:
        """Take note of the gRPC call that operations now belong to; `go_on` raises when it ends."""
        if context is not self._context:  # lists of one stream share a call, and its metadata
            self._told = 0
        self._context, self._go_on = context, go_on

    def call(
        self, operation: str, tensors: Mapping[str, Ztensor], run: Callable[[], Outcome]
    ) -> Outcome:
        """Run one call of the program, or what the rules make of it."""
        self._calls += 1
        self._lost = False
        self._count_absence(operation)
        machine = self._guest.machine.name.removesuffix("-custom")
        turns = [
            (place, one)
            for place, one in enumerate(self._rules)
            if one.is_due(self._calls, operation, machine, tensors)
        ]
        deciding: tuple[int, _Counting] | None = None
        for place, one in turns:
            match one.rule.effect:
                case "move":
                    self._move(place, one.rule, operation)
                case "delay":
                    self._delay(place, one, operation)
                case "note":
                    self._tell(place, operation, "note", "")
                case _:
                    deciding = deciding or (place, one)
        return run() if deciding is None else self._break(*deciding, operation, tensors, run)

    def require_connection(self) -> None:
        """End the gRPC call if the last operation lost its connection after it ran."""
        if self._lost:
            self._lost = False
            raise ConnectionLost

    def _break(
        self,
        place: int,
        one: _Counting,
        operation: str,
        tensors: Mapping[str, Ztensor],
        run: Callable[[], Outcome],
    ) -> Outcome:
        wanted = one.rule.message
        match one.rule.effect:
            case "status":
                return self._answer(place, one.rule, operation, tensors, run)
            case "program_check":
                self._tell(place, operation, "program_check", wanted.program_check)
                raise ProgramCheck(
                    _KINDS[wanted.program_check], effects.refused(0, place, self._calls)
                )
            case "lose_connection":
                return self._lose(place, wanted.lose_connection, operation, run)
            case _:
                return self._spoil(place, one, operation, tensors, run)

    def _answer(
        self,
        place: int,
        rule: Rule,
        operation: str,
        tensors: Mapping[str, Ztensor],
        run: Callable[[], Outcome],
    ) -> Outcome:
        """Return a status; a warning's function runs, and keeps an error of its own."""
        status, warning = rule.status, is_warning(rule.status)
        outcome = run() if warning or rule.message.output_written else Outcome()
        if warning and not outcome.valid:
            return outcome
        self._tell(place, operation, "status", status_name(status))
        refusal = None if warning else effects.refused(status, place, self._calls)
        kind = WrittenAnyway if rule.message.output_written else Outcome
        value = outcome.value if rule.message.output_written or warning else None
        told = kind(status, refusal, fp_flags=outcome.fp_flags, value=value)
        return effects.with_diagnostics(self._guest, operation, tensors, told)

    def _lose(self, place: int, moment: str, operation: str, run: Callable[[], Outcome]) -> Outcome:
        if moment == "before":
            self._tell(place, operation, "lose_connection", moment)
            raise ConnectionLost
        outcome = run()
        self._tell(place, operation, "lose_connection", moment)
        self._lost = True
        return outcome

    def _spoil(
        self,
        place: int,
        one: _Counting,
        operation: str,
        tensors: Mapping[str, Ztensor],
        run: Callable[[], Outcome],
    ) -> Outcome:
        """Run a function and change what it wrote, if it wrote anything."""
        outcome, effect, wanted = run(), one.rule.effect, one.rule.message
        if not outcome.valid:
            return outcome
        if effect == "flip_bits":
            outcome, where = effects.flip(operation, tensors, outcome, wanted.flip_bits, one.random)
        else:
            found = effects.violate(operation, tensors, wanted.range_violation, one.random)
            outcome, where = found
            outcome = effects.with_diagnostics(self._guest, operation, tensors, outcome)
        self._tell(place, operation, effect, where)
        return outcome

    def _delay(self, place: int, one: _Counting, operation: str) -> None:
        seconds = effects.drawn(one.rule.message.delay, one.random, MOST_SECONDS)
        self._tell(place, operation, "delay", f"{seconds:.6g} s")
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _SLICE))
            self._go_on()

    def _move(self, place: int, rule: Rule, operation: str) -> None:
        assert rule.target is not None
        self._come_back(operation, told=False)
        calls = rule.message.move.calls
        self._away = _Away(self._guest.machine, rule.target, place, calls - 1 if calls else None)
        self._guest.machine = rule.target
        self._tell(place, operation, "move", rule.target.name)

    def _count_absence(self, operation: str) -> None:
        if self._away is None or self._away.left is None:
            return
        if self._away.left == 0:
            self._come_back(operation, told=True)
        else:
            self._away.left -= 1

    def _come_back(self, operation: str, told: bool) -> None:
        away, self._away = self._away, None
        if away is None:
            return
        self._guest.machine = away.home
        if told:
            self._tell(away.rule, operation, "move", "back")

    def _tell(self, place: int, operation: str, effect: str, detail: str) -> None:
        """Mark a fault in the log, in the metadata of the call, and in the session."""
        self._sequence += 1
        fault = fault_pb2.InjectedFault(
            sequence=self._sequence,
            call=self._calls,
            operation=operation,
            rule=place,
            effect=effect,
            detail=detail,
        )
        self.injected.append(fault)
        facts: dict[str, object] = {
            "call": self._calls,
            "operation": operation,
            "rule": place,
            "effect": effect,
            "detail": detail,
        }
        text = as_text(facts)
        whole = {"session": self._tag, **facts}
        _log.warning("%s", as_text(whole), extra={"facts": whole})
        if self._context is not None and self._told < _MOST_TOLD:
            self._told += 1
            before = tuple(self._context.trailing_metadata() or ())
            self._context.set_trailing_metadata((*before, (METADATA, text)))


def faults_of(session: Session) -> Faults | None:
    """Return the faults of a session, None where it never had a rule."""
    held = session.holdings.get(_HOLDING)
    return held if isinstance(held, Faults) else None


def attend(session: Session, context: Context) -> None:
    """Tell the faults of a session, if it has any, which gRPC call operations now belong to."""
    if session.holdings and (faults := faults_of(session)) is not None:
        faults.attend(context, Patience(context, session))


def change_faults(session: Session, rules: tuple[Rule, ...]) -> None:
    """Give a session rules, the first ones or others."""
    faults = faults_of(session)
    if faults is None:
        if not rules:
            return
        faults = Faults(session_tag(session.name), session.guest)
        session.holdings[_HOLDING] = faults
    faults.change(rules)
