# SPDX-License-Identifier: Apache-2.0
"""Answers as clients of other servers of the protocol read them, with messages of their own."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from nnpa.oip import open_inference_grpc_pb2 as pb

from tests.server.onnx_models import Caller, dense, offering

FIELD = descriptor_pb2.FieldDescriptorProto
PACKAGE = "mlserver"
# MLServer's dataplane.proto: fields by message, as (name, number, type, is repeated).
MESSAGES: dict[str, list[tuple[str, int, FIELD.Type.ValueType | str, bool]]] = {
    "InferParameter": [
        ("bool_param", 1, FIELD.TYPE_BOOL, False),
        ("int64_param", 2, FIELD.TYPE_INT64, False),
        ("string_param", 3, FIELD.TYPE_STRING, False),
    ],
    "ParametersEntry": [
        ("key", 1, FIELD.TYPE_STRING, False),
        ("value", 2, "InferParameter", False),
    ],
    "TensorMetadata": [
        ("name", 1, FIELD.TYPE_STRING, False),
        ("datatype", 2, FIELD.TYPE_STRING, False),
        ("shape", 3, FIELD.TYPE_INT64, True),
        ("parameters", 4, "ParametersEntry", True),
    ],
    "ModelMetadataResponse": [
        ("name", 1, FIELD.TYPE_STRING, False),
        ("versions", 2, FIELD.TYPE_STRING, True),
        ("platform", 3, FIELD.TYPE_STRING, False),
        ("inputs", 4, "TensorMetadata", True),
        ("outputs", 5, "TensorMetadata", True),
        ("parameters", 6, "ParametersEntry", True),
    ],
}


def _mlserver(name: str) -> Any:
    """Return the class of a message of MLServer's."""
    file = descriptor_pb2.FileDescriptorProto(
        name="dataplane.proto", package=PACKAGE, syntax="proto3"
    )
    for title, fields in MESSAGES.items():
        message = file.message_type.add(name=title)
        for field, number, kind, is_repeated in fields:
            added = message.field.add(name=field, number=number)
            added.label = FIELD.LABEL_REPEATED if is_repeated else FIELD.LABEL_OPTIONAL
            added.type = FIELD.TYPE_MESSAGE if isinstance(kind, str) else kind
            if isinstance(kind, str):
                added.type_name = f".{PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    """A client of a server that has a model."""
    with offering({"dense": dense()}) as (_, client):
        yield client


def test_mlservers_clients_read_a_models_metadata(caller: Caller) -> None:
    """MLServer's stubs read names, types and shapes, and no field of ours is in their way."""
    read = caller.channel.unary_unary(
        "/inference.GRPCInferenceService/ModelMetadata",
        pb.ModelMetadataRequest.SerializeToString,
        _mlserver("ModelMetadataResponse").FromString,
    )
    metadata: Any = read(pb.ModelMetadataRequest(name="dense"))
    assert (metadata.name, list(metadata.versions), metadata.platform) == (
        "dense",
        ["1"],
        "onnx_onnxv1",
    )
    (model_input,), (model_output,) = metadata.inputs, metadata.outputs
    assert (model_input.name, model_input.datatype, list(model_input.shape)) == (
        "x",
        "FP32",
        [-1, 4],
    )
    assert (model_output.name, model_output.datatype, list(model_output.shape)) == (
        "y",
        "FP32",
        [-1, 2],
    )
    assert not metadata.parameters
    assert not model_input.parameters


def test_the_configuration_tells_how_a_model_is_hosted(caller: Caller) -> None:
    """Machine, placement and warm-up are parameters of the configuration, read by all clients."""
    facts = caller.facts("dense")
    assert (facts["machine"], facts["nodes_accelerator"], facts["nodes_host"]) == (
        "telum2", "2", "0"
    )  # fmt: skip
    assert facts["warmup"].startswith("random inputs, seed 0")
