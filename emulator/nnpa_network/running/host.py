# SPDX-License-Identifier: Apache-2.0
"""Single ONNX nodes on the host, by ONNX Runtime in FP32 or whatever the node's type is.

A node is compiled once per combination of element types, whatever the shapes are.
Source: ONNX Runtime, Python API, InferenceSession.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    NotImplemented,  # noqa: A004 - ONNX Runtime's name
    RuntimeException,
    get_all_operator_schema,
)

from nnpa_network.containment import DOMAINS, fault_in, inner_nodes
from nnpa_network.nodes import captured, in_onnx, unnamed
from nnpa_network.program import Array, DType
from nnpa_network.running.host_models import WIDER, Nodes, wide_name, with_wide_outputs
from nnpa_network.trees import fault_of_trees

Kernel: TypeAlias = Callable[[Sequence[Array]], list[Array]]

_KERNELS, _KEPT_BYTES = 256, 1 << 14  # kernels kept, and the most bytes of a node that is
# UINT8 times constant INT8 without sums of 16 bits, which saturate on x86-64 without VNNI: by the
# optimiser, which is off for all other nodes. Between DequantizeLinear and QuantizeLinear FP32, as
# ONNX defines it, for the first fails on those where two share weights. Source:
# ONNX Runtime, onnxruntime_session_options_config_keys.h.
_EXACT = {"session.x64quantprecision": "1", "session.disable_quant_qdq": "1"}
_REJECTIONS = (
    Fail, InvalidArgument, InvalidGraph, NotImplemented, RuntimeException, RuntimeError
)  # fmt: skip
_MISSING_LOCALE = re.compile(r"Failed to construct locale with name:([\w.@-]+)")


NEVER_EMPTY = frozenset(("GRU", "InstanceNormalization", "LSTM"))
"""Operators whose inputs must not be empty, see `compile_node`."""


class HostError(RuntimeError):
    """A node that ONNX Runtime does not take, or that failed while it ran."""


def draw_from(seed: int) -> None:
    """Set the seed of nodes that draw random numbers without a seed of their own."""
    onnxruntime.set_seed(seed)


@lru_cache(maxsize=1)
def newest_opset() -> int:
    """Return the newest opset of the default domain that ONNX Runtime takes."""
    for opset in range(onnx.defs.onnx_opset_version(), 6, -1):
        node = helper.make_node("Neg", ["x"], ["y"])
        try:
            node_session(node, opset, {"x": np.dtype(np.float32)})
        except HostError:
            continue
        return opset
    raise HostError("ONNX Runtime takes no opset from 7 on")


@lru_cache(maxsize=1)
def operators() -> Mapping[tuple[str, str], Any]:
    """Return the newest schemas of all operators that ONNX Runtime knows, by domain and name."""
    schemas = sorted(get_all_operator_schema(), key=attrgetter("since_version"))
    return {(str(schema.domain), str(schema.name)): schema for schema in schemas}


@lru_cache(maxsize=1)
def _inferring() -> frozenset[tuple[str, str]]:
    """Return the operators of which any version infers shapes: the newest may be a deprecation."""
    return frozenset(
        (str(schema.domain), str(schema.name))
        for schema in get_all_operator_schema()
        if schema.has_type_and_shape_inference_function
    )


def infers_shapes(domain: str, op_type: str) -> bool:
    """Return whether ONNX Runtime tells the shapes of an operator's outputs without running it."""
    return (domain, op_type) in _inferring()


@lru_cache(maxsize=1)
def domains() -> Mapping[str, int]:
    """Return the domains whose operators the host runs, with the newest version of each."""
    newest: dict[str, int] = dict.fromkeys(DOMAINS, 1)
    for (domain, _), schema in operators().items():
        newest[domain] = max(newest.get(domain, 1), int(schema.since_version))
    return newest


def fault_of_operator(node: onnx.NodeProto) -> str:
    """Return why a node's operator or missing operand is refused, "" if it is hosted.

    ONNX Runtime 1.32 ends the process if a variadic operand is left out.
    """
    domain, op_type = node.domain, node.op_type
    runtime = f"ONNX Runtime {onnxruntime.__version__}"
    if "" in node.input and _lacks_variadic(node):
        return f"{op_type} has an input that is left out, which only optional ones may be"
    if domain not in domains():
        return (
            f"domain {domain[:80]} is not hosted: {runtime} knows no operator of it, "
            "and libraries of custom operators are never loaded"
        )
    if domain not in DOMAINS and (domain, op_type) not in operators():
        return f"{runtime} knows no operator {op_type[:80]} of domain {domain[:80]}"
    return ""


def _lacks_variadic(node: onnx.NodeProto) -> bool:
    """Return whether one of a node's variadic operands is left out."""
    schema = operators().get(("" if node.domain == "ai.onnx" else node.domain, node.op_type))
    inputs = [] if schema is None else schema.inputs
    variadic = bool(inputs) and inputs[-1].option.name == "Variadic"
    return variadic and "" in node.input[len(inputs) - 1 :]


def opset_for(op_type: str, domain: str, opset: int) -> int:
    """Return the opset in which the host runs a node of a model's `opset`.

    A newer opset than ONNX Runtime knows is no obstacle where the operator did not change since.
    """
    if domain not in ("", "ai.onnx") or opset <= newest_opset():
        return opset
    if not in_onnx(op_type, opset, ""):  # ONNX Runtime's own, which has one version
        return newest_opset()
    since = onnx.defs.get_schema(op_type, opset, "").since_version
    if since > newest_opset():
        newest = f"opset {newest_opset()} is the newest that ONNX Runtime knows"
        raise HostError(f"{op_type} of opset {since}: {newest}")
    return newest_opset()


def prepare(
    serialised: bytes,
    opset: int,
    dtypes: tuple[DType | None, ...],
    constants: Sequence[Array | None] = (),
) -> Kernel:
    """Compile a serialised NodeProto for the element types of its inputs, None where left out.

    The inputs of the node come first, then the values that its subgraphs capture. `constants` are
    inputs whose values never change. Nodes that are small with them are cached, equal ones once.
    Raise `HostError`.
    """
    fixed = [array if array is not None and is_fixed(array.dtype) else None for array in constants]
    size = len(serialised) + sum(array.nbytes for array in fixed if array is not None)
    if size > _KEPT_BYTES:
        return compile_node(serialised, opset, dtypes, constants=fixed)
    contents = tuple(
        array if array is None else (array.dtype, array.shape, array.tobytes()) for array in fixed
    )
    plain = unnamed(onnx.NodeProto.FromString(serialised))
    try:
        return _kept(plain.SerializeToString(deterministic=True), opset, dtypes, contents)
    except HostError:  # its text should have the names of the node
        return compile_node(serialised, opset, dtypes, constants=fixed)


@lru_cache(maxsize=_KERNELS)
def _kept(
    serialised: bytes,
    opset: int,
    dtypes: tuple[DType | None, ...],
    constants: tuple[tuple[DType, tuple[int, ...], bytes] | None, ...],
) -> Kernel:
    """Compile a node; constants are types, shapes and contents, which can be compared."""
    arrays = [each and np.frombuffer(each[2], each[0]).reshape(each[1]) for each in constants]
    return compile_node(serialised, opset, dtypes, constants=arrays)


def compile_node(
    serialised: bytes,
    opset: int,
    dtypes: tuple[DType | None, ...],
    shapes: Sequence[tuple[int, ...] | None] = (),
    constants: Sequence[Array | None] = (),
) -> Kernel:
    """Compile a node as `prepare` does, with shapes that a node with subgraphs may need.

    `shapes` of the inputs have -1 for free dims and None for no rank; `constants` are inputs whose
    values never change.
    """
    node = onnx.NodeProto.FromString(serialised)
    require_hosted(node)
    for dtype in dtypes:
        if dtype is not None and dtype.kind == "V" and dtype not in WIDER:
            raise HostError(f"{dtype} cannot be handed to ONNX Runtime")
    names = (*node.input, *(name for name in captured(node) if name not in node.input))
    types = {
        name: dtype for name, dtype in zip(names, dtypes, strict=True) if name and dtype is not None
    }
    ranked = {name: shape for name, shape in zip(names, shapes, strict=False) if shape is not None}
    fixed = {
        name: array
        for name, array in zip(names, constants, strict=False)
        if array is not None and is_fixed(array.dtype)
    }
    variable = {name: dtype for name, dtype in types.items() if name not in fixed}
    outputs = [name for name in node.output if name]
    nodes = Nodes([node], opsets_of(node, opset), variable, outputs, ranked, fixed)
    present = [name for name, dtype in zip(names, dtypes, strict=True) if dtype is not None]
    kernel = compile_nodes(nodes, present)
    return _refusing_empty(node.op_type, kernel) if node.op_type in NEVER_EMPTY else kernel


def compile_nodes(nodes: Nodes, operands: Sequence[str]) -> Kernel:
    """Compile nodes that are hosted; the kernel takes arrays for `operands`, constants too."""
    session, outputs = _nodes_session(nodes), list(nodes.outputs)
    feeding = [(place, name) for place, name in enumerate(operands) if name in nodes.types]
    return lambda arrays: session.run(outputs, {name: arrays[place] for place, name in feeding})


def require_hosted(node: onnx.NodeProto) -> None:
    """Raise `HostError` for a node that is refused for its contents, operators or trees."""
    if fault := fault_in(node) or _fault_of_parts(node):
        raise HostError(fault)


def is_fixed(dtype: DType) -> bool:
    """Return whether constants of a type are initializers; the others are fed as inputs."""
    return dtype.kind != "O" and dtype not in WIDER


def _refusing_empty(op_type: str, kernel: Kernel) -> Kernel:
    """Return a kernel that refuses empty inputs: ONNX Runtime 1.32 would end the process."""

    def run(arrays: Sequence[Array]) -> list[Array]:
        if arrays and not (arrays[0].size or (op_type == "LSTM" and arrays[0].shape[1])):
            shape = list(arrays[0].shape)
            raise HostError(f"{op_type} has an input of shape {shape}, must not be empty")
        return kernel(arrays)

    return run


def results(
    session: onnxruntime.InferenceSession, names: Sequence[str], feeds: Mapping[str, Array]
) -> list[Array]:
    """Run a session; raise `HostError`."""
    try:
        outputs = session.run(list(names), dict(feeds))
    except _REJECTIONS as error:
        raise HostError(_sentence(error)) from error
    return [np.asarray(output) for output in outputs]


def _fault_of_parts(node: onnx.NodeProto) -> str:
    """Return why the operators or trees of a node and its subgraphs are refused; else empty."""
    parts = (node, *inner_nodes(node))
    faults = (rule(part) for rule in (fault_of_operator, fault_of_trees) for part in parts)
    return next(filter(None, faults), "")


@dataclass(frozen=True, slots=True)
class NodeSession:
    """A session for nodes.

    `narrow` has the types of operands by name that go in and come out as wider types; casts stand
    between them and the nodes.
    """

    session: onnxruntime.InferenceSession
    types: Mapping[str, tuple[str, Sequence[int | str | None]]]
    narrow: Mapping[str, DType]

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Return outputs by their names; raise `HostError`."""
        if not self.narrow:
            return results(self.session, names, feeds)
        wide = {
            wide_name(name, self.narrow): array.astype(
                WIDER.get(array.dtype, array.dtype), copy=False
            )
            for name, array in feeds.items()
        }
        ends = [wide_name(name, self.narrow) for name in names]
        return [
            array.astype(self.narrow.get(name, array.dtype), copy=False)
            for name, array in zip(names, results(self.session, ends, wide), strict=True)
        ]


def node_session(
    node: onnx.NodeProto,
    opset: int,
    types: Mapping[str, DType],
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    constants: Mapping[str, Array] | None = None,
) -> NodeSession:
    """Make a session for a model of this one node; raise `HostError`.

    `types` has the element types of its inputs; `shapes` has -1 for free dims. `constants` are no
    inputs.
    """
    constants = constants or {}
    variable = {name: dtype for name, dtype in types.items() if name not in constants}
    outputs = [name for name in node.output if name]
    opsets = opsets_of(node, opset)
    return _nodes_session(Nodes([node], opsets, variable, outputs, shapes or {}, constants))


def opsets_of(node: onnx.NodeProto, opset: int) -> dict[str, int]:
    """Return the versions of domains in a model of a node that is run in `opset`."""
    if node.domain in ("", "ai.onnx"):
        return {"": opset}
    return {node.domain: opset, "": newest_opset()}


def _nodes_session(nodes: Nodes) -> NodeSession:
    model, outside = nodes.model().SerializeToString(), nodes.outside
    as_it_is = not nodes.has_int8_matrix
    session = load(model, as_it_is=as_it_is, initializers=outside)
    outputs = {output.name: (output.type, output.shape) for output in session.get_outputs()}
    dtypes = {name: element_type(kind) for name, (kind, _) in outputs.items()}
    ends = {name: dtype for name, dtype in dtypes.items() if dtype is not None and dtype in WIDER}
    if ends:
        wide = with_wide_outputs(model, ends)
        session = load(wide, as_it_is=as_it_is, initializers=outside)
    return NodeSession(session, outputs, nodes.narrow | ends)


def element_type(name: str) -> DType | None:
    """Return the element type of "tensor(float)"; None for what is no tensor."""
    if not name.startswith("tensor("):
        return None
    return dtype_of(getattr(TensorProto, name[len("tensor(") : -1].upper(), TensorProto.UNDEFINED))


@lru_cache(maxsize=64)
def dtype_of(kind: int) -> DType | None:
    """Return the element type of a number of TensorProto.DataType; None for an unknown one."""
    if kind not in helper.get_all_tensor_dtypes():
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(kind))


def load(
    model: bytes, *, as_it_is: bool = False, initializers: Mapping[str, Array] | None = None
) -> onnxruntime.InferenceSession:
    """Make a session for a model, optimised unless to be taken as it is; raise `HostError`.

    `initializers` are those whose elements the model lacks; the session reads them where they lie.
    """
    values = initializers or {}
    try:
        return _session(model, _EXACT, as_it_is, values)
    except (*_REJECTIONS, ValueError):
        pass  # products of INT8 and INT8, which are exact, and have no kernel with these settings
    try:
        return _session(model, {}, as_it_is, values)
    except (*_REJECTIONS, ValueError) as error:
        raise HostError(f"ONNX Runtime does not take it: {_rejection(error)}") from error


def _session(
    model: bytes, settings: Mapping[str, str], as_it_is: bool, initializers: Mapping[str, Array]
) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    if as_it_is:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False  # it would keep a session's most memory as long as that
    for key, value in settings.items():
        options.add_session_config_entry(key, value)
    if initializers:
        values = map(onnxruntime.OrtValue.ortvalue_from_numpy, initializers.values())
        options.add_external_initializers(list(initializers), list(values))
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _rejection(error: Exception) -> str:
    """Return why ONNX Runtime makes no session of a model, with the remedy for a locale."""
    locale = _MISSING_LOCALE.search(str(error))
    if locale is None:
        return _sentence(error)
    return f"locale is {locale[1]}, which the server lacks, must be C.UTF-8"


def _sentence(error: Exception) -> str:
    """Return the first line of ONNX Runtime's text without its source positions."""
    text = str(error).split("] : ")[-1].splitlines()[0].split(" : ", 2)[-1]
    return text.split(" was false. ")[-1][:200]
