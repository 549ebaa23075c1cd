# SPDX-License-Identifier: Apache-2.0
"""Shared memory of a session: access, operands in it, and bad clients."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import tensor_pb2
from nnpa_server.app import Server
from nnpa_server.sessions.shared_memory import SharedMemory, open_for
from nnpa_server.sessions.shared_objects import ObjectAccess, remove_orphans

from tests.server.conftest import CONFIG, OPTIONS
from tests.server.wire import Client, desc, load, op, pre_desc, refused

CODE = grpc.StatusCode
GRID = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
BIG = tensor_pb2.BYTE_ORDER_BIG_ENDIAN
PAGE, SIZE = 4096, 16 * 4096
Extent = tensor_pb2.Extent


class Memory:
    """An object of shared memory, as a client makes it."""

    def __init__(self, size: int = SIZE) -> None:
        self.name = f"nnpa-test-{secrets.token_hex(8)}"
        self.path = Path("/dev/shm") / self.name
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.truncate(self.file, size)

    def options(self, size: int = SIZE) -> pb.Session:
        """Return the options of a session that shares it."""
        return pb.Session(shared_memory=pb.SharedMemory(name=self.name, size=size))

    def close(self) -> None:
        """Forget the object."""
        self.path.unlink(missing_ok=True)
        os.close(self.file)


@pytest.fixture
def memory() -> Iterator[Memory]:
    """An object of shared memory."""
    shared = Memory()
    yield shared
    shared.close()


def test_objects_of_dead_clients_are_removed() -> None:
    """The object of a client that has ended is removed, unless the client ended just now."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    mine, owner = secrets.token_hex(4), secrets.token_hex(8)
    names = {
        f"nnpa-{dead.pid}-{mine}": False,
        f"{owner}.nnpa-{dead.pid}-{mine}": False,
        f"nnpa-{dead.pid}-{mine}new": True,
        f"nnpa-{os.getpid()}-{mine}": True,
        f"other-{dead.pid}-{mine}": True,
        f"nnpa-test-{mine}": True,
    }
    paths = {Path("/dev/shm") / name: is_kept for name, is_kept in names.items()}
    long_ago = time.time() - 60
    try:
        for path in paths:
            path.touch()
            if not path.name.endswith("new"):
                os.utime(path, (long_ago, long_ago))
        remove_orphans()
        assert {path: path.exists() for path in paths} == paths
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[grpc.Channel]:
    """A channel over a Unix socket to a server that takes shared memory."""
    address = f"unix:{tmp_path}/nnpa.sock"
    server = Server(replace(CONFIG, listen=(address,), shared_memory=True))
    server.start()
    with grpc.insecure_channel(address, OPTIONS) as opened_channel:
        yield opened_channel
    server.drain()


@pytest.fixture
def client(channel: grpc.Channel, memory: Memory) -> Client:
    """A session that shares memory; the object's name is gone."""
    session = Client(channel, memory.options())
    assert session.state().shared_memory.size == SIZE
    memory.path.unlink()
    return session


def ztensor(**fields: Any) -> tensor_pb2.Ztensor:
    """Describe a transformed tensor of GRID's shape, two pages."""
    descs = {"pre_transformed_desc": pre_desc(1, 2, 2, 3), "transformed_desc": desc(1, 2, 2, 3)}
    return tensor_pb2.Ztensor(**descs, is_transformed=True, **fields)


def sticks_of(client: Client) -> bytes:
    """Return GRID's sticks."""
    client.run(*load(1, GRID))
    return client.read(sticks=pb.ReadSticks(id=1))[1]


@pytest.mark.parametrize("order", [0, 1, BIG])
def test_sticks_pass_in_shared_memory(client: Client, memory: Memory, order: Any) -> None:
    """Inputs in shared memory are read, and outputs written, as if they had travelled."""
    sticks = sticks_of(client)
    if order == BIG:
        sticks = np.frombuffer(sticks, "<u2").astype(">u2").tobytes()
    os.pwrite(memory.file, sticks, PAGE)
    operand = ztensor(
        shared=Extent(offset=PAGE, size=2 * PAGE), byte_order=order, cache_as=b"a" * 16
    )
    place = Extent(offset=4 * PAGE, size=2 * PAGE)
    output = ztensor(sticks_to=place, byte_order=order)
    (result,) = client.run(op("add", input_a=operand, input_b=operand, output=output))
    written = result.outputs[0].ztensor
    assert (written.WhichOneof("contents"), written.shared) == ("shared", place)
    sent = ztensor(sticks=sticks, byte_order=order)
    empty = ztensor(byte_order=order)
    (expected,) = client.run(op("add", input_a=sent, input_b=sent, output=empty))
    assert os.pread(memory.file, 2 * PAGE, 4 * PAGE) == expected.outputs[0].ztensor.sticks
    named = ztensor(cached=b"a" * 16, byte_order=order)
    (repeated,) = client.run(op("add", input_a=named, input_b=named, output=empty))
    assert repeated.outputs[0].ztensor.sticks == expected.outputs[0].ztensor.sticks


def test_arrays_pass_in_shared_memory(client: Client, memory: Memory) -> None:
    """A transform reads its array there, and transform_origtensor writes its own there."""
    os.pwrite(memory.file, GRID.tobytes(), 100)
    blank = ztensor()
    blank.is_transformed = False
    up = op("transform_ztensor", ztensor=blank)
    up.shared_data.add(offset=100, size=GRID.nbytes)
    (result,) = client.run(up)
    sticks = result.outputs[0].ztensor.sticks
    assert sticks == sticks_of(client)
    down = op("transform_origtensor", ztensor=ztensor(sticks=sticks))
    down.shared_data.add(offset=SIZE - GRID.nbytes, size=GRID.nbytes)
    (result,) = client.run(down)
    assert result.shared == down.shared_data[0]
    array = np.frombuffer(os.pread(memory.file, GRID.nbytes, SIZE - GRID.nbytes), "<f4")
    assert np.array_equal(array, GRID.ravel())


def test_places_outside_are_refused(client: Client) -> None:
    """An extent beyond the memory, or of another size than the tensor, reads and writes nothing."""
    for offset in (SIZE - PAGE, SIZE, (1 << 64) - PAGE):
        beyond = Extent(offset=offset, size=2 * PAGE)
        with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID"):
            client.run(op("exp", input=ztensor(shared=beyond), output=ztensor()))
        with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID"):
            client.run(op("exp", input=ztensor(), output=ztensor(sticks_to=beyond)))
        up = op("transform_ztensor", ztensor=ztensor())
        up.shared_data.add(offset=offset, size=2 * PAGE)
        with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID", field="operations[0].shared_data[0]"):
            client.run(up)
    small = Extent(size=PAGE)
    with refused(CODE.INVALID_ARGUMENT, "DATA_SIZE_MISMATCH", value=PAGE, limit=2 * PAGE):
        client.run(op("exp", input=ztensor(shared=small), output=ztensor()))
    with refused(CODE.INVALID_ARGUMENT, "DATA_SIZE_MISMATCH", value=PAGE, limit=2 * PAGE):
        client.run(op("exp", input=ztensor(), output=ztensor(sticks_to=small)))


def test_arrays_count_in_the_quota(client: Client, memory: Memory) -> None:
    """Arrays in shared memory are refused before they are copied if the session has no room."""
    second_session = Client(client.channel, memory.options())
    assert not second_session.state().HasField("shared_memory")
    limit = client.limits.max_bytes
    up = op("transform_ztensor", ztensor=ztensor())
    for _ in range(limit // SIZE + 1):
        up.shared_data.add(size=SIZE)
    with refused(CODE.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED"):
        client.run(up)


def test_other_operations_take_no_shared_arrays(client: Client) -> None:
    """Shared arrays of an operation that reads or writes none are FIELD_INVALID."""
    data = [GRID.tobytes()]
    for wrong in (
        op("exp", input=ztensor(), output=ztensor()),
        op("transform_ztensor", ztensor=ztensor(), data=data),
    ):
        wrong.shared_data.add(size=GRID.nbytes)
        with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID", field="operations[0].shared_data"):
            client.run(wrong)


def test_a_shortened_object_is_an_error_and_no_crash(client: Client, memory: Memory) -> None:
    """A client that shortens the object gets an error, or inline sticks; the object stays short."""
    os.truncate(memory.file, PAGE)
    operand = ztensor(shared=Extent(size=2 * PAGE))
    with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID"):
        client.run(op("exp", input=operand, output=ztensor()))
    sticks = sticks_of(client)
    output = ztensor(sticks_to=Extent(size=2 * PAGE))
    (result,) = client.run(op("exp", input=ztensor(sticks=sticks), output=output))
    assert len(result.outputs[0].ztensor.sticks) == 2 * PAGE
    assert os.fstat(memory.file).st_size == PAGE


def test_memory_is_released_with_the_session(client: Client, memory: Memory) -> None:
    """The server lets go of the object when the session is deleted."""

    def holders() -> int:
        count = 0
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # another thread's, closed meanwhile
                count += memory.name in str(descriptor.readlink())
        return count

    assert holders() == 2
    client.delete()
    assert holders() == 1


def opened(name: str, size: int) -> SharedMemory | None:
    """Return the memory that a client on a Unix socket shares."""
    return open_for(ObjectAccess(), "unix:", name, size)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../shm/x", "a" * 65, "no-such-object", "é"]
)
def test_no_name_leads_anywhere_else(name: str) -> None:
    """A name opens nothing unless it names an object of this user's shared memory."""
    assert opened(name, PAGE) is None
    with pytest.raises((FileNotFoundError, IsADirectoryError, PermissionError)):
        ObjectAccess().open("unix:", name)


def test_links_and_folders_are_no_objects(memory: Memory) -> None:
    """In the folder of objects links are not followed, and only plain files are opened."""
    link = memory.path.with_name(memory.name + ".link")
    link.symlink_to(memory.path)
    folder = memory.path.with_name(memory.name + ".folder")
    folder.mkdir()
    try:
        for path in (link, folder):
            assert opened(path.name, PAGE) is None
    finally:
        link.unlink()
        folder.rmdir()


def test_memory_needs_a_unix_socket_and_the_flag(memory: Memory, tmp_path: Path) -> None:
    """A client over TCP, without the server's flag, or with a wrong size gets no memory."""
    address = f"unix:{tmp_path}/plain.sock"
    shared = replace(CONFIG, shared_memory=True)
    for config in (shared, replace(CONFIG, listen=(address,))):
        server = Server(config)
        (listener,) = server.start()
        with grpc.insecure_channel(listener, OPTIONS) as channel:
            client = Client(channel, memory.options())
            assert not client.state().HasField("shared_memory")
            with refused(CODE.INVALID_ARGUMENT, "FIELD_INVALID"):
                operand = ztensor(shared=Extent(size=2 * PAGE))
                client.run(op("exp", input=operand, output=ztensor()))
            client.delete()
        server.drain()
    assert opened(memory.name, SIZE + 1) is None
    held = opened(memory.name, SIZE)
    assert held is not None
    held.close()
