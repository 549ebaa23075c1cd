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

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    NotImplemented,  # noqa: A004 - ONNX Runtime's name
    RuntimeException,
    get_all_operator_schema,
)

from nnpa_network.containment import DOMAINS, fault_in, inner_nodes, subgraphs
from nnpa_network.program import Array, DType
from nnpa_network.trees import fault_of_trees

Kernel: TypeAlias = Callable[[Sequence[Array]], list[Array]]

# The IR version that every opset from 7 on may be used with, and subgraphs without restrictions.
_IR_VERSION = 10
_KERNELS, _KEPT_BYTES = 2048, 1 << 14  # kernels kept, and the most bytes of a node that is
# UINT8 times constant INT8 without sums of 16 bits, which saturate on x86-64 without VNNI; between
# DequantizeLinear and QuantizeLinear FP32, as ONNX defines it, for the first fails on those where
# two share weights. Source: ONNX Runtime, onnxruntime_session_options_config_keys.h.
_EXACT = {"session.x64quantprecision": "1", "session.disable_quant_qdq": "1"}
_WIDE = "wide "  # how the names of operands begin that stand for narrow ones
WIDER: Mapping[DType, DType] = {
    np.dtype(narrow): np.dtype(wide)
    for wide, types in (
        (np.float32, (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz,
                      ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz)),
        (np.int8, (ml_dtypes.int4,)),
        (np.uint8, (ml_dtypes.uint4,)),
    )
    for narrow in types
}  # fmt: skip
"""Element types that ONNX Runtime does not exchange with NumPy, by one that has their values."""
_REJECTIONS = (
    Fail, InvalidArgument, InvalidGraph, NotImplemented, RuntimeException, RuntimeError
)  # fmt: skip
_MISSING_LOCALE = re.compile(r"Failed to construct locale with name:([\w.@-]+)")


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


def in_onnx(op_type: str, version: int, domain: str) -> bool:
    """Return whether ONNX itself has an operator, of any name and version that a file may say."""
    try:
        return bool(onnx.defs.has(op_type, version, domain))
    except TypeError:  # a version beyond 31 bits, or a name that is no UTF-8
        return False


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


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the names that a node's subgraphs take from outside, sorted."""
    return tuple(sorted(set[str]().union(*map(_free, subgraphs(node)))))


def _free(graph: onnx.GraphProto) -> set[str]:
    defined = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    free: set[str] = set()
    for node in graph.node:
        free |= {name for name in (*node.input, *captured(node)) if name} - defined
        defined |= set(node.output)
    return free | ({info.name for info in graph.output} - defined)


def has_subgraph(node: onnx.NodeProto) -> bool:
    """Return whether a node is an If, a Loop, a Scan or the like."""
    return any(True for _ in subgraphs(node))


def prepare(
    serialised: bytes,
    opset: int,
    dtypes: tuple[DType | None, ...],
    constants: Sequence[Array | None] = (),
) -> Kernel:
    """Compile a serialised NodeProto for the element types of its inputs, None where left out.

    The inputs of the node come first, then the values that its subgraphs capture. `constants` are
    inputs whose values never change. With an INT8 matrix among them they are compiled in, so that
    `_EXACT` sees it and its zero point. Other small nodes are cached. Raise `HostError`.
    """
    if any(array is not None and array.dtype == np.int8 and array.ndim > 1 for array in constants):
        return compile_node(serialised, opset, dtypes, constants=constants)
    compiled = compile_node if len(serialised) > _KEPT_BYTES else _kept
    return compiled(serialised, opset, dtypes)


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
    if fault := fault_in(node) or _fault_of_parts(node):
        raise HostError(fault)
    for dtype in dtypes:
        if dtype is not None and dtype.kind == "V" and dtype not in WIDER:
            raise HostError(f"{dtype} cannot be handed to ONNX Runtime")
    names = (*node.input, *(name for name in captured(node) if name not in node.input))
    types = {
        name: dtype for name, dtype in zip(names, dtypes, strict=True) if name and dtype is not None
    }
    ranked = {name: shape for name, shape in zip(names, shapes, strict=False) if shape is not None}
    fixed = {
        name: array for name, array in zip(names, constants, strict=False) if array is not None
    }
    session = node_session(node, opset, types, ranked, fixed)
    outputs = [name for name in node.output if name]
    present = [name for name, dtype in zip(names, dtypes, strict=True) if dtype is not None]

    def kernel(arrays: Sequence[Array]) -> list[Array]:
        if fault := _fault_of_empty(node.op_type, arrays):
            raise HostError(fault)
        feeds = dict(zip(present, arrays, strict=True))
        return session.run(outputs, {name: feeds[name] for name in feeds if name not in fixed})

    return kernel


def _fault_of_empty(op_type: str, arrays: Sequence[Array]) -> str:
    """Return why a node with empty inputs is refused: ONNX Runtime 1.32 would end the process."""
    breaks = op_type in ("GRU", "InstanceNormalization", "LSTM") and bool(arrays)
    if not breaks or arrays[0].size or (op_type == "LSTM" and arrays[0].shape[1]):
        return ""
    return f"{op_type} has an input of shape {list(arrays[0].shape)}, must not be empty"


_kept = lru_cache(maxsize=_KERNELS)(compile_node)


def forget_kernels() -> None:
    """Drop compiled kernels that nothing runs any more."""
    _kept.cache_clear()


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
    """A session for one node.

    `narrow` has the types of operands by name that go in and come out as wider types; casts stand
    between them and the node.
    """

    session: onnxruntime.InferenceSession
    types: Mapping[str, tuple[str, Sequence[int | str | None]]]
    narrow: Mapping[str, DType]

    def run(self, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Return outputs by their names; raise `HostError`."""
        if not self.narrow:
            return results(self.session, names, feeds)
        wide = {
            self._wide(name): array.astype(WIDER.get(array.dtype, array.dtype), copy=False)
            for name, array in feeds.items()
        }
        outputs = results(self.session, [self._wide(name) for name in names], wide)
        return [
            array.astype(self.narrow.get(name, array.dtype), copy=False)
            for name, array in zip(names, outputs, strict=True)
        ]

    def _wide(self, name: str) -> str:
        return f"{_WIDE}{name}" if name in self.narrow else name


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
    narrow = {name: dtype for name, dtype in variable.items() if dtype in WIDER}
    model = _model_of(node, opset, variable, shapes or {}, constants).SerializeToString()
    session = load(model)
    outputs = {output.name: (output.type, output.shape) for output in session.get_outputs()}
    dtypes = {name: element_type(kind) for name, (kind, _) in outputs.items()}
    ends = {name: dtype for name, dtype in dtypes.items() if dtype is not None and dtype in WIDER}
    if ends:
        session = load(_with_wide_outputs(model, ends))
    return NodeSession(session, outputs, narrow | ends)


def _model_of(
    node: onnx.NodeProto,
    opset: int,
    types: Mapping[str, DType],
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, Array],
) -> onnx.ModelProto:
    """Return a model of one node, with casts before it for operands of narrow types."""
    inputs = [
        helper.make_tensor_value_info(
            f"{_WIDE}{name}" if dtype in WIDER else name,
            helper.np_dtype_to_tensor_dtype(WIDER.get(dtype, dtype)),
            [None if dim < 0 else dim for dim in shapes[name]] if name in shapes else None,
        )
        for name, dtype in types.items()
    ]
    casts = [
        _cast(f"{_WIDE}{name}", name, dtype) for name, dtype in types.items() if dtype in WIDER
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([*casts, node], "node", inputs, outputs, weights)
    imports = [helper.make_opsetid(node.domain, opset)]
    if node.domain not in ("", "ai.onnx"):
        imports.append(helper.make_opsetid("", newest_opset()))
    return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)


def _with_wide_outputs(model: bytes, narrow: Mapping[str, DType]) -> bytes:
    """Return a model with casts behind its outputs of narrow types."""
    proto = onnx.ModelProto.FromString(model)
    for info in proto.graph.output:
        if info.name in narrow:
            wide = f"{_WIDE}{info.name}"
            proto.graph.node.append(_cast(info.name, wide, WIDER[narrow[info.name]]))
            info.name = wide
    return bytes(proto.SerializeToString())


def _cast(source: str, target: str, dtype: DType) -> onnx.NodeProto:
    """Return a Cast that changes no value: infinities of FLOAT8 stay, too."""
    kind = helper.np_dtype_to_tensor_dtype(dtype)
    exact: dict[str, Any] = {"saturate": 0} if "float8" in dtype.name else {}
    return helper.make_node("Cast", [source], [target], to=kind, **exact)


def element_type(name: str) -> DType | None:
    """Return the element type of "tensor(float)"; None for what is no tensor."""
    if not name.startswith("tensor("):
        return None
    kind = getattr(TensorProto, name[len("tensor(") : -1].upper(), TensorProto.UNDEFINED)
    if kind not in helper.get_all_tensor_dtypes():
        return None
    return np.dtype(helper.tensor_dtype_to_np_dtype(kind))


def load(model: bytes, *, as_it_is: bool = False) -> onnxruntime.InferenceSession:
    """Make a session for a model, optimised unless to be taken as it is; raise `HostError`."""
    try:
        return _session(model, _EXACT, as_it_is)
    except (*_REJECTIONS, ValueError):
        pass  # products of INT8 and INT8, which are exact, and have no kernel with these settings
    try:
        return _session(model, {}, as_it_is)
    except (*_REJECTIONS, ValueError) as error:
        raise HostError(f"ONNX Runtime does not take it: {_rejection(error)}") from error


def _session(
    model: bytes, settings: Mapping[str, str], as_it_is: bool
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
