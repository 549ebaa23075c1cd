# SPDX-License-Identifier: Apache-2.0
"""Run a program node by node, with an observer that may read the values of the model."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from nnpa_emulator import run as call

from nnpa_network.program import Array
from nnpa_network.running.arrays import arrange
from nnpa_network.running.plain import Run, run_step


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Before or after a node of the model; `read(name)` gives a value of it, None where not live.

    `read` is valid only until the next event. Names are the model's.
    """

    node: int
    phase: Literal["before", "after"]
    read: Callable[[str], Array | None]


Observer: TypeAlias = Callable[[NodeEvent], None]


def run_by_node(run: Run) -> Generator[NodeEvent]:
    """Run every step in order, and yield before and after nodes; values live until their end."""
    steps, index, read = run.loaded.program.steps, 0, partial(_read, run)
    for node in range(len(run.loaded.program.nodes)):
        yield NodeEvent(node, "before", read)
        first = index
        while index < len(steps) and steps[index].node == node:
            run_step(run, index)
            index += 1
        yield NodeEvent(node, "after", read)
        for dead in run.loaded.last_used[first:index]:
            run.release(dead)
    for remaining in range(index, len(steps)):
        run_step(run, remaining)


def _read(run: Run, name: str) -> Array | None:
    """Return a named value in the model's shape; transforms for it are not counted."""
    for place in run.loaded.program.places.get(name, ()):
        if place.id in run.arrays:
            array = run.arrays[place.id]
            return array if -1 in place.shape else arrange(array, place.shape, place.order)
        if place.id in run.tensors:
            arguments = {"ztensor": run.tensors[place.id]}
            outcome = call(run.loaded.guest, "transform_origtensor", arguments)
            return arrange(np.asarray(outcome.value), place.shape, place.order)
    return None
