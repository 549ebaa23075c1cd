# SPDX-License-Identifier: Apache-2.0
"""A program made ready for a guest: host nodes compiled, the last use of every value known."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx
from nnpa_emulator import Guest, Ztensor

from nnpa_network.containment import MAX_TRIPS, trip_counts
from nnpa_network.nodes import captured, has_subgraph
from nnpa_network.program import (
    ABSENT,
    ANY_RANK,
    Array,
    DType,
    HostStep,
    ModelRefused,
    Program,
    described,
    uses_of,
    writes,
)
from nnpa_network.running import host
from nnpa_network.running.host_operators import MOVES, own_kernel
from nnpa_network.running.layer_normalizations import find_layer_normalizations


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Steps from `first` to `last`, both included; ids of the arrays that they read and leave."""

    first: int
    last: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    kernel: host.Kernel


class LoadedProgram:
    """A program on a guest, which provides storage for sticks.

    `own` are the host nodes, by the number of their step, that NumPy or our own operators compute;
    `compiled` are those of ONNX Runtime, and `kernels` both. Nodes that are `deferred` when the
    others are compiled are compiled when they run; `groups` run as one. `templates` are the tensors
    that steps write, without storage. `last_used` has for each step the ids that no later step
    needs. `normalizations` are the first steps of layer normalisations, which may run in one pass.
    `accepted` has for each step the state of the guest in which it last ran clean the plain way, or
    in which all `sources` did, programs of other sizes from which this one was derived; `root` is
    the first of them, or this. `uses` has the first and the last step that need or make each id.
    """

    def __init__(
        self, program: Program, guest: Guest, sources: "Sequence[LoadedProgram]" = ()
    ) -> None:
        self.program, self.guest = program, guest
        like = sources[0] if sources else None
        self.root: LoadedProgram = self if like is None else like.root
        self.uses: dict[int, tuple[int, int]] = uses_of(program) if like is None else like.uses
        self.accepted: dict[int, object] = {} if like is None else {
            index: state for index, state in like.accepted.items()
            if all(other.accepted.get(index) == state for other in sources)
        }  # fmt: skip
        constants = program.constants
        self.tensors = {at: each for at, each in constants.items() if isinstance(each, Ztensor)}
        self.arrays = {at: each for at, each in constants.items() if not isinstance(each, Ztensor)}
        self.last_used: list[tuple[int, ...]] = (
            _last_used(program, self.uses) if like is None else like.last_used
        )
        written = {number for step in program.steps for number in writes(step)}
        known = {} if like is None else {
            number: template for number, template in like.templates.items()
            if like.program.tensors[number] is program.tensors[number]
        }  # fmt: skip
        self.templates: dict[int, Ztensor] = {
            number: known.get(number) or described(program.tensors[number])
            for number in written & program.tensors.keys()
        }
        self.normalizations = find_layer_normalizations(
            program, self.templates | self.tensors, self.last_used
        )
        steps = {
            index: step for index, step in enumerate(program.steps) if isinstance(step, HostStep)
        }
        self.own = {
            index: kernel for index, step in steps.items()
            if (kernel := self._known_kernel(index, step, like) or self._own_kernel(step))
        }  # fmt: skip
        self.compiled: dict[int, host.Kernel] = {} if like is None else {
            index: kernel for index, kernel in like.compiled.items()
            if self._has_constants_of(like, index)
        }  # fmt: skip
        self.kernels = _Kernels(self)
        self.deferred = set[int]()
        self.groups: Sequence[HostGroup] = ()

    def compile(self) -> None:
        """Compile the host nodes that are not deferred; raise `ModelRefused`."""
        for index, step in enumerate(self.program.steps):
            if isinstance(step, HostStep) and index not in self.deferred:
                self.kernels[index]

    def growing(self, other: "LoadedProgram") -> set[int]:
        """Return the ids whose values are of other kinds or sizes, or other constants, there."""
        programs = self.program, other.program
        tables = [(self.templates, other.templates), [each.arrays for each in programs],
                  [each.constants for each in programs]]  # fmt: skip
        return {at for mine, theirs in tables for at, each in mine.items()
                if theirs.get(at) is not each}  # fmt: skip

    def node_name(self, node: int) -> str:
        """Return the name of a node, its operator where it has none, or nothing for no node."""
        nodes = self.program.nodes
        return (nodes[node].name or nodes[node].op_type) if 0 <= node < len(nodes) else ""

    def dtypes(self, numbers: Sequence[int]) -> tuple[DType | None, ...]:
        """Return the element types of arrays, None where one is left out."""
        arrays = self.program.arrays
        return tuple(None if number == ABSENT else arrays[number].dtype for number in numbers)

    def _known_kernel(
        self, index: int, step: HostStep, like: "LoadedProgram | None"
    ) -> host.Kernel | None:
        """Return an operator of our own that another program has, if its inputs are the same."""
        if like is None or index not in like.own or ABSENT in step.inputs:
            return None
        tables = (self.program.arrays, like.program.arrays), (self.arrays, like.arrays)
        same = all(table.get(number) is other.get(number)
                   for table, other in tables for number in step.inputs)  # fmt: skip
        return like.own[index] if same else None

    def _own_kernel(self, step: HostStep) -> host.Kernel | None:
        """Return an operator of our own; outputs of the program are no views of other values."""
        node = onnx.NodeProto.FromString(step.onnx)
        if node.op_type in MOVES and not set(step.outputs).isdisjoint(self.program.output_ids):
            return None
        if ABSENT in (*step.inputs, *step.outputs):
            return None
        infos = [self.program.arrays[number] for number in step.inputs]
        constants = [self.arrays.get(number) for number in step.inputs]
        dtypes, shapes = [info.dtype for info in infos], [info.shape for info in infos]
        return own_kernel(node, dtypes, shapes, constants)

    def _has_constants_of(self, other: "LoadedProgram", index: int) -> bool:
        """Return whether a host node has the same constants there, which its kernel holds."""
        step = self.program.steps[index]
        assert isinstance(step, HostStep)
        return all(self.arrays.get(at) is other.arrays.get(at) for at in step.inputs)

    def compiled_kernel(self, index: int) -> host.Kernel:
        """Return the kernel of a step that is not ours; raise `ModelRefused`."""
        if index not in self.compiled:
            step = self.program.steps[index]
            assert isinstance(step, HostStep)
            self.compiled[index] = self._compile(step)
        return self.compiled[index]

    def _compile(self, step: HostStep) -> host.Kernel:
        node = onnx.NodeProto.FromString(step.onnx)
        names = [*node.input, *(name for name in captured(node) if name not in node.input)]
        trips = [names.index(name) for name in trip_counts(node) if name in names]
        self._require_few_trips(step, trips)
        dtypes, refused = self.dtypes(step.inputs), ""
        constants = [self.arrays.get(number) for number in step.inputs]
        for shapes in self._shapes(node, step):
            try:
                if shapes is None:
                    kernel = host.prepare(step.onnx, step.opset, dtypes, constants)
                else:
                    kernel = host.compile_node(step.onnx, step.opset, dtypes, shapes, constants)
            except host.HostError as error:
                refused = refused or str(error)
            else:
                return _counting_trips(kernel, trips) if trips else kernel
        raise ModelRefused(f"{node.op_type}: {refused}", self.node_name(step.node))

    def _shapes(
        self, node: onnx.NodeProto, step: HostStep
    ) -> Iterator[tuple[tuple[int, ...] | None, ...] | None]:
        """Yield shapes of the inputs for a node with subgraphs, then less of them, at last None.

        Branches that are not taken, and ranks that only a run tells, may contradict the shapes.
        """
        if not has_subgraph(node):
            yield None
            return
        arrays = self.program.arrays
        shapes = [() if number == ABSENT else arrays[number].shape for number in step.inputs]
        yield tuple(None if shape == ANY_RANK else shape for shape in shapes)
        yield tuple(shapes)
        yield tuple(None if shape == ANY_RANK else (-1,) * len(shape) for shape in shapes)
        yield None

    def _require_few_trips(self, step: HostStep, places: Sequence[int]) -> None:
        """Refuse Loops that may not end; a program from elsewhere was not checked for that."""
        for place in places:
            if fault := fault_of_trips(self.arrays.get(step.inputs[place])):
                raise ModelRefused(fault, self.node_name(step.node))


class _Kernels(dict[int, host.Kernel]):
    """The kernels of host nodes, compiled at the first look."""

    def __init__(self, loaded: LoadedProgram) -> None:
        super().__init__(loaded.own)
        self._loaded = loaded

    def __missing__(self, index: int) -> host.Kernel:
        kernel = self[index] = self._loaded.compiled_kernel(index)
        return kernel


def fault_of_trips(trips: Array | None) -> str:
    """Return why a Loop is refused for a constant trip count that is too large.

    A computed trip count is checked when the node runs.
    """
    if trips is None or (trips.size == 1 and int(trips.flat[0]) <= MAX_TRIPS):
        return ""
    return f"a Loop needs a trip count of at most {MAX_TRIPS}, this is {trips.reshape(-1)[:2]}"


def _counting_trips(kernel: host.Kernel, places: Sequence[int]) -> host.Kernel:
    """Return a kernel that fails where the run asks its Loops for too many iterations."""

    def run(arrays: Sequence[Array]) -> list[Array]:
        for place in places:
            if fault := fault_of_trips(arrays[place]):
                raise host.HostError(fault)
        return kernel(arrays)

    return run


def _last_used(program: Program, uses: Mapping[int, tuple[int, int]]) -> list[tuple[int, ...]]:
    """Return for each step the ids that no later step needs."""
    kept = {*program.output_ids, *program.input_ids, *program.constants, ABSENT}
    dead: list[list[int]] = [[] for _ in program.steps]
    for number, (_, last) in uses.items():
        if number not in kept:
            dead[last].append(number)
    return [tuple(numbers) for numbers in dead]
