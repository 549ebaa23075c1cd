# SPDX-License-Identifier: Apache-2.0
"""Memory that comes over a plain socket: operands in it, cached contents, and refusals."""

import fcntl
import mmap
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import tensor_pb2
from nnpa_server.accelerator.shortcuts.placed_operands import PlacedMemory
from nnpa_server.app import Server

from tests.server.conftest import CONFIG, OPTIONS
from tests.server.plain import Plain
from tests.server.process import wait_until
from tests.server.rpc.near import info_of
from tests.server.wire import Client, desc, load, op, pre_desc, refused

GRID = np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3)
PAGE, SIZE = 4096, 16 * 4096
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
Extent = tensor_pb2.Extent


def memfd(size: int = SIZE, seals: int = SEALS) -> int:
    """Return a descriptor of memory."""
    file = os.memfd_create("nnpa-test", os.MFD_ALLOW_SEALING)
    os.truncate(file, size)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


class Sharing:
    """A session on a plain socket, to which its client has brought memory."""

    def __init__(self, path: Path, channel: grpc.Channel) -> None:
        self.client = Client(channel)
        offer = self.client.state().plain_socket
        assert offer.takes_memory
        self.path = path.with_name(path.name + offer.suffix)
        self.file = memfd()
        self.memory = np.frombuffer(mmap.mmap(self.file, SIZE), np.uint8)
        self.plain = Plain(self.path, descriptors=(self.file,))
        assert self.plain.ask(self.client.request()).results == []

    def run(self, *operations: Any) -> list[Any]:
        """Run a list on the plain socket."""
        return list(self.plain.ask(self.client.request(*operations)).results)

    def close(self) -> None:
        """End the session."""
        self.plain.socket.close()
        os.close(self.file)


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[grpc.Channel]:
    """A channel over a Unix socket to a server that takes shared memory."""
    server = Server(replace(CONFIG, listen=(f"unix:{tmp_path}/nnpa.sock",), shared_memory=True))
    (address,) = server.start()
    with grpc.insecure_channel(address, OPTIONS) as opened:
        yield opened
    server.drain()


@pytest.fixture
def sharing(channel: grpc.Channel, tmp_path: Path) -> Iterator[Sharing]:
    """A session that shares memory."""
    session = Sharing(tmp_path / "nnpa.sock", channel)
    yield session
    session.close()


def ztensor(**fields: Any) -> tensor_pb2.Ztensor:
    """Describe a transformed tensor of GRID's shape, two pages."""
    descs = {"pre_transformed_desc": pre_desc(1, 2, 2, 3), "transformed_desc": desc(1, 2, 2, 3)}
    fields.setdefault("is_transformed", True)
    return tensor_pb2.Ztensor(**descs, **fields)


def sticks_of(client: Client, array: Any = GRID) -> bytes:
    """Return the sticks of an array."""
    sender = client.open_session()
    sender.run(*load(1, array))
    sticks = sender.read(sticks=pb.ReadSticks(id=1))[1]
    sender.delete()
    return sticks


@pytest.mark.parametrize("offset", [0, 8, PAGE, 100, 3])
def test_arrays_are_read_and_written_where_they_are(sharing: Sharing, offset: int) -> None:
    """An array in memory is read and written like one that travels, at any offset."""
    sharing.memory[offset : offset + GRID.nbytes] = GRID.view(np.uint8).ravel()
    up = op("transform_ztensor", ztensor=ztensor(is_transformed=False))
    up.shared_data.add(offset=offset, size=GRID.nbytes)
    (result,) = sharing.run(up)
    sticks = result.outputs[0].ztensor.sticks
    assert sticks == sticks_of(sharing.client)
    down = op("transform_origtensor", ztensor=ztensor(sticks=sticks))
    down.shared_data.add(offset=2 * PAGE + offset, size=GRID.nbytes)
    (result,) = sharing.run(down)
    assert result.shared == down.shared_data[0]
    written = sharing.memory[2 * PAGE + offset :][: GRID.nbytes].copy().view(np.float32)
    assert np.array_equal(written, GRID.ravel())


@pytest.mark.parametrize("kind", [253, 254])  # BFLOAT, FP16
def test_arrays_of_other_types(sharing: Sharing, kind: int) -> None:
    """An array that the server does not write in place is copied there, byte for byte."""
    pre = pre_desc(1, 2, 2, 3, type=kind)
    tensor = tensor_pb2.Ztensor(pre_transformed_desc=pre, transformed_desc=desc(1, 2, 2, 3))
    data = np.arange(24, dtype=np.uint8)
    (transformed,) = sharing.run(op("transform_ztensor", ztensor=tensor, data=[data.tobytes()]))
    tensor.sticks, tensor.is_transformed = transformed.outputs[0].ztensor.sticks, True
    down = op("transform_origtensor", ztensor=tensor)
    (expected,) = sharing.run(down)
    down.shared_data.add(offset=PAGE, size=24)
    (result,) = sharing.run(down)
    assert (expected.zdnn_status, result.zdnn_status, result.shared.size) == (0, 0, 24)
    assert sharing.memory[PAGE : PAGE + 24].tobytes() == expected.data


@pytest.mark.shortcut
def test_contents_stay_where_they_were_put(sharing: Sharing) -> None:
    """An output that is cached in place is the next operation's input, padding included."""
    sharing.memory[:] = 0xAB
    sticks = sticks_of(sharing.client)
    name, total = b"a" * 16, b"b" * 16
    place, second = Extent(offset=PAGE, size=2 * PAGE), Extent(offset=4 * PAGE, size=2 * PAGE)
    in_place = {"cached_in_place": True}
    up = op(
        "transform_ztensor",
        ztensor=ztensor(sticks_to=place, cache_as=name, is_transformed=False, **in_place),
        data=[GRID.tobytes()],
    )
    (result,) = sharing.run(up)
    assert result.outputs[0].ztensor.shared == place
    assert sharing.memory[PAGE : 3 * PAGE].tobytes() == sticks
    stored = ztensor(cached=name)
    output = ztensor(sticks_to=second, cache_as=total, **in_place)
    (result,) = sharing.run(op("add", input_a=stored, input_b=stored, output=output))
    doubled = sticks_of(sharing.client, 2 * GRID)
    assert sharing.memory[4 * PAGE : 6 * PAGE].tobytes() == doubled
    assert sharing.memory[:PAGE].tobytes() == b"\xab" * PAGE
    assert sharing.memory[6 * PAGE :].tobytes() == b"\xab" * (SIZE - 6 * PAGE)
    both = op("sub", input_a=ztensor(cached=total), input_b=stored, output=ztensor())
    assert sharing.run(both)[0].outputs[0].ztensor.sticks == sticks
    sharing.memory[4 * PAGE :] = 0  # the client's own loss
    assert sharing.run(both)[0].outputs[0].ztensor.sticks != sticks


def test_a_place_is_reused_for_new_weights(sharing: Sharing) -> None:
    """Weights that overwrite others at a place are the ones that the next product uses."""
    weights = {"pre_transformed_desc": pre_desc(3, 3, layout=1),
               "transformed_desc": desc(1, 1, 3, 3)}  # fmt: skip
    bias = {"pre_transformed_desc": pre_desc(3, layout=0), "transformed_desc": desc(1, 1, 1, 3)}
    zero = sharing.run(
        op("transform_ztensor", ztensor=tensor_pb2.Ztensor(**bias), data=[bytes(12)])
    )[0].outputs[0].ztensor.sticks  # fmt: skip
    rng = np.random.default_rng(7)
    before = b""
    for turn in range(6):
        values = rng.integers(-8, 8, (3, 3)).astype(np.float32)
        place = Extent(offset=(1 + turn % 2) * PAGE, size=PAGE)
        name = bytes([turn]) * 16
        weight = tensor_pb2.Ztensor(
            **weights, sticks_to=place, cache_as=name, cache_instead_of=before, cached_in_place=True
        )
        sharing.run(op("transform_ztensor", ztensor=weight, data=[values.tobytes()]))
        held = tensor_pb2.Ztensor(**weights, cached=name, is_transformed=True)
        c = tensor_pb2.Ztensor(**bias, sticks=zero, is_transformed=True)
        out = tensor_pb2.Ztensor(**weights)
        product = op("matmul_op", input_a=held, input_b=held, input_c=c, op_type=0, output=out)
        for _ in range(3):
            (result,) = sharing.run(product)
            out_there = tensor_pb2.Ztensor(
                **weights, sticks=result.outputs[0].ztensor.sticks, is_transformed=True
            )
            (array,) = sharing.run(op("transform_origtensor", ztensor=out_there))
            product_array = np.frombuffer(array.data, np.float32).reshape(3, 3)
            assert np.array_equal(product_array, values @ values)
        before = name


def test_places_outside_are_refused(sharing: Sharing) -> None:
    """Nothing beyond the memory is read or written, as in an object with a name."""
    up = op("transform_ztensor", ztensor=ztensor(is_transformed=False))
    up.shared_data.add(offset=SIZE - PAGE, size=2 * PAGE)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID"):
        sharing.client.run(up)
    beyond = ztensor(
        sticks_to=Extent(offset=SIZE - PAGE, size=2 * PAGE),
        cache_as=b"a" * 16,
        cached_in_place=True,
    )
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID"):
        sharing.client.run(op("exp", input=ztensor(sticks=bytes(2 * PAGE)), output=beyond))


def test_the_memory_is_the_sessions(sharing: Sharing) -> None:
    """Calls over HTTP/2 see it; another session does not, and it goes with the session."""
    up = op("transform_ztensor", ztensor=ztensor(is_transformed=False))
    up.shared_data.add(offset=0, size=GRID.nbytes)
    assert sharing.client.run(up)[0].zdnn_status == 0
    stranger = sharing.client.open_session()
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID"):
        stranger.run(up)
    stranger.delete()
    before = mappings()  # the server's, and this test's: they are one process
    sharing.client.stub.DeleteSession(pb.DeleteSessionRequest(name=sharing.client.session))
    assert mappings() == before - 1


def descriptors() -> int:
    """Return how many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def mappings() -> int:
    """Return how often memory of these tests is mapped into this process."""
    return Path("/proc/self/maps").read_text().count("memfd:nnpa-test")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: memfd(seals=0), "sealed by F_SEAL_SHRINK"),
        (lambda: memfd(size=0), "1 to 1048576 bytes"),
        (lambda: memfd(size=(1 << 20) + 1), "1 to 1048576 bytes"),
        (lambda: os.open("/dev/null", os.O_RDWR), "memfd_create"),
        (lambda: os.open(__file__, os.O_RDONLY), "memfd_create"),
    ],
)
def test_only_memory_that_stays(sharing: Sharing, make: Any, said: str) -> None:
    """The server refuses and closes memory that could shrink, and files that are no memory."""
    file, second_session = make(), sharing.client.open_session()
    before = descriptors()
    with Plain(sharing.path, descriptors=(file,)) as plain:
        plain.send(second_session.request())
        info = info_of(plain.end())
    assert (info.reason, info.metadata["field"]) == ("FIELD_INVALID", "memory")
    assert said in info.metadata["limit"]
    wait_until(lambda: descriptors() <= before)
    os.close(file)


def test_memory_comes_alone(sharing: Sharing) -> None:
    """The list that brings memory has no operations and names a session that exists."""
    file = memfd()
    with Plain(sharing.path, descriptors=(file,)) as plain:
        plain.send(sharing.client.request(*load(1, GRID)))
        assert info_of(plain.end()).metadata["field"] == "operations"
    with Plain(sharing.path, descriptors=(file,)) as plain:
        plain.send(pb.ExecuteRequest(session="sessions/none"))
        assert info_of(plain.end()).reason == "SESSION_NOT_FOUND"
    os.close(file)


def test_memory_comes_once(sharing: Sharing) -> None:
    """A session that shares memory takes no second memory."""
    file = memfd()
    with Plain(sharing.path, descriptors=(file,)) as plain:
        plain.send(sharing.client.request())
        info = info_of(plain.end())
    os.close(file)
    assert (info.metadata["field"], "already" in info.metadata["limit"]) == ("memory", True)


def test_descriptors_do_not_pile_up(sharing: Sharing) -> None:
    """Memory that comes and goes with sessions, or before any is named, leaves nothing open."""
    before = descriptors()
    for turn in range(8):
        file = memfd()
        with Plain(sharing.path, descriptors=(file, file)) as plain:
            if turn % 2:
                session = Client(sharing.client.channel)
                assert plain.ask(session.request()).results == []
                session.delete()
                plain.finish()
        os.close(file)
    wait_until(lambda: descriptors() <= before)


@pytest.mark.shortcut
def test_memory_of_an_exact_size() -> None:
    """All bytes of the memory are places, and none behind them."""
    memory = PlacedMemory(memfd(PAGE), PAGE)
    whole = memory.view(0, PAGE, "x")
    assert whole is not None
    assert whole.nbytes == PAGE
    assert memory.place(8, 8, "x") is None
    assert memory.view(4, 4, "x") is None
    with pytest.raises(Exception, match="inside the 4096 bytes"):
        memory.view(PAGE, 1, "x")
    memory.close()
    with pytest.raises(Exception, match="inside the 0 bytes"):
        memory.view(0, 1, "x")
