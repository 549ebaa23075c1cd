# SPDX-License-Identifier: Apache-2.0
"""WriteTensor and ReadTensor: user arrays and sticks up and down, and clients that vanish."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import tensor_pb2
from nnpa_emulator import Status
from nnpa_server.config import Limits
from nnpa_server.sessions.store import Counts

from tests.server.conftest import OPTIONS, Running
from tests.server.process import serving, wait_until
from tests.server.wire import Client, chunks, desc, init, load, op, pre_desc, refused

CODE = grpc.StatusCode
GRID = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
ROOM = Limits(max_session_bytes=1 << 28)


@pytest.mark.parametrize("size", [1, 7, 24, 1 << 20])
def test_user_array_up_and_down(client: Client, size: int) -> None:
    """An array that travels in chunks of any size is the one that travels inline."""
    client.run(*init(1, 1, 2, 2, 3))
    header = client.arrays_header(op("transform_ztensor", ztensor=1), 48)
    result = client.write([header, *chunks(GRID.tobytes(), size)])
    assert result.zdnn_status == 0
    assert result.outputs[0].ztensor.is_transformed
    down, data = client.read(operation=op("transform_origtensor", ztensor=1))
    assert down.total_bytes == len(data) == 48
    assert not down.result.data
    assert down.result.outputs[0].id == 1
    assert np.array_equal(np.frombuffer(data, "<f4"), GRID.ravel())


def test_large_array_in_many_chunks(start: Callable[..., Running]) -> None:
    """Megabytes pass unchanged, and only the tensor stays in the store."""
    running = start(limits=ROOM)
    client = running.client()
    array = np.random.default_rng(1).normal(size=(4, 16, 128, 256)).astype(np.float32)
    client.run(*init(1, *array.shape))
    client.write([
        client.arrays_header(op("transform_ztensor", ztensor=1), array.nbytes),
        *chunks(array.tobytes()),
    ])  # fmt: skip
    _, data = client.read(operation=op("transform_origtensor", ztensor=1))
    assert np.allclose(np.frombuffer(data, "<f4"), array.ravel(), rtol=1e-3)
    assert running.server.store.counts() == Counts(1, 1, array.nbytes // 2, 0)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_sticks_create_a_tensor_as_it_is(client: Client, order: int) -> None:
    """Sticks in either byte order create a tensor with all its state, and come back equal."""
    sticks = bytes(range(256)) * 16
    order_number = tensor_pb2.ByteOrder.ValueType(order)
    structure = tensor_pb2.Ztensor(
        pre_transformed_desc=pre_desc(4), transformed_desc=desc(4), is_transformed=True,
        rec_scale=0.5, offset=-3.0,
    )  # fmt: skip
    header = client.sticks_header(
        id=4, new_ztensor=structure, total_bytes=len(sticks), byte_order=order_number
    )
    written = client.write([header, *chunks(sticks, 1000)]).outputs[0].ztensor
    assert (written.is_transformed, written.rec_scale, written.offset) == (True, 0.5, -3.0)
    assert client.read(sticks=pb.ReadSticks(id=4, byte_order=order_number))[1] == sticks
    assert client.used() == (1, 4096)


def test_sticks_overwrite_a_buffer_and_its_state(client: Client) -> None:
    """An existing buffer is replaced as a whole; is_transformed changes only if it is set."""
    client.run(*load(1, GRID))
    fresh = bytes(8192)
    kept = client.write([client.sticks_header(id=1, total_bytes=8192), *chunks(fresh)])
    assert kept.outputs[0].ztensor.is_transformed
    header = client.sticks_header(id=1, total_bytes=8192, is_transformed=False)
    assert not client.write([header, *chunks(fresh)]).outputs[0].ztensor.is_transformed
    assert client.used() == (1, 8192)


def test_new_tensor_without_bytes_is_zero_filled(client: Client) -> None:
    """total_bytes 0 allocates the buffer, a NULL buffer allocates nothing."""
    structure = tensor_pb2.Ztensor(transformed_desc=desc(4))
    client.write([client.sticks_header(id=1, new_ztensor=structure)])
    assert client.read(sticks=pb.ReadSticks(id=1))[1] == bytes(4096)
    structure.null_buffer = True
    client.write([client.sticks_header(id=2, new_ztensor=structure)])
    header, data = client.read(sticks=pb.ReadSticks(id=2))
    assert (header.result.zdnn_status, data) == (Status.ZDNN_INVALID_BUFFER, b"")
    assert header.result.refusal.field == "ztensor.buffer"
    assert client.used() == (2, 4096)


def test_refused_transform_needs_no_chunks(client: Client) -> None:
    """A transform that the library refuses before it reads gives its status, whatever follows."""
    client.run(*load(1, GRID))
    header = client.arrays_header(op("transform_ztensor", ztensor=1), 5)
    assert client.write([header, *chunks(b"12345")]).zdnn_status == Status.ZDNN_INVALID_STATE


def test_refused_download_has_no_chunks(client: Client) -> None:
    """A status that writes nothing comes in the header, and no chunk follows."""
    client.run(*init(1, 4))
    header, data = client.read(operation=op("transform_origtensor", ztensor=1))
    assert (header.result.zdnn_status, header.total_bytes, data) == (
        Status.ZDNN_INVALID_STATE, 0, b"",
    )  # fmt: skip


def test_reader_sees_the_tensor_of_one_moment(start: Callable[..., Running]) -> None:
    """A stream that has begun does not show a later operation's output."""
    client = start(limits=ROOM).client()
    array = np.ones((1, 64, 128, 256), np.float32)
    client.run(*init(1, *array.shape))
    client.write([
        client.arrays_header(op("transform_ztensor", ztensor=1), array.nbytes),
        *chunks(array.tobytes()),
    ])  # fmt: skip
    stream = client.stub.ReadTensor(
        pb.ReadTensorRequest(session=client.session, sticks=pb.ReadSticks(id=1))
    )
    next(stream)
    client.run(op("exp", input=1, output=1))
    data = np.frombuffer(b"".join(part.chunk for part in stream), "<u2")
    assert set(data) == {0x3E00}


def test_uploads_count_in_the_quota_while_they_last(running: Running, client: Client) -> None:
    """Bytes announced are counted until the stream ends, and refused when there is no room."""
    half = client.limits.max_bytes // 2
    dims = (1, 1, 32 * half // 4096, 64)
    client.run(*init(1, *dims))
    sent = iter(chunks(bytes(half), 4096))

    def slowly() -> Iterator[pb.WriteTensorRequest]:
        yield client.sticks_header(id=1, total_bytes=half)
        yield next(sent)
        wait_until(lambda: running.server.store.counts().staged_bytes == half)
        with refused(CODE.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED", field="max_bytes"):
            client.run(*init(2, 4))
        yield from sent

    client.write(slowly())
    client.run(op("allochelper_ztensor", ztensor=2))
    assert running.server.store.counts().staged_bytes == 0


def test_cancelled_upload_leaves_nothing(running: Running, client: Client) -> None:
    """A client that gives up in the middle changes nothing and leaves no staged bytes."""
    client.run(*load(1, GRID))
    before = client.read(sticks=pb.ReadSticks(id=1))[1]

    def stalled() -> Iterator[pb.WriteTensorRequest]:
        yield client.sticks_header(id=1, total_bytes=8192)
        yield from chunks(bytes(4096))
        time.sleep(1)

    call = client.stub.WriteTensor.future(stalled())
    wait_until(lambda: running.server.store.counts().staged_bytes == 8192)
    call.cancel()
    wait_until(lambda: running.server.store.counts().staged_bytes == 0)
    assert client.read(sticks=pb.ReadSticks(id=1))[1] == before


VANISH = """
import sys, grpc
from tests.server.wire import Client, chunks, init
from nnpa.zdnn.v1 import accelerator_pb2 as pb
client = Client(grpc.insecure_channel(sys.argv[1]))
client.run(*init(1, 1, 1, 64, 64))
def messages():
    yield client.sticks_header(id=1, total_bytes=8192)
    yield from chunks(bytes(4096))
    print("half", flush=True)
    sys.stdin.read()
client.write(messages())
"""


def test_killed_client_leaves_its_session_only(running: Running, client: Client) -> None:
    """A process killed in the middle of an upload leaves no staged bytes and no open stream."""
    with subprocess.Popen(
        [sys.executable, "-c", VANISH, running.address],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        wait_until(lambda: running.server.store.counts().staged_bytes == 8192)
        process.kill()
    wait_until(lambda: running.server.store.counts().staged_bytes == 0)
    assert running.server.store.counts() == Counts(2, 1, 8192, 0)
    (left,) = [
        session.name
        for session in running.server.store.sessions()
        if session.name != client.session
    ]
    client.stub.DeleteSession(pb.DeleteSessionRequest(name=left))


def test_abandoned_download_leaves_nothing(start: Callable[..., Running]) -> None:
    """A reader that stops in the middle frees the bytes that were held for it."""
    running = start(limits=ROOM)
    client = running.client()
    client.run(*init(1, 1, 64, 128, 256))
    stream = client.stub.ReadTensor(
        pb.ReadTensorRequest(session=client.session, sticks=pb.ReadSticks(id=1))
    )
    next(stream)
    stream.cancel()
    wait_until(lambda: running.server.store.counts().staged_bytes == 0)


@pytest.mark.heavy
def test_largest_tensor_of_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tensor of 4 GiB of sticks, thin, goes up and comes back; peak memory is printed."""
    if psutil.virtual_memory().available < 12 << 30:
        pytest.skip("needs 12 GiB of free memory")
    dims = (32, 1, 1 << 20, 1)
    array = np.arange(1 << 25, dtype=np.float32) % 512
    with serving(tmp_path, "--listen", f"unix:{tmp_path}/s") as server:
        client = Client(grpc.insecure_channel(server.address, OPTIONS))
        assert client.run(*init(1, *dims))[1].zdnn_status == 0
        client.write([
            client.arrays_header(op("transform_ztensor", ztensor=1), array.nbytes),
            *chunks(array.tobytes()),
        ])  # fmt: skip
        _, data = client.read(operation=op("transform_origtensor", ztensor=1))
        assert client.used() == (1, 4 << 30)
        assert np.array_equal(np.frombuffer(data, "<f4"), array)
        peaks = {"server": peak_mib(server.process.pid), "client": peak_mib(os.getpid())}
        client.delete()
    with capsys.disabled():
        print(f"\n4 GiB tensor, peak memory in MiB: {peaks}")


def peak_mib(pid: int) -> int:
    """Return the most memory that a process has had resident, from Linux."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) >> 10


def _zeros(client: Client, pages: int) -> None:
    """Make tensor 1 of `pages` pages of DLFLOAT16 zeros, the size that its user names being 1."""
    transformed = desc(1, 1, 32 * pages, 64)
    client.run(
        op("init_ztensor", ztensor=1, pre_transformed_desc=pre_desc(1, 1, 1, 1),
           transformed_desc=transformed),
        op("allochelper_ztensor", ztensor=1),
        op("exp", input=1, output=1),
    )  # fmt: skip


def test_the_array_of_a_download_is_counted_by_what_it_is(start: Callable[..., Running]) -> None:
    """ReadTensor reserves by the transformed dims, whatever the pre-transformed ones say."""
    running = start(limits=Limits(max_session_bytes=3 << 20))
    client = running.client()
    _zeros(client, 400)  # 1.6 MiB of sticks, 3.2 MiB of FP32
    with refused(CODE.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED", field="max_bytes"):
        client.read(operation=op("transform_origtensor", ztensor=1))


def test_an_answer_too_large_is_refused_before_it_is_made(start: Callable[..., Running]) -> None:
    """Execute compares the array with the inline limit first, so the process does not grow."""
    running = start(limits=Limits(max_message=4 << 20, max_session_bytes=1 << 28))
    client = running.client()
    _zeros(client, 16384)  # 64 MiB of sticks, 128 MiB of FP32
    before = psutil.Process().memory_info().rss
    with refused(CODE.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE", value=1 << 27, limit=1 << 20):
        client.run(op("transform_origtensor", ztensor=1))
    assert psutil.Process().memory_info().rss - before < 16 << 20
