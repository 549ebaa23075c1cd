# SPDX-License-Identifier: Apache-2.0
"""A model as ONNX Runtime runs it in FP32: its outputs, or all of its values."""

from collections.abc import Callable, Mapping

import onnx

from nnpa_network.maps import cut_maps
from nnpa_network.program import Array
from nnpa_network.running import host

Fp32 = Callable[[Mapping[str, Array]], dict[str, Array]]
"""Runs a model, and returns values by name; raises `HostError`."""


def outputs_of(model: bytes) -> Fp32:
    """Return a function that gives the outputs of a model; raise `HostError`."""
    return _runner(_known(model))


def all_values(model: bytes) -> Fp32:
    """Return a function that gives all values of a model; raise `HostError`."""
    proto = _known(model)
    present = {info.name for info in proto.graph.output}
    for node in proto.graph.node:
        names = [name for name in node.output if name and name not in present]
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return _runner(proto)


def _known(model: bytes) -> onnx.ModelProto:
    """Return a model in opsets that ONNX Runtime knows."""
    proto = onnx.ModelProto.FromString(model)
    cut_maps(proto)
    for domain in proto.opset_import:
        if domain.domain in ("", "ai.onnx"):
            nodes = [node for node in proto.graph.node if node.domain in ("", "ai.onnx")]
            versions = [host.opset_for(node.op_type, "", domain.version) for node in nodes]
            domain.version = min([domain.version, *versions])
    return proto


def _runner(proto: onnx.ModelProto) -> Fp32:
    """Return a function that runs a model, without values of types that cannot be handed over."""
    session = host.load(proto.SerializeToString())
    names = [output.name for output in session.get_outputs() if output.type.startswith("tensor(")]

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        return dict(zip(names, host.results(session, names, feeds), strict=True))

    return run
