# SPDX-License-Identifier: Apache-2.0
"""Loading, unloading and listing models, of the operator's folder and of clients."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import pytest
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_server.open_inference.repository import Repository, State, Statistics

from tests.server.conftest import Running
from tests.server.onnx_models import (
    FLOAT,
    Caller,
    binary,
    dense,
    model,
    offering,
    refusal,
    request,
)

ROW = np.array([[8, 2, -2, 0.5]], np.float32)
DIV = binary("Div", ("n", 4))
Pair = tuple[Running, Caller]


def _config(**parameters: str) -> str:
    named = {name: {"string_value": value} for name, value in parameters.items()}
    return json.dumps({"parameters": named})


def wait_ready(caller: Caller) -> None:
    """Wait until the server has loaded the models of its folder."""
    until = time.monotonic() + 60
    while not caller.stub.ServerReady(pb.ServerReadyRequest()).ready:
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A server with one model, and a client."""
    with offering({"div": DIV}) as both:
        yield both


@pytest.fixture(scope="module")
def refusing() -> Iterator[Pair]:
    """A server with one model for calls that are refused, and a client."""
    with offering({"div": DIV}) as both:
        yield both


def test_a_client_brings_a_model(pair: Pair) -> None:
    """A model that comes with a request runs, on the machine that its configuration names."""
    _, caller = pair
    for machine in ("telum1", "z17"):
        caller.load("mine", binary("Mul", ("n", 4)), _config(machine=machine))
        assert caller.facts("mine")["machine"] == {"telum1": "telum1", "z17": "telum2"}[machine]
        assert np.array_equal(caller.infer("mine", x=ROW, y=ROW)["z"], ROW * ROW)


def test_a_configuration_names_the_placement(pair: Pair) -> None:
    """`placement` of a configuration says how much goes to the accelerator, and is told again."""
    _, caller = pair
    row = (FLOAT, [1, 4])
    swish = model([("HardSwish", ["x"], ["y"])], {"x": row}, {"y": row})
    for config, placement, placed in (
        ("{}", "compiler", "0"), (_config(placement="all"), "all", "1"),
    ):  # fmt: skip
        caller.load("swish", swish, config)
        facts = caller.facts("swish")
        assert (facts["placement"], facts["nodes_accelerator"]) == (placement, placed)


def test_kserve_names_a_model_in_the_first_field(pair: Pair) -> None:
    """KServe's dialect of load and unload is understood, and answered in its words."""
    _, caller = pair
    message = pb.RepositoryModelLoadRequest(repository_name="mine")
    message.parameters["config"].string_param = "{}"
    message.parameters["file:1/model.onnx"].bytes_param = DIV
    loaded = caller.stub.RepositoryModelLoad(message)
    assert (loaded.model_name, loaded.isLoaded) == ("mine", True)
    unload = pb.RepositoryModelUnloadRequest(repository_name="mine")
    unloaded = caller.stub.RepositoryModelUnload(unload)
    assert (unloaded.model_name, unloaded.isUnloaded) == ("mine", True)


def test_unloading(pair: Pair) -> None:
    """An unloaded model is known and unavailable; an unknown one is not found."""
    _, caller = pair
    caller.infer("div", x=ROW, y=ROW)
    caller.stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="div"))
    assert caller.states() == {"div": "UNAVAILABLE"}
    text = refusal("MODEL_UNAVAILABLE", caller.stub.ModelInfer, request("div", x=ROW, y=ROW))
    assert text == "model div is unavailable, unloaded"
    assert not caller.stub.ModelReady(pb.ModelReadyRequest(name="div")).ready
    caller.stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="div"))
    unknown = pb.RepositoryModelUnloadRequest(model_name="none")
    refusal("MODEL_NOT_FOUND", caller.stub.RepositoryModelUnload, unknown)
    caller.load("div", DIV)
    assert np.array_equal(caller.infer("div", x=ROW, y=ROW)["z"], np.ones_like(ROW))


def test_a_model_is_replaced_at_once(pair: Pair) -> None:
    """After a load the new model answers, also to requests seen before."""
    _, caller = pair
    assert np.array_equal(caller.infer("div", x=ROW, y=ROW)["z"], np.ones_like(ROW))
    caller.load("div", binary("Mul", ("n", 4)))
    assert np.array_equal(caller.infer("div", x=ROW, y=ROW)["z"], ROW * ROW)


BAD: list[tuple[str, bytes, str, str, str]] = [
    ("garbage", b"no model", "{}", "MODEL_INVALID", "not an ONNX model"),
    ("truncated", dense()[:-20], "{}", "MODEL_INVALID", "model bad"),
    ("empty", b"", "{}", "MODEL_INVALID", "model bad"),
    ("json", DIV, "{", "FIELD_INVALID", "config is no JSON"),
    ("nested", DIV, "[" * 100_000, "FIELD_INVALID", "config is no JSON"),
    ("machine", DIV, _config(machine="z14"), "FIELD_INVALID", "telum2 (z17)"),
    ("flag", DIV, _config(strict="maybe"), "FIELD_INVALID", "must be true or false"),
    ("placement", DIV, _config(placement="most"), "FIELD_INVALID", "one of 'compiler', 'all'"),
    ("backend", DIV, '{"backend": "tensorrt"}', "FIELD_INVALID", "config.backend is 'tensorrt'"),
    ("other name", DIV, '{"name": "sum"}', "FIELD_INVALID", "config.name is 'sum'"),
    (
        "version",
        DIV,
        '{"version_policy": {"specific": {"versions": [7]}}}',
        "FIELD_INVALID",
        "config.version_policy.specific is 7, must be one of 1",
    ),
]


@pytest.mark.parametrize(
    ("data", "config", "reason", "text"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_bad_models(refusing: Pair, data: bytes, config: str, reason: str, text: str) -> None:
    """A model that cannot be hosted is refused with the reason, and the loaded models stay."""
    server, caller = refusing
    message = pb.RepositoryModelLoadRequest(model_name="bad")
    message.parameters["config"].string_param = config
    message.parameters["file:1/model.onnx"].bytes_param = data
    assert text in refusal(reason, caller.stub.RepositoryModelLoad, message)
    assert caller.states()["div"] == "READY"
    assert [model.name for model in server.server.repository.models()] == ["div"]


@pytest.mark.parametrize(
    ("name", "key", "reason"),
    [
        ("../etc", "file:1/model.onnx", "FIELD_INVALID"),
        ("a" * 65, "file:1/model.onnx", "FIELD_INVALID"),
        ("", "file:1/model.onnx", "FIELD_INVALID"),
        ("bad", "file:1/../model.onnx", "FIELD_INVALID"),
        ("bad", "file:0/model.onnx", "FIELD_INVALID"),
        ("bad", "file:1/weights.bin", "FIELD_INVALID"),
        ("bad", "other", "FIELD_INVALID"),
    ],
)
def test_bad_names(refusing: Pair, name: str, key: str, reason: str) -> None:
    """Names of models and files are letters, digits and "._-"; nothing else is taken."""
    message = pb.RepositoryModelLoadRequest(model_name=name)
    message.parameters["config"].string_param = "{}"
    message.parameters[key].bytes_param = DIV
    refusal(reason, refusing[1].stub.RepositoryModelLoad, message)


def test_contents_need_a_configuration(refusing: Pair) -> None:
    """A file without "config" is refused, as the protocol has it; so is a name without a folder."""
    stub = refusing[1].stub
    message = pb.RepositoryModelLoadRequest(model_name="mine")
    assert "--models" in refusal("FIELD_INVALID", stub.RepositoryModelLoad, message)
    message.parameters["file:1/model.onnx"].bytes_param = DIV
    assert "without config" in refusal("FIELD_INVALID", stub.RepositoryModelLoad, message)


@pytest.mark.heavy
def test_strict_models_have_no_node_on_the_host(pair: Pair) -> None:
    """With "strict" a model of which a node would run on the host is refused, and says which."""
    _, caller = pair
    caller.load("power", binary("Pow", ("n", 4)))
    assert caller.facts("power")["nodes_host"] == "1"
    message = pb.RepositoryModelLoadRequest(model_name="strict")
    message.parameters["config"].string_param = _config(strict="true")
    message.parameters["file:1/model.onnx"].bytes_param = binary("Pow", ("n", 4))
    assert "Pow" in refusal("MODEL_INVALID", caller.stub.RepositoryModelLoad, message)


def test_models_have_a_limit() -> None:
    """One model more than --max-models is refused; unloading makes room, replacing needs none."""
    with offering({"a": DIV, "b": DIV}, max_models=2) as (_, caller):
        message = pb.RepositoryModelLoadRequest(model_name="c")
        message.parameters["config"].string_param = "{}"
        message.parameters["file:1/model.onnx"].bytes_param = DIV
        text = refusal("MODEL_QUOTA_EXCEEDED", caller.stub.RepositoryModelLoad, message)
        assert "max_models is 2" in text
        caller.load("b", DIV)
        caller.stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="a"))
        caller.stub.RepositoryModelLoad(message)
        assert caller.states()["c"] == "READY"


def test_clients_without_control() -> None:
    """With --no-model-control clients may neither load nor unload."""
    with offering(no_model_control=True) as (_, caller):
        for ask, message in (
            (caller.stub.RepositoryModelLoad, pb.RepositoryModelLoadRequest(model_name="a")),
            (caller.stub.RepositoryModelUnload, pb.RepositoryModelUnloadRequest(model_name="a")),
        ):
            refusal("EXTENSION_NOT_OFFERED", ask, message)


def test_server_stays_ready_while_a_model_loads(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading makes nobody wait: the server is ready, the old model answers until the new does."""
    server, caller = pair
    loading, go_on = threading.Event(), threading.Event()
    compile_model = server.server.models.get().loader.compile

    def slow(*arguments: Any) -> Any:
        loading.set()
        assert go_on.wait(30)
        return compile_model(*arguments)

    monkeypatch.setattr(server.server.models.get().loader, "compile", slow)
    thread = threading.Thread(target=caller.load, args=("div", binary("Mul", ("n", 4))))
    second = threading.Thread(target=caller.load, args=("new", DIV))
    thread.start()
    assert loading.wait(30)
    second.start()
    assert caller.stub.ServerReady(pb.ServerReadyRequest()).ready
    assert caller.states()["div"] == "READY"
    assert np.array_equal(caller.infer("div", x=ROW, y=ROW)["z"], np.ones_like(ROW))
    go_on.set()
    thread.join(30)
    second.join(30)
    assert np.array_equal(caller.infer("div", x=ROW, y=ROW)["z"], ROW * ROW)
    assert caller.states() == {"div": "READY", "new": "READY"}


def _write_apart(path: Path, location: str = "") -> None:
    """Write the dense model with its weights in a file beside it, or as if they were elsewhere."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside, proto = f"{path.name}.data", onnx.ModelProto.FromString(dense())
    onnx.save(proto, path, save_as_external_data=True, location=beside, size_threshold=0)
    if location:
        moved = onnx.load(path, load_external_data=False)
        moved.graph.initializer[0].external_data[0].value = location
        path.write_bytes(moved.SerializeToString())


def test_external_data_of_the_folder(tmp_path: Path) -> None:
    """Models of the folder have external data beside them, nowhere else; a client's have none."""
    folder = tmp_path / "models"
    _write_apart(folder / "flat.onnx")
    _write_apart(folder / "deep/1/model.onnx")
    _write_apart(folder / "leaves.onnx", "../secret.bin")
    (tmp_path / "secret.bin").write_bytes(bytes(1 << 12))
    with offering(folder=folder) as (_, caller):
        wait_ready(caller)
        assert caller.states() == {"flat": "READY", "deep": "READY", "leaves": "UNAVAILABLE"}
        expected = np.maximum(ROW @ np.arange(-3, 5, dtype=np.float32).reshape(4, 2), 0)
        for name in ("flat", "deep"):
            np.testing.assert_allclose(caller.infer(name, x=ROW)["y"], expected, rtol=0.01)
        message = request("leaves", x=ROW)
        text = refusal("MODEL_UNAVAILABLE", caller.stub.ModelInfer, message)
        assert "external data '../secret.bin' must be in the model's folder" in text
        stranger = pb.RepositoryModelLoadRequest(model_name="mine")
        stranger.parameters["config"].string_param = "{}"
        contents = (folder / "flat.onnx").read_bytes()
        stranger.parameters["file:1/model.onnx"].bytes_param = contents
        text = refusal("MODEL_INVALID", caller.stub.RepositoryModelLoad, stranger)
        assert "external data is refused" in text
        assert "save_as_external_data=False" in text


@pytest.mark.heavy
def test_external_data_are_bounded(tmp_path: Path) -> None:
    """A model of the folder and its external data together have the bytes of a session."""
    weights = np.zeros((4096, 4096), np.float32)
    large = model(
        [("MatMul", ["x", "w"], ["y"])], {"x": (FLOAT, (1, 4096))}, {"y": (FLOAT, (1, 4096))},
        {"w": weights, **{f"unused{index}": weights for index in range(4)}},
    )  # fmt: skip
    path = tmp_path / "large.onnx"
    onnx.save(onnx.ModelProto.FromString(large), path, save_as_external_data=True, location="w")
    with offering(folder=tmp_path) as (_, caller):
        wait_ready(caller)
        text = refusal("MODEL_UNAVAILABLE", caller.stub.ModelInfer, request("large", x=ROW))
        assert "large.onnx and its external data" in text
        assert f"must be at most {256 << 20}" in text


def test_warm_up_is_told_and_not_counted(pair: Pair) -> None:
    """Runs of the warm-up are told in the metadata and counted in no statistics."""
    _, caller = pair
    assert "seed 0" in caller.facts("div")["warmup"]
    (stats,) = caller.stub.ModelStatistics(pb.ModelStatisticsRequest(name="div")).model_stats
    assert (stats.inference_count, stats.execution_count, stats.last_inference) == (0, 0, 0)


def test_draining_ends_an_idle_stream(pair: Pair) -> None:
    """A stream that waits for its next request does not hold up the server's end."""
    server, caller = pair
    end = threading.Event()

    def requests() -> Iterator[pb.ModelInferRequest]:
        yield request("div", x=ROW, y=ROW)
        end.wait(30)

    answers = iter(caller.stub.ModelStreamInfer(requests()))
    assert not next(answers).error_message
    assert server.server.drain()  # else calls were cut off
    end.set()
    with pytest.raises(grpc.RpcError):
        next(answers)


def test_statistics_add_up() -> None:
    """Requests are counted with the times of their parts, in all and by size of the batch."""
    statistics, message = Statistics(), pb.ModelStatistics()
    for batch, began in ((4, 0), (2, 10), (4, 20)):
        statistics.succeeded(batch, began, began + 1, began + 3, began + 6)
    statistics.failed(5)
    statistics.copy_to(message)
    durations = message.inference_stats
    assert [(part.count, part.ns) for part in (durations.success, durations.fail)] == [
        (3, 18), (1, 5),
    ]  # fmt: skip
    assert (durations.queue.count, durations.queue.ns) == (3, 0)
    assert (message.execution_count, message.inference_count) == (3, 10)
    batches = {part.batch_size: part for part in message.batch_stats}
    assert list(batches) == [2, 4]
    assert (batches[4].compute_input.ns, batches[4].compute_infer.ns) == (2, 4)
    assert (batches[4].compute_output.count, batches[4].compute_output.ns) == (2, 6)


def test_nothing_is_remembered_without_end() -> None:
    """Names that were tried and are not offered are forgotten, the oldest first."""
    repository = Repository(1)
    for number in range(3000):
        repository.note(f"m{number}", State.UNAVAILABLE)
    names = [entry.name for entry in repository.index()]
    assert len(names) == 1024
    assert "m2999" in names
