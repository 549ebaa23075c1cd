# SPDX-License-Identifier: Apache-2.0
"""Requests of inference that are refused: one sentence with tensor, value and expectation."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_server.open_inference.tensors import DATATYPES

from tests.server.onnx_models import (
    Caller,
    offering,
    refusal,
    request,
)
from tests.server.open_inference.offered_models import MODELS, ONES, request_of_identity

Change = Callable[[pb.ModelInferRequest], object]


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    """A client of a server that has the models."""
    with offering(MODELS) as (_, client):
        yield client


def _more(message: pb.ModelInferRequest) -> None:
    message.inputs.add(name="q", datatype="FP32", shape=[1])
    message.raw_input_contents.append(bytes(4))


def _twice(message: pb.ModelInferRequest) -> None:
    message.inputs.add().CopyFrom(message.inputs[0])
    message.raw_input_contents.append(message.raw_input_contents[0])


def _reshape_div(message: pb.ModelInferRequest, size: int) -> None:
    message.model_name = "div"
    message.inputs[0].shape[:] = [size, 4]


REFUSALS: list[tuple[str, Change, str, str]] = [
    (
        "type",
        lambda m: setattr(m.inputs[0], "datatype", "FP64"),
        "FIELD_INVALID",
        "model add: input x: got FP64 [1, 1024], expected FP32 [1, 1024]",
    ),
    (
        "dim",
        lambda m: m.inputs[1].shape.__setitem__(1, 1023),
        "FIELD_INVALID",
        "model add: input y: got FP32 [1, 1023], expected FP32 [1, 1024]",
    ),
    (
        "rank",
        lambda m: m.inputs[1].shape.append(1),
        "FIELD_INVALID",
        "model add: input y: got FP32 [1, 1024, 1], expected FP32 [1, 1024]",
    ),
    (
        "negative dim",
        lambda m: m.inputs[1].shape.__setitem__(0, -1),
        "FIELD_INVALID",
        "model add: input y: got FP32 [-1, 1024], expected FP32 [1, 1024], with dims from 0 up",
    ),
    (
        "negative free dim",
        lambda m: _reshape_div(m, -1),
        "FIELD_INVALID",
        "model div: input x: got FP32 [-1, 4], expected FP32 [-1, 4], with dims from 0 up",
    ),
    (
        "too many elements",
        lambda m: _reshape_div(m, 1 << 60),
        "FIELD_INVALID",
        f"got FP32 [{1 << 60}, 4], expected FP32 [-1, 4], of at most {1 << 48} elements",
    ),
    (
        "missing",
        lambda m: m.inputs.pop(),
        "FIELD_INVALID",
        "model add: input y: got 0 tensors, expected one",
    ),
    ("twice", _twice, "FIELD_INVALID", "model add: input x: got 2 tensors, expected one"),
    ("unknown", _more, "FIELD_INVALID", "model add: inputs is 'q', must be one of x, y"),
    (
        "short",
        lambda m: m.raw_input_contents.__setitem__(0, bytes(5)),
        "DATA_SIZE_MISMATCH",
        "model add: input x: got 5 bytes, expected 4096 bytes for FP32 [1, 1024]",
    ),
    (
        "one entry",
        lambda m: m.raw_input_contents.pop(),
        "DATA_SIZE_MISMATCH",
        "model add: raw_input_contents: got 1 entries, expected 2, one per such input",
    ),
    (
        "both",
        lambda m: m.inputs[0].contents.fp32_contents.append(1),
        "FIELD_INVALID",
        "model add: input x: contents is beside raw_input_contents, must be in one place",
    ),
    (
        "no contents",
        lambda m: m.ClearField("raw_input_contents"),
        "DATA_SIZE_MISMATCH",
        "model add: input x: contents.fp32_contents: got 0 elements, expected 1024",
    ),
    (
        "output",
        lambda m: m.outputs.add(name="q"),
        "FIELD_INVALID",
        "model add: output q is requested, must be one of z, once",
    ),
    (
        "output twice",
        lambda m: (m.outputs.add(name="z"), m.outputs.add(name="z")),
        "FIELD_INVALID",
        "model add: output z is requested, must be one of z, once",
    ),
    (
        "model",
        lambda m: setattr(m, "model_name", "sum"),
        "MODEL_NOT_FOUND",
        "model sum does not exist",
    ),
    (
        "version",
        lambda m: setattr(m, "model_version", "3"),
        "MODEL_NOT_FOUND",
        "model add version 3 does not exist: its versions are 1",
    ),
    (
        "region",
        lambda m: (
            m.inputs[0]
            .parameters["shared_memory_region"]
            .MergeFrom(pb.InferParameter(string_param="r"))
        ),
        "FIELD_INVALID",
        "shared_memory_byte_size",
    ),
    (
        "limit",
        lambda m: m.parameters["nnpa_max_response_bytes"].MergeFrom(
            pb.InferParameter(string_param="much")
        ),
        "FIELD_INVALID",
        "parameters.nnpa_max_response_bytes is no number",
    ),
]


@pytest.mark.parametrize(
    ("change", "reason", "text"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS]
)
def test_refusals_are_one_sentence(caller: Caller, change: Change, reason: str, text: str) -> None:
    """A request that contradicts the model is told which input, what it got, what it expected."""
    message = request("add", x=ONES, y=ONES)
    change(message)
    sentence = refusal(reason, caller.stub.ModelInfer, message)
    assert text in sentence
    assert "\n" not in sentence
    assert np.array_equal(caller.infer("add", x=ONES, y=ONES)["z"], 2 * ONES)


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("UINT8", [256], "256"),
        ("INT8", [-129], "-129"),
        ("INT16", [1 << 15], "32768"),
        ("UINT16", [1 << 16], "65536"),
    ],
)
def test_typed_numbers_are_not_wrapped(
    caller: Caller, name: str, values: list[int], text: str
) -> None:
    """A number beyond its element type is refused by value and limit."""
    message = request_of_identity(name)
    getattr(message.inputs[0].contents, DATATYPES[name].field).extend(values * 6)
    assert text in refusal("FIELD_INVALID", caller.stub.ModelInfer, message)


@pytest.mark.parametrize(
    "raw", [b"", b"\x01\x00\x00", b"\xff\xff\xff\xff" * 6, bytes(24) + b"\x00", bytes(20)]
)
def test_bytes_that_are_no_strings(caller: Caller, raw: bytes) -> None:
    """Raw BYTES whose lengths do not add up are refused."""
    message = request_of_identity("BYTES")
    message.raw_input_contents.append(raw)
    refusal("DATA_SIZE_MISMATCH", caller.stub.ModelInfer, message)
