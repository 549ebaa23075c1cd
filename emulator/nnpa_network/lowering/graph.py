# SPDX-License-Identifier: Apache-2.0
"""A model with concrete input shapes into a program: each node folded, accelerated, or hosted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from nnpa_emulator import Guest, Ztensor

from nnpa_network.building.arrangement import NotMapped, axes_of
from nnpa_network.building.builder import Builder
from nnpa_network.building.constants import evaluate
from nnpa_network.building.type_inference import (
    UNKNOWN,
    OnnxNode,
    Type,
    Value,
    attributes_of,
    infer,
    told_by_runtime,
    type_of,
)
from nnpa_network.lowering.inner_work import inner_macc, inner_weights
from nnpa_network.lowering.macc import multiply_accumulates
from nnpa_network.lowering.placement import ACCELERATOR, FOLDED, HOST, Rule, ruled
from nnpa_network.operators import OPERATORS, Graph
from nnpa_network.program import BOUNDARY, Array, ModelRefused, Node, Place, Port, Program
from nnpa_network.running import host
from nnpa_network.running.loading import fault_of_trips

_RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
     "RandomUniformLike")
)  # fmt: skip


_NO_TENSOR = (
    "an input or output is no tensor of a type that is hosted: sequences and optionals are taken "
    "out of a model by onnxsim, maps by the converter's zipmap=False"
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What of the import options decides over single nodes; see ImportOptions."""

    strict: bool
    saturate: bool
    offload_integer: bool
    placement: tuple[Rule, ...]
    max_bytes: int


@dataclass(slots=True)
class _Placed:
    """Where a node went."""

    device: str
    functions: tuple[str, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class Lowering:
    """One pass over a graph."""

    guest: Guest
    settings: Settings
    opsets: Mapping[str, int]
    graph: onnx.GraphProto
    initializers: Mapping[str, Array]
    stickified: dict[tuple[object, ...], Ztensor]
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    declared: dict[str, Type] = field(default_factory=dict[str, Type])
    opened: dict[int, OnnxNode] = field(default_factory=dict[int, OnnxNode])
    placed: dict[int, _Placed] = field(default_factory=dict[int, _Placed])
    readers: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    stored: set[str] = field(default_factory=set[str])
    absorbed: list[OnnxNode] = field(default_factory=list[OnnxNode])

    def program(self, name: str, inputs: Sequence[Port], outputs: Sequence[Port]) -> Program:
        """Return the program; raise `ModelRefused`."""
        builder = Builder(
            self.guest,
            self.settings.saturate,
            self.opsets,
            self.stickified,
            self.settings.max_bytes,
        )
        self._declare(builder, inputs)
        self._place_all(builder)
        for port in outputs:
            if port.name not in self.values:
                raise ModelRefused(f"output {port.name} is made by no node")
        output_ids = tuple(builder.array(self.values[port.name]) for port in outputs)
        return Program(
            name=name,
            machine=self.guest.machine.name,
            inputs=tuple(inputs),
            outputs=tuple(self._output(port) for port in outputs),
            input_ids=tuple(self.values[port.name].array for port in inputs),
            output_ids=output_ids,
            arrays=builder.arrays,
            tensors=builder.tensors,
            constants=builder.constants,
            steps=tuple(builder.steps),
            nodes=tuple(self._node(builder, index) for index in range(len(self.graph.node))),
            places=self._places(builder),
        )

    def _output(self, port: Port) -> Port:
        value = self.values[port.name]
        return Port(port.name, value.dtype or port.dtype, value.shape or port.shape)

    def _declare(self, builder: Builder, inputs: Sequence[Port]) -> None:
        """Declare inputs and initializers, and collect the readers of every value."""
        for port in inputs:
            value = Value(port.name, port.dtype, port.shape)
            builder.new_array(value)
            self.values[port.name] = value
        for name, array in self.initializers.items():
            self.values[name] = Value(name, array.dtype, array.shape, constant=array)
        self.stored.update(self.initializers)
        for index, node in enumerate(self.graph.node):
            if node.op_type == "Constant":
                self.stored.update(node.output)
            for name in (*node.input, *host.captured(node)):
                self.readers.setdefault(name, []).append(index)
        for info in (*self.graph.value_info, *self.graph.output):
            self.declared[info.name] = type_of(info.type)
        for info in self.graph.output:
            self.readers.setdefault(info.name, []).append(len(self.graph.node))

    def _open(self, index: int) -> OnnxNode:
        """Return a node with its values, outputs inferred."""
        if index in self.opened:
            return self.opened[index]
        proto = self.graph.node[index]
        names = [*proto.input, *(name for name in host.captured(proto) if name not in proto.input)]
        inputs = tuple(self._value(name, proto) if name else None for name in names)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        named = {name: value for name, value in zip(names, inputs, strict=True) if value}
        types = self._types(proto, infer(proto, self.opsets, inputs[: len(proto.input)]), named)
        outputs: list[Value | None] = []
        for name, inferred in zip(proto.output, types, strict=True):
            value = Value(name, *inferred)
            outputs.append(value if name else None)
            if name:
                self.values[name] = value
        opset = self.opsets[domain]
        self.opened[index] = OnnxNode(
            index, proto, opset, inputs, tuple(outputs), attributes_of(proto)
        )
        return self.opened[index]

    def _types(
        self, proto: onnx.NodeProto, inferred: list[Type], operands: Mapping[str, Value]
    ) -> list[Type]:
        """Return the types of the outputs: inferred, told by ONNX Runtime, or declared."""
        names, own = list(proto.output), proto.domain in ("", "ai.onnx")
        known = [
            self.declared.get(name, UNKNOWN) if type_ == UNKNOWN else type_
            for name, type_ in zip(names, inferred, strict=True)
        ]
        lacking = [
            name and (dtype is None or (not own and (shape is None or -1 in shape)))
            for name, (dtype, shape) in zip(names, known, strict=True)
        ]
        if not any(lacking):
            return known
        domain = "" if own else proto.domain
        told = told_by_runtime(proto, self.opsets[domain], operands)
        return [
            _merged(type_, by_runtime) if lacks else type_
            for lacks, by_runtime, type_ in zip(lacking, told, known, strict=True)
        ]

    def _value(self, name: str, proto: onnx.NodeProto) -> Value:
        if name not in self.values:
            raise ModelRefused(f"input {name} is made by no node before", proto.name)
        return self.values[name]

    # Placing.

    def _place_all(self, builder: Builder) -> None:
        """Place every node, constants first: fusions look for them."""
        constants = [at for at, node in enumerate(self.graph.node) if node.op_type == "Constant"]
        for index in (*constants, *range(len(self.graph.node))):
            if index not in self.placed:
                self._place(builder, self._open(index))
        builder.node = BOUNDARY

    def _place(self, builder: Builder, node: OnnxNode) -> None:
        self._require_bounded(node)
        if self._fold(node):
            self.placed[node.index] = _Placed(FOLDED, reason="computed at import")
            return
        try:
            with builder.attempt(node.index):
                self.absorbed.clear()
                self._lower(builder, node)
        except NotMapped as unmapped:
            self._leave(builder, node, str(unmapped))
            return
        functions = tuple(dict.fromkeys(builder.functions))
        device = ACCELERATOR if functions else FOLDED
        self.placed[node.index] = _Placed(device, functions)
        for absorbed in self.absorbed:
            reason = f"part of {node.title}"
            self.placed[absorbed.index] = _Placed(ACCELERATOR, functions, reason)

    def _lower(self, builder: Builder, node: OnnxNode) -> None:
        """Apply the operator's rule, after the checks that all rules share."""
        rule = OPERATORS.get(node.op_type) if node.proto.domain in ("", "ai.onnx") else None
        if rule is None:
            raise NotMapped("no zDNN function for it")
        forced = ruled(self.settings.placement, node.op_type, node.proto.name)
        if forced == HOST:
            raise NotMapped("the placement file says so")
        for value in (*node.inputs, *node.outputs):
            if value is not None and not value.known:
                raise NotMapped(f"the shape of {value.name} is known only at run time")
            if value is not None and 0 in value.dims:
                raise NotMapped(f"{value.name} is empty")
        rule.lower(builder, node, self._surroundings())

    def _surroundings(self) -> Graph:
        return Graph(
            self._follower, self.absorbed.append, self._is_read, self.settings.offload_integer
        )

    def _follower(self, value: Value) -> OnnxNode | None:
        """Return the only reader of a value that is ready to be computed along with it."""
        readers = self.readers.get(value.name, [])
        if len(readers) != 1 or readers[0] >= len(self.graph.node):
            return None
        proto = self.graph.node[readers[0]]
        if any(name and name not in self.values for name in proto.input):
            return None
        if ruled(self.settings.placement, proto.op_type, proto.name) == HOST:
            return None
        node = self._open(readers[0])
        return node if all(output is None or output.known for output in node.outputs) else None

    def _is_read(self, value: Value | None) -> bool:
        return value is not None and bool(self.readers.get(value.name))

    def _leave(self, builder: Builder, node: OnnxNode, reason: str) -> None:
        """Leave a node to the host, or refuse the model."""
        if self.settings.strict:
            raise ModelRefused(f"{node.op_type} runs only on the host: {reason}", node.title)
        builder.node = node.index
        try:
            opset = host.opset_for(node.op_type, node.proto.domain, node.opset)
            dtypes = tuple(None if operand is None else operand.dtype for operand in node.inputs)
            if any(
                operand is not None and operand.dtype is None
                for operand in (*node.inputs, *node.outputs)
            ):
                raise host.HostError(_NO_TENSOR)
            if any(output is not None and output.dtype is not None and output.dtype.kind == "V"
                   for output in node.outputs):  # fmt: skip
                raise host.HostError("an output has an element type that cannot be handed over")
            if not host.has_subgraph(node.proto):
                host.prepare(node.proto.SerializeToString(), opset, dtypes)
            builder.host_node(node, opset)
        except (host.HostError, NotMapped) as error:
            raise ModelRefused(f"{node.op_type}: {error}", node.title) from error
        self.placed[node.index] = _Placed(HOST, reason=reason)

    def _fold(self, node: OnnxNode) -> bool:
        """Compute a node whose outputs follow from constants and shapes alone."""
        if node.op_type in ("Shape", "Size") and node.proto.domain in ("", "ai.onnx"):
            return self._fold_shape(node)
        ready = all(operand is None or operand.constant is not None for operand in node.inputs)
        if not ready or node.op_type in _RANDOM or host.captured(node.proto):
            return False
        if host.has_subgraph(node.proto):
            return False
        try:
            opset = host.opset_for(node.op_type, node.proto.domain, node.opset)
            arrays = evaluate(node.proto, opset, node.inputs)
        except host.HostError as error:
            raise ModelRefused(f"{node.op_type}: {error}", node.title) from error
        for value, array in zip((output for output in node.outputs if output), arrays, strict=True):
            value.constant, value.dtype, value.shape = array, array.dtype, array.shape
        return True

    def _fold_shape(self, node: OnnxNode) -> bool:
        value, output = node.inputs[0], node.outputs[0]
        if value is None or output is None or not value.known:
            return False
        dims = list(value.dims)
        if node.op_type == "Size":
            array = np.array(np.prod(dims, dtype=np.int64), np.int64)
        else:
            start, end = node.attributes.get("start", 0), node.attributes.get("end", len(dims))
            array = np.array(dims[slice(*slice(start, end).indices(len(dims)))], np.int64)
        output.constant, output.dtype, output.shape = array, array.dtype, array.shape
        return True

    def _require_bounded(self, node: OnnxNode) -> None:
        """Refuse a node whose outputs are too large, or that may not end."""
        most = self.settings.max_bytes
        for value in node.outputs:
            if value is None:
                continue
            if value.nbytes > most:
                text = f"{value.name} takes {value.nbytes} bytes, at most {most}"
                raise ModelRefused(text, node.title)
        if node.op_type == "Loop" and (fault := fault_of_trips(node.constant(0), node.input(0))):
            raise ModelRefused(fault, node.title)

    # Telling.

    def _node(self, builder: Builder, index: int) -> Node:
        node, placed = self.opened[index], self.placed[index]
        device, reason = placed.device, placed.reason
        if device == FOLDED and index in builder.moved:
            device, reason = HOST, "the host moves the elements: a reader takes them in order only"
        weights = sum(
            operand.constant.nbytes
            for operand in node.inputs
            if operand is not None and operand.constant is not None and operand.name in self.stored
        )
        macc = multiply_accumulates(node)
        if host.has_subgraph(node.proto):
            weights += inner_weights(node.proto)
            macc = inner_macc(node, self.opsets)
        return Node(
            index=index,
            name=node.proto.name,
            op_type=node.op_type,
            domain=node.proto.domain,
            inputs=tuple(node.proto.input),
            outputs=tuple(node.proto.output),
            device=device,
            functions=placed.functions,
            reason=reason,
            macc=macc,
            weights=weights,
            output_shapes=tuple(
                output.shape if output is not None and output.shape is not None else ()
                for output in node.outputs
            ),
        )

    def _places(self, builder: Builder) -> dict[str, tuple[Place, ...]]:
        """Return where every named value can be read during a run."""
        return {
            name: places(builder, named)
            for name, named in self.values.items()
            if named.shape is not None
        }


def _merged(known: Type, told: Type) -> Type:
    """Return a type with what ONNX Runtime told of it."""
    (dtype, shape), (told_dtype, told_shape) = known, told
    return (
        dtype if told_dtype is None else told_dtype,
        shape if told_shape is None else told_shape,
    )


def places(builder: Builder, value: Value) -> tuple[Place, ...]:
    """Return where a value can be read during a run, one after the other in time."""
    axes = axes_of(value.dims)
    readable = [
        Place(number, value.dims, arrangement.order if builder.in_order(number) else axes)
        for arrangement, number in value.tensors.items()
    ]
    if value.array:
        readable.append(Place(value.array, value.dims, axes))
    if value.view is not None:
        source, permutation = value.view
        for place in places(builder, source):
            if permutation is not None:
                order = tuple(permutation.index(axis) for axis in place.order)
                readable.append(Place(place.id, value.dims, order))
            elif place.order == axes_of(source.dims):
                readable.append(Place(place.id, value.dims, axes))
    return tuple(readable)
