# SPDX-License-Identifier: Apache-2.0
"""Limits of MLI's calls: sizes, lengths, and calls at a time."""

import threading
from collections.abc import Callable
from dataclasses import replace

import grpc
import pytest
from nnpa.mli.v1 import mli_pb2 as pb
from nnpa_server.config import Limits
from nnpa_server.errors import CallCancelled, CallRefused
from nnpa_server.mli.service import MliService

from tests.server.conftest import LIMITS, Running
from tests.server.mli.mli_wire import (
    FX_8,
    Fields,
    fully_connected,
    kernel,
    lstm,
    output_of,
)
from tests.server.mli.test_bad_input import FC, INVALID, OUT, PATH, Stub, changed, run, with_out
from tests.server.wire import refused


@pytest.fixture
def small(start: Callable[..., Running]) -> Stub:
    """A server with messages of at most 4 KiB and tensors of at most 1 KiB."""
    return Stub(start(limits=replace(LIMITS, max_message=4096)).channel)


def test_one_tensor_too_large(small: Stub) -> None:
    """The memory of a tensor is bounded before it is allocated."""
    for memory, field in (({"zero_bytes": 1025}, "zero_bytes"), ({"data": bytes(1025)}, "data")):
        path = f"{PATH}.out.inline.{field}"
        with refused(INVALID, "MESSAGE_TOO_LARGE", field=path, value=1025, limit=1024):
            run(small, with_out(changed(OUT, **memory)))
    (fits,) = run(small, with_out(changed(OUT, zero_bytes=1024)))
    assert fits.mli_status == pb.MLI_STATUS_OK


def test_all_tensors_too_large(small: Stub) -> None:
    """The memory of all tensors of a call is bounded together."""
    call = with_out(changed(OUT, zero_bytes=1000))
    with refused(INVALID, "MESSAGE_TOO_LARGE", operation_index=4, limit=4096):
        run(small, *[call] * 5)


def test_an_answer_too_large(small: Stub) -> None:
    """The contents of an answer are bounded; omitted outputs do not count."""
    first = with_out(changed(OUT, zero_bytes=1000))
    names = ("in", "weights", "bias", "out")
    repeated = kernel(FC, {name: output_of(0, name) for name in names})
    with refused(INVALID, "MESSAGE_TOO_LARGE", operation_index=4, field=f"kernels[4].{FC}.out"):
        run(small, first, *[repeated] * 10)
    repeated.omit_outputs = True
    assert len(run(small, first, *[repeated] * 10)) == 11


def _long_sequence(frames: int, units: int) -> Fields:
    """An LSTM over frames of one byte, with memory for the frames that it claims."""
    fields = lstm("fx8", pb.RNN_BATCH_TO_LAST)
    return fields | {
        "in": pb.Tensor(zero_bytes=frames, shape=[frames, 1], el_type=FX_8),
        "weights": pb.Tensor(zero_bytes=4 * units * (units + 1), shape=[4, units, units + 1]),
        "bias": pb.Tensor(zero_bytes=4 * units, shape=[4, units]),
    }


@pytest.mark.parametrize(
    ("frames", "units", "which"), [(1 << 14, 640, "weights"), (1 << 14, 300, "bias")]
)
def test_a_sequence_too_long(stub: Stub, frames: int, units: int, which: str) -> None:
    """A recurrent cell may neither compute for minutes nor need memory beyond its tensors."""
    name = "krn_lstm_cell_fx8"
    what = f"kernels[0].{name}.in.shape[0] times bytes of {which}"
    with refused(INVALID, "FIELD_INVALID", field=what):
        run(stub, kernel(name, _long_sequence(frames, units)))


def test_too_many_frames(stub: Stub) -> None:
    """A recurrent cell takes at most 16384 frames; more are several kernels of one call."""
    name, frames = "krn_lstm_cell_fx8", (1 << 14) + 1
    path = f"kernels[0].{name}.in.shape[0]"
    with refused(INVALID, "FIELD_INVALID", field=path, value=frames):
        run(stub, kernel(name, _long_sequence(frames, 1)))


def test_no_tensor_beyond_4_mib(stub: Stub) -> None:
    """A tensor's limit is lower than the size of a message."""
    most = 1 << 22
    path = f"{PATH}.out.inline.zero_bytes"
    with refused(INVALID, "MESSAGE_TOO_LARGE", field=path, value=most + 1, limit=most):
        run(stub, with_out(changed(OUT, zero_bytes=most + 1)))


class Impatient:
    """A caller that is gone after the first check."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds

    def is_active(self) -> bool:
        """Tell that nobody waits."""
        return False

    def time_remaining(self) -> float | None:
        """Return the seconds left."""
        return self.seconds


@pytest.mark.parametrize(
    ("seconds", "code"),
    [(0.0, grpc.StatusCode.DEADLINE_EXCEEDED), (None, grpc.StatusCode.CANCELLED)],
)
def test_calls_end_when_nobody_waits(seconds: float | None, code: grpc.StatusCode) -> None:
    """Deadlines and cancellation are honoured between kernels."""
    service = MliService(Limits(), calls=1)
    request = pb.RunKernelRequest(kernels=[kernel(FC, fully_connected("fx8"))])
    with pytest.raises(CallCancelled) as caught:
        service.RunKernel(request, Impatient(seconds))
    assert caught.value.code is code


class Paused:
    """A caller that holds the call at its first check."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def is_active(self) -> bool:
        """Wait until told to go on."""
        self.reached.set()
        return self.go_on.wait(10)

    def time_remaining(self) -> float | None:
        """Tell that there is no deadline."""
        return None


def test_calls_at_a_time_are_bounded() -> None:
    """One call beyond the limit is refused; the place is free when a call has ended."""
    service, caller = MliService(Limits(), calls=1), Paused()
    request = pb.RunKernelRequest(kernels=[kernel(FC, fully_connected("fx8"))])
    thread = threading.Thread(target=service.RunKernel, args=(request, caller))
    thread.start()
    assert caller.reached.wait(10)
    with pytest.raises(CallRefused) as caught:
        service.RunKernel(request, Paused())
    caller.go_on.set()
    thread.join(10)
    assert (caught.value.name, caught.value.metadata["field"]) == (
        "CALL_QUOTA_EXCEEDED",
        "max_mli_calls",
    )
    assert service.RunKernel(request, caller).results
