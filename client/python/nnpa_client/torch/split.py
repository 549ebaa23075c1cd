# SPDX-License-Identifier: Apache-2.0
"""A program with operators that ONNX lacks: these run in torch, the parts between are hosted."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from nnpa_client.session import Session
from nnpa_client.torch.exporting import has_onnx_operator, module_path, to_onnx
from nnpa_client.torch.hosted import Hosted
from nnpa_client.torch.layers import Layer, require_accelerated

torch: Any = import_module("torch")
_partitioner: Any = import_module("torch.fx.passes.infra.partitioner")
_operator_support: Any = import_module("torch.fx.passes.operator_support")
_WHY = "no operator of ONNX stands for it"


def _is_hosted(_modules: Mapping[str, Any], node: Any) -> bool:
    return bool(node.op == "get_attr" or has_onnx_operator(node))


class Split:
    """A program in parts; each is hosted when it first runs."""

    def __init__(self, program: Any, session: Session, strict: bool) -> None:
        module = program.run_decompositions().module()
        support = _operator_support.create_op_support(_is_hosted)
        partitioner = _partitioner.CapabilityBasedPartitioner(
            module, support, allows_single_node_partition=True
        )
        self._module = partitioner.partition_and_fuse()
        self._session, self._strict = session, strict
        if strict:
            nodes = self._module.graph.nodes
            require_accelerated(_layer(node) for node in nodes if node.op == "call_function")
        self._parts: dict[tuple[object, ...], Hosted] = {}

    def run(self, leaves: Sequence[Any]) -> Any:
        """Return the outputs for flat inputs, as the program nests them."""
        interpreter = torch.fx.Interpreter(self._module)
        plain = interpreter.call_module

        def call_module(target: str, args: Any, kwargs: Any) -> Any:
            part = self._part(target, args)
            return plain(target, args, kwargs) if part is None else part.run(args)

        interpreter.call_module = call_module
        return interpreter.run(*leaves)

    def measure(self, leaves: Sequence[Any]) -> tuple[Any, list[Layer]]:
        """Return the outputs as `run` does, and the layers; errors count anew in each part."""
        layers: list[Layer] = []
        interpreter = torch.fx.Interpreter(self._module)
        plain = interpreter.run_node

        def run_node(node: Any) -> Any:
            args, _kwargs = interpreter.fetch_args_kwargs_from_env(node)
            part = self._part(node.target, args) if node.op == "call_module" else None
            if part is not None:
                outputs, measured = part.measure(args)
                layers.extend(measured)
                return outputs
            if node.op == "call_function":
                layers.append(_layer(node))
            return plain(node)

        interpreter.run_node = run_node
        return interpreter.run(*leaves), layers

    def _part(self, target: str, args: Sequence[Any]) -> Hosted | None:
        """Return the hosted part that a node calls, None for torch's own checks of inputs."""
        module = self._module.get_submodule(target)
        if not isinstance(module, torch.fx.GraphModule):
            return None
        key = (target, *(tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor)))
        if key not in self._parts:
            program = torch.export.export(module, tuple(args))
            try:
                model = to_onnx(program)
            except torch.onnx.OnnxExporterError as error:
                why = "torch.onnx.export cannot write it"
                raise ValueError(f"model: expected an ONNX form: {why}") from error
            self._parts[key] = Hosted(program, model, self._session, self._strict)
        return self._parts[key]

    def close(self) -> None:
        """Destroy the hosted parts."""
        for part in self._parts.values():
            part.close()
        self._parts.clear()


def _layer(node: Any) -> Layer:
    return Layer(module_path(node), str(node.target), "torch", why=_WHY)
