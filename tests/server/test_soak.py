# SPDX-License-Identifier: Apache-2.0
"""Eight clients that misbehave for a while: the server ends with an empty store and flat memory."""

import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb

from tests.server.accelerator.test_transfer import VANISH
from tests.server.process import serving
from tests.server.wire import Client, New, Operation, chunks, init, load, op, read_error

DATA = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
METHODS = ("Execute", "CreateSession", "WriteTensor", "ListTensors", "NoSuchMethod")
FLAGS = ("--listen", "127.0.0.1:0", "--idle-timeout", "2s", "--max-message", "8MiB",
         "--max-session-bytes", "64MiB", "--max-session-tensors", "200",
         "--log-level", "info")  # fmt: skip
GROWTH = 48 << 20  # bytes by which a server's memory at rest may move


@dataclass
class Soak:
    """One run: the server's address, the end, and the outcomes of calls."""

    address: str
    until: float = 0.0
    met: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])

    def client(self) -> Client:
        """Create a session over a connection of its own."""
        options = (("grpc.use_local_subchannel_pool", 1),)
        return Client(grpc.insecure_channel(self.address, options))

    def loop(self, misbehave: Callable[["Soak"], None]) -> None:
        """Misbehave until the time is over, and count what comes of it."""
        while time.monotonic() < self.until:
            try:
                misbehave(self)
                self.met[f"{misbehave.__name__}: served"] += 1
            except grpc.FutureCancelledError:
                self.met[f"{misbehave.__name__}: cancelled"] += 1
            except grpc.RpcError as error:
                refusal = read_error(error)
                self.met[f"{misbehave.__name__}: {refusal.reason or refusal.code.name}"] += 1
            except Exception as error:  # a thread's failure must reach the test
                self.failures.append(f"{misbehave.__name__}: {error!r}")
                return


def kill(soak: Soak) -> None:
    """Upload half of a tensor from a process that is killed then."""
    with subprocess.Popen(
        [sys.executable, "-c", VANISH, soak.address],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()


def cancel_lists(soak: Soak) -> None:
    """Give up long lists in the middle."""
    client = soak.client()
    client.run(*load(1, np.ones((1, 32, 32, 64), np.float32)))
    request = client.request(*[op("exp", input=1, output=1)] * 5000)
    calls = [client.stub.Execute.future(request) for _ in range(5)]
    for call in calls:
        time.sleep(random.random() / 20)
        call.cancel()
    client.delete()
    calls[0].result()


def cancel_transfers(soak: Soak) -> None:
    """Give up uploads and downloads in the middle."""
    client = soak.client()
    client.run(*init(1, 1, 16, 128, 256))

    def messages() -> Iterator[pb.WriteTensorRequest]:
        yield client.sticks_header(id=1, total_bytes=1 << 20)
        yield from chunks(bytes(1 << 19))
        time.sleep(0.05)

    upload = client.stub.WriteTensor.future(messages())
    source = pb.ReadTensorRequest(session=client.session, sticks=pb.ReadSticks(id=1))
    download = client.stub.ReadTensor(source)
    next(download)
    download.cancel()
    upload.cancel()
    client.delete()
    upload.result()


def oversize(soak: Soak) -> None:
    """Send chunks and messages beyond the limits."""
    client = soak.client()
    client.run(*init(1, 1, 32, 128, 256))
    header = client.arrays_header(op("transform_ztensor", ztensor=1), 4 << 20)
    try:
        client.run(op("transform_ztensor", ztensor=1, data=[bytes(9 << 20)]))
    except grpc.RpcError:
        client.write([header, pb.WriteTensorRequest(chunk=bytes((4 << 20) + 1))])
    finally:
        client.delete()


def garbage(soak: Soak) -> None:
    """Send noise to methods, and to the port itself."""
    host, _, port = soak.address.rpartition(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(random.randbytes(2000))
    path = f"/nnpa.zdnn.v1.AcceleratorService/{random.choice(METHODS)}"
    with grpc.insecure_channel(soak.address) as channel:
        call: Any = channel.stream_stream(path, bytes, bytes)
        list(call(iter([random.randbytes(random.randrange(3000))])))


def reuse(soak: Soak) -> None:
    """Use ids twice, after they were freed, and a session after it was deleted."""
    client = soak.client()
    client.run(*load(1, DATA))
    lists: list[list[Operation]] = [init(1, 4), [op("exp", input=5, output=1)]]
    for bad in lists:
        try:
            client.run(*bad)
        except grpc.RpcError as error:
            soak.met[f"reuse: {read_error(error).reason}"] += 1
    client.delete()
    client.run()


def hoard(soak: Soak) -> None:
    """Fill a session up to its quota, and go away without a word."""
    client = soak.client()
    client.run(*init(1, 1, 8, 128, 256))
    client.run(*(op("exp", input=1, output=New(tensor_id)) for tensor_id in range(2, 300)))


def abandon(soak: Soak) -> None:
    """Open a stream and a session, and forget both."""
    client = soak.client()

    def requests() -> Iterator[pb.ExecuteRequest]:
        yield client.request(*init(1, 64))
        time.sleep(0.2)

    stream = client.stub.ExecuteStream(requests())
    next(stream)
    client.channel.close()
    time.sleep(0.1)


MISBEHAVIOURS = (
    kill, cancel_lists, cancel_transfers, oversize, garbage, reuse, hoard, abandon,
)  # fmt: skip


def misbehave(soak: Soak, good: Client) -> None:
    """Let eight clients misbehave while another one goes on getting right answers."""
    threads = [
        threading.Thread(target=soak.loop, args=(misbehaviour,)) for misbehaviour in MISBEHAVIOURS
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        good.run(op("reset_ztensor", ztensor=1), op("exp", input=1, output=New(2)),
                 op("free_ztensor_buffer", ztensor=2),
                 op("transform_ztensor", ztensor=1, data=[DATA.tobytes()]))  # fmt: skip
        assert np.array_equal(good.array(1), DATA.ravel())
        time.sleep(0.05)


def at_rest(pid: int, good: Client) -> int:
    """Return the resident memory once abandoned sessions have expired."""
    for _ in range(5):  # twice the idle timeout and the reaper's period, the good one kept alive
        time.sleep(0.7)
        good.state()
    return int(psutil.Process(pid).memory_info().rss)


def run_soak(tmp_path: Path, seconds: float, growth: int) -> str:
    """Misbehave three times, rest after each, and compare the memory at rest; tell the story."""
    with serving(tmp_path, *FLAGS) as server:
        pid = server.process.pid
        soak = Soak(server.address)
        good = soak.client()
        good.run(*load(1, DATA))
        rest: list[int] = []
        for _ in range(3):
            soak.until = time.monotonic() + seconds / 3
            misbehave(soak, good)
            rest.append(at_rest(pid, good))
        good.delete()
        assert server.stop() == 0
        log = server.log_text()
    assert soak.failures == []
    assert "left in the store: 0 sessions, 0 tensors, 0 bytes stored, 0 staged" in log
    assert "all calls finished" in log
    assert rest[2] - max(rest[:2]) < growth, rest  # pools and arenas fill up in the first third
    counts = ", ".join(f"{key} {count}" for key, count in sorted(soak.met.items()))
    return (
        f"soak {seconds:g} s: {sum(soak.met.values())} misdeeds, store empty, memory at rest after "
        f"each third {[size >> 20 for size in rest]} MiB; {counts}"
    )


@pytest.mark.heavy
def test_short_soak(tmp_path: Path) -> None:
    """Six seconds of misbehaviour leave an empty store, flat memory, and a neighbour unharmed."""
    assert "store empty" in run_soak(tmp_path, 6.0, 2 * GROWTH)


@pytest.mark.heavy
def test_soak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sixty seconds of misbehaviour leave an empty store, flat memory, a neighbour unharmed.

    NNPA_SOAK_SECONDS makes them more.
    """
    summary = run_soak(tmp_path, float(os.environ.get("NNPA_SOAK_SECONDS", "60")), GROWTH)
    with capsys.disabled():
        print(f"\n{summary}")
