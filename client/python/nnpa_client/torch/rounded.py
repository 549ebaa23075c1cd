# SPDX-License-Identifier: Apache-2.0
"""A program whose values are rounded to DLFLOAT16 after every operation: placement "every".

The operations are core ATen's. Inputs and parameters beyond the range become the greatest value, as
compilers for the machine convert them; results beyond it become no number, as on the machine.
"""

import operator
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from nnpa_client import dlfloat16
from nnpa_client.torch.exporting import module_path
from nnpa_client.torch.layers import Layer, relative_error

torch: Any = import_module("torch")
_COPIES = (torch.ops.aten.clone.default, torch.ops.aten._to_copy.default)
_map_arg: Any = import_module("torch.fx.node").map_arg


class Rounded:
    """A program that torch runs; each of its float32 tensors is rounded."""

    def __init__(self, program: Any) -> None:
        decomposed = program.run_decompositions()
        for node in decomposed.graph.nodes:
            if isinstance(node.target, torch._ops.HigherOrderOperator):
                where = module_path(node) or "(model)"
                text = f"{where} ({node.name}): control flow, expected none with placement 'every'"
                raise ValueError(text)
        self._module = decomposed.module()
        self._held: dict[str, Any] = {}

    def run(self, leaves: Sequence[Any]) -> Any:
        """Return the outputs for flat inputs, as the program nests them."""
        return self._interpret(leaves, self._rounded)

    def measure(self, leaves: Sequence[Any]) -> tuple[Any, list[Layer]]:
        """Return the outputs as `run` does, and the layers beside FP32."""
        references: dict[Any, Any] = {}
        self._interpret(leaves, references.setdefault)
        constants = self._constants()
        values: dict[Any, Any] = {}
        layers: list[Layer] = []

        def look(node: Any, value: Any) -> Any:
            values[node] = self._rounded(node, value)
            if node not in constants and _computes(node, value):
                layers.append(self._layer(node, values, references, constants))
            return values[node]

        return self._interpret(leaves, look), layers

    def _interpret(self, leaves: Sequence[Any], after: Callable[[Any, Any], Any]) -> Any:
        """Run the program, with what `after` makes of each node's value in its place."""
        interpreter = torch.fx.Interpreter(self._module)
        plain = interpreter.run_node

        def run_node(node: Any) -> Any:
            return plain(node) if node.op == "output" else after(node, plain(node))

        interpreter.run_node = run_node
        return interpreter.run(*leaves)

    def _rounded(self, node: Any, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return value
        if node.op != "get_attr":
            return _round(value, saturate=node.op == "placeholder")
        if node.name not in self._held:
            self._held[node.name] = _round(value, saturate=True)
        return self._held[node.name]

    def _constants(self) -> set[Any]:
        """Return the nodes that depend on no input."""
        constants: set[Any] = set()
        for node in self._module.graph.nodes:
            if node.op == "get_attr" or (
                node.op == "call_function" and constants.issuperset(node.all_input_nodes)
            ):
                constants.add(node)
        return constants

    def _layer(
        self, node: Any, values: dict[Any, Any], references: dict[Any, Any], constants: set[Any]
    ) -> Layer:
        """Return a node's row; its own error is measured over FP32's inputs, rounded."""
        source = node.args[0] if node.target is operator.getitem else node
        inputs = [each for each in source.all_input_nodes if each not in constants]
        inputs = [each for each in inputs if _is_float(values[each])]
        before = relative_error(
            [values[each].numpy() for each in inputs], [references[each].numpy() for each in inputs]
        )
        alone = self._alone(node, references)
        violations = int(np.count_nonzero(np.isnan(values[node].numpy())))
        own = relative_error([alone.numpy()], [references[node].numpy()])
        name = str(source.target).removesuffix(".default")
        return Layer(module_path(source), name, "rounded", before, own, violations)

    def _alone(self, node: Any, references: dict[Any, Any]) -> Any:
        """Return what a node makes of FP32's inputs, rounded before and after."""

        def load(each: Any) -> Any:
            if node.target is operator.getitem:
                return self._alone(each, references)
            return self._rounded(each, references[each])

        args, kwargs = (_map_arg(part, load) for part in (node.args, node.kwargs))
        return self._rounded(node, node.target(*args, **kwargs))

    def close(self) -> None:
        """Forget the rounded parameters."""
        self._held.clear()


def _round(value: Any, *, saturate: bool) -> Any:
    return torch.from_numpy(dlfloat16.round(value.detach().numpy(), saturate=saturate))


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _computes(node: Any, value: Any) -> bool:
    """Tell whether a node computes floats, rather than to move or to copy them."""
    if node.op != "call_function" or node.target in _COPIES or not _is_float(value):
        return False
    source = node.args[0] if node.target is operator.getitem else node
    schema = getattr(source.target, "_schema", None)
    return schema is None or all(out.alias_info is None for out in schema.returns)
