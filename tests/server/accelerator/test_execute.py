# SPDX-License-Identifier: Apache-2.0
"""Execute: call sequences, new and inline tensors, the end of a list, and its results."""

import struct
from typing import Any

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import tensor_pb2
from nnpa_emulator import Status

from tests.server.wire import Client, New, Operation, desc, init, load, op, pre_desc, refused

ONES = np.ones((1, 2, 2, 3), np.float32)
GRID = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)


def test_call_sequence_in_one_list(client: Client) -> None:
    """A whole zDNN program, from init to free, is one list and one round trip."""
    results = client.run(
        *load(1, GRID),
        *load(2, ONES),
        *init(3, 1, 2, 2, 3),
        op("add", input_a=1, input_b=2, output=3),
        op("transform_origtensor", ztensor=3),
        *(op("free_ztensor_buffer", ztensor=tensor_id) for tensor_id in (1, 2, 3)),
    )
    assert {result.zdnn_status for result in results} == {0}
    assert np.array_equal(np.frombuffer(results[9].data, "<f4"), GRID.ravel() + 1)
    assert client.used() == (0, 0)


def test_new_output_is_created_described_and_kept(client: Client) -> None:
    """An output left to the server has the first input's descriptors and a buffer."""
    *_, result = client.run(*load(1, GRID), op("exp", input=1, output=New(9)))
    (info,) = result.outputs
    assert (info.id, info.operand) == (9, "output")
    assert info.ztensor.is_transformed
    assert info.ztensor.pre_transformed_desc.dim1 == 3
    assert np.allclose(client.array(9), np.exp(GRID.ravel()), rtol=2e-3)
    assert client.used()[0] == 2


def test_new_output_of_a_refused_operation_is_not_kept(client: Client) -> None:
    """An output that the server was to create exists afterwards only if the call succeeded."""
    client.run(*load(1, GRID), *load(2, np.ones((1, 1, 1, 3), np.float32)))
    before = client.used()
    with refused(grpc.StatusCode.ABORTED, "PROGRAM_CHECK"):
        client.run(op("add", input_a=1, input_b=2, output=New(3)))
    assert client.used() == before
    client.run(op("add", input_a=1, input_b=1, output=New(3)))
    assert client.used()[0] == before[0] + 1


def test_warning_keeps_its_output_and_the_list_goes_on(client: Client) -> None:
    """A range violation is explained, its output stays, and the next operation runs."""
    *_, warned, after = client.run(
        *load(1, -ONES), op("log", input=1, output=New(2)), op("reset_ztensor", ztensor=2)
    )
    assert warned.zdnn_status == Status.ZDNN_ELEMENT_RANGE_VIOLATION
    (operand,) = warned.range_violation.operands
    assert (operand.operand, operand.count, len(operand.elements)) == ("output", 12, 8)
    assert list(operand.elements[0].index) == [0, 0, 0, 0]
    assert after.zdnn_status == 0


def test_list_stops_at_the_first_error(client: Client) -> None:
    """Nothing runs after a status that is neither OK nor a warning; the result gives the reason."""
    results = client.run(
        *load(1, GRID), op("transform_origtensor", ztensor=1), op("reset_ztensor", ztensor=1),
        op("transform_origtensor", ztensor=1), op("free_ztensor_buffer", ztensor=1),
    )  # fmt: skip
    assert [result.zdnn_status for result in results[-2:]] == [0, Status.ZDNN_INVALID_STATE]
    assert len(results) == 6
    refusal = results[-1].refusal
    assert all((refusal.field, refusal.value, refusal.limit, refusal.constraint))
    assert refusal.text.startswith("ZDNN_INVALID_STATE")
    assert not results[-1].outputs
    assert client.used()[0] == 1


def test_inline_tensors_need_no_session_tensor(client: Client) -> None:
    """Sticks go in and come back in one operation; little-endian by default, big on request."""
    client.run(*load(1, GRID))
    _, sticks = client.read(sticks=pb.ReadSticks(id=1))
    big = tensor_pb2.BYTE_ORDER_BIG_ENDIAN
    _, image = client.read(sticks=pb.ReadSticks(id=1, byte_order=big))
    assert np.array_equal(np.frombuffer(sticks, "<u2"), np.frombuffer(image, ">u2"))

    def inline(contents: Any, order: int) -> tensor_pb2.Ztensor:
        return tensor_pb2.Ztensor(
            transformed_desc=desc(1, 2, 2, 3),
            is_transformed=True,
            sticks=contents,
            byte_order=tensor_pb2.ByteOrder.ValueType(order),
        )

    (result,) = client.run(
        op("add", input_a=inline(sticks, 0), input_b=inline(image, big), output=inline(None, big))
    )
    (info,) = result.outputs
    assert (info.id, info.operand, info.ztensor.byte_order) == (0, "output", big)
    client.run(op("add", input_a=1, input_b=1, output=New(2)))
    assert client.read(sticks=pb.ReadSticks(id=2, byte_order=big))[1] == info.ztensor.sticks


def test_inline_transform_returns_sticks(client: Client) -> None:
    """A transform of an inline tensor answers its sticks, and leaves nothing behind."""
    blank = tensor_pb2.Ztensor(pre_transformed_desc=pre_desc(1, 2, 2, 3),
                               transformed_desc=desc(1, 2, 2, 3))  # fmt: skip
    (result,) = client.run(op("transform_ztensor", ztensor=blank, data=[GRID.tobytes()]))
    client.run(*load(1, GRID))
    assert client.read(sticks=pb.ReadSticks(id=1))[1] == result.outputs[0].ztensor.sticks
    assert client.used()[0] == 1


def test_list_equals_the_same_operations_one_by_one(client: Client) -> None:
    """A list gives the same bits as its operations in single calls and on a stream."""
    rng = np.random.default_rng(5)
    arrays = [rng.normal(size=(1, 3, 4, 70)).astype(np.float32) for _ in range(2)]
    program: list[Operation] = [
        *load(1, arrays[0]), *load(2, arrays[1]),
        op("mul", input_a=1, input_b=2, output=New(3)),
        op("exp", input=3, output=New(4)), op("div", input_a=1, input_b=4, output=New(5)),
        op("max", input_a=5, input_b=2, output=5), op("getrange_ztensor", ztensor=5),
        op("transform_origtensor", ztensor=5), op("is_nnpa_installed"),
        op("free_ztensor_buffer", ztensor=3),
    ]  # fmt: skip
    whole = client.run(*program)
    alone, streamed = client.open_session(), client.open_session()
    assert [alone.run(operation)[0] for operation in program] == whole
    answers = streamed.stub.ExecuteStream(streamed.request(operation) for operation in program)
    assert [answer.results[0] for answer in answers] == whole


def test_query_functions_answer_values(client: Client) -> None:
    """Queries return booleans and numbers, from the machine of the session."""
    results = client.run(
        op("is_nnpa_installed"), op("get_nnpa_max_dim_idx_size"),
        op("get_max_for_dim", dimension=1),
        op("is_nnpa_function_installed", function_codes=[16, 17]),
        op("is_nnpa_function_installed", function_codes=[16, 99], count=1),
        op("is_version_runnable", ver_num=0x010100),
    )  # fmt: skip
    assert all(results[index].boolean for index in (0, 3, 4, 5))
    assert (results[1].number, results[2].number) == (32768, 1 << 21)


def test_getrange_answers_least_and_greatest(client: Client) -> None:
    """The range starts at zero on both sides and holds every element."""
    *_, result = client.run(*load(1, GRID), op("getrange_ztensor", ztensor=1))
    assert (result.range.min, result.range.max) == (0.0, 11.0)


def test_program_check_may_be_a_status(client: Client) -> None:
    """With that option a program check answers the status that precheck would have given."""
    options = pb.Session(program_check_action=pb.PROGRAM_CHECK_ACTION_STATUS)
    client = client.open_session(options)
    *_, result = client.run(
        *load(1, GRID), *load(2, np.ones((1, 1, 1, 3), np.float32)),
        op("add", input_a=1, input_b=2, output=New(3)),
    )  # fmt: skip
    assert result.zdnn_status == Status.ZDNN_INVALID_SHAPE


def test_program_check_carries_the_status_of_precheck(client: Client) -> None:
    """ABORTED carries kind, constraint and status; earlier operations have taken effect."""
    small = np.ones((1, 1, 1, 3), np.float32)
    with refused(
        grpc.StatusCode.ABORTED, "PROGRAM_CHECK", kind="data", operation_index=6, operation="add",
        precheck_status=int(Status.ZDNN_INVALID_SHAPE),
    ):  # fmt: skip
        client.run(*load(1, GRID), *load(2, small), op("add", input_a=1, input_b=2, output=1))
    assert client.used()[0] == 2


def test_misaligned_addresses_reach_the_machine(client: Client) -> None:
    """A flag tells the server that the caller's buffer is misaligned."""
    client.run(*load(1, GRID))
    operation = op("exp", input=1, output=New(2))
    operation.buffer_misaligned = True
    (result,) = client.run(operation)
    assert result.zdnn_status == Status.ZDNN_MISALIGNED_TENSOR
    assert client.used()[0] == 1


@pytest.mark.parametrize("special", [0.0, 2.5, -3.0e8])
def test_quantized_init_keeps_scale_and_offset(client: Client, special: float) -> None:
    """The structure's scale and offset come back as the library keeps them, in FP32."""
    (result,) = client.run(
        op("init_quantized_ztensor", ztensor=1, pre_transformed_desc=pre_desc(4),
           transformed_desc=desc(4), scale=4.0, offset=special)
    )  # fmt: skip
    ztensor = result.outputs[0].ztensor
    kept = struct.unpack("<f", struct.pack("<f", special))[0]
    assert (ztensor.rec_scale, ztensor.offset, ztensor.null_buffer) == (0.25, kept, True)


def test_precheck_prints_come_back_as_diagnostics(client: Client) -> None:
    """Messages that the library would print come with the result of their operation."""
    client = client.open_session(pb.Session(precheck=True))
    *_, result = client.run(*load(1, GRID), op("exp", input=1, output=New(2)))
    assert any("availability" in diagnostic.text for diagnostic in result.diagnostics)
