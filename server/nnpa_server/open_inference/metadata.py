# SPDX-License-Identifier: Apache-2.0
"""Describe a model in Triton's messages: metadata, configuration, statistics."""

from collections.abc import Sequence

from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_network.program import Port

from nnpa_server.open_inference.repository import Model
from nnpa_server.open_inference.tensors import datatype_of

PLATFORM, BACKEND = "onnx_onnxv1", "nnpa"


def _datatype(port: Port) -> str:
    kind = datatype_of(port.dtype)
    return "" if kind is None else kind.name


def describe(model: Model, versions: Sequence[str]) -> pb.ModelMetadataResponse:
    """Return the names, types and shapes of inputs and outputs; -1 is a free dim."""
    message = pb.ModelMetadataResponse(name=model.name, versions=versions, platform=PLATFORM)
    for port in model.inputs:
        message.inputs.add(name=port.name, datatype=_datatype(port), shape=port.shape)
    for port in model.plan.outputs:
        message.outputs.add(name=port.name, datatype=_datatype(port), shape=port.shape)
    return message


def _data_type(port: Port) -> pb.DataType.ValueType:
    name = _datatype(port).replace("BYTES", "STRING") or "INVALID"
    return pb.DataType.Value(f"TYPE_{name}")


def configuration(model: Model, versions: Sequence[str]) -> pb.ModelConfig:
    """Return a model's configuration: one instance; the batch is an ordinary dimension."""
    config = pb.ModelConfig(name=model.name, platform=PLATFORM, backend=BACKEND)
    config.version_policy.specific.versions.extend(map(int, versions))
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
