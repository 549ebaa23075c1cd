# SPDX-License-Identifier: Apache-2.0
"""Inference through the Open Inference Protocol: contents, errors, streams, parameters."""

from collections.abc import Iterator
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_server.open_inference import inference
from nnpa_server.open_inference.tensors import DATATYPES
from onnx import TensorProto

from tests.server.conftest import Running
from tests.server.onnx_models import (
    FLOAT,
    TYPES,
    Caller,
    code_of,
    model,
    offering,
    outputs_of,
    refusal,
    request,
)
from tests.server.open_inference.offered_models import MODELS, ONES, request_of_identity


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    """A client of a server that has the models."""
    with offering(MODELS) as (_, client):
        yield client


def test_alive_and_ready(caller: Caller) -> None:
    """A server without a folder is live and ready, and says what it offers."""
    assert caller.stub.ServerLive(pb.ServerLiveRequest()).live
    assert caller.stub.ServerReady(pb.ServerReadyRequest()).ready
    metadata = caller.stub.ServerMetadata(pb.ServerMetadataRequest())
    assert metadata.name == "nnpa-server"
    assert {"model_repository", "binary_tensor_data", "statistics"} <= set(metadata.extensions)
    assert not {"system_shared_memory", "cuda_shared_memory", "trace"} & set(metadata.extensions)


def test_model_ready(caller: Caller) -> None:
    """A loaded model is ready, in its version; an unknown model or version is not."""
    for name, version, ready in (
        ("add", "", True),
        ("add", "1", True),
        ("add", "2", False),
        ("none", "", False),
    ):
        message = pb.ModelReadyRequest(name=name, version=version)
        assert caller.stub.ModelReady(message).ready == ready


def test_metadata_equals_the_onnx_files(caller: Caller) -> None:
    """Names, types and shapes are the model's own, -1 where a dim is free."""
    metadata = caller.stub.ModelMetadata(pb.ModelMetadataRequest(name="dense"))
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
    facts = caller.facts("dense")
    assert (facts["machine"], facts["nodes_accelerator"]) == ("telum2", "2")
    assert facts["warmup"].startswith("random inputs")


@pytest.mark.parametrize("name", TYPES)
def test_metadata_of_every_type(caller: Caller, name: str) -> None:
    """Every element type has its name in the metadata and its number in the configuration."""
    metadata = caller.stub.ModelMetadata(pb.ModelMetadataRequest(name=f"id_{name}"))
    assert [port.datatype for port in (*metadata.inputs, *metadata.outputs)] == [name, name]
    config = caller.stub.ModelConfig(pb.ModelConfigRequest(name=f"id_{name}")).config
    number = pb.DataType.Value(f"TYPE_{name}" if name != "BYTES" else "TYPE_STRING")
    assert [port.data_type for port in config.input] == [number]
    assert [port.data_type for port in config.output] == [number]
    assert (config.max_batch_size, list(config.input[0].dims)) == (0, [-1, 3])


def test_sum(caller: Caller) -> None:
    """A model computes, and its answer carries name, version, type, shape and raw contents."""
    x, y = np.arange(1024, dtype=np.float32)[None], ONES
    message = request("add", x=x, y=y)
    message.id = "seven"
    response = caller.stub.ModelInfer(message)
    assert (response.model_name, response.model_version, response.id) == ("add", "1", "seven")
    (output,) = response.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("z", "FP32", [1, 1024])
    assert not output.HasField("contents")
    assert not response.parameters
    assert np.array_equal(outputs_of(response)["z"][0, :512], x[0, :512] + 1)


def test_free_dims_take_any_size(caller: Caller) -> None:
    """A batch of any size goes through one model, each row as alone."""
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    whole = caller.infer("dense", x=x)["y"]
    rows = [caller.infer("dense", x=row[None])["y"][0] for row in x]
    assert whole.shape == (5, 2)
    assert np.array_equal(whole, np.stack(rows))


def _contents(name: str) -> tuple[bytes, list[Any]]:
    """Return raw contents of shape (2, 3), and the elements for the typed field."""
    if name == "BYTES":
        texts = [b"", b"a", "ß".encode(), "\x00ÿ".encode(), b"nnpa", b"5"]
        return b"".join(len(text).to_bytes(4, "little") + text for text in texts), texts
    dtype = TYPES[name][1]
    if name == "BF16":
        values = np.array([0, 1, -2.5, 3e38, 0.125, 7]).astype(ml_dtypes.bfloat16).view(np.uint16)
    elif dtype.kind == "b":
        values = np.array([True, False, True, True, False, False])
    elif dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = np.array([info.min, info.max, 0, 1, 2, 100], dtype)
    else:
        values = np.array([0, 1.5, -2.25, 1e4, -0.125, 7], dtype)
    return values.tobytes(), values.tolist()


@pytest.mark.parametrize("name", TYPES)
def test_raw_contents_of_every_type(caller: Caller, name: str) -> None:
    """Raw contents of every type go in and come out bit for bit."""
    raw, _ = _contents(name)
    message = request_of_identity(name)
    message.raw_input_contents.append(raw)
    response = caller.stub.ModelInfer(message)
    assert response.raw_output_contents == [raw]
    assert (response.outputs[0].datatype, list(response.outputs[0].shape)) == (name, [2, 3])


@pytest.mark.parametrize(
    "name", [type_name for type_name in TYPES if type_name not in ("FP16", "BF16")]
)
def test_typed_contents_of_every_type(caller: Caller, name: str) -> None:
    """Typed contents are taken in the field of their type, and answered raw."""
    raw, values = _contents(name)
    message = request_of_identity(name)
    getattr(message.inputs[0].contents, DATATYPES[name].field).extend(values)
    assert caller.stub.ModelInfer(message).raw_output_contents == [raw]


@pytest.mark.parametrize("name", ["FP16", "BF16"])
def test_half_types_have_no_typed_contents(caller: Caller, name: str) -> None:
    """Two-byte floats travel raw only."""
    message = request_of_identity(name)
    message.inputs[0].contents.fp32_contents.extend([1.0] * 6)
    text = refusal("FIELD_INVALID", caller.stub.ModelInfer, message)
    assert "raw_input_contents" in text


def test_wanted_outputs_only(caller: Caller) -> None:
    """An output that is asked for comes back; none asked for means all."""
    message = request("add", x=ONES, y=ONES)
    message.outputs.add(name="z")
    assert list(outputs_of(caller.stub.ModelInfer(message))) == ["z"]


def test_classification_is_not_offered(caller: Caller) -> None:
    """The classification extension is refused as such, not ignored."""
    message = request("add", x=ONES, y=ONES)
    message.outputs.add(name="z").parameters["classification"].int64_param = 3
    refusal("EXTENSION_NOT_OFFERED", caller.stub.ModelInfer, message)


def test_violations_and_nans_are_parameters(caller: Caller) -> None:
    """After a division by zero parameters count range violations and remaining NaN."""
    x, y = np.ones((2, 4), np.float32), np.array([[1, 2, 4, 8], [1, 0, 1, 0]], np.float32)
    response = caller.stub.ModelInfer(request("div", x=x, y=y))
    assert response.parameters["nnpa_range_violations"].int64_param == 1
    assert response.outputs[0].parameters["nnpa_nan_count"].int64_param == 2
    assert np.isnan(outputs_of(response)["z"]).sum() == 2
    clean = caller.stub.ModelInfer(request("div", x=x, y=np.ones_like(x)))
    assert not clean.parameters
    assert not clean.outputs[0].parameters


def test_clients_say_what_they_take(caller: Caller) -> None:
    """More than gRPC's 4 MiB goes to a client that takes it; others refuse it themselves."""
    x = np.ones((2, 1 << 20), np.float32)
    message = request("large", x=x, y=x)
    ready = Caller(caller.address, ("grpc.max_receive_message_length", -1))
    assert np.array_equal(outputs_of(ready.stub.ModelInfer(message))["z"], 2 * x)
    ready.channel.close()
    with pytest.raises(grpc.RpcError, match="larger than max") as caught:
        caller.stub.ModelInfer(message)
    assert code_of(caught.value) == grpc.StatusCode.RESOURCE_EXHAUSTED


SPREAD = model(
    [("Expand", ["x", "shape"], ["known"]), ("NonZero", ["known"], ["unknown"])],
    {"x": (FLOAT, (1, 1))},
    {"known": (FLOAT, (512, 1024)), "unknown": (TensorProto.INT64, (2, "n"))},
    {"shape": np.array([512, 1024])},
)
LIMIT = 1 << 20


@pytest.fixture(scope="module")
def narrow() -> Iterator[tuple[Running, Caller]]:
    """A server of short answers, with a model of two long outputs, of which one is known before."""
    with offering({"spread": SPREAD}, max_response=LIMIT) as both:
        yield both


def _asking(*outputs: str, limit: int | None = None) -> pb.ModelInferRequest:
    message = request("spread", x=ONES[:, :1])
    for name in outputs:
        message.outputs.add(name=name)
    if limit is not None:
        message.parameters["nnpa_max_response_bytes"].int64_param = limit
    return message


def test_long_answers_are_refused_before_they_are_computed(
    narrow: tuple[Running, Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer above --max-response is refused with the remedy, unrun where that is known."""
    server, caller = narrow
    executor = server.server.repository.find("spread").plan.executor({"x": (1, 1)})
    runs: list[object] = []
    run = executor.run

    def count(inputs: Any) -> Any:
        runs.append(inputs)
        return run(inputs)

    monkeypatch.setattr(executor, "run", count)
    for outputs, size, n_runs in (
        (("known",), 2 << 20, 0),
        ((), 2 << 20, 0),
        (("unknown",), 8 << 20, 1),
    ):
        text = refusal("RESPONSE_TOO_LARGE", caller.stub.ModelInfer, _asking(*outputs))
        assert f"the answer has {size} bytes, above {LIMIT}: request fewer outputs" in text
        for remedy in ("shared memory", "nnpa_max_response_bytes", "max_receive_message_length"):
            assert remedy in text
        assert len(runs) == n_runs


def test_requests_say_how_long_an_answer_may_be(narrow: tuple[Running, Caller]) -> None:
    """A request's limit counts instead of the server's, below it and above, 0 for any length."""
    _, caller = narrow
    ask = caller.stub.ModelInfer
    for limit in (0, 2 << 20):
        (contents,) = ask(_asking("known", limit=limit)).raw_output_contents
        assert len(contents) == 2 << 20
    assert "above 4096:" in refusal("RESPONSE_TOO_LARGE", ask, _asking("known", limit=4096))


def test_no_answer_is_longer_than_a_message(
    narrow: tuple[Running, Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer larger than any message is refused, whatever limit the request has."""
    monkeypatch.setattr(inference, "MAX_RESPONSE", 1 << 20)
    ask = narrow[1].stub.ModelInfer
    for limit in (0, 1 << 40):
        text = refusal("RESPONSE_TOO_LARGE", ask, _asking("known", limit=limit))
        assert "the answer has 2097152 bytes, above 1048576" in text


def test_tensors_beyond_the_limit_of_a_run(caller: Caller) -> None:
    """Shapes whose sticks take more than a session may have are refused before they are made."""
    rows = 1 << 19  # of 4 elements: 8 MiB each, as sticks 64 MiB, and there are three
    message = pb.ModelInferRequest(model_name="div")
    for name in "xy":
        message.inputs.add(name=name, datatype="FP32", shape=[32 * rows, 4])
        message.raw_input_contents.append(b"")
    text = refusal("DATA_SIZE_MISMATCH", caller.stub.ModelInfer, message)
    assert "tensors of a run" in text


def test_stream_goes_on_after_errors(caller: Caller) -> None:
    """Each request of a stream has one answer, in order; an error ends its request only."""
    good, bad = request("add", x=ONES, y=ONES), request("none", x=ONES)
    good.id, bad.id = "good", "bad"
    answers = list(caller.stub.ModelStreamInfer(iter([good, bad, good])))
    assert [bool(answer.error_message) for answer in answers] == [False, True, False]
    assert [answer.infer_response.id for answer in answers] == ["good", "bad", "good"]
    assert "model none" in answers[1].error_message
    assert np.array_equal(outputs_of(answers[2].infer_response)["z"], 2 * ONES)


def test_final_responses_are_marked_on_request(caller: Caller) -> None:
    """On request a stream marks each answer as its request's last."""
    message = request("add", x=ONES, y=ONES)
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    (answer,) = caller.stub.ModelStreamInfer(iter([message]))
    assert answer.infer_response.parameters["triton_final_response"].bool_param
    assert np.array_equal(outputs_of(answer.infer_response)["z"], 2 * ONES)


@pytest.mark.parametrize(
    "method",
    [
        "CudaSharedMemoryStatus",
        "CudaSharedMemoryRegister",
        "CudaSharedMemoryUnregister",
        "TraceSetting",
        "LogSettings",
        "SystemSharedMemoryStatus",
        "SystemSharedMemoryRegister",
        "SystemSharedMemoryUnregister",
    ],
)
def test_what_is_not_offered(caller: Caller, method: str) -> None:
    """Extensions that are not offered answer UNIMPLEMENTED and say why."""
    ask, message = getattr(caller.stub, method), getattr(pb, f"{method}Request")()
    refusal("EXTENSION_NOT_OFFERED", ask, message)
    with pytest.raises(grpc.RpcError) as caught:
        ask(message)
    assert code_of(caught.value) == grpc.StatusCode.UNIMPLEMENTED


def test_statistics(caller: Caller) -> None:
    """Requests are counted by their outcome, batch elements by the free first dim."""

    def statistics_of_dense() -> pb.ModelStatistics:
        message = pb.ModelStatisticsRequest(name="dense")
        (statistics,) = caller.stub.ModelStatistics(message).model_stats
        return statistics

    before = statistics_of_dense()
    caller.infer("dense", x=np.ones((3, 4), np.float32))
    refusal("FIELD_INVALID", caller.stub.ModelInfer, request("dense", x=ONES))
    after = statistics_of_dense()
    assert after.inference_count - before.inference_count == 3
    assert after.execution_count - before.execution_count == 1
    assert after.inference_stats.fail.count - before.inference_stats.fail.count == 1
    assert after.inference_stats.compute_infer.ns > before.inference_stats.compute_infer.ns
    assert after.last_inference > before.last_inference
    assert 3 in [batch.batch_size for batch in after.batch_stats]
    everything = caller.stub.ModelStatistics(pb.ModelStatisticsRequest()).model_stats
    assert {model.name for model in everything} == MODELS.keys()
