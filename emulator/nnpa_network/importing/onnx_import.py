# SPDX-License-Identifier: Apache-2.0
"""Import ONNX models: check once, then compile a program for every set of input shapes.

A model is untrusted bytes: it is parsed, never executed to learn what it is; nothing outside of the
bytes is opened; sizes are added up before anything is allocated.
Sources: ONNX intermediate representation specification; ONNX operators, opset 7 on.
"""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np
import onnx
from nnpa_emulator import Guest, Ztensor
from onnx import helper, numpy_helper

from nnpa_network.containment import MAX_NODES, Tensor, all_nodes, expanded_nodes, fault_of, tensors
from nnpa_network.importing.completion import (
    complete_outputs,
    converted,
    import_domains,
    make_weights_inputs,
    overridable_initializers,
    pad_explicitly,
    shown_to_checker,
    sort_nodes,
)
from nnpa_network.importing.plain_forms import (
    dense_bytes,
    make_dense,
    make_time_first,
    without_functions,
)
from nnpa_network.importing.pool import Pool
from nnpa_network.importing.ports import input_ports, optional_ports, output_port
from nnpa_network.importing.sequences import enclose_sequences
from nnpa_network.importing.shapes import Concrete, concrete_shapes
from nnpa_network.lowering.graph import Lowering
from nnpa_network.lowering.options import ImportOptions as ImportOptions  # a public name of here
from nnpa_network.maps import cut_maps
from nnpa_network.program import Array, ModelRefused, Port, Program
from nnpa_network.running import host
from nnpa_network.running.executor import Executor
from nnpa_network.running.results import Result
from nnpa_network.trees import fault_of_trees, tree_nodes

OLDEST_OPSET = 7
_TREE_NODE_BYTES = 1300  # measured: file, copies, and the session of ONNX Runtime


@dataclass(slots=True)
class OnnxModel:
    """A checked model on one machine, which keeps the executors of its last shapes.

    `inputs` and `outputs` have -1 where a dim is free. An input of `optional` has its initializer's
    value unless a run brings another. `weights` are the numeric initializers of the file by name.
    `proto` and `initializers` are what runs: of a newer opset if the file's is too old. `opsets`
    are the versions of its nodes' domains.
    """

    name: str
    inputs: tuple[Port, ...]
    optional: tuple[Port, ...]
    outputs: tuple[Port, ...]
    options: ImportOptions
    guest: Guest
    proto: onnx.ModelProto = field(repr=False)
    weights: Mapping[str, Array] = field(repr=False)
    initializers: Mapping[str, Array] = field(repr=False)
    opsets: Mapping[str, int] = field(repr=False)
    _stickified: dict[tuple[object, ...], Ztensor] = field(
        default_factory=dict[tuple[object, ...], Ztensor], repr=False
    )
    _lock: Lock = field(default_factory=Lock, repr=False)
    _pool: Pool[Executor] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._pool = Pool(self.guest, self.options)

    @property
    def dropped(self) -> int:
        """How many lowered programs were dropped, being too many or of too many bytes."""
        return self._pool.dropped

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the dims that are free, in order of appearance."""
        names = (name for port in self.inputs for name in port.symbols if name)
        return tuple(dict.fromkeys(names))

    @property
    def stick_bytes(self) -> int:
        """Bytes of the constants in sticks that its programs have."""
        with self._lock:
            return sum(tensor.sticks.nbytes for tensor in self._stickified.values())

    def placed(self, guest: Guest, options: ImportOptions) -> "OnnxModel":
        """Return the model for another machine, or by other options; constants are shared."""
        return replace(self, guest=guest, options=options, _lock=Lock())

    def specialise(self, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Program:
        """Return the program for concrete input shapes; left out, free dims are taken as 1.

        The program is not kept, and constants that no kept program uses are dropped. Raise
        `ModelRefused` if a shape does not fit an input, or a node cannot be hosted.
        """
        with self._lock:
            program = self._lower(concrete_shapes(self.inputs, self.optional, shapes or {}))
            self._keep_constants([program])
            return program

    def executor(self, shapes: Mapping[str, tuple[int, ...]]) -> Executor:
        """Return the executor for inputs of these shapes; raise as `specialise` does."""
        concrete = concrete_shapes(self.inputs, self.optional, shapes)
        with self._lock:
            executor = self._pool.find(concrete)
            if executor is None:
                executor, lowered = self._make(concrete)
                if self._pool.keep(concrete, executor, lowered=lowered):
                    self._keep_constants(self._pool.programs())
            return executor

    def _make(self, concrete: Concrete) -> tuple[Executor, bool]:
        """Return a new executor, and whether its program was lowered."""
        derived = self._pool.derive(concrete)
        shortcuts = self.options.shortcuts
        if derived is None:
            return Executor(self._lower(concrete), self.guest, shortcuts), True
        program, sources = derived
        known = {id(tensor) for tensor in self._stickified.values()}
        for constant in program.constants.values():
            if isinstance(constant, Ztensor) and id(constant) not in known:
                self._stickified["derived", id(constant)] = constant
        return Executor(program, self.guest, shortcuts, sources), False

    def _keep_constants(self, programs: Iterable[Program]) -> None:
        """Drop sticks that no program of these uses."""
        held = {id(constant) for program in programs for constant in program.constants.values()}
        for key in [key for key, constant in self._stickified.items() if id(constant) not in held]:
            del self._stickified[key]

    def run(self, feeds: Mapping[str, Array]) -> Result:
        """Run once over named inputs of any shapes that the model takes."""
        shapes = {name: np.shape(array) for name, array in feeds.items()}
        return self.executor(shapes).run(feeds)

    def _lower(self, shapes: Concrete) -> Program:
        sizes = dict(shapes)
        ports = (port for port in (*self.inputs, *self.optional) if port.name in sizes)
        inputs = tuple(Port(port.name, port.dtype, sizes[port.name]) for port in ports)
        lowering = Lowering(
            self.guest,
            self.options,
            self.opsets,
            self.proto.graph,
            {name: array for name, array in self.initializers.items() if name not in sizes},
            self._stickified,
        )
        return lowering.program(self.name, inputs, self.outputs)


def import_onnx(model: bytes, guest: Guest, options: ImportOptions | None = None) -> OnnxModel:
    """Check a serialised ModelProto and return it, ready to be specialised for `guest`'s machine.

    Raise `ModelRefused` with reason and node.
    """
    options = options or ImportOptions()
    proto = _parse(model)
    _require_contained(proto, options.max_bytes)
    _require_small_forests(proto, options.max_bytes)
    for complete in (sort_nodes, import_domains, cut_maps):
        complete(proto)
    dense = [tensor.name for tensor in proto.graph.initializer]
    make_dense(proto)
    make_time_first(proto)
    initializers = _initializers(proto.graph)
    weights = {name: initializers[name] for name in dense if initializers[name].dtype != object}
    overridable = overridable_initializers(proto)
    newer = converted(proto, OLDEST_OPSET)
    if newer is not proto:
        proto, initializers = newer, _initializers(newer.graph)
    overridable &= initializers.keys()
    opsets = _opsets(proto)
    pad_explicitly(proto, {name: array.shape for name, array in initializers.items()})
    make_weights_inputs(proto.graph)
    proto = _inferred(proto)  # first: outputs without a shape are common, and no error
    complete_outputs(proto)
    _check(proto)
    if proto.functions:
        proto = _inferred(without_functions(proto))
    graph = proto.graph
    ends = (
        input_ports([info for info in graph.input if info.name not in initializers]),
        optional_ports(graph.input, {name: initializers[name] for name in overridable}),
        tuple(output_port(info) for info in graph.output),
    )
    initializers |= enclose_sequences(proto) | _held_arrays(proto.graph)
    name = graph.name or "network"
    return OnnxModel(name, *ends, options, guest, proto, weights, initializers, opsets)


def _initializers(graph: onnx.GraphProto) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for tensor in graph.initializer:
        try:
            arrays[tensor.name] = numpy_helper.to_array(tensor)
        except (ValueError, TypeError) as error:
            text = f"tensor {tensor.name}: its elements are not those of shape {list(tensor.dims)}"
            raise ModelRefused(text) from error
    return arrays


def _held_arrays(graph: onnx.GraphProto) -> dict[str, Array]:
    """Return the numbers of Constants; ONNX Runtime reads others, and says what is wrong."""
    arrays: dict[str, Array] = {}
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            names = [attribute.name for attribute in node.attribute]
            dtype = host.dtype_of(node.attribute[0].t.data_type) if names == ["value"] else None
            if dtype is not None and dtype.kind in "fiub":
                with suppress(ValueError, TypeError):
                    arrays[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return arrays


def _parse(model: bytes) -> onnx.ModelProto:
    try:
        proto = onnx.ModelProto.FromString(model)
    except Exception as error:  # protobuf's DecodeError, whose package is not ours to import
        raise ModelRefused(f"{len(model)} bytes are not an ONNX model, or one cut short") from error
    if not proto.HasField("graph") or (not proto.graph.node and not proto.graph.output):
        raise ModelRefused(f"{len(model)} bytes hold no ONNX graph")
    return proto


def _require_contained(proto: onnx.ModelProto, most: int) -> None:
    """Refuse data outside of the bytes, and more of it than allowed, before any is unpacked."""
    total = 0
    for node, tensor in tensors(proto):
        fault = fault_of(node, tensor)
        if fault:
            raise ModelRefused(fault, node)
        name = (tensor.values if isinstance(tensor, onnx.SparseTensorProto) else tensor).name
        title = f"tensor {name}" if name else "a tensor"
        total += _bytes(tensor, node, title)
        if total > most:
            raise ModelRefused(f"{title}: initializers take more than {most} bytes", node)
    try:
        nodes = expanded_nodes(proto)
    except (ValueError, RecursionError) as error:
        raise ModelRefused(f"functions of the model do not end: {error}") from error
    if nodes > MAX_NODES:
        raise ModelRefused(f"the model has more than {MAX_NODES} nodes, its functions inlined")


def _require_small_forests(proto: onnx.ModelProto, most: int) -> None:
    """Refuse forests whose depth or size ends a process, before ONNX Runtime reads them."""
    total = 0
    for node in all_nodes(proto):
        count, title = tree_nodes(node), node.name or node.op_type
        total += count * _TREE_NODE_BYTES
        if count and total > most:
            needs = f"{total} bytes to compile, at most {most} may be taken"
            text = f"{node.op_type}: its trees have {count} nodes, which take {needs}"
            raise ModelRefused(text, title)
        if fault := fault_of_trees(node):
            raise ModelRefused(f"{node.op_type}: {fault}", title)


def _bytes(tensor: Tensor, node: str, title: str) -> int:
    """Return the bytes that a tensor unpacks to; refuse dims without the data for them."""
    if any(dim < 0 for dim in tensor.dims):
        raise ModelRefused(f"{title} has dims {list(tensor.dims)}, must be 0 or more", node)
    if isinstance(tensor, onnx.SparseTensorProto):
        parts = sum(_bytes(part, node, title) for part in (tensor.values, tensor.indices))
        return parts + dense_bytes(tensor)
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except (KeyError, TypeError, ValueError) as error:
        raise ModelRefused(
            f"{title} has element type {tensor.data_type}, unknown to ONNX", node
        ) from error
    count = math.prod(tensor.dims)
    # Four-bit types pack two elements into a byte; typed fields take at least a byte each.
    if count > 4 * (tensor.ByteSize() + 1):
        raise ModelRefused(f"{title} has dims {list(tensor.dims)} but no data for them", node)
    return count * max(dtype.itemsize, 1)


def _opsets(proto: onnx.ModelProto) -> dict[str, int]:
    """Return the versions of the domains; refuse operators that no host knows, by node."""
    newest = onnx.defs.onnx_opset_version()
    opsets: dict[str, int] = {}
    local = {function.domain for function in proto.functions}
    for node in all_nodes(proto):
        if node.domain not in local and (fault := host.fault_of_operator(node)):
            raise ModelRefused(fault, node.name or node.op_type)
    for opset in proto.opset_import:
        domain = "" if opset.domain == "ai.onnx" else opset.domain
        if domain in host.domains() or domain in local:
            opsets[domain] = opset.version
    if not OLDEST_OPSET <= opsets.get("", newest) <= newest:
        limit = f"must be {OLDEST_OPSET} to {newest}: onnx.version_converter converts"
        raise ModelRefused(f"opset is {opsets['']}, {limit}")
    return opsets


def _check(proto: onnx.ModelProto) -> None:
    """Refuse a model that ONNX's checker refuses, unless ONNX Runtime takes it."""
    try:
        with shown_to_checker(proto):
            onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        try:
            host.load(proto.SerializeToString(), as_it_is=True)
        except host.HostError as refused:
            text = " ".join(str(error).split())[:300]
            raise ModelRefused(f"the model is not valid: {text}; {refused}") from error


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with the types that ONNX's shape inference computes."""
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, UnicodeError) as error:
        text = " ".join(str(error).split())[:300]
        raise ModelRefused(f"shapes contradict each other: {text}") from error
