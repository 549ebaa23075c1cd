# SPDX-License-Identifier: Apache-2.0
"""Checks of nodes on the host: they end, and ONNX Runtime takes their types."""

from nnpa_network.building.type_inference import OnnxNode
from nnpa_network.containment import fault_of_loops, trip_counts
from nnpa_network.nodes import has_subgraph
from nnpa_network.program import ModelRefused
from nnpa_network.running import host
from nnpa_network.running.host_models import WIDER
from nnpa_network.running.loading import fault_of_trips

_NO_TENSOR = (
    "the type of an input or output is not a tensor's, or not known: add it to the graph's "
    "value_info, and leave maps that are no outputs out by the converter's zipmap=False"
)


def require_bounded(node: OnnxNode, most: int) -> None:
    """Refuse a node whose outputs are too large, or that may not end."""
    for value in node.outputs:
        if value is not None and value.nbytes > most:
            text = f"output {value.name} takes {value.nbytes} bytes, must be at most {most}"
            raise ModelRefused(f"{node.op_type}: {text}", node.title)
    trips = trip_counts(node.proto)
    for value in node.inputs:
        if value is not None and value.name in trips and (fault := fault_of_trips(value.constant)):
            raise ModelRefused(f"{node.op_type}: {fault}", node.title)
    if fault := fault_of_loops(node.proto):
        raise ModelRefused(f"{node.op_type}: {fault}", node.title)


def opset_on_host(node: OnnxNode) -> int:
    """Return the opset that the host runs a node in; raise `HostError` for one it does not take."""
    opset = host.opset_for(node.op_type, node.proto.domain, node.opset)
    dtypes = tuple(None if operand is None else operand.dtype for operand in node.inputs)
    if any(
        operand is not None and operand.dtype is None for operand in (*node.inputs, *node.outputs)
    ):
        raise host.HostError(_NO_TENSOR)
    results = [output.dtype for output in node.outputs if output is not None and output.dtype]
    if any(dtype.kind == "V" and dtype not in WIDER for dtype in results):
        raise host.HostError(
            "an output has an element type that ONNX Runtime does not hand over: add a Cast"
        )
    if not has_subgraph(node.proto):
        host.prepare(node.proto.SerializeToString(), opset, dtypes)
    return opset
