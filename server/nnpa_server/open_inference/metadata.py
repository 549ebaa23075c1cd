# SPDX-License-Identifier: Apache-2.0
"""Describe a model in Triton's messages: metadata, configuration, statistics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnpa.oip import open_inference_grpc_pb2 as pb

from nnpa_server.open_inference.repository import Model
from nnpa_server.open_inference.tensors import datatype_of

if TYPE_CHECKING:
    from nnpa_network.program import Port

PLATFORM, BACKEND = "onnx_onnxv1", "nnpa"


def _datatype(port: "Port") -> str:
    kind = datatype_of(port.dtype)
    return "" if kind is None else kind.name


def describe(model: Model, versions: Sequence[str]) -> pb.ModelMetadataResponse:
    """Return the names, types and shapes of inputs and outputs; -1 is a free dim."""

    def ports(all_of: "Sequence[Port]") -> list[pb.ModelMetadataResponse.TensorMetadata]:
        return [
            pb.ModelMetadataResponse.TensorMetadata(
                name=tensor.name, datatype=_datatype(tensor), shape=tensor.shape
            )
            for tensor in all_of
        ]

    return pb.ModelMetadataResponse(
        name=model.name,
        versions=versions,
        platform=PLATFORM,
        inputs=ports(model.inputs),
        outputs=ports(model.plan.outputs),
    )


def _data_type(port: "Port") -> pb.DataType.ValueType:
    name = _datatype(port).replace("BYTES", "STRING") or "INVALID"
    return pb.DataType.Value(f"TYPE_{name}")


def configuration(model: Model, versions: Sequence[str]) -> pb.ModelConfig:
    """Return a model's configuration: one instance; the batch is an ordinary dimension."""
    config = pb.ModelConfig(name=model.name, platform=PLATFORM, backend=BACKEND)
    numbers = [int(version) for version in versions if version.isdecimal()]
    config.version_policy.specific.versions.extend(numbers)
    for port in model.inputs:
        config.input.add(name=port.name, data_type=_data_type(port), dims=port.shape)
    for port in model.plan.outputs:
        config.output.add(name=port.name, data_type=_data_type(port), dims=port.shape)
    config.instance_group.add(name=model.name, count=1, kind=pb.ModelInstanceGroup.KIND_CPU)
    for key, value in model.properties.items():
        config.parameters[key].string_value = value
    return config


def statistics(model: Model) -> pb.ModelStatistics:
    """Return the number and the durations of a model's runs."""
    message = pb.ModelStatistics(name=model.name, version=model.version)
    model.statistics.copy_to(message)
    return message
