# SPDX-License-Identifier: Apache-2.0
"""ONNX models that take too much, and small ones that do not; and how they are sent."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from nnpa.network.v1 import network_pb2 as pb
from nnpa.oip import open_inference_grpc_pb2 as oip
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from tests.hostile.calls import INFERENCE, NETWORK, Answer, Caller, chunks

FLOAT, INT64, BOOL, STRING = (
    TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING,
)  # fmt: skip
_NUMBERS = itertools.count()
ACTIVATIONS = 1 << 16
LONG = 1 << 20
Port = tuple[str, int, Sequence[int | str] | None]


class RefusedError(Exception):
    """A model is not hosted; `answer` says why."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.details)
        self.answer = answer


def node(
    operator: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    **attributes: Any,
) -> NodeProto:
    """Write a node."""
    return helper.make_node(operator, list(inputs), list(outputs), **attributes)


def constant(name: str, array: npt.NDArray[np.generic]) -> NodeProto:
    """Write a constant of a few elements."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = helper.make_tensor("", kind, array.shape, array.ravel().tolist())
    return node("Constant", [], [name], value=tensor)


def graph(
    nodes: Sequence[NodeProto], inputs: Sequence[Port], outputs: Sequence[Port]
) -> GraphProto:
    """Write a graph."""
    return helper.make_graph(list(nodes), "g", list(map(_port, inputs)), list(map(_port, outputs)))


def _port(port: Port) -> ValueInfoProto:
    name, kind, shape = port
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: Sequence[NodeProto], inputs: Sequence[Port], outputs: Sequence[Port]) -> bytes:
    """Write a model."""
    opset = helper.make_opsetid("", 20)
    whole = helper.make_model(graph(nodes, inputs, outputs), opset_imports=[opset], ir_version=10)
    return bytes(whole.SerializeToString())


def ints(*numbers: int) -> npt.NDArray[np.generic]:
    """Return an array of INT64."""
    return np.array(numbers, np.int64)


def harmless(operator: str = "Relu") -> bytes:
    """Return `y = relu(x)` of four numbers."""
    return model([node(operator, ["x"], ["y"])], [("x", FLOAT, (1, 4))], [("y", FLOAT, (1, 4))])


def filled(size: int) -> list[NodeProto]:
    """Return nodes that make `size` integers, add them to themselves, and sum them up, as `s`."""
    fill = helper.make_tensor("", INT64, (1,), [1])
    return [
        constant("shape", ints(size)),
        node("ConstantOfShape", ["shape"], ["c"], value=fill),
        node("Add", ["c", "c"], ["a"]),
        node("ReduceSum", ["a"], ["s"], keepdims=0),
    ]


def inference_bomb(size: int = 64 << 20) -> bytes:
    """Return a model whose shape inference goes through every element of a large constant."""
    return model(filled(size), [], [("s", INT64, ())])


def inference_bomb_in_a_loop(size: int = 64 << 20) -> bytes:
    """Return the same inside a Loop's body."""
    body = graph(
        [*filled(size), node("Identity", ["on"], ["on_out"])],
        [("i", INT64, ()), ("on", BOOL, ())],
        [("on_out", BOOL, ()), ("s", INT64, ())],
    )
    loop = node("Loop", ["n", ""], ["y"], body=body)
    return model([constant("n", np.array(1, np.int64)), loop], [], [("y", INT64, (1,))])


def doubling_loop(times: int) -> bytes:
    """Return a Loop that doubles a tensor `times` times: y sums 2**times times x's elements."""
    body = graph(
        [node("Concat", ["v", "v"], ["w"], axis=0), node("Identity", ["on"], ["on_out"])],
        [("i", INT64, ()), ("on", BOOL, ()), ("v", FLOAT, None)],
        [("on_out", BOOL, ()), ("w", FLOAT, None)],
    )
    nodes = [
        constant("n", np.array(times, np.int64)),
        constant("yes", np.array(True)),
        node("Loop", ["n", "yes", "x"], ["v_end"], body=body),
        node("ReduceSum", ["v_end"], ["y"], keepdims=0),
    ]
    return model(nodes, [("x", FLOAT, (1024,))], [("y", FLOAT, ())])


def long_loop(times: int = 10_000, size: int = LONG) -> bytes:
    """Return a Loop of `times` turns in little memory: a host node that runs for minutes."""
    body = graph(
        [node("Sin", ["v"], ["w"]), node("Identity", ["on"], ["on_out"])],
        [("i", INT64, ()), ("on", BOOL, ()), ("v", FLOAT, (size,))],
        [("on_out", BOOL, ()), ("w", FLOAT, (size,))],
    )
    nodes = [
        constant("n", np.array(times, np.int64)),
        constant("yes", np.array(True)),
        node("Loop", ["n", "yes", "x"], ["y"], body=body),
        node("ReduceSum", ["y"], ["s"], keepdims=0),
    ]
    return model(nodes, [("x", FLOAT, (size,))], [("s", FLOAT, ())])


def long_input() -> npt.NDArray[np.generic]:
    """Return the input of `long_loop`."""
    return np.ones(LONG, np.float32)


def expanding(size: int) -> bytes:
    """Write a model whose answer has `size` bytes for an input of four."""
    shape = constant("shape", np.array([size // 4], np.int64))
    expand = node("Expand", ["x", "shape"], ["y"])
    return model([shape, expand], [("x", FLOAT, (1,))], [("y", FLOAT, (size // 4,))])


def sized_by_input() -> bytes:
    """Return a model whose input sets the number of elements that it makes on the host."""
    zeros = helper.make_tensor("", FLOAT, (1,), [0.0])
    nodes = [
        node("ConstantOfShape", ["n"], ["c"], value=zeros),
        node("ReduceSum", ["c"], ["y"], keepdims=0),
    ]
    return model(nodes, [("n", INT64, (1,))], [("y", FLOAT, ())])


def with_string() -> bytes:
    """Return a model with an initializer of strings."""
    whole = helper.make_model(
        graph([node("Identity", ["words"], ["y"])], [], [("y", STRING, (1,))]),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )
    whole.graph.initializer.append(helper.make_tensor("words", STRING, (1,), np.array([b"word"])))
    return bytes(whole.SerializeToString())


def laughing_functions(depth: int = 30) -> bytes:
    """Return a model whose functions call the one before twice: 2**depth nodes when inlined."""
    inner = helper.make_function(
        "f", "F0", ["a"], ["b"], [node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 20)]
    )
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    functions = [inner]
    for level in range(1, depth):
        calls = [
            helper.make_node(f"F{level - 1}", ["a"], ["m"], domain="f"),
            helper.make_node(f"F{level - 1}", ["m"], ["b"], domain="f"),
        ]
        functions.append(helper.make_function("f", f"F{level}", ["a"], ["b"], calls, imports))
    call = helper.make_node(f"F{depth - 1}", ["x"], ["y"], domain="f")
    whole = graph([call], [("x", FLOAT, (4,))], [("y", FLOAT, (4,))])
    laughing = helper.make_model(whole, opset_imports=imports, functions=functions, ir_version=10)
    return bytes(laughing.SerializeToString())


def long_chain(nodes: int) -> bytes:
    """Return a model of very many nodes, which takes long to compile."""
    chain = [node("Relu", [f"v{at}"], [f"v{at + 1}"]) for at in range(nodes)]
    return model(chain, [("v0", FLOAT, (1, 4))], [(f"v{nodes}", FLOAT, (1, 4))])


def slow_to_fold(nodes: int = 5000, size: int = 4 << 20) -> bytes:
    """Return a model of sums over one constant, which take minutes to compute and no memory."""
    zeros = helper.make_tensor("", FLOAT, (1,), [0.0])
    nodes_of_sums = [node("ReduceLogSumExp", ["c"], [f"s{at}"], keepdims=0) for at in range(nodes)]
    whole = [
        constant("shape", ints(size)),
        node("ConstantOfShape", ["shape"], ["c"], value=zeros),
        *nodes_of_sums,
        node("Sum", ["x", *(f"s{at}" for at in range(nodes))], ["y"]),
    ]
    return model(whole, [("x", FLOAT, (1, 4))], [("y", FLOAT, (1, 4))])


def create_requests(
    session: str, data: bytes, source: str = "onnx_bytes", c_name: str = ""
) -> list[pb.CreateNetworkRequest]:
    """Return the messages that bring a network into a session, under a name of its own."""
    header = pb.CreateNetworkHeader(
        session=session,
        c_name=c_name or f"network{next(_NUMBERS)}",
    )
    setattr(header, source, len(data))
    return [
        pb.CreateNetworkRequest(header=header),
        *(pb.CreateNetworkRequest(chunk=chunk) for chunk in chunks(data)),
    ]


def create(caller: Caller, session: str, data: bytes, *, timeout: float = 20.0) -> Answer:
    """Bring a network into a session; an AiError of the answer is in the details."""
    requests = create_requests(session, data)
    answer = caller.call(NETWORK + "CreateNetwork", *requests, timeout=timeout)
    if not answer.messages:
        return answer
    text = answer.read(pb.CreateNetworkResponse).error.text
    return replace(answer, details=text)


def init_request(session: str, network: str) -> pb.InitNetworkRequest:
    """Return the request that gives a network its own weights, and activations."""
    params = pb.NetworkParams(
        params=pb.Buffer(), activations=pb.Buffer(channels=ACTIVATIONS, data=b"")
    )
    return pb.InitNetworkRequest(session=session, network=network, params=params)


def ready(caller: Caller, session: str, data: bytes, source: str = "onnx_bytes") -> str:
    """Bring a network into a session and initialise it; return its name.

    Raises `RefusedError` when the server does not take it.
    """
    requests = create_requests(session, data, source)
    answer = caller.call(NETWORK + "CreateNetwork", *requests, timeout=20.0)
    if not answer.messages:
        raise RefusedError(answer)
    response = answer.read(pb.CreateNetworkResponse)
    if not response.network.name:
        raise RefusedError(replace(answer, details=response.error.text))
    name = response.network.name
    answer = caller.call(NETWORK + "InitNetwork", init_request(session, name))
    assert answer.read(pb.InitNetworkResponse).ok, f"{answer}"
    return name


def infer_request(
    session: str, network: str, **arrays: npt.NDArray[np.generic]
) -> pb.InferNetworkRequest:
    """Return the request that runs a network once."""
    inputs = [
        pb.NamedArray(name=name, dtype=str(array.dtype), shape=array.shape, data=array.tobytes())
        for name, array in arrays.items()
    ]
    return pb.InferNetworkRequest(session=session, network=network, inputs=inputs)


def load(caller: Caller, name: str, data: bytes, *, timeout: float = 20.0) -> Answer:
    """Load a model that comes with its request."""
    request = oip.RepositoryModelLoadRequest(model_name=name)
    request.parameters["config"].string_param = "{}"
    request.parameters["file:1/model.onnx"].bytes_param = data
    return caller.call(INFERENCE + "RepositoryModelLoad", request, timeout=timeout)
