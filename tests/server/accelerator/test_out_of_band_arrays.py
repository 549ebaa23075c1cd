# SPDX-License-Identifier: Apache-2.0
"""Arrays kept apart from messages: the wire form stays protobuf's, byte for byte in meaning."""

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import operation_pb2, tensor_pb2
from nnpa_client._server.shortcuts import out_of_band_arrays as client
from nnpa_client._server.transport import Request
from nnpa_server.accelerator.execute import serialize
from nnpa_server.rpc import codec as server
from nnpa_wire.fields import delimited

LARGE = server.OUT_OF_BAND_BYTES
arrays = st.lists(st.sampled_from((0, 1, 127, 128, LARGE - 1, LARGE, LARGE + 7)), max_size=4)
transforms = st.sampled_from(("transform_ztensor", "transform_quantized_ztensor"))


def operation(arm: str, sizes: list[int], misaligned: bool = False) -> operation_pb2.Operation:
    """Return a transform with arrays of these sizes, each filled with a byte of its own."""
    message = operation_pb2.Operation(buffer_misaligned=misaligned)
    target = getattr(message, arm)
    target.ztensor.CopyFrom(tensor_pb2.TensorRef(id=5))
    target.data.extend(bytes([n + 1]) * size for n, size in enumerate(sizes))
    return message


def add() -> operation_pb2.Operation:
    """Return an operation without arrays."""
    ref = tensor_pb2.TensorRef(id=7)
    return operation_pb2.Operation(add=operation_pb2.Add(input_a=ref, input_b=ref, output=ref))


def whole(listed: server.WireRequest) -> pb.ExecuteRequest:
    """Return the list with its arrays put back."""
    request = pb.ExecuteRequest()
    request.CopyFrom(listed.message)
    for index, views in listed.arrays.items():
        target = request.operations[index]
        getattr(target, target.WhichOneof("operation") or "").data.extend(
            bytes(view) for view in views
        )
    return request


@given(st.lists(st.tuples(transforms, arrays, st.booleans()), max_size=4))
def test_a_server_reads_what_protobuf_writes(lists: list[tuple[str, list[int], bool]]) -> None:
    """A list read apart is the list that protobuf reads."""
    request = pb.ExecuteRequest(session="sessions/x")
    for arm, sizes, misaligned in lists:
        request.operations.extend((add(), operation(arm, sizes, misaligned)))
    assert whole(server.parse(request.SerializeToString())) == request


@given(st.lists(st.tuples(transforms, arrays, st.booleans()), max_size=4))
def test_protobuf_reads_what_a_client_writes(lists: list[tuple[str, list[int], bool]]) -> None:
    """A list joined from parts is the list that protobuf would have written."""
    request, apart = pb.ExecuteRequest(session="sessions/x"), pb.ExecuteRequest()
    views: dict[int, list[memoryview]] = {}
    for arm, sizes, misaligned in lists:
        request.operations.extend((add(), operation(arm, sizes, misaligned)))
        contents = getattr(request.operations[-1], arm).data
        views[len(request.operations) - 1] = [memoryview(array) for array in contents]
    apart.CopyFrom(request)
    for index in views:
        target = apart.operations[index]
        getattr(target, target.WhichOneof("operation") or "").ClearField("data")
    listed = Request(apart, {index: parts for index, parts in views.items() if parts})
    assert pb.ExecuteRequest.FromString(client.serialize(listed)) == request


@given(st.lists(st.one_of(st.none(), st.sampled_from((0, 1, LARGE - 1, LARGE, 3 * LARGE)))))
def test_answers_mean_the_same_on_both_sides(sizes: list[int | None]) -> None:
    """Protobuf and a client read the results that a server writes apart."""
    results = [operation_pb2.OperationResult(zdnn_status=n) for n in range(len(sizes))]
    data = {n: np.full(size, n, np.uint8) for n, size in enumerate(sizes) if size is not None}
    answered = server.Response(results, data)
    raw = server.serialize(answered)
    expected = pb.ExecuteResponse.FromString(serialize(answered))
    assert pb.ExecuteResponse.FromString(raw) == expected
    assert client.parse(raw).whole() == list(expected.results)
    assert client.parse(expected.SerializeToString()).whole() == list(expected.results)


@given(st.lists(st.lists(st.sampled_from((0, LARGE, 2 * LARGE)), max_size=3)), st.booleans())
def test_sticks_apart_are_those_of_their_output(sizes: list[list[int]], with_data: bool) -> None:
    """Outputs whose sticks are written apart are read with them, by protobuf and by a client."""
    results: list[operation_pb2.OperationResult] = []
    for number, outputs in enumerate(sizes):
        results.append(operation_pb2.OperationResult(zdnn_status=number, fp_flags=1))
        for index in range(len(outputs)):
            results[-1].outputs.add(operand=f"output_{index}").ztensor.is_transformed = True
    sticks = {
        number: {
            index: np.full(size, index, np.uint8) for index, size in enumerate(outputs) if size
        }
        for number, outputs in enumerate(sizes)
    }
    data = {0: np.arange(LARGE, dtype=np.uint32).view(np.uint8)} if with_data and sizes else {}
    answered = server.Response(results, data, sticks)
    expected = pb.ExecuteResponse.FromString(serialize(answered))
    assert pb.ExecuteResponse.FromString(server.serialize(answered)) == expected
    assert client.parse(server.serialize(answered)).whole() == list(expected.results)


def test_the_second_of_two_arms_counts() -> None:
    """Of two arms the last counts; arrays of the first do not end up with it."""
    first = operation("transform_ztensor", [LARGE]).SerializeToString()
    for second in (add(), operation("transform_quantized_ztensor", [3])):
        twice = delimited(
            pb.ExecuteRequest.OPERATIONS_FIELD_NUMBER, first + second.SerializeToString()
        )
        assert whole(server.parse(twice)) == pb.ExecuteRequest.FromString(twice)


@pytest.mark.parametrize("cut", [1, 2, 3, 100, LARGE])
def test_cut_messages_are_refused(cut: int) -> None:
    """A message that ends too early is a DecodeError, as protobuf's own."""
    raw = pb.ExecuteRequest(operations=[operation("transform_ztensor", [2 * LARGE])])
    with pytest.raises(DecodeError):
        server.parse(raw.SerializeToString()[:-cut])


@given(st.binary(max_size=40), st.sampled_from((0x12, 0x0A, 0x92)))
def test_garbage_is_read_as_protobuf_reads_it(garbage: bytes, tag: int) -> None:
    """Any bytes give the message that protobuf reads, or a DecodeError where it raises one."""
    raw = bytes([tag]) + garbage + bytes(LARGE)
    try:
        expected = pb.ExecuteRequest.FromString(raw)
    except DecodeError:
        with pytest.raises(DecodeError):
            server.parse(raw)
        return
    try:
        assert whole(server.parse(raw)) == expected
    except DecodeError:
        assert any(byte & 7 in (3, 4) for byte in raw)  # groups, which no message of ours has
