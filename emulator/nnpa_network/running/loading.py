# SPDX-License-Identifier: Apache-2.0
"""A program made ready for a guest: host nodes compiled, the last use of every value known."""

from collections.abc import Sequence

import numpy as np
import onnx
from nnpa_emulator import Guest, Ztensor

from nnpa_network.containment import MAX_TRIPS
from nnpa_network.program import (
    ABSENT,
    Array,
    DType,
    HostStep,
    ModelRefused,
    Program,
    described,
    reads,
    writes,
)
from nnpa_network.running import host


class LoadedProgram:
    """A program on a guest, which provides storage for sticks.

    `kernels` are the compiled host nodes by the number of their step; `templates` are the tensors
    that steps write, without storage; `last_used` has for each step the ids that no later step
    needs.
    """

    def __init__(self, program: Program, guest: Guest) -> None:
        self.program, self.guest = program, guest
        self.arrays, self.tensors = _constants(program)
        self.last_used = _last_used(program)
        written = {number for step in program.steps for number in writes(step)}
        self.templates = {
            number: described(program.tensors[number])
            for number in written & program.tensors.keys()
        }
        self.kernels = {
            index: self._compile(step)
            for index, step in enumerate(program.steps)
            if isinstance(step, HostStep)
        }

    def node_name(self, node: int) -> str:
        """Return the name of a node, its operator where it has none, or nothing for no node."""
        nodes = self.program.nodes
        return (nodes[node].name or nodes[node].op_type) if 0 <= node < len(nodes) else ""

    def dtypes(self, numbers: Sequence[int]) -> tuple[DType | None, ...]:
        """Return the element types of arrays, None where one is left out."""
        arrays = self.program.arrays
        return tuple(None if number == ABSENT else arrays[number].dtype for number in numbers)

    def _compile(self, step: HostStep) -> host.Kernel:
        try:
            return host.prepare(step.onnx, step.opset, self.dtypes(step.inputs), self._shapes(step))
        except host.HostError as error:
            raise ModelRefused(str(error), self.node_name(step.node)) from error

    def _shapes(self, step: HostStep) -> tuple[tuple[int, ...], ...] | None:
        """Return the shapes of the inputs for a node with subgraphs, None for any other."""
        node = onnx.NodeProto.FromString(step.onnx)
        if not host.has_subgraph(node):
            return None
        if node.op_type == "Loop":
            self._require_few_trips(step)
        arrays = self.program.arrays
        return tuple(() if number == ABSENT else arrays[number].shape for number in step.inputs)

    def _require_few_trips(self, step: HostStep) -> None:
        """Refuse a Loop that may not end; a program from elsewhere was not checked for that."""
        trips = self.program.constants.get(step.inputs[0] if step.inputs else ABSENT)
        if not isinstance(trips, np.ndarray) or trips.size != 1 or int(trips.flat[0]) > MAX_TRIPS:
            text = f"a Loop needs a constant trip count of at most {MAX_TRIPS}"
            raise ModelRefused(text, self.node_name(step.node))


def _constants(program: Program) -> tuple[dict[int, Array], dict[int, Ztensor]]:
    """Return the constants as arrays and as tensors."""
    arrays: dict[int, Array] = {}
    tensors: dict[int, Ztensor] = {}
    for number, constant in program.constants.items():
        if isinstance(constant, Ztensor):
            tensors[number] = constant
        else:
            arrays[number] = constant
    return arrays, tensors


def _last_used(program: Program) -> list[tuple[int, ...]]:
    """Return for each step the ids that no later step needs."""
    last: dict[int, int] = {}
    for index, step in enumerate(program.steps):
        for number in (*reads(step), *writes(step)):
            last[number] = index
    kept = {*program.output_ids, *program.input_ids, *program.constants, ABSENT}
    dead: list[list[int]] = [[] for _ in program.steps]
    for number, index in last.items():
        if number not in kept:
            dead[index].append(number)
    return [tuple(numbers) for numbers in dead]
