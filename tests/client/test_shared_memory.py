# SPDX-License-Identifier: Apache-2.0
"""Arrays in memory that client and server share: the same values as when they travel."""

import contextlib
import errno
import gc
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from nnpa.zdnn.v1.operation_pb2 import FreeZtensorBuffer, Operation
from nnpa_client import Session, TransportError, ZdnnError, connect, zdnn
from nnpa_client._shortcuts import shared_memory

from tests.client.server_process import serving

pytestmark = pytest.mark.shortcut
Floats = npt.NDArray[np.float32]
OBJECTS = Path("/dev/shm")


def ours() -> set[str]:
    """Return the names of objects that this process has made."""
    return {one.name for one in OBJECTS.glob(f"nnpa-{os.getpid()}-*")}


def opened() -> int:
    """Return how many objects this process has open; what gRPC closes meanwhile is none."""
    found = 0
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(one.readlink()).startswith(f"{OBJECTS}/nnpa-")
    return found


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Unix socket of a server that shares memory."""
    socket = tmp_path_factory.mktemp("nnpa") / "nnpa.sock"
    with serving([f"unix:{socket}"], "--shared-memory") as targets:
        yield targets[0]


@pytest.fixture
def session(target: str) -> Iterator[Session]:
    """A session that shares memory."""
    with connect(target) as one:
        assert one.status().HasField("shared_memory")
        yield one


def values(rows: int) -> Floats:
    """Return `rows` KiB of numbers that DLFLOAT16 has."""
    return (np.arange(rows * 256, dtype=np.float32) % 1000).reshape(rows, 256)


def test_private_server_shares() -> None:
    """A session with a server of its own shares memory, whose name is gone at once."""
    before = ours()
    with connect() as session:
        assert session.status().shared_memory.size >= 1 << 24
        assert ours() <= before
        a = session.ztensor(values(1024))
        assert np.array_equal(zdnn.add(a, a).numpy(), 2 * values(1024))


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 1000, 4096, 5000, 20000])
def test_values(session: Session, rows: int) -> None:
    """Arrays below, at and above what is worth sharing, and above what a message holds."""
    array = values(rows)
    a = session.ztensor(array)
    assert np.array_equal(zdnn.add(a, a).numpy(), 2 * array)
    out = np.empty_like(array)
    with session.pipeline():
        zdnn.transform_origtensor(zdnn.mul(session.ztensor(array), a), out)
    expected = a.numpy() * a.numpy()
    assert np.allclose(out, expected, rtol=2**-8)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each array that is written into shared memory."""
    sizes: list[int] = []
    real = os.pwrite

    def counted(file: int, data: memoryview, offset: int) -> int:
        sizes.append(data.nbytes)
        return real(file, data, offset)

    monkeypatch.setattr(os, "pwrite", counted)
    return sizes


def test_arrays_are_shared(session: Session, written: list[int]) -> None:
    """Large arrays do not travel: without the copy into shared memory there is none."""
    session.ztensor(values(1024))
    session.ztensor(values(8))
    assert written == [1 << 20]


def test_queued_arrays_are_copies(session: Session) -> None:
    """What the caller does with an array after the call does not matter, shared or not."""
    array, out = values(512), np.empty((512, 256), np.float32)
    with session.pipeline():
        tensor = session.ztensor(array)
        array[:] = 0
        zdnn.transform_origtensor(tensor, out)
    assert np.array_equal(out, values(512))


def test_a_list_that_is_sent_again_has_its_arrays(session: Session) -> None:
    """Queued arrays stay in shared memory until an answer comes."""
    stale = session.ztensor(values(8))
    free = Operation(free_ztensor_buffer=FreeZtensorBuffer(ztensor=stale.ref()))
    assert session.execute([free])[0].zdnn_status == 0
    del stale
    gc.collect()
    outs = [np.empty((4096, 256), np.float32) for _ in range(5)]  # more than stays between calls
    with session.pipeline():
        for factor, out in enumerate(outs):
            zdnn.transform_origtensor(session.ztensor(factor + values(4096)), out)
    for factor, out in enumerate(outs):
        assert np.array_equal(out, factor + values(4096))


def test_pipelines_that_are_left_take_no_room_for_long(
    session: Session, written: list[int]
) -> None:
    """Arrays of calls that are dropped are freed by the next answer, whatever its list has."""
    for _ in range(40):  # of which shared memory holds 16 at a time
        with contextlib.suppress(KeyError), session.pipeline():
            session.ztensor(values(4096))
            raise KeyError
        session.ztensor(values(8))
    assert written == 40 * [1 << 22]


def test_more_than_there_is_room_for(session: Session) -> None:
    """A pipeline with more arrays than shared memory holds sends the others, and runs."""
    outs = [np.empty((4096, 256), np.float32) for _ in range(20)]
    with session.pipeline():
        for number, out in enumerate(outs):
            zdnn.transform_origtensor(session.ztensor(values(4096) + number), out)
    for number, out in enumerate(outs):
        assert np.array_equal(out, values(4096) + number)


def test_no_storage(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /dev/shm is full, as in containers it soon is, arrays travel."""

    def full(_file: int, _data: object, _offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    assert np.array_equal(session.ztensor(values(1024)).numpy(), values(1024))


def test_no_such_folder(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without /dev/shm has sessions all the same."""
    monkeypatch.setattr("nnpa_client._shortcuts.shared_memory._OBJECTS", "/no/such/folder")
    with connect(target) as session:
        assert not session.status().HasField("shared_memory")
        assert np.array_equal(session.ztensor(values(1024)).numpy(), values(1024))


def test_server_that_shares_nothing(server_target: str) -> None:
    """A server without --shared-memory declines; nothing is left open."""
    before = ours(), opened()
    with connect(server_target) as session:
        assert not session.status().HasField("shared_memory")
        assert np.array_equal(session.ztensor(values(1024)).numpy(), values(1024))
    assert (ours(), opened()) == before


def test_nothing_stays_open(target: str) -> None:
    """A closed session has let go of its memory, and of what it had grown to."""
    with connect(target) as session:
        session.ztensor(values(4096))
    before = ours(), opened()
    for _ in range(5):
        with connect(target) as session:
            assert np.array_equal(session.ztensor(values(4096)).numpy(), values(4096))
    assert (ours(), opened()) == before


def test_refused_session_leaves_nothing(target: str) -> None:
    """A session that the server refuses leaves no object behind."""
    before = ours(), opened()
    with pytest.raises(TransportError):
        connect(target, library="9.9.9")
    assert (ours(), opened()) == before


def test_a_server_that_asks_for_tokens_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object's name says whose token it is for; another token's holder gets none of it."""
    tokens, names = tmp_path / "tokens.toml", list[str]()
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("alice", "bob")}
    tokens.write_text("".join(f'[tokens.{name}]\nsha256 = "{digests[name]}"\n' for name in digests))
    with serving([f"unix:{tmp_path}/s"], "--shared-memory", "--tokens", str(tokens)) as targets:
        with connect(targets[0], token="alice") as session:
            assert session.status().HasField("shared_memory")
            a = session.ztensor(values(1024))
            assert np.array_equal(zdnn.add(a, a).numpy(), 2 * values(1024))
            names.append(session.status().shared_memory.name)

        def alice(_token: str) -> str:
            return names[0].partition("nnpa")[0]

        monkeypatch.setattr(shared_memory, "_owner", alice)
        with connect(targets[0], token="bob") as session:
            assert not session.status().HasField("shared_memory")


def test_errors_are_those_of_arrays_that_travel(session: Session) -> None:
    """A second transform is refused with the same status, and the session goes on."""
    tensor = session.ztensor(values(1024))
    with pytest.raises(ZdnnError, match="INVALID_STATE"):
        zdnn.transform_ztensor(tensor, values(1024))
    assert np.array_equal(tensor.numpy(), values(1024))
