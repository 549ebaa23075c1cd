# SPDX-License-Identifier: Apache-2.0
"""Lists that differ in names of cached contents alone are each answered by their contents."""

import itertools
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import tensor_pb2
from nnpa_emulator import Status

from tests.server.wire import Client, desc, op, pre_desc, refused

CODE = grpc.StatusCode
Array = npt.NDArray[np.float32]


def ztensor(shape: tuple[int, int], **fields: Any) -> tensor_pb2.Ztensor:
    """Describe a two-dimensional tensor."""
    pre, transformed = pre_desc(*shape, layout=1), desc(1, 1, *shape)
    return tensor_pb2.Ztensor(pre_transformed_desc=pre, transformed_desc=transformed, **fields)


class Program:
    """A client that names contents, as libzdnn does."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._names = itertools.count(1)

    def name(self) -> bytes:
        """Return a name never used before."""
        return next(self._names).to_bytes(16, "big")

    def up(self, array: Array) -> bytes:
        """Transform an array; return the name of its sticks."""
        name = self.name()
        output = ztensor((array.shape[0], array.shape[1]), cache_as=name)
        (result,) = self.client.run(op("transform_ztensor", ztensor=output, data=[array.tobytes()]))
        assert result.zdnn_status == 0
        return name

    def down(self, name: bytes, shape: tuple[int, int]) -> Array:
        """Return the array that named sticks hold."""
        stored = ztensor(shape, cached=name, is_transformed=True)
        (result,) = self.client.run(op("transform_origtensor", ztensor=stored))
        return np.frombuffer(result.data, np.float32).reshape(shape)

    def binary(
        self, verb: str, a: bytes, b: bytes, shape: tuple[int, int], instead_of: bytes = b""
    ) -> tuple[bytes, Any]:
        """Combine named sticks; return the output's name, and the result."""
        out = self.name()
        ztensors = [ztensor(shape, cached=name, is_transformed=True) for name in (a, b)]
        output = ztensor(shape, cache_as=out, cache_instead_of=instead_of)
        operation = op(verb, input_a=ztensors[0], input_b=ztensors[1], output=output)
        (result,) = self.client.run(operation)
        return out, result


@pytest.fixture
def program(client: Client) -> Program:
    """A program in a session of its own."""
    return Program(client)


def test_answers_stay(program: Program) -> None:
    """A list that the server remembers gets the answer that it got at first."""
    for rows in (2, 600):  # sticks within the result, and apart from it
        shape = (rows, 64)
        a = program.up(np.arange(rows * 64, dtype=np.float32).reshape(shape))
        results = [program.binary("mul", a, a, shape)[1] for _ in range(5)]
        assert all(result == results[0] for result in results)
        assert len(results[0].outputs[0].ztensor.sticks) == -(-rows // 32) * 4096


SHAPES = ((2, 3), (3, 2), (2, 64))
CALLS = st.lists(
    st.tuples(
        st.sampled_from(("add", "sub", "max")),
        st.integers(0, 5),
        st.integers(0, 5),
        st.sampled_from(range(len(SHAPES))),
        st.booleans(),
    ),
    max_size=25,
)


@settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(CALLS)
def test_programs_do_what_they_say(client: Client, calls: Any) -> None:
    """Whatever came before, each call computes from the contents that it names."""
    program = Program(client.open_session())
    numpy = {"add": np.add, "sub": np.subtract, "max": np.maximum}
    held: dict[int, list[tuple[bytes, Array]]] = {}
    for number, shape in enumerate(SHAPES):
        arrays = [np.full(shape, value, np.float32) for value in range(6)]
        held[number] = [(program.up(array), array) for array in arrays]
    for verb, i, j, number, overwrites in calls:
        (a, left), (b, right) = held[number][i], held[number][j]
        out, result = program.binary(verb, a, b, SHAPES[number], a if overwrites else b"")
        assert result.zdnn_status == 0
        expected = numpy[verb](left, right)
        assert np.array_equal(program.down(out, SHAPES[number]), expected)
        for place, (name, _) in enumerate(held[number]):
            if name == a or place == i:
                held[number][place] = out, expected
    program.client.delete()
    client.opened.clear()


def test_contents_that_are_gone(program: Program) -> None:
    """A name without contents in the cache is a miss, in a remembered list as in a new one."""
    shape = (2, 3)
    a = program.up(np.ones(shape, np.float32))
    out = [program.binary("add", a, a, shape)[0] for _ in range(4)][-1]
    program.binary("add", a, a, shape, instead_of=out)
    path = "operations[0].add.input_b.inline_ztensor.cached"
    with refused(CODE.NOT_FOUND, "CACHE_MISS", operation_index=0, field=path):
        program.binary("add", a, out, shape)
    assert program.binary("add", a, a, shape)[1].zdnn_status == 0


def test_contents_of_another_size(program: Program) -> None:
    """A remembered list refuses a name whose contents have another size."""
    small = program.up(np.ones((2, 3), np.float32))
    large = program.up(np.ones((40, 3), np.float32))
    for _ in range(4):
        program.binary("add", small, small, (2, 3))
    with refused(CODE.INVALID_ARGUMENT, "DATA_SIZE_MISMATCH", value=8192, limit=4096):
        program.binary("add", small, large, (2, 3))


def test_other_values_are_read(client: Client) -> None:
    """A list of the same size with another parameter is another form."""
    program = Program(client)
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    a = program.up(array)
    for turn in range(12):
        clip = float(1 + turn % 3)
        out = program.name()
        operand = ztensor((2, 3), cached=a, is_transformed=True)
        output = ztensor((2, 3), cache_as=out)
        (result,) = client.run(op("relu", input=operand, clipping_value=clip, output=output))
        assert result.zdnn_status == 0
        assert np.array_equal(program.down(out, (2, 3)), np.minimum(array, clip))


def test_a_changed_array_is_transformed_anew(client: Client) -> None:
    """The server remembers a transform without its array, small or large."""
    program = Program(client)
    for shape in ((2, 3), (300, 64)):
        for value in (1.0, 2.0, 3.0, 2.0, 4.0):
            array = np.full(shape, value, np.float32)
            assert np.array_equal(program.down(program.up(array), shape), array)


def test_statuses_are_not_remembered(client: Client) -> None:
    """A range violation is reported for the contents that have it, and for no others."""
    program = Program(client)
    shape = (2, 3)
    moderate, huge = (program.up(np.full(shape, value, np.float32)) for value in (1.0, 8e9))
    for a, violated in (
        (moderate, False),
        (moderate, False),
        (moderate, False),
        (huge, True),
        (moderate, False),
    ):
        _, result = program.binary("add", a, a, shape)
        assert (result.zdnn_status == Status.ZDNN_ELEMENT_RANGE_VIOLATION) == violated
        assert result.HasField("range_violation") == violated


def test_changed_options_hold_for_remembered_lists(client: Client) -> None:
    """A session that begins to verify operands verifies them in remembered lists, too."""
    program = Program(client)
    shape = (2, 3)
    a = program.up(np.ones(shape, np.float32))

    def unequal() -> list[Any]:
        left, transposed = ztensor(shape, cached=a, is_transformed=True), ztensor((3, 2), cached=a)
        transposed.is_transformed = True
        output = ztensor(shape, cache_as=program.name())
        return client.run(op("add", input_a=left, input_b=transposed, output=output))

    for _ in range(3):
        with refused(CODE.ABORTED, "PROGRAM_CHECK"):
            unequal()
    options = pb.Session(name=client.session, precheck=True)
    client.stub.UpdateSession(pb.UpdateSessionRequest(session=options))
    assert [result.zdnn_status for result in unequal()] == [Status.ZDNN_INVALID_SHAPE]


def test_a_list_in_parts(program: Program) -> None:
    """An operand that protobuf merges from two parts is read each time."""
    shape = (2, 3)
    client = program.client
    a, b = (program.up(np.full(shape, value, np.float32)) for value in (1, 2))
    method = "/nnpa.zdnn.v1.AcceleratorService/Execute"
    call = client.channel.unary_unary(method, bytes, pb.ExecuteResponse.FromString)
    for first, second in ((a, b), (a, b), (b, a), (a, a), (b, b)):
        # The operand comes in two parts: the later name counts.
        parts = [ztensor(shape, cached=name, is_transformed=True) for name in (first, second)]
        output = ztensor(shape)
        whole = op("add", input_a=parts[0], input_b=parts[0], output=output)
        later = op("add", input_a=parts[1])
        raw = client.request(whole).SerializeToString()
        merged = whole.SerializeToString() + later.SerializeToString()
        head = raw[: raw.index(whole.SerializeToString()) - _length(whole)]
        tag = bytes([pb.ExecuteRequest.OPERATIONS_FIELD_NUMBER << 3 | 2])
        answer = call(head + tag + _varint(len(merged)) + merged)
        sticks = answer.results[0].outputs[0].ztensor.sticks
        expected = program.binary("add", second, first, shape)[1].outputs[0].ztensor.sticks
        assert sticks == expected


def test_a_field_that_protobuf_skips(program: Program) -> None:
    """A number in the field of operations is skipped, also in a remembered list."""
    array = np.ones((2, 3), np.float32)
    name = program.up(array)
    stored = ztensor((2, 3), cached=name, is_transformed=True)
    request = program.client.request(op("transform_origtensor", ztensor=stored))
    tag = bytes([pb.ExecuteRequest.OPERATIONS_FIELD_NUMBER << 3])
    method = "/nnpa.zdnn.v1.AcceleratorService/Execute"
    call = program.client.channel.unary_unary(method, bytes, pb.ExecuteResponse.FromString)
    for _ in range(4):
        answer = call(request.SerializeToString() + tag + b"\x05")
        assert [result.data for result in answer.results] == [array.tobytes()]


def _varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def _length(message: Any) -> int:
    """Return the bytes of a field's tag and length."""
    return 1 + len(_varint(message.ByteSize()))
