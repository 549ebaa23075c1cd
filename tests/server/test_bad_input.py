# SPDX-License-Identifier: Apache-2.0
"""Bad input: a clear, documented error, nothing left behind, other sessions untouched.

The `client` fixture asserts after each test that the store is empty.
"""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import operation_pb2, tensor_pb2
from nnpa_emulator import Status

from tests.server.wire import (
    Client,
    New,
    Operation,
    chunks,
    desc,
    init,
    load,
    number,
    op,
    pre_desc,
    refused,
)

CODE = grpc.StatusCode
DATA = np.ones((1, 1, 2, 3), np.float32)
FOUR_MIB = 4 << 20


@pytest.fixture(autouse=True)
def neighbour(client: Client) -> Iterator[Client]:
    """Another session with a tensor, which must be as it was when the test ends."""
    second = client.open_session()
    second.run(*load(1, 7 * DATA))
    yield second
    assert np.array_equal(second.array(1), 7 * DATA.ravel())


def inline(**fields: Any) -> tensor_pb2.Ztensor:
    """Write an inline tensor of (1, 1, 2, 3), transformed, whose other fields are given."""
    fields.setdefault("transformed_desc", desc(1, 1, 2, 3))
    return tensor_pb2.Ztensor(is_transformed=True, **fields)


OPEN = op("add", input_a=1, input_b=1)
LISTS: dict[str, tuple[Operation, grpc.StatusCode, str, dict[str, object]]] = {
    "no arm": (Operation(), CODE.INVALID_ARGUMENT, "OPERATION_UNKNOWN", {"field": "operations[3]"}),
    "absent operand": (OPEN, CODE.INVALID_ARGUMENT, "FIELD_UNSPECIFIED",
                       {"field": "operations[3].add.output", "operation": "add"}),
    "unknown id": (op("exp", input=99, output=1), CODE.NOT_FOUND, "TENSOR_NOT_FOUND",
                   {"tensor": 99, "field": "operations[3].exp.input.id"}),
    "id 0": (op("exp", input=0, output=1), CODE.INVALID_ARGUMENT, "FIELD_INVALID",
             {"field": "operations[3].exp.input.id", "value": 0}),
    "init of an id in use": (init(1, 4)[0], CODE.ALREADY_EXISTS, "TENSOR_ID_IN_USE", {"tensor": 1}),
    "init of id 0": (init(0, 4)[0], CODE.INVALID_ARGUMENT, "FIELD_INVALID", {"value": 0}),
    "new id in use": (op("exp", input=1, output=New(1)), CODE.ALREADY_EXISTS, "TENSOR_ID_IN_USE",
                      {"field": "operations[3].exp.output.new_id"}),
    "new id 0": (op("exp", input=1, output=New(0)), CODE.INVALID_ARGUMENT, "FIELD_INVALID", {}),
    "new id as input": (op("exp", input=New(5), output=1), CODE.INVALID_ARGUMENT, "FIELD_INVALID",
                        {"field": "operations[3].exp.input.new_id"}),
    "new id of a life-cycle arm": (op("reshape_ztensor", src=1, dest=New(5)), CODE.INVALID_ARGUMENT,
                                   "FIELD_INVALID", {}),
    "absent scalar": (op("leaky_relu", input=1, output=New(5)), CODE.INVALID_ARGUMENT,
                      "FIELD_UNSPECIFIED", {"field": "operations[3].leaky_relu.adjustment_factor"}),
    "absent descriptor": (op("init_ztensor", ztensor=5, transformed_desc=desc(4)),
                          CODE.INVALID_ARGUMENT, "FIELD_UNSPECIFIED",
                          {"field": "operations[3].init_ztensor.pre_transformed_desc"}),
    "absent layout": (op("init_ztensor", ztensor=5, transformed_desc=desc(4),
                         pre_transformed_desc=tensor_pb2.TensorDesc(type=number(255), dim1=4)),
                      CODE.INVALID_ARGUMENT, "FIELD_UNSPECIFIED",
                      {"field": "operations[3].init_ztensor.pre_transformed_desc.layout"}),
    "absent format": (op("init_ztensor", ztensor=5, transformed_desc=pre_desc(4),
                         pre_transformed_desc=pre_desc(4)),
                      CODE.INVALID_ARGUMENT, "FIELD_UNSPECIFIED",
                      {"field": "operations[3].init_ztensor.transformed_desc.format"}),
    "inline without descriptor": (op("exp", input=tensor_pb2.Ztensor(), output=New(5)),
                                  CODE.INVALID_ARGUMENT, "FIELD_UNSPECIFIED", {}),
    "inline pattern without pre-transformed": (
        op("exp", input=inline(sticks=bytes(4096)), output=New(5)),
        CODE.INVALID_ARGUMENT, "FIELD_UNSPECIFIED",
        {"field": "operations[3].exp.input.inline_ztensor.pre_transformed_desc"}),
    "clip beyond int8": (op("transform_quantized_ztensor", ztensor=1, saturation_control=False,
                            clip_min=-129, clip_max=1), CODE.INVALID_ARGUMENT, "FIELD_INVALID",
                         {"value": -129, "limit": "-128 to 127"}),
    "count beyond the codes": (op("is_nnpa_function_installed", function_codes=[16], count=2),
                               CODE.INVALID_ARGUMENT, "FIELD_INVALID", {"value": 2}),
}  # fmt: skip


@pytest.mark.parametrize("case", LISTS)
def test_bad_list_runs_nothing(client: Client, case: str) -> None:
    """A fault visible in the list refuses the whole list; the error names index and field."""
    operation, code, reason, metadata = LISTS[case]
    client.run(*load(1, DATA))
    before = client.used()
    harmless = [op("reset_ztensor", ztensor=1), *init(77, 8)]
    with refused(code, reason, operation_index=3, **metadata):
        client.run(*harmless, operation)
    assert client.used() == before
    assert np.array_equal(client.array(1), DATA.ravel())


def test_use_after_free_in_one_list(client: Client) -> None:
    """An id freed earlier in the list is unknown from there on, and may be created anew."""
    free = op("free_ztensor_buffer", ztensor=1)
    client.run(*load(1, DATA))
    with refused(CODE.NOT_FOUND, "TENSOR_NOT_FOUND", tensor=1, operation_index=1):
        client.run(free, op("reset_ztensor", ztensor=1))
    client.run(free, *init(1, 4))
    assert client.used()[0] == 1


def test_unimplemented_arm_runs_nothing(client: Client) -> None:
    """An arm of a newer contract is unknown to this server: no arm that it can see."""
    unknown = Operation.FromString(b"\xfa\x3e\x00")  # field 1007, empty message
    with refused(CODE.INVALID_ARGUMENT, "OPERATION_UNKNOWN", operation_index=2):
        client.run(*init(1, 4), unknown)
    assert client.used() == (0, 0)


def test_function_newer_than_the_library(client: Client) -> None:
    """A function that the session's library does not export runs nothing."""
    old = client.open_session(pb.Session(library_version="1.0.0"))
    with refused(
        CODE.UNIMPLEMENTED, "FUNCTION_NOT_IN_LIBRARY", since="1.1.0", library_version="1.0.0",
        operation="sqrt", operation_index=3,
    ):  # fmt: skip
        old.run(*load(1, DATA), op("sqrt", input=1, output=New(2)))
    assert old.used() == (0, 0)


@pytest.mark.parametrize(
    ("operation", "field"),
    [
        (op("transform_ztensor", ztensor=1, data=[bytes(23)]), "data[0]"),
        (op("transform_ztensor", ztensor=1, data=[bytes(24), b""]), "data"),
        (op("transform_ztensor", ztensor=1), "data"),
        (op("exp", input=inline(sticks=bytes(4095)), output=1), "sticks"),
        (op("exp", input=1, output=inline(sticks=b"x")), "sticks"),
    ],
)
def test_wrong_byte_counts(client: Client, operation: Operation, field: str) -> None:
    """Bytes that do not fit the descriptors are refused; what ran before has taken effect."""
    with refused(CODE.INVALID_ARGUMENT, "DATA_SIZE_MISMATCH", operation_index=2):
        client.run(*init(1, 1, 1, 2, 3), operation)
    assert client.used() == (1, 4096)
    assert field


def test_contents_too_large_for_a_message(client: Client) -> None:
    """An inline tensor above max_inline_bytes is refused before memory is taken for it."""
    client.run(*load(1, DATA))
    wide = inline(transformed_desc=desc(1, 1 << 10, 1 << 10, 64))
    limit = client.limits.max_inline_bytes
    with refused(CODE.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE", limit=limit, operation_index=0):
        client.run(op("exp", input=1, output=wide))
    assert client.used() == (1, 4096)


@pytest.mark.parametrize("dims", [(0,), (1 << 31,), (0xFFFFFFFF,) * 4, (1, 1, 0, 64)])
def test_zero_and_huge_dims_meet_the_library(client: Client, dims: tuple[int, ...]) -> None:
    """Any 32-bit dimension travels; the library answers with a status and allocates nothing."""
    *_, result = client.run(*init(1, *dims))
    assert result.zdnn_status == Status.ZDNN_INVALID_SHAPE
    huge = tensor_pb2.Ztensor(transformed_desc=desc(*dims))
    (result,) = client.run(op("exp", input=huge, output=1))
    assert result.zdnn_status == Status.ZDNN_EXCEEDS_MDIS
    assert client.used() == (1, 0)


@pytest.mark.parametrize("bad", [1234, -1, 2**31 - 1, -(2**31)])
def test_unknown_numbers_of_zdnn_enums_meet_the_library(client: Client, bad: int) -> None:
    """A number that zDNN does not know is never a gRPC error."""
    strange = desc(4)
    strange.layout = strange.type = strange.format = bad
    first, second = client.run(
        op("init_ztensor", ztensor=1, pre_transformed_desc=strange, transformed_desc=strange),
        op("allochelper_ztensor", ztensor=1),
    )
    assert first.outputs[0].ztensor.transformed_desc.layout == bad
    assert second.zdnn_status == Status.ZDNN_INVALID_FORMAT


def test_quota_of_bytes_is_checked_before_allocation(client: Client) -> None:
    """A tensor beyond max_bytes is refused, and earlier tensors stay usable."""
    client.run(*load(1, DATA))
    limit = client.limits.max_bytes
    with refused(
        CODE.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED", field="max_bytes", limit=limit,
        operation_index=1,
    ):  # fmt: skip
        client.run(*init(2, 1, 1, 1 << 15, 64))
    assert client.used() == (2, 4096)
    assert np.array_equal(client.array(1), DATA.ravel())


def test_quota_of_tensors(client: Client) -> None:
    """A tensor beyond max_tensors is refused; freeing one makes room."""
    most = client.limits.max_tensors
    client.run(*(init(tensor_id, 4)[0] for tensor_id in range(1, most + 1)))
    with refused(CODE.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED", field="max_tensors", limit=most):
        client.run(init(most + 1, 4)[0])
    client.run(op("allochelper_ztensor", ztensor=1), op("free_ztensor_buffer", ztensor=1))
    client.run(init(most + 1, 4)[0])


def test_new_outputs_count_in_both_quotas(client: Client) -> None:
    """A chain of new outputs ends at the quota, with all before it kept."""
    client.run(*load(1, DATA))
    with refused(CODE.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED", field="max_tensors"):
        client.run(*(op("exp", input=1, output=New(tensor_id)) for tensor_id in range(2, 100)))
    assert client.used() == (50, 50 * 4096)


def test_reallocation_and_free_give_bytes_back(client: Client) -> None:
    """A replaced buffer counts once, and a freed tensor not at all."""
    client.run(*init(1, 1, 1, 32, 64), op("allochelper_ztensor", ztensor=1))
    assert client.used() == (1, 4096)
    client.run(op("free_ztensor_buffer", ztensor=1))
    assert client.used() == (0, 0)


def test_garbage_is_refused_in_every_method(client: Client) -> None:
    """Bytes that are no message of the method's request are a documented error."""
    for method in ("ListMachines", "CreateSession", "Execute", "ListTensors"):
        path = f"/nnpa.zdnn.v1.AcceleratorService/{method}"
        call = client.channel.unary_unary(path, bytes, bytes)
        with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID", field="request"):
            call(b"\xff\xff\xff garbage")
    for method in ("WriteTensor", "ExecuteStream"):
        path = f"/nnpa.zdnn.v1.AcceleratorService/{method}"
        stream = client.channel.stream_stream(path, bytes, bytes)
        with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID", field="request"):
            list(stream(iter([b"\xff\xff\xff garbage"])))


def test_message_above_the_limit_is_refused_by_grpc(client: Client) -> None:
    """A message larger than max_message_bytes never reaches the service."""
    data = bytes(client.limits.max_message_bytes + 1)
    with pytest.raises(grpc.RpcError) as caught:
        client.run(op("transform_ztensor", ztensor=1, data=[data]))
    error: Any = caught.value
    assert error.code() is CODE.RESOURCE_EXHAUSTED


HEADER_FIRST = "the first message must be a header"
UPLOADS: dict[str, tuple[Callable[[Client], list[pb.WriteTensorRequest]], str]] = {
    HEADER_FIRST: (lambda _: list(chunks(b"xy")), "STREAM_ORDER"),
    "nothing at all": (lambda _: [], "STREAM_ORDER"),
    "an empty message": (lambda _: [pb.WriteTensorRequest()], "STREAM_ORDER"),
    "a second header": (
        lambda c: [c.sticks_header(id=1, total_bytes=4096)] * 2, "STREAM_ORDER"),
    "a chunk after the total": (
        lambda c: [c.sticks_header(id=1, total_bytes=4096), *chunks(bytes(4097), 4096)],
        "STREAM_ORDER"),
    "an empty chunk": (
        lambda c: [c.sticks_header(id=1, total_bytes=4096), pb.WriteTensorRequest(chunk=b"")],
        "FIELD_INVALID"),
    "an oversize chunk": (
        lambda c: [c.arrays_header(op("transform_ztensor", ztensor=1), 24),
                   pb.WriteTensorRequest(chunk=bytes(FOUR_MIB + 1))], "MESSAGE_TOO_LARGE"),
    "a truncated stream": (
        lambda c: [c.sticks_header(id=1, total_bytes=4096), *chunks(bytes(4095))],
        "DATA_SIZE_MISMATCH"),
    "announced bytes that do not fit": (
        lambda c: [c.sticks_header(id=1, total_bytes=4095), *chunks(bytes(4095))],
        "DATA_SIZE_MISMATCH"),
    "arrays that do not fit": (
        lambda c: [c.arrays_header(op("transform_ztensor", ztensor=1), 1 << 40)],
        "DATA_SIZE_MISMATCH"),
    "too many arrays": (
        lambda c: [c.arrays_header(op("transform_ztensor", ztensor=1), 24, 24)],
        "DATA_SIZE_MISMATCH"),
    "no target": (
        lambda c: [pb.WriteTensorRequest(header=pb.WriteTensorHeader(session=c.session))],
        "FIELD_UNSPECIFIED"),
    "no transform": (
        lambda c: [c.arrays_header(op("exp", input=1, output=1), 24)], "OPERATION_UNKNOWN"),
    "data in the header": (
        lambda c: [c.arrays_header(op("transform_ztensor", ztensor=1, data=[b"x"]), 24)],
        "FIELD_INVALID"),
    "id 0": (lambda c: [c.sticks_header(id=0, total_bytes=4096)], "FIELD_INVALID"),
    "unknown id": (lambda c: [c.sticks_header(id=9, total_bytes=4096)], "TENSOR_NOT_FOUND"),
    "unknown id of arrays": (
        lambda c: [c.arrays_header(op("transform_ztensor", ztensor=9), 24)], "TENSOR_NOT_FOUND"),
    "id in use": (
        lambda c: [c.sticks_header(id=1, total_bytes=4096, new_ztensor=tensor_pb2.Ztensor(
            transformed_desc=desc(4)))], "TENSOR_ID_IN_USE"),
    "beyond the quota": (
        lambda c: [c.sticks_header(id=5, total_bytes=1 << 30, new_ztensor=tensor_pb2.Ztensor(
            transformed_desc=desc(1, 1, 1 << 18, 2048)))], "TENSOR_QUOTA_EXCEEDED"),
}  # fmt: skip


@pytest.mark.parametrize("case", UPLOADS)
def test_bad_upload_changes_nothing(client: Client, case: str) -> None:
    """A tensor is changed when everything has arrived, or not at all."""
    client.run(*init(1, 1, 1, 2, 3))
    before = client.state()
    messages, reason = UPLOADS[case]
    code = {
        "TENSOR_NOT_FOUND": CODE.NOT_FOUND,
        "TENSOR_ID_IN_USE": CODE.ALREADY_EXISTS,
        "TENSOR_QUOTA_EXCEEDED": CODE.RESOURCE_EXHAUSTED,
    }.get(reason, CODE.INVALID_ARGUMENT)
    with refused(code, reason):
        client.write(messages(client))
    after = client.state()
    assert (after.tensor_count, after.stored_bytes) == (before.tensor_count, before.stored_bytes)
    assert client.read(sticks=pb.ReadSticks(id=1))[1] == bytes(4096)


@pytest.mark.parametrize(
    ("source", "code", "reason"),
    [
        ({}, CODE.INVALID_ARGUMENT, "FIELD_UNSPECIFIED"),
        ({"operation": op("exp", input=1, output=1)}, CODE.INVALID_ARGUMENT, "OPERATION_UNKNOWN"),
        ({"operation": op("transform_origtensor", ztensor=8)}, CODE.NOT_FOUND, "TENSOR_NOT_FOUND"),
        ({"sticks": pb.ReadSticks(id=8)}, CODE.NOT_FOUND, "TENSOR_NOT_FOUND"),
        ({"sticks": pb.ReadSticks()}, CODE.INVALID_ARGUMENT, "FIELD_INVALID"),
    ],
)
def test_bad_download(
    client: Client, source: dict[str, Any], code: grpc.StatusCode, reason: str
) -> None:
    """A read of a missing tensor, or of no tensor, ends with a documented error before any byte."""
    with refused(code, reason):
        client.read(**source)


def test_every_arm_survives_an_empty_message(client: Client) -> None:
    """No arm crashes the server when none of its fields is set."""
    codes: set[grpc.StatusCode] = set()
    for field in operation_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields:
        call: Any = client.stub.Execute.future(client.request(op(field.name)))
        codes.add(call.code())
    assert codes <= {CODE.OK, CODE.INVALID_ARGUMENT, CODE.UNIMPLEMENTED}
