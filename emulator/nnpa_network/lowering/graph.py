# SPDX-License-Identifier: Apache-2.0
"""A model with concrete input shapes into a program: each node folded, accelerated, or hosted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import onnx
from nnpa_emulator import Guest, Ztensor
from onnx import helper

from nnpa_network.building.arrangement import NotMapped
from nnpa_network.building.builder import Builder
from nnpa_network.building.type_inference import (
    UNKNOWN,
    NodeAttributes,
    OnnxNode,
    Type,
    Value,
    infer,
    is_enclosing,
    runtime_types_of,
    type_of,
)
from nnpa_network.lowering.folding import fold
from nnpa_network.lowering.host_nodes import opset_on_host, require_bounded
from nnpa_network.lowering.inner_work import inner_macc, inner_weights
from nnpa_network.lowering.macc import multiply_accumulates
from nnpa_network.lowering.options import ImportOptions
from nnpa_network.lowering.placement import ACCELERATOR, FOLDED, HOST, ruled
from nnpa_network.lowering.value_places import places
from nnpa_network.nodes import captured, has_subgraph
from nnpa_network.operators import OPERATORS, Graph
from nnpa_network.operators.spelled_out import Spelling, spellings
from nnpa_network.operators.wiring import Wiring
from nnpa_network.program import BOUNDARY, Array, ModelRefused, Node, Port, Program
from nnpa_network.running import host


@dataclass(slots=True)
class _Placed:
    """The placement of a node."""

    device: str
    functions: tuple[str, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class Lowering:
    """One pass over a graph.

    `limits` are the limits of the machine's compiler that the present node exceeds, `remarks` are
    sentences for its row. `hints` say what the placement `all` does with nodes left to the host.
    """

    guest: Guest
    options: ImportOptions
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
    spelled: Mapping[int, Spelling] = field(default_factory=dict[int, Spelling])
    limits: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    remarks: list[str] = field(default_factory=list[str])
    hints: dict[int, str] = field(default_factory=dict[int, str])

    def program(self, name: str, inputs: Sequence[Port], outputs: Sequence[Port]) -> Program:
        """Return the program; raise `ModelRefused`."""
        builder = Builder(
            self.guest,
            self.options.saturate,
            self.opsets,
            self.stickified,
            self.options.max_bytes,
        )
        self._declare(builder, inputs)
        self._place_all(builder)
        for port in outputs:
            if port.name not in self.values:
                raise ModelRefused(
                    f"output {port.name} is made by no node, must be a node's output"
                )
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
            places={
                name: places(builder, value)
                for name, value in self.values.items()
                if value.shape is not None
            },
            placement=self.options.placement,
        )

    def _output(self, port: Port) -> Port:
        value = self.values[port.name]
        shape = port.shape if value.shape is None else value.shape
        return Port(port.name, value.dtype or port.dtype, shape)

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
            for name in (*node.input, *captured(node)):
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
        names = [*proto.input, *(name for name in captured(proto) if name not in proto.input)]
        inputs = tuple(self._value(name, proto) if name else None for name in names)
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        named = {name: value for name, value in zip(names, inputs, strict=True) if value}
        if (held := self._held(proto)) is not None:
            types: list[Type] = [(held.dtype, held.shape)]
        else:
            types = self._types(proto, infer(proto, self.opsets, inputs[: len(proto.input)]), named)
        outputs = tuple(
            Value(name, *type_) if name else None
            for name, type_ in zip(proto.output, types, strict=True)
        )
        self.values.update((value.name, value) for value in outputs if value is not None)
        opset = self.opsets[domain]
        self.opened[index] = OnnxNode(index, proto, opset, inputs, outputs, NodeAttributes(proto))
        return self.opened[index]

    def _held(self, proto: onnx.NodeProto) -> Array | None:
        """Return the array of a Constant that was read at import."""
        return self.initializers.get(proto.output[0]) if proto.op_type == "Constant" else None

    def _types(
        self, proto: onnx.NodeProto, inferred: list[Type], operands: Mapping[str, Value]
    ) -> list[Type]:
        """Return the types of the outputs: inferred, ONNX Runtime's, or declared."""
        names, own = list(proto.output), proto.domain in ("", "ai.onnx")
        is_foreign = not own or is_enclosing(proto)
        typed = [
            self.declared.get(name, UNKNOWN) if type_ == UNKNOWN else type_
            for name, type_ in zip(names, inferred, strict=True)
        ]
        lacking = [
            name and (dtype is None or (is_foreign and (shape is None or -1 in shape)))
            for name, (dtype, shape) in zip(names, typed, strict=True)
        ]
        if not any(lacking):
            return typed
        domain = "" if own else proto.domain
        runtime_types = runtime_types_of(proto, self.opsets[domain], operands)
        return [
            _merged(type_, by_runtime) if lacks else type_
            for lacks, by_runtime, type_ in zip(lacking, runtime_types, typed, strict=True)
        ]

    def _value(self, name: str, proto: onnx.NodeProto) -> Value:
        if name not in self.values:
            text = f"input {name} is made by no node before, must be an input or an initializer"
            raise ModelRefused(f"{proto.op_type}: {text}", proto.name or proto.op_type)
        return self.values[name]

    # Placing.

    def _place_all(self, builder: Builder) -> None:
        """Place every node, constants first: fusions look for them."""
        for index, node in enumerate(self.graph.node):
            if node.op_type == "Constant":
                self._place(builder, self._open(index))
        self.spelled = spellings(self._wiring())
        for index in range(len(self.graph.node)):
            if index not in self.placed:
                self._place(builder, self._open(index))
        builder.node = BOUNDARY

    def _wiring(self) -> Wiring:
        values = self.values.values()
        shapes = {name: shape for name, (_, shape) in self.declared.items()}
        shapes |= {value.name: value.shape for value in values}
        return Wiring(
            self.graph.node,
            {name: at for at, node in enumerate(self.graph.node) for name in node.output},
            self.readers,
            {value.name: value.constant for value in values if value.constant is not None},
            {name: len(shape) for name, shape in shapes.items() if shape is not None},
        )

    def _place(self, builder: Builder, node: OnnxNode) -> None:
        require_bounded(node, self.options.max_bytes)
        if fold(node, self._held(node.proto)):
            self.placed[node.index] = _Placed(FOLDED, reason="computed at import")
            return
        if self._place_spelled_out(builder, node):
            return
        reason = self._attempt(builder, node, partial(self._lower, builder, node))
        if reason:
            self._leave(builder, node, reason + self.hints.get(node.index, ""))

    def _attempt(self, builder: Builder, node: OnnxNode, lower: Callable[[], None]) -> str:
        """Place a node, and those that its rule absorbs; return why it is not placed, else ""."""
        self.absorbed.clear()
        self.limits.clear()
        self.remarks.clear()
        try:
            with builder.attempt(node.index):
                lower()
                if self.limits and self.options.placement == "compiler":
                    limit, remedy = self.limits[0]
                    raise NotMapped(f"{limit}; --placement all {remedy}")
        except NotMapped as unmapped:
            return str(unmapped)
        self.remarks.extend(f"beyond the compiler: {limit}" for limit, _ in self.limits[:1])
        functions = tuple(dict.fromkeys(builder.functions))
        device = ACCELERATOR if functions else FOLDED
        self.placed[node.index] = _Placed(device, functions, "; ".join(self.remarks))
        for absorbed in self.absorbed:
            reason = f"part of {node.title}"
            self.placed[absorbed.index] = _Placed(ACCELERATOR, functions, reason)
        return ""

    def _place_spelled_out(self, builder: Builder, node: OnnxNode) -> bool:
        """Place the operator that begins to be spelled out at a node; return whether it is placed.

        Under the placement `compiler` its nodes are placed one by one.
        """
        spelling = self.spelled.get(node.index)
        if spelling is None or any(name and name not in self.values for name in spelling.inputs):
            return False
        parts = [self._open(index) for index in spelling.nodes]
        if any(part.index in self.placed for part in parts):
            return False
        if not self._attempt(builder, node, partial(self._lower_spelled_out, builder, spelling)):
            return True
        if self.limits:
            for part in parts:
                text = f"; --placement all takes it as part of a {spelling.op_type}"
                self.hints[part.index] = text
        return False

    def _lower_spelled_out(self, builder: Builder, spelling: Spelling) -> None:
        """Apply the rule of the operator that nodes spell out."""
        parts = [self._open(index) for index in spelling.nodes]
        for part in parts:
            self._require_placeable(part)
        inputs = tuple(self.values[name] if name else None for name in spelling.inputs)
        output, operand = self.values[spelling.output], self.values[spelling.inputs[0]]
        if output.dims != operand.dims:
            raise NotMapped(f"a constant makes {list(output.dims)} of {list(operand.dims)}")
        proto = helper.make_node(spelling.op_type, spelling.inputs, [spelling.output])
        first = parts[0]
        merged = OnnxNode(first.index, proto, first.opset, inputs, (output,), spelling.attributes)
        self.remarks.append(f"begins a {spelling.op_type} that is spelled out")
        OPERATORS[spelling.op_type].lower(builder, merged, self._surroundings())
        self.absorbed.extend(parts[1:])
        self.limits.append(("spelled out", "recognises it"))

    def _lower(self, builder: Builder, node: OnnxNode) -> None:
        """Apply the operator's rule, after the checks that all rules share."""
        rule = OPERATORS.get(node.op_type)
        domain = "" if node.proto.domain == "ai.onnx" else node.proto.domain
        if is_enclosing(node.proto):
            raise NotMapped(node.proto.doc_string)
        if rule is None or rule.domain != domain:
            raise NotMapped("no zDNN function for it")
        self._require_placeable(node)
        rule.lower(builder, node, self._surroundings())
        if rule.beyond:
            self.limits.append(("no zDNN function for it", rule.beyond))

    def _require_placeable(self, node: OnnxNode) -> None:
        """Refuse a node that a placement file sends to the host, or with sizes unknown or 0."""
        rules = self.options.device_placement
        if ruled(rules, node.op_type, node.proto.name) == HOST:
            raise NotMapped("the placement file says so")
        for value in (*node.inputs, *node.outputs):
            if value is not None and not value.is_known:
                raise NotMapped(f"the shape of {value.name} is known only at run time")
            if value is not None and 0 in value.dims:
                raise NotMapped(f"{value.name} is empty")

    def _surroundings(self) -> Graph:
        return Graph(
            self._follower,
            self.absorbed.append,
            self._is_read,
            self.options.offload_integer,
            lambda limit, remedy: self.limits.append((limit, remedy)),
            self.remarks.append,
        )

    def _follower(self, value: Value) -> OnnxNode | None:
        """Return the only reader of a value that is ready to be computed along with it."""
        readers = self.readers.get(value.name, [])
        if len(readers) != 1 or readers[0] >= len(self.graph.node):
            return None
        proto = self.graph.node[readers[0]]
        if any(name and name not in self.values for name in proto.input):
            return None
        if ruled(self.options.device_placement, proto.op_type, proto.name) == HOST:
            return None
        node = self._open(readers[0])
        return node if all(output is None or output.is_known for output in node.outputs) else None

    def _is_read(self, value: Value | None) -> bool:
        return value is not None and bool(self.readers.get(value.name))

    def _leave(self, builder: Builder, node: OnnxNode, reason: str) -> None:
        """Leave a node to the host, or refuse the model."""
        if self.options.strict:
            raise ModelRefused(f"{node.op_type} runs only on the host: {reason}", node.title)
        builder.node = node.index
        try:
            builder.host_node(node, opset_on_host(node))
        except (host.HostError, NotMapped) as error:
            raise ModelRefused(f"{node.op_type}: {error}", node.title) from error
        self.placed[node.index] = _Placed(HOST, reason=reason)

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
        if has_subgraph(node.proto):
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


def _merged(inferred: Type, by_runtime: Type) -> Type:
    """Return a type completed by ONNX Runtime's."""
    (dtype, shape), (told_dtype, told_shape) = inferred, by_runtime
    return (
        dtype if told_dtype is None else told_dtype,
        shape if told_shape is None else told_shape,
    )
