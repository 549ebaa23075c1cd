# SPDX-License-Identifier: Apache-2.0
"""A model node by node in FP32, from any node on: where an answer turns, and which node fails."""

from collections.abc import Callable, Mapping

from onnx import NodeProto

from nnpa_network.importing.onnx_import import OnnxModel
from nnpa_network.nodes import captured
from nnpa_network.program import Array, DType
from nnpa_network.running import host


class Interpreter:
    """Runs the nodes of an imported model by ONNX Runtime, each by itself."""

    def __init__(self, model: OnnxModel) -> None:
        self._nodes, self._opsets = list(model.proto.graph.node), model.opsets
        self._constants = model.initializers
        self._kernels: dict[tuple[bytes, tuple[DType | None, ...]], host.Kernel] = {}

    def run(self, values: Mapping[str, Array], first: int) -> dict[str, Array]:
        """Add the values of the nodes from `first` on to `values`; raise `HostError`, KeyError."""
        values_so_far = {**self._constants, **values}
        for node in self._nodes[first:]:
            values_so_far.update(self._run(node, values_so_far))
        return values_so_far

    def failing(self, feeds: Mapping[str, Array]) -> str:
        """Return the first node that fails over inputs, empty where none does."""
        values_so_far = {**self._constants, **feeds}
        for number, node in enumerate(self._nodes):
            try:
                values_so_far.update(self._run(node, values_so_far))
            except (host.HostError, KeyError):
                return node.name or f"{node.op_type}_{number}"
        return ""

    def _run(self, node: NodeProto, values_so_far: Mapping[str, Array]) -> dict[str, Array]:
        names = (*node.input, *(name for name in captured(node) if name not in node.input))
        arrays = [values_so_far[name] if name else None for name in names]
        opset = host.opset_for(node.op_type, node.domain, self._opsets.get(node.domain, 1))
        dtypes = tuple(None if array is None else array.dtype for array in arrays)
        constants = [self._constants.get(name) for name in names]
        key = node.SerializeToString(), dtypes
        if key not in self._kernels:
            self._kernels[key] = host.prepare(key[0], opset, dtypes, constants)
        results = self._kernels[key]([array for array in arrays if array is not None])
        return dict(zip(filter(None, node.output), results, strict=True))

    def turning_node(
        self,
        hosted: Mapping[str, Array],
        reference: Mapping[str, Array],
        turned: Callable[[Mapping[str, Array]], bool],
    ) -> int | None:
        """Return the node after which the answer differs from FP32, None if it never does.

        Values up to a node come from `hosted`, from there on the model runs in FP32, and `turned`
        judges the result. Bisection returns one of several such nodes.
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
        computed = {name for node in self._nodes[last + 1 :] for name in node.output}
        values = {name: array for name, array in reference.items() if name not in computed}
        values.update((name, array) for name, array in hosted.items() if name in values)
        return self.run(values, last + 1)
