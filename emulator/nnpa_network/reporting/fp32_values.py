# SPDX-License-Identifier: Apache-2.0
"""All values of a model as ONNX Runtime has them in FP32."""

from collections.abc import Callable, Mapping

import onnx

from nnpa_network.maps import cut_maps
from nnpa_network.program import Array
from nnpa_network.running import host


def all_values(model: bytes) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """Return a function that runs a whole model and gives all its values by name, as FP32 has them.

    Values of a type that cannot be handed over are left out. Raise `HostError`.
    """
    proto = onnx.ModelProto.FromString(model)
    cut_maps(proto)
    for domain in proto.opset_import:
        if domain.domain in ("", "ai.onnx"):
            versions = [
                host.opset_for(node.op_type, "", domain.version)
                for node in proto.graph.node
                if node.domain in ("", "ai.onnx")
            ]
            domain.version = min([domain.version, *versions])
    present = {info.name for info in proto.graph.output}
    for node in proto.graph.node:
        names = [name for name in node.output if name and name not in present]
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = host.load(proto.SerializeToString())
    names = [output.name for output in session.get_outputs() if output.type.startswith("tensor(")]

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        return dict(zip(names, host.results(session, names, feeds), strict=True))

    return run
