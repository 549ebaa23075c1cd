# SPDX-License-Identifier: Apache-2.0
"""The executor of one batch of a network, compiled for the sizes of free dims in the options.

Sizes that the options leave out are guessed. A model that no guess fits is compiled for the shapes
of each inference over named arrays, and has no batch of a fixed size.
"""

from collections.abc import Mapping

from nnpa_network.client_api.creation import Options
from nnpa_network.importing.plan import Plan
from nnpa_network.importing.shapes import GUESSES, are_of_shapes
from nnpa_network.program import Array, ModelRefused, Program
from nnpa_network.running.executor import ProgramRunner
from nnpa_network.running.observed import Observer
from nnpa_network.running.results import Result


class Uncompiled:
    """Stands for the executor of one batch of unknown size; `refused` says why there is none."""

    def __init__(self, plan: Plan, refused: ModelRefused) -> None:
        self.refused = refused
        machine, ends = plan.guest.machine.name, (plan.inputs, plan.outputs)
        self.program = Program(plan.name, machine, *ends, (), (), {}, {}, {}, ())  # without steps

    def run(self, inputs: Mapping[str, Array], observer: Observer | None = None) -> Result:
        """Raise `ModelRefused`."""
        del inputs, observer
        raise self.refused


def one_batch(plan: Plan, options: Options) -> ProgramRunner:
    """Return the executor of one batch; raise `ModelRefused` if no sizes can be hosted."""
    free = [port.name for port in plan.inputs if -1 in port.shape]
    open_names = [name for name in free if name not in options.shapes]
    refusals: list[ModelRefused] = []
    for size in GUESSES if open_names else GUESSES[:1]:
        try:
            return plan.executor(_shapes(plan, options, size))
        except ModelRefused as refused:
            refusals.append(refused)
            if not refused.node:  # it is no node's shapes
                break
    first = refusals[0]
    if not first.node or not open_names:
        raise first
    text = f"free dims of {', '.join(open_names)} were taken as {', '.join(map(str, GUESSES))}"
    text += ": options.shapes, --shape of `nnpa network`, say their sizes"
    why = ModelRefused(f"{first.reason}; {text}", first.node)
    if not are_of_shapes(refusals):
        raise why from first
    return Uncompiled(plan, why)


def _shapes(plan: Plan, options: Options, size: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs for one batch: free dims of `size` unless an option says more."""
    return {
        port.name: tuple(options.shapes.get(port.name, _one_batch(port.shape, size)))
        for port in plan.inputs
    }


def _one_batch(shape: tuple[int, ...], size: int) -> list[int]:
    """Return a shape with a free first dim of 1, and all others of a size."""
    batch = [dim if dim >= 0 else 1 for dim in shape[:1]]
    return [*batch, *(dim if dim >= 0 else size for dim in shape[1:])]
