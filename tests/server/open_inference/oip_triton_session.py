# SPDX-License-Identifier: Apache-2.0
"""A session of NVIDIA's Triton client with a server, in a process of its own.

    python -m tests.server.open_inference.oip_triton_session ADDRESS FOLDER [CHAPTER ...]

Plays chapters with a server that has the models of FOLDER, and prints what was asked and answered;
it fails where an answer is not what it should be. A process of its own, for the client and our
generated module both register the package `inference`.
"""

import json
import queue
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException
from tritonclient.utils import shared_memory as shm

Chapter = Callable[[Any, Path], None]
CHAPTERS: dict[str, Chapter] = {}
X = np.array([[8, 2, -2, 0.5], [1, 0, 3, -4]], np.float32)
PATIENCE = 60.0
# An array for each type of the protocol.
ARRAYS: dict[str, Any] = {
    "BOOL": np.array([[True, False, True]]),
    "UINT8": np.array([[0, 1, 255]], np.uint8),
    "UINT16": np.array([[0, 1, 65535]], np.uint16),
    "UINT32": np.array([[0, 1, 1 << 31]], np.uint32),
    "UINT64": np.array([[0, 1, 1 << 63]], np.uint64),
    "INT8": np.array([[-128, 0, 127]], np.int8),
    "INT16": np.array([[-32768, 0, 32767]], np.int16),
    "INT32": np.array([[-(1 << 31), 0, 7]], np.int32),
    "INT64": np.array([[-(1 << 63), 0, 7]], np.int64),
    "FP16": np.array([[1.5, -2, 0]], np.float16),
    "BF16": np.array([[1.5, -2, 0]], ml_dtypes.bfloat16),
    "FP32": np.array([[1.5, -2, 1e-30]], np.float32),
    "FP64": np.array([[1.5, -2, 1e-300]], np.float64),
    "BYTES": np.array([[b"", b"nnpa", "\x00ÿ".encode()]], np.object_),
}


def chapter(play: Chapter) -> Chapter:
    """Register a chapter under its name."""
    CHAPTERS[play.__name__] = play
    return play


def tell(question: str, answered: object) -> None:
    """Print one question and its answer."""
    print(f"> {question}\n  {answered}")


def tensor(name: str, array: Any, datatype: str = "FP32") -> Any:
    """Return an input with contents."""
    operand = triton.InferInput(name, list(array.shape), datatype)
    operand.set_data_from_numpy(array)
    return operand


def pair(x: Any = X, y: Any = X) -> list[Any]:
    """Return the two FP32 inputs of the binary models."""
    return [tensor("x", x), tensor("y", y)]


def refused(ask: Callable[[], object], code: str, text: str) -> str:
    """Return how the client tells a refusal, which has this code and text."""
    with pytest.raises(InferenceServerException) as caught:
        ask()
    message: str = caught.value.message()
    assert caught.value.status() == f"StatusCode.{code}", message
    assert text in message
    return f"{caught.value.status()}: {message}"


class Answers:
    """Arguments of callbacks: result and error, in order of arrival."""

    def __init__(self) -> None:
        self._told: queue.Queue[tuple[Any, Any]] = queue.Queue()

    def put(self, result: Any, error: Any) -> None:
        """Be the callback."""
        self._told.put((result, error))

    def get(self) -> tuple[Any, Any]:
        """Return the next one."""
        return self._told.get(timeout=PATIENCE)


@chapter
def health(client: Any, _folder: Path) -> None:
    """Whether the server is live and ready, and which models are ready."""
    tell("is_server_live()", client.is_server_live())
    tell("is_server_ready()", client.is_server_ready())
    assert client.is_server_live()
    assert client.is_server_ready()
    for name, version, ready in (("add", "", True), ("add", "1", True), ("none", "", False)):
        result = client.is_model_ready(name, version)
        tell(f"is_model_ready({name!r}, {version!r})", result)
        assert result == ready


@chapter
def metadata(client: Any, _folder: Path) -> None:
    """Metadata of the server and of a model."""
    server = client.get_server_metadata(as_json=True)
    tell("get_server_metadata()", server)
    assert server["name"] == "nnpa-server"
    assert "system_shared_memory" in server["extensions"]
    model = client.get_model_metadata("add", as_json=True)
    tell("get_model_metadata('add')", model)
    assert [port["name"] for port in model["inputs"]] == ["x", "y"]
    assert model["outputs"] == [{"name": "z", "datatype": "FP32", "shape": ["-1", "4"]}]
    config = client.get_model_config("add", as_json=True)["config"]
    tell("get_model_config('add')", {key: config[key] for key in ("name", "platform", "input")})
    assert config["input"][0]["data_type"] == "TYPE_FP32"
    index = client.get_model_repository_index(as_json=True)["models"]
    tell("get_model_repository_index()", index)
    assert {entry["name"]: entry["state"] for entry in index}["add"] == "READY"


@chapter
def infer(client: Any, _folder: Path) -> None:
    """A sum, its id, and a choice of outputs."""
    requested = [triton.InferRequestedOutput("z")]
    answer = client.infer("add", pair(), request_id="7", outputs=requested, client_timeout=PATIENCE)
    tell("infer('add', x, x).as_numpy('z')", answer.as_numpy("z").tolist())
    assert np.array_equal(answer.as_numpy("z"), X + X)
    assert answer.get_response(as_json=True)["id"] == "7"
    assert answer.get_output("z").datatype == "FP32"


@chapter
def datatypes(client: Any, _folder: Path) -> None:
    """Every element type there and back."""
    for datatype, array in ARRAYS.items():
        answer = client.infer(f"id_{datatype}", [tensor("x", array, datatype)])
        result = answer.as_numpy("y")
        tell(f"infer('id_{datatype}', {array.tolist()})", f"{result.tolist()} {result.dtype}")
        assert np.array_equal(result, array), (datatype, result)


@chapter
def text(client: Any, _folder: Path) -> None:
    """A model compares and joins text, which the client takes as bytes or as `str`."""
    for cat, dog in ((b"cat", b"b'cat'"), ("cat", "b'cat'")):
        answer = client.infer("text", [tensor("x", np.array([cat, dog], np.object_), "BYTES")])
        result = answer.as_numpy("twice").tolist(), answer.as_numpy("is_cat").tolist()
        tell(f"infer('text', [{cat!r}, {dog!r}])", result)
        assert result == ([b"catcat", b"b'cat'b'cat'"], [True, False])
    strange = tensor("x", np.array([b"\xff"], np.object_), "BYTES")
    reported = refused(lambda: client.infer("text", [strange]), "INVALID_ARGUMENT", "text in UTF-8")
    tell(r"infer('text', [b'\xff'])", reported)


@chapter
def asynchronous(client: Any, _folder: Path) -> None:
    """Many requests at a time, answered to callbacks; and futures, of which one is cancelled."""
    answers = Answers()
    for number in range(20):
        client.async_infer(
            "add",
            pair(X, X * number),
            answers.put,
            request_id=str(number),
        )
    for _ in range(20):
        result, error = answers.get()
        assert error is None, error
        number = int(result.get_response().id)
        assert np.array_equal(result.as_numpy("z"), X + X * number)
    tell("async_infer('add', ...) x 20", "20 callbacks, each with its own sum")
    context = client.async_infer("none", pair(), answers.put)
    _, error = answers.get()
    tell("async_infer('none', ...)", error)
    assert "model none" in str(error)
    assert context is not None


@chapter
def stream(client: Any, _folder: Path) -> None:
    """A stream of requests; an error ends its request and not the stream."""
    answers = Answers()
    client.start_stream(callback=answers.put)
    names = ["add", "none", "add"]
    for number, name in enumerate(names):
        client.async_stream_infer(
            name, pair(), request_id=str(number), enable_empty_final_response=number == 2
        )
    last = None
    for number, name in enumerate(names):
        last, error = answers.get()
        tell(f"async_stream_infer({name!r})", error or last.as_numpy("z").tolist())
        if name == "none":
            assert "model none" in str(error)
        else:
            assert last.get_response().id == str(number)
            assert np.array_equal(last.as_numpy("z"), X + X)
    assert last is not None
    assert last.get_response().parameters["triton_final_response"].bool_param
    client.stop_stream()


@chapter
def repository(client: Any, folder: Path) -> None:
    """Unload, load by name, load contents with a configuration, on the other machine."""
    client.unload_model("mul")
    tell("unload_model('mul'); is_model_ready('mul')", client.is_model_ready("mul"))
    assert not client.is_model_ready("mul")
    message = refused(
        lambda: client.infer("mul", pair()), "UNAVAILABLE", "model mul is unavailable"
    )
    tell("infer('mul', ...)", message)
    client.load_model("mul")
    assert np.array_equal(client.infer("mul", pair()).as_numpy("z"), X * X)
    tell("load_model('mul'); is_model_ready('mul')", client.is_model_ready("mul"))
    config = json.dumps({"parameters": {"machine": {"string_value": "telum1"}}})
    contents = (folder / "add.onnx").read_bytes()
    client.load_model("mine", config=config, files={"file:1/model.onnx": contents})
    answer = client.infer("mine", pair()).as_numpy("z")
    tell("load_model('mine', config, files); infer('mine', ...)", answer.tolist())
    assert np.array_equal(answer, X + X)
    parameters = client.get_model_config("mine", as_json=True)["config"]["parameters"]
    assert parameters["machine"] == {"string_value": "telum1"}
    client.unload_model("mine")
    statistics = client.get_inference_statistics("mul", as_json=True)["model_stats"][0]
    tell("get_inference_statistics('mul')", statistics["inference_stats"]["success"])
    assert statistics["execution_count"] == "1"


@chapter
def errors(client: Any, _folder: Path) -> None:
    """Requests that are refused, and how the client reports it."""
    wide = np.ones((2, 5), np.float32)
    for ask, code, text in (
        (lambda: client.infer("none", pair()), "NOT_FOUND", "model none"),
        (lambda: client.infer("add", pair(), model_version="9"), "NOT_FOUND", "version 9"),
        (lambda: client.infer("add", pair()[:1]), "INVALID_ARGUMENT", "input y: got 0 tensors"),
        (
            lambda: client.infer("add", pair(wide, wide)),
            "INVALID_ARGUMENT",
            "input x: got FP32 [2, 5], expected FP32 [-1, 4]",
        ),
        (
            lambda: client.infer("add", [tensor("x", X.astype("f8"), "FP64"), pair()[1]]),
            "INVALID_ARGUMENT",
            "input x: got FP64 [2, 4], expected FP32 [-1, 4]",
        ),
        (
            lambda: client.infer("add", pair(), outputs=[triton.InferRequestedOutput("q")]),
            "INVALID_ARGUMENT",
            "output q",
        ),
        (lambda: client.load_model("none"), "NOT_FOUND", "model none"),
        (
            lambda: client.load_model(
                "bad", config="{}", files={"file:1/model.onnx": b"not a model"}
            ),
            "INVALID_ARGUMENT",
            "not an ONNX model",
        ),
        (lambda: client.unload_model("none"), "NOT_FOUND", "model none"),
        (lambda: client.get_trace_settings(), "UNIMPLEMENTED", "trace is not offered"),
        (lambda: client.get_log_settings(), "UNIMPLEMENTED", "logging is not offered"),
        (
            lambda: client.get_cuda_shared_memory_status(),
            "UNIMPLEMENTED",
            "cuda_shared_memory is not offered",
        ),
    ):
        tell(text, refused(ask, code, text))
    tall = np.ones((1 << 19, 4), np.float32)
    parameters = {"nnpa_max_response_bytes": 1 << 20}
    message = refused(
        lambda: client.infer("add", pair(tall, tall), parameters=parameters),
        "RESOURCE_EXHAUSTED",
        "the answer has 8388608 bytes, above 1048576: request fewer outputs",
    )
    tell("infer('add', 8 MiB, nnpa_max_response_bytes=1 MiB)", message)


@chapter
def large(client: Any, _folder: Path) -> None:
    """An answer above gRPC's 4 MiB: this client takes 2 GiB, and says nothing of it."""
    tall = np.ones((1 << 19, 4), np.float32)
    answer = client.infer("add", pair(tall, tall)).as_numpy("z")
    assert np.array_equal(answer, 2 * tall)
    tell("infer('add', 8 MiB)", answer.shape)


@chapter
def warnings(client: Any, _folder: Path) -> None:
    """A division by zero leaves its mark in the response's parameters."""
    response = client.infer("div", pair()).get_response()
    violations = response.parameters["nnpa_range_violations"].int64_param
    nans = response.outputs[0].parameters["nnpa_nan_count"].int64_param
    tell("infer('div', x, x)", f"nnpa_range_violations={violations}, nnpa_nan_count={nans}")
    assert (violations, nans) == (1, 1)


@chapter
def memory(client: Any, _folder: Path) -> None:
    """Inputs and outputs in system shared memory."""
    handle = shm.create_shared_memory_region("region", "/nnpa-triton-session", 3 * X.nbytes)
    try:
        shm.set_shared_memory_region(handle, [X, 2 * X])
        client.register_system_shared_memory("region", "/nnpa-triton-session", 3 * X.nbytes)
        tell(
            "get_system_shared_memory_status()",
            client.get_system_shared_memory_status(as_json=True),
        )
        inputs = [triton.InferInput(name, list(X.shape), "FP32") for name in "xy"]
        for number, operand in enumerate(inputs):
            operand.set_shared_memory("region", X.nbytes, offset=number * X.nbytes)
        output = triton.InferRequestedOutput("z")
        output.set_shared_memory("region", X.nbytes, offset=2 * X.nbytes)
        client.infer("add", inputs, outputs=[output])
        array = shm.get_contents_as_numpy(handle, np.float32, X.shape, offset=2 * X.nbytes)
        tell("infer('add', in and out by shared memory)", array.tolist())
        assert np.array_equal(array, 3 * X)
        client.unregister_system_shared_memory("region")
        assert not client.get_system_shared_memory_status(as_json=True).get("regions")
    finally:
        shm.destroy_shared_memory_region(handle)


def main() -> None:
    """Play the chapters that are asked for, or all."""
    address, folder, *names = sys.argv[1:]
    client = triton.InferenceServerClient(address)
    for name in names or CHAPTERS:
        print(f"=== {name}: {CHAPTERS[name].__doc__}")
        CHAPTERS[name](client, Path(folder))
    client.close()


if __name__ == "__main__":
    main()
