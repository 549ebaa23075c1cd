# SPDX-License-Identifier: Apache-2.0
"""MliService over a socket: answers, sequences, shared memory, debug levels."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from nnpa.mli.v1 import mli_pb2 as pb
from nnpa.mli.v1 import mli_pb2_grpc

from tests.server.conftest import Running
from tests.server.mli.mli_wire import (
    FRAMES,
    FX_8,
    FX_16,
    TYPES,
    VARIANTS,
    M,
    N,
    fully_connected,
    kernel,
    lstm,
    output_of,
    outputs,
    recurrent,
    room,
    scenes,
    shared,
    tensor,
    values,
)
from tests.server.wire import refused

Stub = mli_pb2_grpc.MliServiceStub
SCENES = scenes()
NUMBERS = {
    "hlp_tensor_element_size": 2,
    "hlp_count_elem_num": 3,
    "hlp_tensor_scale": 1,
    "hlp_tensor_scale_shift": 4,
    "hlp_tensor_zero_offset": 0,
}


def run(stub: Stub, *kernels: pb.Kernel, **options: int) -> list[pb.KernelResult]:
    """Run kernels."""
    chosen = pb.BuildOptions()
    for name, value in options.items():
        setattr(chosen, name, value)
    request = pb.RunKernelRequest(kernels=kernels, options=chosen)
    return list(stub.RunKernel(request).results)


def test_scenes_are_all_kernels() -> None:
    """The scenes hold a valid call of every arm."""
    assert set(SCENES) == {arm.name for arm in pb.Kernel.DESCRIPTOR.oneofs_by_name["kernel"].fields}


@pytest.mark.parametrize("name", sorted(SCENES))
def test_every_kernel_answers(stub: Stub, name: str) -> None:
    """A valid call answers OK: its outputs with filled fields, or a number."""
    (result,) = run(stub, kernel(name, SCENES[name]))
    assert result.mli_status == pb.MLI_STATUS_OK
    if name in NUMBERS:
        assert result.number == NUMBERS[name]
        assert not result.outputs
        return
    expected = {"out", "dst", "cell", "cfg.ir_tsr"} & ({*SCENES[name]} | {"cfg.ir_tsr"})
    if "ir_tsr" not in SCENES[name].get("cfg", {}):
        expected -= {"cfg.ir_tsr"}
    written = outputs(result)
    assert set(written) == expected
    if "basic_rnn" in name:
        written.pop("cfg.ir_tsr")  # of which only the memory is used
    assert all(output.rank == len(output.shape) and output.rank for output in written.values())
    assert all(len(output.data) == output.capacity for output in written.values())


@pytest.mark.parametrize(
    ("name", "field"),
    [(name, field) for name, fields in SCENES.items() for field in fields if field != "start_dim"],
)
def test_a_tensor_left_out_is_null(stub: Stub, name: str, field: str) -> None:
    """NULL gives a status, or the number 0, and the answer has no outputs."""
    fields = {key: value for key, value in SCENES[name].items() if key != field}
    (result,) = run(stub, kernel(name, fields))
    if name in NUMBERS:
        assert (result.number, result.mli_status) == (0, pb.MLI_STATUS_OK)
        return
    bad = pb.MLI_STATUS_BAD_FUNC_CFG if field == "cfg" else pb.MLI_STATUS_BAD_TENSOR
    assert result.mli_status == result.refusal.mli_status == bad
    assert result.refusal.value == "NULL"
    assert result.refusal.text
    assert not result.outputs


def test_a_list_ends_at_the_first_refusal(stub: Stub) -> None:
    """Kernels after a refused one do not run."""
    good = kernel("krn_fully_connected_fx8", fully_connected("fx8"))
    bad = kernel(
        "krn_fully_connected_fx8", fully_connected("fx8") | {"bias": tensor((2,), FX_8, 3, 0)}
    )
    results = run(stub, good, bad, good)
    statuses = [result.mli_status for result in results]
    assert statuses == [pb.MLI_STATUS_OK, pb.MLI_STATUS_SHAPE_MISMATCH]
    refusal = results[1].refusal
    assert refusal.constraint == "fully_connected_c9"
    assert (refusal.field, refusal.value, refusal.limit) == ("bias.shape[0]", "2", "3 (weights)")


def test_outputs_can_be_left_out(stub: Stub) -> None:
    """With omit_outputs later kernels see the output, and the answer does not carry it."""
    first = kernel("krn_fully_connected_fx8", fully_connected("fx8"), omit_outputs=True)
    then = kernel("krn_tanh_fx8", {"in": output_of(0, "out"), "out": room(M, FX_8)})
    omitted, activated = run(stub, first, then)
    assert not omitted.outputs
    alone = kernel("krn_fully_connected_fx8", fully_connected("fx8"))
    connected, _ = run(stub, alone, then)
    activation = kernel("krn_tanh_fx8", {"in": outputs(connected)["out"], "out": room(M, FX_8)})
    assert outputs(activated) == outputs(run(stub, activation)[0])


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_sequence_in_one_request_equals_step_by_step(stub: Stub, variant: str) -> None:
    """An LSTM over frames: the batch mode, steps chained in one request, and a request per step."""
    data = TYPES[variant][0]
    name, fields = f"krn_lstm_cell_{variant}", lstm(variant, pb.RNN_BATCH_TO_BATCH)
    (whole,) = run(stub, kernel(name, fields))
    expected = outputs(whole)
    single = fields["cfg"] | {"mode": pb.RNN_ONE_TO_ONE}
    chain: list[pb.Kernel] = []
    state, cell, x = fields["prev_out"], fields["cell"], fields["in"]
    apart: list[int] = []
    for frame in range(FRAMES):
        before = 2 * frame
        slice_cfg = {"offset": [frame, 0], "size": [1, N], "sub_tensor_rank": 1}
        source = fields["in"] if frame == 0 else output_of(0, "in")
        chain.append(kernel("hlp_subtensor", {"in": source, "cfg": slice_cfg, "out": pb.Tensor()}))
        step = {"in": output_of(before, "out"), "cfg": single, "out": room(M, data, 7)}
        for field in ("prev_out", "weights", "bias", "cell"):
            step[field] = fields[field] if frame == 0 else output_of(1, field)
        if frame:
            step["prev_out"] = output_of(before - 1, "out")
        chain.append(kernel(name, step))
        size = len(x.data) // FRAMES
        row = pb.Tensor(data=x.data[frame * size : (frame + 1) * size], shape=[N], el_type=data)
        row.fx.frac_bits = x.fx.frac_bits
        own = fields | {"in": row, "cfg": single, "prev_out": state, "cell": cell}
        written = outputs(run(stub, kernel(name, own | {"out": room(M, data, 7)}))[0])
        state, cell = written["out"], written["cell"]
        apart += values(state)
    results = run(stub, *chain)
    chained = [value for result in results[1::2] for value in values(outputs(result)["out"])]
    assert chained == apart == values(expected["out"])
    assert outputs(results[-1])["cell"].data == cell.data == expected["cell"].data


def test_in_place_where_it_is_allowed(stub: Stub) -> None:
    """An activation, and a conversion to elements of equal size, in the memory of their input."""
    fields = SCENES["krn_tanh_fx16"]
    (apart,) = run(stub, kernel("krn_tanh_fx16", fields))
    (inside,) = run(stub, kernel("krn_tanh_fx16", fields | {"out": shared("in", fields["out"])}))
    assert outputs(inside)["out"].data == outputs(apart)["out"].data
    like = room(6, FX_8, 2)
    like.shape.append(6)
    pair = {"src": tensor((6,), FX_8, 4, 1), "dst": like}
    (apart,) = run(stub, kernel("hlp_convert_tensor", pair))
    inside_pair = {"src": pair["src"], "dst": shared("src", like)}
    (inside,) = run(stub, kernel("hlp_convert_tensor", inside_pair))
    assert outputs(inside)["dst"].data == outputs(apart)["dst"].data


@pytest.mark.parametrize("variant", VARIANTS)
def test_lstm_may_write_over_its_previous_output(stub: Stub, variant: str) -> None:
    """Output and previous output give the same values in one memory as apart."""
    name, fields = f"krn_lstm_cell_{variant}", lstm(variant)
    (apart,) = run(stub, kernel(name, fields))
    (inside,) = run(stub, kernel(name, fields | {"out": shared("prev_out", fields["out"])}))
    assert outputs(inside) == outputs(apart)


FORBIDDEN = [
    ("krn_fully_connected_fx8", "out", "in", 0, "fully_connected_c17"),
    ("krn_fully_connected_fx16", "out", "weights", 4, "fully_connected_c17"),
    ("krn_lstm_cell_fx8", "out", "cell", 0, "lstm_cell_c25"),
    ("krn_lstm_cell_fx8w16d", "cell", "bias", 1, "lstm_cell_c25"),
    ("krn_basic_rnn_cell_fx16", "out", "weights", 0, "basic_rnn_cell_c23"),
    ("krn_sigm_fx8", "out", "in", 1, "activation_c7"),
    ("hlp_convert_tensor", "dst", "src", 1, "convert_tensor_c13"),
]


@pytest.mark.parametrize(("name", "field", "owner", "offset", "constraint"), FORBIDDEN)
def test_forbidden_overlap_is_refused_by_name(
    stub: Stub, name: str, field: str, owner: str, offset: int, constraint: str
) -> None:
    """Tensors that overlap where they must not give INCOMPATEBLE_TENSORS, with both names."""
    fields = dict(SCENES[name])
    large = pb.Tensor()
    large.CopyFrom(fields[owner])
    large.data += bytes(64)
    fields |= {owner: large, field: shared(owner, fields[field], offset)}
    (result,) = run(stub, kernel(name, fields))
    assert result.mli_status == pb.MLI_STATUS_INCOMPATEBLE_TENSORS
    assert result.refusal.constraint == constraint
    assert field in result.refusal.field
    assert owner in result.refusal.value
    assert not result.outputs


def test_memory_of_an_earlier_kernel(stub: Stub) -> None:
    """A tensor may lie in memory that an earlier kernel of the call wrote."""
    first = kernel("krn_tanh_fx8", SCENES["krn_tanh_fx8"])
    tail = pb.Tensor(shape=[2], el_type=FX_8)
    tail.fx.frac_bits = 7
    x = shared("out", tail, offset=4, kernel_index=0)
    then = kernel("hlp_convert_tensor", {"src": x, "dst": room(2, FX_16, 15)})
    activated, converted = run(stub, first, then)
    last = values(outputs(activated)["out"])[4:]
    assert values(outputs(converted)["dst"]) == [value << 8 for value in last]


def test_offsets_of_shared_memory_add_up(stub: Stub) -> None:
    """A tensor may lie in a tensor that lies in another one: their offsets add up."""
    fields = recurrent("fx8", pb.RNN_ONE_TO_ONE, 1)
    memory = fields["in"].data + fields["prev_out"].data + fields["bias"].data
    whole = pb.Tensor()
    whole.CopyFrom(fields["in"])
    whole.data = memory
    (apart,) = run(stub, kernel("krn_basic_rnn_cell_fx8", fields))
    prev_out = shared("in", fields["prev_out"], N)
    bias = shared("prev_out", fields["bias"], M)
    together = fields | {"bias": bias, "prev_out": prev_out, "in": whole}
    (inside,) = run(stub, kernel("krn_basic_rnn_cell_fx8", together))
    assert outputs(inside) == outputs(apart)


def spoiled(name: str) -> pb.Kernel:
    """A call whose first tensor has five dimensions."""
    fields = dict(SCENES[name])
    field = next(iter(fields))
    bad = pb.Tensor()
    bad.CopyFrom(fields[field])
    bad.rank = 5
    return kernel(name, fields | {field: bad})


@pytest.mark.parametrize("level", ["ASSERT", "DEBUG", "FULL"])
@pytest.mark.parametrize("name", ["krn_lstm_cell_fx8", "hlp_convert_tensor", "hlp_count_elem_num"])
def test_asserting_builds_abort(stub: Stub, name: str, level: str) -> None:
    """From ASSERT on a violated condition is ABORTED, as a program check is."""
    good = kernel("krn_tanh_fx8", SCENES["krn_tanh_fx8"])
    constraint = "count_elem_num_c1" if name == "hlp_count_elem_num" else "tensor_c2"
    status = pb.MLI_STATUS_ARGUMENT_ERROR if name == "hlp_count_elem_num" else 1
    with refused(
        grpc.StatusCode.ABORTED,
        "PROGRAM_CHECK",
        kind="assertion",
        operation_index=1,
        operation=name,
        constraint=constraint,
        value=5,
        mli_status=status,
    ):
        run(stub, good, spoiled(name), debug_level=pb.DebugLevel.Value(f"DEBUG_LEVEL_{level}"))


def test_release_builds_see_nothing(stub: Stub) -> None:
    """RELEASE answers OK for a violated condition, names it, and writes nothing."""
    (result,) = run(stub, spoiled("krn_lstm_cell_fx8"), debug_level=pb.DEBUG_LEVEL_RELEASE)
    assert result.mli_status == pb.MLI_STATUS_OK
    assert result.refusal.mli_status == pb.MLI_STATUS_BAD_TENSOR
    assert not result.outputs


def test_debug_builds_give_messages(stub: Stub) -> None:
    """From DEBUG on there is a remark on fractional bits that the kernel ignores."""
    fields = lstm("fx8")
    fields["cfg"] = fields["cfg"] | {"act": pb.RNN_ACT_NONE}
    fields["out"] = room(M, FX_8, 3)
    call = kernel("krn_lstm_cell_fx8", fields)
    assert not run(stub, call)[0].messages
    (result,) = run(stub, call, debug_level=pb.DEBUG_LEVEL_DEBUG)
    assert "lstm_cell_c26" in result.messages[0]


def test_rounding_is_an_option(stub: Stub) -> None:
    """A tie goes to even, or up."""
    odd = pb.Tensor(data=bytes([5]), shape=[1], el_type=FX_8)
    odd.fx.frac_bits = 1
    call = kernel("hlp_convert_tensor", {"src": odd, "dst": room(1, FX_8, 0)})
    rounded = [
        values(outputs(run(stub, call, rounding=rounding)[0])["dst"])[0]
        for rounding in (pb.ROUNDING_UNSPECIFIED, pb.ROUNDING_CONVERGENT, pb.ROUNDING_UP)
    ]
    assert rounded == [2, 2, 3]


def test_overflow_is_told_and_full_aborts(stub: Stub) -> None:
    """A sum beyond 32 bits is exact and flagged, wraps on request, and aborts in a FULL build."""
    fields = {
        "in": pb.Tensor(data=b"\x00\x80" * 2048, shape=[2048], el_type=FX_16),
        "weights": pb.Tensor(data=b"\x80" * 2048, shape=[1, 2048], el_type=FX_8),
        "bias": pb.Tensor(data=b"\x00", shape=[1], el_type=FX_8),
        "out": room(1, FX_16, 0),
    }
    for operand in fields.values():
        operand.fx.frac_bits = 15 if operand is fields["in"] else 0
    call = kernel("krn_fully_connected_fx8w16d", fields)
    (exact,) = run(stub, call)
    assert exact.accumulator_overflow
    assert values(outputs(exact)["out"]) == [32767]
    (wrapped,) = run(stub, call, accumulator=pb.ACCUMULATOR_HARDWARE)
    assert wrapped.accumulator_overflow
    assert values(outputs(wrapped)["out"]) == [0]
    with refused(grpc.StatusCode.ABORTED, "PROGRAM_CHECK", constraint="fully_connected_c18"):
        run(stub, call, debug_level=pb.DEBUG_LEVEL_FULL)


def test_kernels_are_listed_by_pages(stub: Stub) -> None:
    """Pages of any size list the same kernels, in order, with their aliases."""
    whole = stub.ListKernels(pb.ListKernelsRequest())
    assert not whole.next_page_token
    listed, request = list[pb.KernelInfo](), pb.ListKernelsRequest(page_size=4)
    while True:
        page = stub.ListKernels(request)
        listed.extend(page.kernels)
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert listed == list(whole.kernels)
    names = [info.name for info in listed]
    assert names == sorted(SCENES)
    aliases = {info.name: list(info.aliases) for info in listed if info.aliases}
    assert aliases == {"hlp_subtensor": ["hlp_create_subtensor"]}


def test_health_and_reflection_know_the_service(running: Running) -> None:
    """The service is SERVING, and its descriptors can be asked for."""
    service = "nnpa.mli.v1.MliService"
    health = health_pb2_grpc.HealthStub(running.channel)
    answer = health.Check(health_pb2.HealthCheckRequest(service=service))
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    reflection = reflection_pb2_grpc.ServerReflectionStub(running.channel)
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=service)
    (reply,) = reflection.ServerReflectionInfo(iter([request]))
    assert b"RunKernel" in reply.file_descriptor_response.file_descriptor_proto[0]
