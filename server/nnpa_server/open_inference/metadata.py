# SPDX-License-Identifier: Apache-2.0
"""Metadata, configuration and statistics of a model, in Triton's messages."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnpa.oip import open_inference_grpc_pb2 as pb

from nnpa_server.open_inference.repository import Duration, Model
from nnpa_server.open_inference.tensors import datatype_of

if TYPE_CHECKING:
    from nnpa_network.program import Port

PLATFORM, BACKEND = "onnx_onnxv1", "nnpa"


def _datatype(port: "Port") -> str:
    kind = datatype_of(port.dtype)
    return "" if kind is None else kind.name


def describe(model: Model, versions: Sequence[str]) -> pb.ModelMetadataResponse:
    """Return names, types and shapes of inputs and outputs, -1 for free dims."""

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
    """Return a model's configuration: one instance, the batch a dimension like the others."""
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


def _duration(duration: Duration) -> pb.StatisticDuration:
    return pb.StatisticDuration(count=duration.count, ns=duration.ns)


def statistics(model: Model) -> pb.ModelStatistics:
    """Return how often a model ran, and how long that took."""
    statistics = model.statistics
    message = pb.ModelStatistics(
        name=model.name,
        version=model.version,
        last_inference=round(statistics.last * 1000),
        inference_count=statistics.inferences,
        execution_count=statistics.success.count,
        inference_stats=pb.InferStatistics(
            success=_duration(statistics.success),
            fail=_duration(statistics.fail),
            queue=_duration(statistics.queue),
            compute_input=_duration(statistics.compute_input),
            compute_infer=_duration(statistics.compute_infer),
            compute_output=_duration(statistics.compute_output),
        ),
    )
    for size, (read, ran, answered) in sorted(statistics.batches.items()):
        message.batch_stats.add(
            batch_size=size,
            compute_input=_duration(read),
            compute_infer=_duration(ran),
            compute_output=_duration(answered),
        )
    return message
