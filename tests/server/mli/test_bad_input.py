# SPDX-License-Identifier: Apache-2.0
"""Calls that MliService refuses: each error of the contract, limits, garbage."""

import random
from collections.abc import Mapping
from typing import Any

import grpc
import pytest
from nnpa.mli.v1 import mli_pb2 as pb
from nnpa.mli.v1 import mli_pb2_grpc
from nnpa_server.mli.service import MAX_KERNELS

from tests.server.conftest import Running
from tests.server.mli.mli_wire import (
    FX_8,
    M,
    fully_connected,
    kernel,
    lstm,
    output_of,
    room,
    scenes,
    shared,
)
from tests.server.wire import refused

SCENES = scenes()
INVALID = grpc.StatusCode.INVALID_ARGUMENT
FC = "krn_fully_connected_fx8"
PATH = f"kernels[0].{FC}"
Stub = mli_pb2_grpc.MliServiceStub


def run(stub: Stub, *kernels: pb.Kernel) -> list[pb.KernelResult]:
    """Run kernels."""
    return list(stub.RunKernel(pb.RunKernelRequest(kernels=kernels)).results)


def with_out(out: pb.Tensor | pb.TensorRef, **inputs: pb.Tensor) -> pb.Kernel:
    """A fully connected layer with another output."""
    return kernel(FC, fully_connected("fx8") | inputs | {"out": out})


def changed(original: pb.Tensor, **fields: Any) -> pb.Tensor:
    """A tensor with other fields."""
    copy = pb.Tensor()
    copy.CopyFrom(original)
    for name, value in fields.items():
        copy.ClearField(name)  # type: ignore[arg-type] # a field's name
        if isinstance(value, list):
            getattr(copy, name).extend(value)
        elif value is not None:
            setattr(copy, name, value)
    return copy


def sa(**fields: Any) -> pb.Tensor:
    """A tensor with these SA parameters."""
    return pb.Tensor(data=b"1234", shape=[4], el_type=pb.MLI_EL_SA_8, sa=pb.SaParams(**fields))


def fx(frac_bits: int) -> pb.Tensor:
    """A tensor with these fractional bits."""
    return pb.Tensor(data=b"1", shape=[1], el_type=FX_8, fx=pb.FxParams(frac_bits=frac_bits))


def test_a_request_without_kernels_is_refused(stub: Stub) -> None:
    """A request without kernels lacks a field."""
    with refused(INVALID, "FIELD_UNSPECIFIED", field="kernels"):
        run(stub)


def test_too_many_kernels(stub: Stub) -> None:
    """A request with one kernel beyond the limit is refused before any kernel runs."""
    call = kernel("hlp_count_elem_num", {})
    with refused(INVALID, "FIELD_INVALID", field="kernels", limit=f"at most {MAX_KERNELS}"):
        run(stub, *[call] * (MAX_KERNELS + 1))


def test_a_kernel_without_a_known_arm_is_refused(stub: Stub) -> None:
    """A kernel without an arm, or with an arm that this server does not know, is refused."""
    unknown = pb.Kernel.FromString(bytes([0xFA, 0x2F, 0x00]))  # field 767, empty message
    for call in (pb.Kernel(), unknown):
        with refused(INVALID, "OPERATION_UNKNOWN", operation_index=1, field="kernels[1]"):
            run(stub, kernel(FC, fully_connected("fx8")), call)


@pytest.mark.parametrize("name", ["rounding", "debug_level", "accumulator", "conversion"])
def test_unknown_options(stub: Stub, name: str) -> None:
    """An option that is not in the contract is refused by name."""
    options = pb.BuildOptions()
    setattr(options, name, 99)
    request = pb.RunKernelRequest(kernels=[kernel(FC, fully_connected("fx8"))], options=options)
    with refused(INVALID, "FIELD_INVALID", field=f"options.{name}", value=99):
        stub.RunKernel(request)


@pytest.mark.parametrize("name", ["mode", "act"])
def test_configuration_needs_its_enums(stub: Stub, name: str) -> None:
    """Modes and activations are numbers of MLI, so 0 is no default."""
    fields = lstm("fx8")
    fields["cfg"] = {key: value for key, value in fields["cfg"].items() if key != name}
    path = f"kernels[0].krn_lstm_cell_fx8.cfg.{name}"
    with refused(INVALID, "FIELD_UNSPECIFIED", field=path):
        run(stub, kernel("krn_lstm_cell_fx8", fields))


def test_unknown_mode_is_the_kernels_to_refuse(stub: Stub) -> None:
    """A number that MLI has no name for reaches the kernel."""
    fields = lstm("fx8")
    fields["cfg"] = fields["cfg"] | {"mode": 7}
    (result,) = run(stub, kernel("krn_lstm_cell_fx8", fields))
    assert result.mli_status == pb.MLI_STATUS_BAD_FUNC_CFG
    assert result.refusal.constraint == "lstm_cell_c5"


OUT = room(M, FX_8, 4)
BAD_REFERENCES: Mapping[str, tuple[pb.TensorRef, str, str]] = {
    "nothing": (pb.TensorRef(), "FIELD_UNSPECIFIED", "out"),
    "no index": (
        pb.TensorRef(output_of=pb.Place(field="out")),
        "FIELD_UNSPECIFIED",
        "out.output_of.kernel_index",
    ),
    "itself": (output_of(0, "in"), "FIELD_INVALID", "out.output_of.kernel_index"),
    "later": (output_of(9, "in"), "FIELD_INVALID", "out.output_of.kernel_index"),
    "no field": (shared("nowhere", OUT), "FIELD_INVALID", "out.same_memory_as.place.field"),
    "circle": (shared("out", OUT), "FIELD_INVALID", "out.same_memory_as"),
    "offset": (shared("in", OUT, 5), "FIELD_INVALID", "out.same_memory_as.offset"),
    "later memory": (
        shared("in", OUT, 0, 1),
        "FIELD_INVALID",
        "out.same_memory_as.place.kernel_index",
    ),
    "own memory": (
        pb.TensorRef(same_memory_as=pb.SharedTensor(place=pb.Place(field="in"), tensor=OUT)),
        "FIELD_INVALID",
        "out.same_memory_as.tensor.memory",
    ),
}


@pytest.mark.parametrize("case", BAD_REFERENCES)
def test_bad_references_are_refused_with_their_path(stub: Stub, case: str) -> None:
    """A reference that names no tensor of the call is refused with its path."""
    reference, reason, field = BAD_REFERENCES[case]
    with refused(INVALID, reason, field=f"{PATH}.{field}", operation_index=0, operation=FC):
        run(stub, with_out(reference))


def test_a_place_of_an_earlier_kernel_must_exist(stub: Stub) -> None:
    """A reference to a tensor that an earlier kernel does not have is refused."""
    path = f"kernels[1].{FC}.out.output_of.field"
    with refused(INVALID, "FIELD_INVALID", field=path, value="'cell'"):
        run(stub, with_out(OUT), with_out(output_of(0, "cell")))


def test_null_has_no_memory_to_share(stub: Stub) -> None:
    """A tensor with a NULL data pointer has no memory for another tensor."""
    null = changed(fully_connected("fx8")["bias"], data=None)
    path = f"{PATH}.out.same_memory_as.place.field"
    with refused(INVALID, "FIELD_INVALID", field=path, limit="a tensor with memory"):
        run(stub, with_out(shared("bias", OUT), bias=null))


BAD_TENSORS: Mapping[str, tuple[pb.Tensor, str]] = {
    "capacity": (changed(OUT, capacity=M + 1), "capacity"),
    "shape": (changed(OUT, shape=[1] * 5), "shape"),
    "mem_stride": (changed(OUT, mem_stride=[1] * 5), "mem_stride"),
    "frac_bits low": (fx(-129), "fx.frac_bits"),
    "frac_bits high": (fx(256), "fx.frac_bits"),
    "zero_point": (sa(zero_point=[1 << 15], scale=[1], scale_frac_bits=[0]), "sa.zero_point"),
    "scale": (sa(zero_point=[0], scale=[-(1 << 15) - 1], scale_frac_bits=[0]), "sa.scale"),
    "scale_frac_bits": (
        sa(zero_point=[0], scale=[1], scale_frac_bits=[128]),
        "sa.scale_frac_bits",
    ),
    "lengths": (
        sa(zero_point=[0, 0], scale=[1], scale_frac_bits=[0]),
        "sa.zero_point, scale, scale_frac_bits",
    ),
    "none": (sa(), "sa.zero_point, scale, scale_frac_bits"),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_bad_tensors(stub: Stub, case: str) -> None:
    """A field that no mli_tensor could hold is refused with its path."""
    bad, field = BAD_TENSORS[case]
    with refused(INVALID, "FIELD_INVALID", field=f"{PATH}.out.inline.{field}"):
        run(stub, with_out(bad))


def test_slices_have_at_most_four_dimensions(stub: Stub) -> None:
    """Offset and size are arrays of MLI_MAX_RANK."""
    for name in ("offset", "size"):
        fields = SCENES["hlp_subtensor"]
        fields = fields | {"cfg": {**fields["cfg"], name: [1] * 5}}
        path = f"kernels[0].hlp_subtensor.cfg.{name}"
        with refused(INVALID, "FIELD_INVALID", field=path, value="5 entries"):
            run(stub, kernel("hlp_subtensor", fields))


def test_a_slice_that_a_tensor_does_not_have(stub: Stub) -> None:
    """C would read past the array; here the index is refused."""
    per_axis = sa(zero_point=[0] * 4, scale=[1] * 4, scale_frac_bits=[0] * 4, dim=0)
    for name in ("scale", "scale_shift", "zero_offset"):
        path = f"kernels[0].hlp_tensor_{name}.idx"
        with refused(INVALID, "FIELD_INVALID", field=path, value=4):
            run(stub, kernel(f"hlp_tensor_{name}", {"in": per_axis, "idx": 4}))


def test_a_claim_without_memory_is_the_kernels_to_refuse(stub: Stub) -> None:
    """A shape far beyond the memory costs nothing and is answered by a status."""
    fields = lstm("fx8", pb.RNN_BATCH_TO_LAST)
    fields["in"] = changed(fields["in"], shape=[1 << 31, 1 << 31])
    (result,) = run(stub, kernel("krn_lstm_cell_fx8", fields))
    assert result.mli_status == pb.MLI_STATUS_NOT_ENGH_MEM


def test_bad_pages_are_refused(stub: Stub) -> None:
    """Foreign tokens and negative page sizes are refused."""
    with refused(INVALID, "PAGE_TOKEN_INVALID", field="page_token"):
        stub.ListKernels(pb.ListKernelsRequest(page_token="3.abc"))
    with refused(INVALID, "FIELD_INVALID", field="page_size", value=-1):
        stub.ListKernels(pb.ListKernelsRequest(page_size=-1))


def test_garbage_is_refused(running: Running) -> None:
    """Bytes that are no message get a documented error."""
    raw = running.channel.unary_unary("/nnpa.mli.v1.MliService/RunKernel", bytes, bytes)
    with refused(INVALID, "FIELD_INVALID", field="request"):
        raw(b"\xff\xff\xff")


def _mutated(rng: random.Random) -> pb.Kernel:
    """A valid call with fields set to random values."""
    name = rng.choice(sorted(SCENES))
    call = kernel(name, SCENES[name])
    message = getattr(call, name)
    for _ in range(rng.randint(1, 3)):
        holders = [
            candidate
            for candidate in message.DESCRIPTOR.fields
            if candidate.message_type is not None
        ]
        field = rng.choice(holders)
        target = getattr(message, field.name)
        if field.message_type is pb.TensorRef.DESCRIPTOR:
            _mutate_tensor(target.inline, rng)
        elif field.message_type is pb.RnnCellCfg.DESCRIPTOR:
            target.mode, target.act = rng.randint(-1, 4), rng.randint(-1, 4)
            _mutate_tensor(target.ir_tsr.inline, rng)
        else:
            target.sub_tensor_rank = rng.choice((0, 1, 2, 3, 9))
            target.size[:] = [rng.randint(0, 5) for _ in range(rng.randint(0, 4))]
    return call


def _mutate_tensor(mutated: pb.Tensor, rng: random.Random) -> None:
    extents = (0, 1, 2, 3, 4, 7, 12, 1 << 16, (1 << 32) - 1)
    match rng.randint(0, 6):
        case 0:
            mutated.shape[:] = [rng.choice(extents) for _ in range(rng.randint(0, 4))]
        case 1:
            mutated.rank = rng.choice((0, 1, 2, 3, 4, 5, 1 << 16, (1 << 32) - 1))
        case 2:
            strides = (-1, 0, 1, 2, 5, 1 << 20, (1 << 31) - 1)
            mutated.mem_stride[:] = [rng.choice(strides) for _ in range(rng.randint(0, 4))]
        case 3:
            mutated.el_type = pb.ElType.ValueType(rng.choice((0, 4, 8, 16, 264, 288, 528, 544, -7)))
        case 4:
            mutated.fx.frac_bits = rng.choice((-128, -1, 0, 7, 15, 31, 255))
        case 5:
            columns = [[rng.choice((-300, -1, 0, 1, 300))] for _ in range(2)]
            shift = [rng.choice((-128, 0, 127))]
            params = pb.SaParams(zero_point=columns[0], scale=columns[1], scale_frac_bits=shift)
            params.dim = rng.choice((-1, 0, 1, 3, 99))
            mutated.sa.CopyFrom(params)
        case _:
            mutated.zero_bytes = rng.choice((0, 1, 3, 64))


def test_whatever_comes_gets_a_status(stub: Stub) -> None:
    """Fields of any value that a C program could set are answered by the library, with a status."""
    rng = random.Random(7)
    statuses = {result.mli_status for _ in range(800) for result in run(stub, _mutated(rng))}
    assert statuses > {0, 1, 2, 3, 4, 5, 12}
