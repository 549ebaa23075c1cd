# SPDX-License-Identifier: Apache-2.0
"""A model node by node in FP32, from any node on: where an answer turns, and which node fails."""

from collections.abc import Callable, Mapping

from onnx import NodeProto

from nnpa_network.importing.onnx_import import OnnxModel
from nnpa_network.program import Array
from nnpa_network.running import host


class Interpreter:
    """Runs the nodes of an imported model by ONNX Runtime, each by itself."""

    def __init__(self, model: OnnxModel) -> None:
        self._nodes, self._opsets = list(model.proto.graph.node), model.opsets
        self._constants = model.initializers

    def run(self, values: Mapping[str, Array], first: int) -> dict[str, Array]:
        """Return `values` and those of the nodes from `first` on; raise `HostError`, KeyError."""
        known = {**self._constants, **values}
        for node in self._nodes[first:]:
            known.update(self._run(node, known))
        return known

    def failing(self, feeds: Mapping[str, Array]) -> str:
        """Return the first node that fails over inputs, empty where none does."""
        known = {**self._constants, **feeds}
        for number, node in enumerate(self._nodes):
            try:
                known.update(self._run(node, known))
            except (host.HostError, KeyError):
                return node.name or f"{node.op_type}_{number}"
        return ""

    def _run(self, node: NodeProto, known: Mapping[str, Array]) -> dict[str, Array]:
        names = (*node.input, *(name for name in host.captured(node) if name not in node.input))
        arrays = [known[name] if name else None for name in names]
        opset = host.opset_for(node.op_type, node.domain, self._opsets.get(node.domain, 1))
        dtypes = tuple(None if array is None else array.dtype for array in arrays)
        constants = [self._constants.get(name) for name in names]
        kernel = host.prepare(node.SerializeToString(), opset, dtypes, constants)
        results = kernel([array for array in arrays if array is not None])
        return dict(zip(filter(None, node.output), results, strict=True))

    def turning_node(
        self,
        hosted: Mapping[str, Array],
        reference: Mapping[str, Array],
        turned: Callable[[Mapping[str, Array]], bool],
    ) -> int | None:
        """Return the node after which the answer is no longer that of FP32, None if it never is.

        Up to a node all values are the `hosted` ones, from there on the model runs in FP32, and
        `turned` judges its values. Of several such nodes one is found, by bisection.
        """
        low, high = -1, len(self._nodes) - 1
        try:
            if not turned({**reference, **hosted}) or turned(self._from(reference, {}, low)):
                return None
            while high - low > 1:
                middle = (low + high) // 2
                if turned(self._from(reference, hosted, middle)):
                    high = middle
                else:
                    low = middle
        except (host.HostError, KeyError):
            return None
        return high

    def _from(
        self, reference: Mapping[str, Array], hosted: Mapping[str, Array], last: int
    ) -> dict[str, Array]:
        """Run in FP32 after node `last`, up to which values are hosted ones."""
        made = {name for node in self._nodes[last + 1 :] for name in node.output}
        values = {name: array for name, array in reference.items() if name not in made}
        values.update((name, array) for name, array in hosted.items() if name in values)
        return self.run(values, last + 1)
