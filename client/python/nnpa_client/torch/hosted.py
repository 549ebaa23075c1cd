# SPDX-License-Identifier: Apache-2.0
"""A program as a hosted ONNX network: placement "compiler"."""

import json
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from nnpa.network.v1 import network_pb2 as pb

from nnpa_client.network.hosted import Network
from nnpa_client.session import Session
from nnpa_client.torch.exporting import OnnxModel, user_inputs
from nnpa_client.torch.layers import Layer, require_accelerated

torch: Any = import_module("torch")
pytree: Any = import_module("torch.utils._pytree")
_PART = "part of "


class Hosted:
    """A program that a session runs, bit for bit as it runs the ONNX file of the program."""

    def __init__(self, program: Any, model: OnnxModel, session: Session, strict: bool) -> None:
        self._program, self._paths = program, model.paths
        self._network: Network = session.load(model.file)
        if strict:
            try:
                nodes = self._network.report().nodes
                on_host = (node for node in nodes if node.device == "host")
                require_accelerated(self._layer(node, {}, {}) for node in on_host)
            except ValueError:
                self.close()
                raise

    def run(self, leaves: Sequence[Any]) -> Any:
        """Return the outputs for flat inputs, as the program nests them."""
        return self._nested(self._network.infer(*self._arrays(leaves)).outputs)

    def measure(self, leaves: Sequence[Any]) -> tuple[Any, list[Layer]]:
        """Return the outputs as `run` does, and the layers beside FP32."""
        arrays = self._arrays(leaves)
        inference = self._network.infer(*arrays)
        feeds = dict(zip([port.name for port in self._network.inputs], arrays, strict=True))
        sample = pb.Sample(inputs=self._network.named_arrays(feeds))
        answer = self._network.measure_accuracy([sample], machines=[self._network.machine])
        run = json.loads(answer.json)["runs"][0]
        figures = {row["value"]: row for row in run["nodes"]}
        violations: dict[str, int] = {}
        for violation in inference.violations:
            count = violations.get(violation.node, 0) + max(violation.count, 1)
            violations[violation.node] = count
        nodes = [node for node in self._network.report().nodes if node.device != "folded"]
        layers = [self._layer(node, figures, violations) for node in nodes]
        return self._nested(inference.outputs), layers

    def _layer(self, node: Any, figures: Mapping[str, Any], violations: Mapping[str, int]) -> Layer:
        rows = (figures[name] for name in node.outputs if name in figures)
        row: Mapping[str, Any] = next(rows, {})
        why = node.reason
        if why.startswith(_PART):
            head = why.removeprefix(_PART)
            why = _PART + (self._paths.get(head) or head)
        return Layer(
            self._paths.get(node.name, ""),
            node.op_type,
            node.device,
            _error(row.get("entering")),
            _error(row.get("alone")),
            violations.get(node.name or node.op_type, 0),
            why,
        )

    def _arrays(self, leaves: Sequence[Any]) -> list[Any]:
        specs = zip(user_inputs(self._program), leaves, strict=True)
        return [leaf.detach().numpy() for _spec, leaf in specs if isinstance(leaf, torch.Tensor)]

    def _nested(self, outputs: Mapping[str, Any]) -> Any:
        """Return outputs as the program nests them, among those that are no tensors."""
        arrays = iter(outputs.values())
        specs = self._program.graph_signature.output_specs
        values = [
            spec.arg.value if hasattr(spec.arg, "value") else torch.from_numpy(next(arrays))
            for spec in specs
            if spec.kind.name == "USER_OUTPUT"
        ]
        return pytree.tree_unflatten(values, self._program.call_spec.out_spec)

    def close(self) -> None:
        """Destroy the network."""
        self._network.close()


def _error(figure: float | None) -> float:
    return math.nan if figure is None else np.float64(figure).item()
