# SPDX-License-Identifier: Apache-2.0
"""A run of a network node by node: compared with FP32, and each node over FP32's inputs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from nnpa_emulator import DataTypes, Guest
from nnpa_emulator import run as call
from nnpa_emulator.pipeline import allocate_sticks
from nnpa_emulator.status import Malformed, ProgramCheck, Refused

from nnpa_network.program import Array, Place, Program
from nnpa_network.reporting.measurements import Value
from nnpa_network.reporting.metrics import Tally
from nnpa_network.running.arrays import raw
from nnpa_network.running.executor import Executor
from nnpa_network.running.observed import run_by_node
from nnpa_network.running.plain import Run
from nnpa_network.running.results import Result


class NodeRuns:
    """A program whose runs are observed; `values` of a run collect the observations by name."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._program: Program = executor.program
        self._guest: Guest = executor.guest

    def beside(
        self,
        feeds: Mapping[str, Array],
        references: Mapping[str, Array],
        values: dict[str, Value],
    ) -> tuple[Result, dict[str, Array]]:
        """Run as it runs, compare every value, and return the result and all values."""
        seen: dict[str, Array] = {}
        run = self._executor.begin(feeds)
        for node, name, got in self._made(run):
            seen[name] = np.array(got)
            if (reference := _comparable(got, references.get(name))) is not None:
                _value(values, node, name).tally.add(got, reference)
        return self._executor.result(run), seen

    def alone(
        self,
        feeds: Mapping[str, Array],
        references: Mapping[str, Array],
        values: dict[str, Value],
    ) -> None:
        """Run with FP32's values in place of every node's outputs, once they were compared.

        So each node has the inputs of FP32, rounded as the machine takes them.
        """
        run = self._executor.begin(feeds)
        for node, name, got in self._made(run):
            if (reference := _comparable(got, references.get(name))) is not None:
                _value(values, node, name).alone.add(got, reference)
                self._replace(run, name, reference)

    def _made(self, run: Run) -> Iterator[tuple[int, str, Array]]:
        """Run all steps, and yield number of node, name and value of all that nodes make."""
        for event in run_by_node(run):
            outputs = self._program.nodes[event.node].outputs if event.phase == "after" else ()
            for name in outputs:
                if (got := event.read(name)) is not None:
                    yield event.node, name, got

    def _replace(self, run: Run, name: str, array: Array) -> None:
        """Put an array in all places where a value lives now."""
        for place in self._program.places.get(name, ()):
            if -1 in place.shape:
                continue
            if place.id in run.arrays:
                old = run.arrays[place.id]
                run.arrays[place.id] = _arranged(array, place).reshape(old.shape)
                run.numeric.discard(place.id)
            elif place.id in run.tensors:
                self._restickify(run, place, array)

    def _restickify(self, run: Run, place: Place, array: Array) -> None:
        old = run.tensors[place.id]
        if old.transformed_desc.type != DataTypes.ZDNN_DLFLOAT16:
            return
        fresh = replace(old, buffer=None, is_transformed=False)
        try:
            allocate_sticks(self._guest, fresh, "allochelper_ztensor_c1")
            data = [raw(_arranged(array, place).reshape(-1))]
            call(self._guest, "transform_ztensor", {"ztensor": fresh, "data": data})
        except (Refused, ProgramCheck, Malformed):
            return  # such a tensor keeps what the machine gave
        run.tensors[place.id] = replace(fresh, is_transformed=True)


def _comparable(got: Array, reference: Array | None) -> Array | None:
    """Return FP32's value where a value of floats can be compared with it."""
    if reference is None or reference.dtype.kind != "f" or got.shape != reference.shape:
        return None
    return reference


def _arranged(array: Array, place: Place) -> Array:
    """Return elements in the order of axes in which a place has them."""
    axes = sorted(place.order)
    dense = array.reshape([array.shape[axis] for axis in axes])
    return np.ascontiguousarray(dense.transpose([axes.index(axis) for axis in place.order]))


def _value(values: dict[str, Value], node: int, name: str) -> Value:
    return values.setdefault(name, Value(node, Tally(), Tally()))
