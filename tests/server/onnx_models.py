# SPDX-License-Identifier: Apache-2.0
"""Small ONNX models, and a server that has some of them."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa.oip.open_inference_grpc_pb2_grpc import GRPCInferenceServiceStub
from onnx import TensorProto, helper

from tests.server.conftest import CONFIG, LIMITS, Running

Array: TypeAlias = npt.NDArray[Any]
Shape: TypeAlias = Sequence[int | str]
MIB = 1 << 20
FLOAT = TensorProto.FLOAT
TYPES: dict[str, tuple[int, np.dtype[Any]]] = {
    "BOOL": (TensorProto.BOOL, np.dtype("?")),
    "UINT8": (TensorProto.UINT8, np.dtype("u1")),
    "UINT16": (TensorProto.UINT16, np.dtype("u2")),
    "UINT32": (TensorProto.UINT32, np.dtype("u4")),
    "UINT64": (TensorProto.UINT64, np.dtype("u8")),
    "INT8": (TensorProto.INT8, np.dtype("i1")),
    "INT16": (TensorProto.INT16, np.dtype("i2")),
    "INT32": (TensorProto.INT32, np.dtype("i4")),
    "INT64": (TensorProto.INT64, np.dtype("i8")),
    "FP16": (TensorProto.FLOAT16, np.dtype("f2")),
    "BF16": (TensorProto.BFLOAT16, np.dtype("u2")),
    "FP32": (TensorProto.FLOAT, np.dtype("f4")),
    "FP64": (TensorProto.DOUBLE, np.dtype("f8")),
    "BYTES": (TensorProto.STRING, np.dtype("O")),
}
"""By the protocol's name: ONNX's number, and the NumPy type of the raw bits."""


def model(
    nodes: Iterable[tuple[str, Sequence[str], Sequence[str]]],
    inputs: Mapping[str, tuple[int, Shape]],
    outputs: Mapping[str, tuple[int, Shape]],
    constants: Mapping[str, Array] | None = None,
) -> bytes:
    """Return a serialised model of (operator, inputs, outputs); ports are (type, shape)."""

    def ports(named: Mapping[str, tuple[int, Shape]]) -> list[Any]:
        return [helper.make_tensor_value_info(name, *port) for name, port in named.items()]

    graph = helper.make_graph(
        [helper.make_node(op, list(sources), list(results)) for op, sources, results in nodes],
        "test",
        ports(inputs),
        ports(outputs),
        [_constant(name, array) for name, array in (constants or {}).items()],
    )
    opset = helper.make_opsetid("", 20)
    return bytes(helper.make_model(graph, opset_imports=[opset], ir_version=10).SerializeToString())


def _constant(name: str, array: Array) -> Any:
    if array.dtype == object:
        texts = [text.encode() for text in array.reshape(-1).tolist()]
        return helper.make_tensor(name, TensorProto.STRING, array.shape, texts)
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True)


def binary(op: str, shape: Shape = (1, 1024)) -> bytes:
    """Return `z = op(x, y)` in FP32."""
    port = (FLOAT, shape)
    return model([(op, ["x", "y"], ["z"])], {"x": port, "y": port}, {"z": port})


def chain(op: str, length: int) -> bytes:
    """Return a model of `length` nodes, each of which is `op` of the last tensor and itself."""
    nodes = [(op, [f"x{n}" if n else "x"] * 2, [f"x{n + 1}"]) for n in range(length)]
    port = (FLOAT, (1, 4))
    return model(nodes, {"x": port}, {f"x{length}": port})


def identity(name: str) -> bytes:
    """Return `y = x` of an element type of the protocol, one free dim and one of 3."""
    port = (TYPES[name][0], ("n", 3))
    return model([("Identity", ["x"], ["y"])], {"x": port}, {"y": port})


def gather(name: str) -> bytes:
    """Return `y`, rows 2 and 0 of the three rows of `x`, as ONNX Runtime computes them."""
    kind = TYPES[name][0]
    return model(
        [("GatherElements", ["x", "rows"], ["y"])],
        {"x": (kind, (3, 3))},
        {"y": (kind, (2, 3))},
        {"rows": np.array([[2] * 3, [0] * 3])},
    )


def text_model() -> bytes:
    """Return `twice = x + x` of text, and where `x` is "cat"."""
    text = (TensorProto.STRING, ("n",))
    return model(
        [("StringConcat", ["x", "x"], ["twice"]), ("Equal", ["x", "cat"], ["is_cat"])],
        {"x": text},
        {"twice": text, "is_cat": (TensorProto.BOOL, ("n",))},
        {"cat": np.array(["cat"], object)},
    )


def dense(rows: int = 4, columns: int = 2) -> bytes:
    """Return `y = relu(x @ w)` of a free batch; w counts up from -3."""
    weights = np.arange(-3, rows * columns - 3, dtype=np.float32).reshape(rows, columns)
    return model(
        [("MatMul", ["x", "w"], ["m"]), ("Relu", ["m"], ["y"])],
        {"x": (FLOAT, ("batch", rows))},
        {"y": (FLOAT, ("batch", columns))},
        {"w": weights},
    )


class Caller:
    """Calls of the protocol over one channel."""

    def __init__(self, address: str, *options: tuple[str, Any]) -> None:
        self.address = address
        self.channel = grpc.insecure_channel(address, options)
        self.stub = GRPCInferenceServiceStub(self.channel)

    def infer(self, name: str, /, **feeds: Array) -> dict[str, Array]:
        """Run a model of FP32 on raw contents; return its outputs."""
        return outputs_of(self.stub.ModelInfer(request(name, **feeds)))

    def load(self, name: str, data: bytes, config: str = "{}") -> None:
        """Load a model that comes with the request."""
        message = pb.RepositoryModelLoadRequest(model_name=name)
        message.parameters["config"].string_param = config
        message.parameters["file:1/model.onnx"].bytes_param = data
        self.stub.RepositoryModelLoad(message)

    def facts(self, name: str) -> dict[str, str]:
        """Return the parameters of a model's configuration, which tell how it is hosted."""
        config = self.stub.ModelConfig(pb.ModelConfigRequest(name=name)).config
        return {key: parameter.string_value for key, parameter in config.parameters.items()}

    def states(self) -> dict[str, str]:
        """Return the states of all models by name."""
        index = self.stub.RepositoryIndex(pb.RepositoryIndexRequest())
        return {entry.name: entry.state for entry in index.models}


def request(name: str, /, **feeds: Array) -> pb.ModelInferRequest:
    """Return a request of FP32 tensors with raw contents."""
    message = pb.ModelInferRequest(model_name=name)
    for key, array in feeds.items():
        message.inputs.add(name=key, datatype="FP32", shape=array.shape)
        message.raw_input_contents.append(array.astype("<f4").tobytes())
    return message


def outputs_of(response: pb.ModelInferResponse) -> dict[str, Array]:
    """Return the FP32 outputs of a response by name."""
    return {
        output.name: np.frombuffer(raw, "<f4").reshape(output.shape)
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
    }


def code_of(error: grpc.RpcError) -> grpc.StatusCode:
    """Return the code of a refused call."""
    assert isinstance(error, grpc.Call)
    return error.code()


def refusal(reason: str, call: Callable[[Any], object], message: object) -> str:
    """Make a call that is refused for a reason; return the refusal's text."""
    with pytest.raises(grpc.RpcError) as caught:
        call(message)
    error: Any = caught.value
    status = rpc_status.from_call(error)
    assert status is not None, error
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == ("nnpa", reason), error.details()
    return str(error.details())


SHARING: Any = {"shared_memory": True, "shared_memory_over_tcp": True}


@contextmanager
def offering(
    models: Mapping[str, bytes] | None = None,
    folder: Path | None = None,
    **settings: Any,
) -> Generator[tuple[Running, Caller]]:
    """Run a server in process, with models loaded, or a folder being loaded, and a client."""
    limits = replace(LIMITS, max_session_bytes=256 * MIB, max_message=64 * MIB)
    server = Running(replace(CONFIG, limits=limits, models=folder, **settings))
    caller = Caller(server.address)
    try:
        for name, data in (models or {}).items():
            caller.load(name, data)
        yield server, caller
    finally:
        caller.channel.close()
        server.stop()
