# SPDX-License-Identifier: Apache-2.0
"""The warm-up of models that are loaded: guessed sizes, sizes that are given, and its failure."""

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_client import connect
from nnpa_server.open_inference.repository import Model, Repository, State
from onnx import TensorProto, helper, numpy_helper

from tests.server.conftest import CONFIG
from tests.server.onnx_models import (
    FLOAT,
    Array,
    Caller,
    binary,
    model,
    offering,
    outputs_of,
    refusal,
    request,
)

INDEX = {"index": (TensorProto.INT64, (3,))}
TABLE = np.array([[1, 2, 3, 4]], np.float32)
GATHER = model([("Gather", ["table", "index"], ["y"])], INDEX, {"y": (FLOAT, (3, 4))},
               {"table": TABLE})  # fmt: skip
"""Takes zeros only, which are not what the warm-up tries."""
PRODUCT = model(
    [("MatMul", ["x", "w"], ["y"])],
    {"x": (FLOAT, ("n", "m"))},
    {"y": (FLOAT, ("n", 2))},
    {"w": np.ones((12, 2), np.float32)},
)
"""Takes twelve columns, which no type of it says."""


def _graph(
    nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], **constants: Array
) -> bytes:
    input_ports, output_ports = (
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in named.items()]
        for named in (inputs, outputs)
    )
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "test", input_ports, output_ports, weights)
    opset = helper.make_opsetid("", 20)
    return bytes(helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString())


UNET = _graph(
    [
        helper.make_node("MaxPool", ["x"], ["half"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Resize", ["half", "", "scales"], ["back"], mode="nearest"),
        helper.make_node("Concat", ["x", "back"], ["y"], "joined", axis=1),
    ],
    {"x": (1, 1, "h", "w")},
    {"y": (1, 2, "h", "w")},
    scales=np.array([1, 1, 2, 2], np.float32),
)
"""A branch is halved and doubled again: a single pixel is not what it was."""
SPLIT = _graph(
    [helper.make_node("Split", ["x", "sizes"], ["a", "b"], "cut", axis=1)],
    {"x": ("batch", "n")},
    {"a": ("batch", 5), "b": ("batch", 7)},
    sizes=np.array([5, 7]),
)
"""Takes twelve columns: neither one nor 32."""


@pytest.fixture(scope="module")
def caller() -> Iterator[Caller]:
    """A client of a server without models."""
    with offering() as (_, client):
        yield client


def _entry(caller: Caller, name: str) -> pb.RepositoryIndexResponse.ModelIndex:
    index = caller.stub.RepositoryIndex(pb.RepositoryIndexRequest())
    (entry,) = (entry for entry in index.models if entry.name == name)
    return entry


def _is_ready(caller: Caller, name: str) -> bool:
    return bool(caller.stub.ModelReady(pb.ModelReadyRequest(name=name)).ready)


def _indexed(index: list[int]) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="table")
    message.inputs.add(name="index", datatype="INT64", shape=[3])
    message.raw_input_contents.append(np.array(index, "<i8").tobytes())
    return message


def test_a_failed_warm_up_makes_a_model_not_ready(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    """A model whose warm-up fails is not ready until a request works; index and log say why."""
    with caplog.at_level(logging.INFO, "nnpa.models"):
        caller.load("table", GATHER)
    entry = _entry(caller, "table")
    assert (entry.state, entry.version) == ("UNAVAILABLE", "1")
    assert entry.reason.startswith("its warm-up failed on random inputs: node Gather")
    assert entry.reason.endswith("the first request that succeeds makes it ready")
    assert f"model table version 1 is not ready: {entry.reason}" in caplog.text
    assert not _is_ready(caller, "table")
    listed = caller.stub.RepositoryIndex(pb.RepositoryIndexRequest(ready=True)).models
    assert "table" not in [model.name for model in listed]
    refusal("NETWORK_FAILED", caller.stub.ModelInfer, _indexed([0, 1, 0]))
    assert not _is_ready(caller, "table")
    answer = outputs_of(caller.stub.ModelInfer(_indexed([0, 0, 0])))["y"]
    assert np.array_equal(answer, np.repeat(TABLE, 3, 0))
    entry = _entry(caller, "table")
    assert (entry.state, entry.reason, _is_ready(caller, "table")) == ("READY", "", True)


def _dropped(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records]
    return [line for line in lines if "were thrown away" in line]


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_programs_that_are_thrown_away_are_told(
    caplog: pytest.LogCaptureFixture, sandbox: str
) -> None:
    """Of 16 programs that were dropped for other shapes there is a line, of a request or a run.

    Programs for further sizes are no loss: they are derived again.
    """
    rows = np.ones((40, 4), np.float32)
    models = {"add": binary("Add", ("n", 4))}
    caplog.set_level(logging.WARNING, "nnpa.models")
    plain = CONFIG.plain | {"further-sizes"}
    with offering(models, sandbox=sandbox, plain=plain) as (server, caller):
        for count in range(1, 32):  # of which the model keeps 16
            caller.infer("add", x=rows[:count], y=rows[:count])
        assert _dropped(caplog) == []
        for count in range(32, 34):
            caller.infer("add", x=rows[:count], y=rows[:count])
        (line,) = _dropped(caplog)
        assert line.startswith("model 'test': 16 programs were thrown away for other shapes")
        caplog.clear()
        with connect(server.address) as session, session.load(binary("Mul", ("n", 4))) as net:
            for count in range(1, 34):
                net(rows[:count], rows[:count])
            assert len(_dropped(caplog)) == 1
            for count in (33, 32, 31) * 6:
                net(rows[:count], rows[:count])
            assert len(_dropped(caplog)) == 1


def test_a_failed_warm_up_of_the_folder(tmp_path: Path) -> None:
    """The server is ready when its folder has been tried, also where a model of it is not."""
    (tmp_path / "table.onnx").write_bytes(GATHER)
    with offering(folder=tmp_path) as (_, caller):
        until = time.monotonic() + 60
        while not caller.stub.ServerReady(pb.ServerReadyRequest()).ready:
            assert time.monotonic() < until
            time.sleep(0.02)
        entry = _entry(caller, "table")
        assert (entry.state, _is_ready(caller, "table")) == ("UNAVAILABLE", False)
        assert "warm-up failed" in entry.reason


class _Plan:
    def retire(self) -> None:
        """Let go of nothing."""


def test_a_run_makes_no_withdrawn_model_ready() -> None:
    """A run that ends after its model was replaced changes no state."""
    plan: Any = _Plan()
    old, new = (Model("m", "1", plan, (), {}, "", State.UNAVAILABLE, "") for _ in range(2))
    repository = Repository(1)
    repository.publish([old])
    repository.publish([new])
    repository.note_success(old)
    assert (old.state, new.state) == (State.UNAVAILABLE, State.UNAVAILABLE)
    repository.note_success(new)
    assert new.state == State.READY


def test_free_dims_that_one_does_not_fit(caller: Caller) -> None:
    """A model whose branches differ where a free dim is 1 is loaded, and warmed with another."""
    caller.load("unet", UNET)
    assert _is_ready(caller, "unet")
    assert caller.facts("unet")["warmup"].startswith("random inputs, seed 0, free dims 32: ")
    for size in (2, 8):
        x = np.arange(size * size, dtype=np.float32).reshape(1, 1, size, size)
        answer = caller.infer("unet", x=x)["y"]
        assert np.array_equal(answer[:, :1], x)
        assert np.array_equal(answer[0, 1, ::2, ::2], x[0, 0, 1::2, 1::2])
    odd = request("unet", x=np.ones((1, 1, 3, 3), np.float32))
    text = refusal("FIELD_INVALID", caller.stub.ModelInfer, odd)
    assert "node joined" in text


@pytest.mark.parametrize("data", [SPLIT, PRODUCT], ids=["split", "product"])
def test_free_dims_that_no_guess_fits(caller: Caller, data: bytes) -> None:
    """Such a model is loaded without shapes, says so, and is compiled for requests' shapes."""
    caller.load("late", data)
    assert _is_ready(caller, "late")
    facts = caller.facts("late")
    assert facts["warmup"].startswith("left out: free dims of 1, 32, 256 do not fit (node ")
    assert "config.pbtxt" in facts["warmup"]
    assert "--shape" in facts["warmup"]
    assert "nodes_host" not in facts
    x = np.arange(24, dtype=np.float32).reshape(2, 12)
    assert {array.shape[0] for array in caller.infer("late", x=x).values()} == {2}
    wide = request("late", x=np.ones((2, 13), np.float32))
    assert "model late: got node" in refusal("FIELD_INVALID", caller.stub.ModelInfer, wide)


def _dims(*dims: int, name: str = "x", **more: object) -> str:
    return json.dumps({"input": [{"name": name, "dims": dims}], **more})


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        (_dims(-1, 12), [-1, 12]),
        (_dims(2, 12), [2, 12]),
        (_dims(12, max_batch_size=8), [-1, 12]),
        (_dims(), [-1, -1]),
    ],
    ids=["one", "both", "batch", "none"],
)
def test_a_configuration_gives_sizes(caller: Caller, config: str, shape: list[int]) -> None:
    """Sizes that the configuration gives to free dims are the model's, also in the warm-up."""
    caller.load("given", SPLIT, config)
    metadata = caller.stub.ModelMetadata(pb.ModelMetadataRequest(name="given"))
    assert list(metadata.inputs[0].shape) == shape
    described = caller.stub.ModelConfig(pb.ModelConfigRequest(name="given")).config
    assert list(described.input[0].dims) == shape
    is_given = 12 in shape
    assert caller.facts("given")["warmup"].startswith("random" if is_given else "left out")
    assert caller.infer("given", x=np.ones((2, 12), np.float32))["b"].shape == (2, 7)
    if is_given:
        wide = request("given", x=np.ones((2, 13), np.float32))
        text = refusal("FIELD_INVALID", caller.stub.ModelInfer, wide)
        assert f"input x: got FP32 [2, 13], expected FP32 {shape}" in text


def test_a_size_of_a_named_dim_counts_everywhere(caller: Caller) -> None:
    """Inputs that share a named dim share its size."""
    caller.load("pair", binary("Add", ("n", 4)), _dims(3, 4))
    metadata = caller.stub.ModelMetadata(pb.ModelMetadataRequest(name="pair"))
    assert [list(port.shape) for port in metadata.inputs] == [[3, 4], [3, 4]]


def test_config_pbtxt_gives_sizes(tmp_path: Path) -> None:
    """The configuration of a model of the folder gives sizes as one that comes with a request."""
    (tmp_path / "cut/1").mkdir(parents=True)
    (tmp_path / "cut/1/model.onnx").write_bytes(SPLIT)
    text = 'max_batch_size: 4 input [ { name: "x" data_type: TYPE_FP32 dims: [ 12 ] } ]'
    (tmp_path / "cut/config.pbtxt").write_text(text)
    with offering(folder=tmp_path) as (_, caller):
        caller.stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="cut"))
        assert caller.facts("cut")["warmup"].startswith("random inputs, seed 0: ")


BAD = [
    (_dims(1, 4, name="q"), "config.input[0].name is 'q', must be one of x, y, once"),
    (_dims(4), "config.input[0].dims is [4], must be [-1, 4]"),
    (_dims(2, 5), "config.input[0].dims is [2, 5], must be [-1, 4]"),
    (_dims(0, 4), "config.input[0].dims is [0, 4], must be [-1, 4]"),
    (_dims(-2, 4), "config.input[0].dims is [-2, 4], must be [-1, 4]"),
    (_dims(3, 4, max_batch_size=8), "config.input[0].dims is [-1, 3, 4], must be [-1, 4]"),
    (
        json.dumps({"input": [{"name": "x", "dims": [2, 4]}, {"name": "y", "dims": [3, 4]}]}),
        "config.input y: dim n is 3, must be 2, as in another input",
    ),
    (
        json.dumps({"input": [{"name": "x"}, {"name": "x"}]}),
        "config.input[1].name is 'x', must be one of x, y, once",
    ),
]


@pytest.mark.parametrize(("config", "text"), BAD)
def test_bad_sizes(caller: Caller, config: str, text: str) -> None:
    """Sizes that are not the model's are refused with field, value and limit."""
    message = pb.RepositoryModelLoadRequest(model_name="bad")
    message.parameters["config"].string_param = config
    message.parameters["file:1/model.onnx"].bytes_param = binary("Add", ("n", 4))
    assert text in refusal("FIELD_INVALID", caller.stub.RepositoryModelLoad, message)


def test_given_sizes_that_do_not_fit(caller: Caller) -> None:
    """A model that is refused with the sizes that it was given is not loaded."""
    message = pb.RepositoryModelLoadRequest(model_name="bad")
    message.parameters["config"].string_param = _dims(2, 13)
    message.parameters["file:1/model.onnx"].bytes_param = SPLIT
    assert "node cut" in refusal("MODEL_INVALID", caller.stub.RepositoryModelLoad, message)
