# SPDX-License-Identifier: Apache-2.0
"""The engine of all rules: each examines recorded data, and yields its observations.

`lint` applies rules to a trace, the doctor applies rules to all runs and trials of a program.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

Recorded = TypeVar("Recorded")
Observed = TypeVar("Observed")


class Rule(NamedTuple, Generic[Recorded, Observed]):
    """A rule: its name, the function that looks for it, its title, and its remedy."""

    name: str
    look: Callable[[Recorded], Iterable[Observed]]
    title: str = ""
    advice: str = ""


def apply(
    rules: Iterable[Rule[Recorded, Observed]], recorded: Recorded, ignore: Collection[str] = ()
) -> Iterator[tuple[Rule[Recorded, Observed], Observed]]:
    """Yield each observation of the rules that are not ignored, with its rule."""
    for rule in rules:
        if rule.name not in ignore:
            for observed in rule.look(recorded):
                yield rule, observed
