# SPDX-License-Identifier: Apache-2.0
"""The counts of `nnpa run`: each process of a program appends lines of JSON to a file."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnpa.zdnn.v1.operation_pb2 import NnpaFunctionCode

from nnpa_tools.s390x import StfleRules

_PRINTED = 8  # places of a line for people
_NOT_PATCHED = {
    "unproven": "nothing proves them STFLE",
    "kept": "--no-patch",
    "refused": "the system does not let code be changed",
}


@dataclass(slots=True)
class Stats:
    """The sums of the counts of all processes of a run."""

    processes: int = 0
    instructions: Counter[int] = field(default_factory=Counter[int])
    traps: int = 0
    conversions: int = 0
    patched_places: int = 0
    nanoseconds: int = 0
    stfle: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    """Places of possible STFLE instructions, by their fate, with the number of processes."""
    seconds: float = 0.0

    @classmethod
    def of(cls, notes: Path, seconds: float) -> "Stats":
        """Read the file to which the processes appended their lines."""
        stats = cls(seconds=seconds)
        for line in notes.read_text().splitlines():
            stats._add(json.loads(line))
        return stats

    def _add(self, note: dict[str, Any]) -> None:
        """Add a line of a process: a place with its fate, or the process's counts at its end."""
        if "fate" in note:
            place = f"{note['object']}+{note['offset']:#x}"
            self.stfle.setdefault(note["fate"], Counter())[place] += 1
            return
        self.processes += 1
        for code, count in note["instructions"].items():
            self.instructions[int(code)] += count
        for name in ("traps", "conversions", "patched_places", "nanoseconds"):
            setattr(self, name, getattr(self, name) + note[name])

    @property
    def stfle_places(self) -> int:
        """The number of STFLE that trap, in all processes."""
        return self.stfle.get("patched", Counter()).total()

    def as_json(self) -> str:
        """Return the JSON document."""
        document = {
            "processes": self.processes,
            "instructions": {
                _function(code): count for code, count in sorted(self.instructions.items())
            },
            "traps": self.traps,
            "trapped_conversions": self.conversions,
            "patched_places": self.patched_places,
            "stfle_places": self.stfle_places,
            "stfle": {fate: sorted(places) for fate, places in sorted(self.stfle.items())},
            "nnpa_seconds": self.nanoseconds / 1e9,
            "seconds": self.seconds,
        }
        return json.dumps(document, indent=2)

    def lines(self) -> list[str]:
        """Return the summary for people."""
        total = sum(self.instructions.values())
        counts = [f"{_function(code)} {n}" for code, n in sorted(self.instructions.items())]
        return [
            f"NNPA instructions: {total}" + (f" ({', '.join(counts)})" if counts else ""),
            f"traps: {self.traps}, of them vector conversions {self.conversions}",
            f"patched places: {self.patched_places} conversions, {self.stfle_places} STFLE",
            f"time: {self.seconds:.3f} s; of all threads in NNPA: {self.nanoseconds / 1e9:.3f} s",
            f"processes: {self.processes}",
            *self._not_patched(),
        ]

    def _not_patched(self) -> Iterator[str]:
        for fate, reason in _NOT_PATCHED.items():
            places = sorted(self.stfle.get(fate, ()))
            if places:
                more = len(places) - _PRINTED
                rest = f", and {more} more, which --json lists" if more > 0 else ""
                yield f"not patched, {reason}: {', '.join(places[:_PRINTED])}{rest}"

    def warnings(self, rules: StfleRules) -> Iterator[str]:
        """Name the rules that no place of any process was met by."""
        by_patch = {*self.stfle.get("patched", ()), *self.stfle.get("kept", ())}
        met = {"--patch": by_patch, "--no-patch": set(self.stfle.get("kept", ()))}
        for flag, names in (("--patch", rules.patched), ("--no-patch", rules.kept)):
            for name in names:
                objects = {place.rpartition("+")[0] for place in met[flag]}
                if self.stfle and name not in objects and name not in met[flag]:
                    yield f"{flag}: {name} has no place that looks like STFLE"


def _function(code: int) -> str:
    """Name a function code; the library counts those that no machine has together."""
    if code not in NnpaFunctionCode.values():
        return "undefined"
    return NnpaFunctionCode.Name(code).removeprefix("NNPA_")  # type: ignore[arg-type] # checked
