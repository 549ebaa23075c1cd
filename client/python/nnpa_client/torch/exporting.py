# SPDX-License-Identifier: Apache-2.0
"""Modules as programs of torch.export, and programs as ONNX files.

Programs run forward in float32 on the CPU; any other program is refused by name.
"""

import logging
import sys
from ast import literal_eval
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from io import StringIO
from typing import Any

torch: Any = import_module("torch")
pytree: Any = import_module("torch.utils._pytree")
_symbolic_shapes: Any = import_module("torch.fx.experimental.symbolic_shapes")
_DYNAMO_ERROR: Any = import_module("torch._dynamo.exc").TorchDynamoException
_LOGGING: Any = import_module("torch._logging._internal")
_SCOPES = "pkg.torch.onnx.name_scopes"
_TRAINING = ("training", "train")


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """A program as an ONNX file, and the path of the module that each node stands for."""

    file: bytes
    paths: Mapping[str, str]


def require_eval(model: Any) -> None:
    """Raise ValueError for a module of which a layer is in training mode."""
    for path, module in model.named_modules():
        if module.training:
            raise ValueError(
                f"model: {path or type(model).__name__} is in training mode, expected eval(): "
                "the machine runs forward only"
            )


def export(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return a module as a torch.export.ExportedProgram for inputs of such shapes.

    Raises ValueError for control flow that depends on values, else as `require_inference`.
    """
    try:
        with _quiet():
            program = torch.export.export(model, tuple(args), dict(kwargs))
    except (_symbolic_shapes.GuardOnDataDependentSymNode, _DYNAMO_ERROR) as error:
        why = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"model: {type(model).__name__} cannot be exported, expected no control flow that "
            f"depends on values: {why}"
        ) from error
    require_inference(program)
    return program


def require_inference(program: Any) -> None:
    """Refuse a program that trains, writes to its inputs or state, or is not of float32."""
    names = {spec.arg.name: _input_name(spec) for spec in program.graph_signature.input_specs}
    for node in program.graph.nodes:
        name = names.get(node.name) or f"{module_path(node) or '(model)'} ({node.name})"
        _require_float32(name, node.meta.get("val"))
        schema = getattr(node.target, "_schema", None)
        for place, argument in enumerate(schema.arguments if schema is not None else ()):
            value = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            if argument.name in _TRAINING and value is True:
                raise ValueError(f"{name}: in training mode, expected eval()")
    signature = program.run_decompositions({}).graph_signature
    written = {**signature.buffers_to_mutate, **signature.user_inputs_to_mutate}
    if written:
        raise ValueError(f"{next(iter(written.values()))}: written by the model, expected not")


def _require_float32(name: str, value: Any) -> None:
    for part in value if isinstance(value, tuple | list) else (value,):
        if not isinstance(part, torch.Tensor):
            continue
        if (part.is_floating_point() or part.is_complex()) and part.dtype != torch.float32:
            raise TypeError(f"{name}: {part.dtype}, expected torch.float32")
        if part.device.type != "cpu":
            raise ValueError(f"{name}: on {part.device}, expected the CPU")


def _input_name(spec: Any) -> str:
    kind = spec.kind.name.lower().replace("_", " ")
    return f"{kind.removeprefix('user ')} {spec.target or spec.arg.name}"


def require_shapes(program: Any, leaves: Sequence[Any]) -> None:
    """Refuse inputs of other shapes or types than a program was exported for, by name."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs = user_inputs(program)
    if len(specs) != len(leaves):
        raise ValueError(f"inputs: {len(leaves)}, the program has {len(specs)}")
    for spec, leaf in zip(specs, leaves, strict=True):
        declared = nodes[spec.arg.name].meta.get("val")
        if not isinstance(declared, torch.Tensor):
            continue
        if not isinstance(leaf, torch.Tensor):
            raise TypeError(f"{_input_name(spec)}: {type(leaf).__name__}, expected a tensor")
        sizes = zip(declared.shape, leaf.shape, strict=False)
        fits = all(not isinstance(size, int) or size == here for size, here in sizes)
        if not fits or declared.dim() != leaf.dim():
            shape = tuple(declared.shape)
            text = f"{_input_name(spec)}: shape {tuple(leaf.shape)}"
            raise ValueError(f"{text}, the program was exported for {shape}")
        if declared.dtype != leaf.dtype:
            raise TypeError(f"{_input_name(spec)}: {leaf.dtype}, expected {declared.dtype}")


def flat_inputs(program: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return inputs one after the other; raise ValueError unless nested as a program's own."""
    expected = program.call_spec.in_spec
    names = expected.child(1).context
    if set(kwargs) != set(names):
        raise ValueError(f"inputs: by name {sorted(kwargs)}, expected {names}")
    leaves, nesting = pytree.tree_flatten((tuple(args), {name: kwargs[name] for name in names}))
    if nesting != expected:
        raise ValueError(f"inputs: {nesting}, the program was exported for {expected}")
    return list(leaves)


def user_inputs(program: Any) -> list[Any]:
    """Return the specifications of a program's own inputs, in order."""
    specs = program.graph_signature.input_specs
    return [spec for spec in specs if spec.kind.name == "USER_INPUT"]


def module_path(node: Any) -> str:
    """Return the path of the module that a node of a graph stands in, "" for the model."""
    stack = node.meta.get("nn_module_stack") or {}
    return next((str(path) for path, _type in reversed(stack.values())), "")


def to_onnx(program: Any) -> OnnxModel:
    """Return a program as `torch.onnx.export` makes it; raise torch.onnx.OnnxExporterError."""
    with _quiet():
        exported = torch.onnx.export(program, dynamo=True, verbose=False)
    paths = {
        node.name: _scope(node.metadata_props.get(_SCOPES, "[]")) for node in exported.model.graph
    }
    return OnnxModel(exported.model_proto.SerializeToString(), paths)


def has_onnx_operator(node: Any) -> bool:
    """Return True if ONNX has operators for a node of core ATen."""
    return node.op == "call_function" and bool(_registry().is_registered(node.target))


@cache
def _registry() -> Any:
    with _quiet():
        registration = import_module("torch.onnx._internal.exporter._registration")
        return registration.ONNXRegistry.from_torchlib()


def _scope(text: str) -> str:
    """Return the innermost module of scopes, of which the last is an operation."""
    scopes: list[str] = literal_eval(text)
    return scopes[-2] if len(scopes) > 1 else ""


@contextmanager
def _quiet() -> Generator[None]:
    """Silence torch's notes, and the graph that a failing export prints, unless TORCH_LOGS asks."""
    logs = _LOGGING.log_state  # of TORCH_LOGS, or torch._logging.set_logs
    if logs.log_qname_to_level or logs.artifact_names:
        yield
        return
    logger, printed = logging.getLogger("torch"), StringIO()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stderr(printed):
            yield
        sys.stderr.write(printed.getvalue())
    finally:
        logger.setLevel(level)
