# SPDX-License-Identifier: Apache-2.0
"""Attacks on hosted models: time, memory, names, and resources left behind."""

import gc
import os
import secrets
import weakref
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa.zdnn.v1 import accelerator_pb2, operation_pb2
from nnpa_server.errors import CallRefused
from nnpa_server.open_inference.messages import parse
from nnpa_server.rpc import codec as apart

from tests.server.onnx_models import (
    MIB,
    SHARING,
    binary,
    identity,
    model,
    offering,
    refusal,
    request,
)

ROW = np.array([[8, 2, -2, 0.5]], np.float32)
FLOAT = 1


def _with_region(size: int) -> str:
    """Make an object of shared memory that has no contents yet; return its key."""
    key = f"nnpa-test-{secrets.token_hex(6)}"
    file = os.open(f"/dev/shm/{key}", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    os.ftruncate(file, size)
    os.close(file)
    return key


def _point(tensor: pb.ModelInferRequest.InferInputTensor, size: int) -> None:
    tensor.parameters["shared_memory_region"].string_param = "r"
    tensor.parameters["shared_memory_byte_size"].int64_param = size


def test_a_request_of_nothing_but_fields() -> None:
    """A request with too many fields is refused before they take memory and time."""
    with pytest.raises(DecodeError, match="more than 16384 fields"):
        parse(b"\x3a\x00" * (1 << 24))


@pytest.mark.parametrize("inner", [False, True])
def test_a_list_of_nothing_but_fields(inner: bool) -> None:
    """Lists of very many fields are left to protobuf, which reads them as they are."""
    message = accelerator_pb2.ExecuteRequest()
    if inner:
        operation = message.operations.add()
        operation.transform_ztensor.data.extend([b""] * (1 << 16))
    else:
        message.operations.extend([operation_pb2.Operation()] * (1 << 16))
    parsed = apart.parse(message.SerializeToString())
    assert not parsed.arrays
    assert parsed.message == message


def test_a_region_larger_than_its_input() -> None:
    """A tensor of a region that is not as large as the input is refused without being read."""
    key = _with_region(1 << 40)
    try:
        with offering({"mul": binary("Mul", ("n", 4))}, **SHARING) as (_, caller):
            caller.stub.SystemSharedMemoryRegister(
                pb.SystemSharedMemoryRegisterRequest(name="r", key=key, byte_size=1 << 40)
            )
            message = request("mul", x=ROW, y=ROW)
            del message.raw_input_contents[0]
            _point(message.inputs[0], 1 << 40)
            sentence = refusal("DATA_SIZE_MISMATCH", caller.stub.ModelInfer, message)
            assert "16 bytes for FP32 [1, 4]" in sentence
    finally:
        Path(f"/dev/shm/{key}").unlink()


def test_strings_of_a_region_are_bounded() -> None:
    """Strings, whose bytes no shape tells, come from a region up to the memory of a run."""
    key = _with_region(1 << 40)
    try:
        with offering({"text": identity("BYTES")}, **SHARING) as (_, caller):
            caller.stub.SystemSharedMemoryRegister(
                pb.SystemSharedMemoryRegisterRequest(name="r", key=key, byte_size=1 << 40)
            )
            message = pb.ModelInferRequest(model_name="text")
            _point(message.inputs.add(name="x", datatype="BYTES", shape=[1, 3]), 1 << 40)
            sentence = refusal("DATA_SIZE_MISMATCH", caller.stub.ModelInfer, message)
            assert f"at most {256 * MIB}" in sentence
    finally:
        Path(f"/dev/shm/{key}").unlink()


def test_sizes_of_strings_are_told_anew() -> None:
    """An answer gives the size of its own strings in shared memory, not of earlier ones."""
    key = _with_region(256)
    try:
        with offering({"text": identity("BYTES")}, **SHARING) as (_, caller):
            caller.stub.SystemSharedMemoryRegister(
                pb.SystemSharedMemoryRegisterRequest(name="r", key=key, byte_size=256)
            )
            for text in (b"a", b"longer"):
                message = pb.ModelInferRequest(model_name="text")
                message.inputs.add(name="x", datatype="BYTES", shape=[1, 3])
                raw = (len(text).to_bytes(4, "little") + text) * 3
                message.raw_input_contents.append(raw)
                output = message.outputs.add(name="y")
                output.parameters["shared_memory_region"].string_param = "r"
                output.parameters["shared_memory_byte_size"].int64_param = 256
                parameters = caller.stub.ModelInfer(message).outputs[0].parameters
                assert parameters["shared_memory_byte_size"].int64_param == len(raw)
    finally:
        Path(f"/dev/shm/{key}").unlink()


@pytest.mark.heavy
def test_an_unloaded_model_is_gone() -> None:
    """A model that was unloaded is not kept alive by requests that are remembered."""
    with offering({"one": binary("Mul", ("n", 4)), "two": binary("Add", ("n", 4))}) as (
        server,
        caller,
    ):
        caller.infer("one", x=ROW, y=ROW)
        plan = weakref.ref(server.server.repository.find("one").plan)
        caller.stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="one"))
        caller.infer("two", x=ROW, y=ROW)
        gc.collect()
        assert plan() is None


@pytest.mark.heavy
def test_a_model_too_large_to_be_warmed() -> None:
    """A model of a few bytes with inputs of very many is not run when it is loaded."""
    shape = (1 << 13, 1 << 13)  # 256 MiB, of which a run has an input and an output
    port = (FLOAT, shape)
    data = model([("Neg", ["x"], ["y"])], {"x": port}, {"y": port})
    with offering({"large": data}) as (_, caller):
        assert caller.facts("large")["warmup"].startswith("left out: it takes ")


def test_unloads_wait_for_no_load() -> None:
    """While all places for loads are in use, an unload is answered at once."""
    with offering({"one": binary("Add")}) as (server, caller), ExitStack() as places:
        loader = server.server.models.get().loader
        assert loader is not None
        place = getattr(loader, "_place")  # noqa: B009 - what a load of a client takes
        for _ in range(8):
            places.enter_context(place())
        with pytest.raises(CallRefused, match="max_loads"):
            places.enter_context(place())
        message = pb.RepositoryModelUnloadRequest(model_name="one")
        caller.stub.RepositoryModelUnload(message, timeout=5)
        assert server.server.repository.owner("one") is None
