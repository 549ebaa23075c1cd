# SPDX-License-Identifier: Apache-2.0
"""Contents of every element type, as models compute with them, from every client."""

from collections.abc import Iterable, Iterator
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_client.errors import TransportError
from nnpa_client.inference import ModelClient
from nnpa_server.open_inference.tensors import DATATYPES

from tests.server.onnx_models import (
    TYPES,
    Array,
    Caller,
    gather,
    identity,
    offering,
    refusal,
    text_model,
)

# Three rows of three elements of each type, in Python's numbers and text.
FLOATS = [[1.5, -2.0, 0.0], [3.0, 4.0, 5.0], [0.125, 7.0, -0.5]]
ROWS: dict[str, list[list[Any]]] = {
    "BOOL": [[True, False, True], [False] * 3, [False, True, True]],
    **{f"UINT{n}": [[0, 1, 9], [2, 3, 4], [(1 << n) - 1, 7, 0]] for n in (8, 16, 32, 64)},
    **{
        f"INT{n}": [[-(1 << n - 1), 1, 0], [2, 3, 4], [(1 << n - 1) - 1, -7, 9]]
        for n in (8, 16, 32, 64)
    },
    **dict.fromkeys(("FP16", "BF16", "FP32", "FP64"), FLOATS),
    "BYTES": [["cat", "", "x"], ["no", "b'cat'", "y"], ["größe 猫", "a\0b", "z"]],
}
ORDERS = {name: [0, 1, 2] if name == "BF16" else [2, 0] for name in TYPES}  # Identity for BF16
HALF_TYPES = ("FP16", "BF16")  # without a field for typed contents
ANIMALS = ["cat", "b'cat'", "", "Kätzchen"]


@pytest.fixture(scope="module", params=("off", "on"), ids="sandbox-{}".format)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    """A client of a server that gathers rows of every type and compares text."""
    models = {f"rows_{name}": gather(name) for name in TYPES}
    models |= {"rows_BF16": identity("BF16"), "text": text_model()}
    with offering(models, sandbox=request.param) as (_, client):
        yield client


def _array(name: str, rows: list[list[Any]]) -> Array:
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "BF16" else TYPES[name][1]
    return np.array(rows, dtype)


def _raw(name: str, rows: list[list[Any]]) -> bytes:
    """Return rows as the protocol's raw contents."""
    if name != "BYTES":
        return _array(name, rows).tobytes()
    return _joined(text.encode() for row in rows for text in row)


def _joined(strings: Iterable[bytes]) -> bytes:
    return b"".join(len(string).to_bytes(4, "little") + string for string in strings)


def _message(name: str) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name=f"rows_{name}")
    message.inputs.add(name="x", datatype=name, shape=[3, 3])
    return message


def _raw_message(name: str) -> pb.ModelInferRequest:
    message = _message(name)
    message.raw_input_contents.append(_raw(name, ROWS[name]))
    return message


def _typed_message(name: str) -> pb.ModelInferRequest:
    message = _message(name)
    elements = [element for row in ROWS[name] for element in row]
    if name == "BYTES":
        elements = [text.encode() for text in elements]
    getattr(message.inputs[0].contents, DATATYPES[name].field).extend(elements)
    return message


def _gathered(name: str) -> list[bytes]:
    """Return the raw contents of the rows that the model gathers."""
    return [_raw(name, [ROWS[name][row] for row in ORDERS[name]])]


def test_the_rows_are_of_every_type() -> None:
    """No element type is left out."""
    assert set(ROWS) == set(TYPES) == set(DATATYPES)


@pytest.mark.parametrize("name", TYPES)
def test_raw_contents_are_computed_with(caller: Caller, name: str) -> None:
    """A model computes with the elements that raw contents hold, alone and in a stream."""
    message = _raw_message(name)
    assert caller.stub.ModelInfer(message).raw_output_contents == _gathered(name)
    for answer in caller.stub.ModelStreamInfer(iter([message] * 2)):
        assert answer.infer_response.raw_output_contents == _gathered(name)


@pytest.mark.parametrize("name", [name for name in TYPES if name not in HALF_TYPES])
def test_typed_contents_are_computed_with(caller: Caller, name: str) -> None:
    """A model computes with the elements that typed contents hold, alone and in a stream."""
    message = _typed_message(name)
    assert caller.stub.ModelInfer(message).raw_output_contents == _gathered(name)
    for answer in caller.stub.ModelStreamInfer(iter([message] * 2)):
        assert answer.infer_response.raw_output_contents == _gathered(name)


@pytest.mark.parametrize("name", TYPES)
def test_arrays_of_our_client_are_computed_with(caller: Caller, name: str) -> None:
    """Our client sends and returns arrays of every element type; text is `str`."""
    array = _array(name, ROWS[name])
    with ModelClient(caller.address) as models:
        answer = models.infer(f"rows_{name}", {"x": array}).outputs["y"]
    assert answer.dtype == array.dtype
    assert answer.tolist() == array[ORDERS[name]].tolist()


@pytest.mark.parametrize("way", ["raw", "typed"])
def test_text_is_compared_as_text(caller: Caller, way: str) -> None:
    """A model compares and joins the text that the client sent, not a spelling of its bytes."""
    message = pb.ModelInferRequest(model_name="text")
    tensor = message.inputs.add(name="x", datatype="BYTES", shape=[len(ANIMALS)])
    strings = [text.encode() for text in ANIMALS]
    if way == "raw":
        message.raw_input_contents.append(_joined(strings))
    else:
        tensor.contents.bytes_contents.extend(strings)
    twice, is_cat = caller.stub.ModelInfer(message).raw_output_contents
    assert twice == _joined(2 * string for string in strings)
    assert is_cat == b"\1\0\0\0"


@pytest.mark.parametrize(
    "dtype", ["O", "U", "T"] if hasattr(np.dtypes, "StringDType") else ["O", "U"]
)
def test_text_of_our_client_is_compared_as_text(caller: Caller, dtype: str) -> None:
    """NumPy's kinds of text arrays, the third since NumPy 2, are one input."""
    with ModelClient(caller.address) as models:
        outputs = models.infer("text", {"x": np.array(ANIMALS, dtype)}).outputs
    assert outputs["twice"].tolist() == [2 * text for text in ANIMALS]
    assert outputs["is_cat"].tolist() == [True, False, False, False]


def test_our_client_takes_no_bytes_for_text(caller: Caller) -> None:
    """Bytes have no encoding: as an input of text they are a TypeError before the call."""
    with (
        ModelClient(caller.address) as models,
        pytest.raises(TypeError, match="an element of text is bytes, expected str"),
    ):
        models.infer("text", {"x": np.array([b"cat"], object)})


@pytest.mark.parametrize("way", ["raw", "typed"])
def test_bytes_that_are_no_text_are_refused(caller: Caller, way: str) -> None:
    """BYTES that are not UTF-8 are refused with element, byte and remedy; a stream goes on."""
    message = pb.ModelInferRequest(model_name="text")
    tensor = message.inputs.add(name="x", datatype="BYTES", shape=[2])
    strings = [b"cat", b"ab\xff"]
    if way == "raw":
        message.raw_input_contents.append(_joined(strings))
    else:
        tensor.contents.bytes_contents.extend(strings)
    text = refusal("FIELD_INVALID", caller.stub.ModelInfer, message)
    field = "" if way == "raw" else ": contents.bytes_contents"
    assert text == (
        f"model text: input x{field}: element 1 is byte 0xff at 2, must be text in UTF-8: "
        "other bytes travel as UINT8"
    )
    first, second = caller.stub.ModelStreamInfer(iter([message, _raw_message("BYTES")]))
    assert first.error_message
    assert second.infer_response.raw_output_contents == _gathered("BYTES")


def test_a_wrong_answer_is_never_ok(caller: Caller) -> None:
    """A refusal of text reaches our client as an error with its code."""
    with ModelClient(caller.address) as models, pytest.raises(TransportError) as caught:
        models.infer("text", {"x": np.array([[1.0]], np.float32)})
    assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT.name
