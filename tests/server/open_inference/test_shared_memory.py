# SPDX-License-Identifier: Apache-2.0
"""System shared memory of the Open Inference Protocol."""

import os
import secrets
import time
from collections.abc import Iterator
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnpa.oip import open_inference_grpc_pb2 as pb
from nnpa_server.open_inference.shared_memory import Region, Regions
from nnpa_server.sessions.shared_objects import ObjectAccess, open_object

from tests.server.conftest import Running
from tests.server.onnx_models import (
    SHARING,
    Array,
    Caller,
    binary,
    offering,
    refusal,
    request,
    text_model,
)
from tests.server.process import serving

ROW = np.array([[8, 2, -2, 0.5]], np.float32)
SIZE = 64
Pair = tuple[Running, Caller]


@pytest.fixture(scope="module")
def sharing_server() -> Iterator[Pair]:
    """A server that takes shared memory, with a model."""
    model = {"mul": binary("Mul", ("n", 4))}
    with offering(model, **SHARING) as both:
        yield both


@pytest.fixture
def pair(sharing_server: Pair) -> Iterator[Pair]:
    """The server and its client, which has no region registered before and after a test."""
    yield sharing_server
    _unregister(sharing_server[1])


def _inode(path: Path) -> tuple[int, int]:
    """Return which file a descriptor has open; none where it has been closed meanwhile."""
    try:
        status = path.stat()
    except OSError:
        return (-1, -1)
    return status.st_dev, status.st_ino


class Object:
    """A POSIX shared memory object of 64 bytes, made as a client makes it."""

    def __init__(self) -> None:
        self.key = f"nnpa-test-{secrets.token_hex(6)}"
        self._file = os.open(f"/dev/shm/{self.key}", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        os.ftruncate(self._file, SIZE)

    def write(self, array: Array, offset: int) -> None:
        """Put an array's bytes at an offset."""
        os.pwrite(self._file, array.tobytes(), offset)

    def read(self, size: int, offset: int) -> bytes:
        """Return bytes at an offset."""
        return os.pread(self._file, size, offset)

    def shorten(self, size: int) -> None:
        """Change the object's size."""
        os.ftruncate(self._file, size)

    def opened(self, process: int | str = "self") -> int:
        """Return how often a process has the object open; this one has it once for itself."""
        file = _inode(Path(f"/dev/shm/{self.key}"))
        return sum(
            _inode(descriptor) == file for descriptor in Path(f"/proc/{process}/fd").iterdir()
        )

    def close(self) -> None:
        """Remove the object."""
        os.close(self._file)
        Path(f"/dev/shm/{self.key}").unlink()


@pytest.fixture
def memory() -> Iterator[Object]:
    """An object; it is removed afterwards."""
    shared_object = Object()
    yield shared_object
    shared_object.close()


def _register(caller: Caller, memory: Object, name: str = "r", **settings: Any) -> None:
    chosen: dict[str, Any] = {"key": memory.key, "byte_size": SIZE, **settings}
    caller.stub.SystemSharedMemoryRegister(
        pb.SystemSharedMemoryRegisterRequest(name=name, **chosen)
    )


def _unregister(caller: Caller, name: str = "") -> None:
    message = pb.SystemSharedMemoryUnregisterRequest(name=name)
    caller.stub.SystemSharedMemoryUnregister(message)


def _status(caller: Caller) -> dict[str, tuple[str, int, int]]:
    status = caller.stub.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest())
    return {
        name: (region.key, region.offset, region.byte_size)
        for name, region in status.regions.items()
    }


def _point(tensor: Any, offset: int = 0, size: int = 16, name: str = "r") -> None:
    tensor.parameters["shared_memory_region"].string_param = name
    tensor.parameters["shared_memory_byte_size"].int64_param = size
    tensor.parameters["shared_memory_offset"].int64_param = offset


def _request(offset: int = 0, size: int = 16) -> pb.ModelInferRequest:
    """Return a request whose first input lies in shared memory."""
    message = request("mul", x=ROW, y=ROW)
    del message.raw_input_contents[0]
    _point(message.inputs[0], offset, size)
    return message


def test_tensors_go_in_and_out_by_shared_memory(pair: Pair, memory: Object) -> None:
    """Inputs and outputs lie where the request says; raw contents are for the others only."""
    _, caller = pair
    memory.write(ROW, 24)
    _register(caller, memory, offset=8, byte_size=56)
    message = _request(16)
    _point(message.outputs.add(name="z"), 32, 24)
    response = caller.stub.ModelInfer(message)
    assert list(response.raw_output_contents) == []
    parameters = response.outputs[0].parameters
    assert parameters["shared_memory_region"].string_param == "r"
    assert parameters["shared_memory_byte_size"].int64_param == 16
    assert memory.read(16, 40) == (ROW * ROW).tobytes()
    memory.write(2 * ROW, 24)
    caller.stub.ModelInfer(message)
    assert memory.read(16, 40) == (2 * ROW * ROW).tobytes()


def test_text_lies_in_shared_memory(memory: Object) -> None:
    """A model compares text in a region as text; what is not UTF-8 is refused."""
    message = pb.ModelInferRequest(model_name="text")
    message.inputs.add(name="x", datatype="BYTES", shape=[2])
    for name in ("twice", "is_cat"):
        message.outputs.add(name=name)
    _point(message.inputs[0], size=14)
    with offering({"text": text_model()}, **SHARING) as (_, caller):
        _register(caller, memory)
        memory.write(np.frombuffer(b"\3\0\0\0cat\3\0\0\0dog", np.uint8), 0)
        twice, is_cat = caller.stub.ModelInfer(message).raw_output_contents
        assert (twice, is_cat) == (b"\6\0\0\0catcat\6\0\0\0dogdog", b"\1\0")
        memory.write(np.frombuffer(b"\xff", np.uint8), 11)
        text = refusal("FIELD_INVALID", caller.stub.ModelInfer, message)
        assert "element 1 is byte 0xff at 0" in text


def test_status_and_unregister(pair: Pair, memory: Object) -> None:
    """Regions are listed as registered, by connection, until they are unregistered."""
    server, caller = pair
    _register(caller, memory)
    _register(caller, memory, "s", offset=4, byte_size=8)
    assert _status(caller) == {"r": (memory.key, 0, 64), "s": (memory.key, 4, 8)}
    stranger = Caller(caller.address, ("nnpa.test", 1))
    assert _status(stranger) == {}
    refusal("REGION_NOT_FOUND", stranger.stub.ModelInfer, _request())
    stranger.channel.close()
    _unregister(caller, "r")
    assert _status(caller).keys() == {"s"}
    _unregister(caller, "never")
    _unregister(caller)
    assert _status(caller) == {}
    regions = server.server.models.get().regions
    assert regions is not None
    assert regions.count() == 0
    assert memory.opened() == 1
    message = pb.SystemSharedMemoryStatusRequest(name="r")
    refusal("REGION_NOT_FOUND", caller.stub.SystemSharedMemoryStatus, message)


@pytest.mark.parametrize(
    "key", ["", "..", ".", "a/b", "../shm/x", "//x", "a" * 65, "x y", "x\0", "ü", "/etc/passwd"]
)
def test_keys_that_are_no_names(pair: Pair, key: str) -> None:
    """A key is the name of a shared memory object, never a path."""
    message = pb.SystemSharedMemoryRegisterRequest(name="r", key=key, byte_size=1)
    reason = "REGION_NOT_FOUND" if key in (".", "..") else "FIELD_INVALID"
    refusal(reason, pair[1].stub.SystemSharedMemoryRegister, message)


def test_one_slash_in_front_is_posix(pair: Pair, memory: Object) -> None:
    """POSIX writes the names of objects with a slash in front; both are taken."""
    _register(pair[1], memory, key=f"/{memory.key}")
    assert _status(pair[1])["r"][0] == f"/{memory.key}"


def test_links_are_not_followed(pair: Pair, tmp_path: Path) -> None:
    """A symbolic link among the objects leads nowhere."""
    target = tmp_path / "secret"
    target.write_bytes(bytes(64))
    link = Path(f"/dev/shm/nnpa-test-{secrets.token_hex(6)}")
    link.symlink_to(target)
    try:
        message = pb.SystemSharedMemoryRegisterRequest(name="r", key=link.name, byte_size=8)
        refusal("REGION_NOT_FOUND", pair[1].stub.SystemSharedMemoryRegister, message)
    finally:
        link.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give an object to another user")
def test_objects_of_other_users_are_refused(pair: Pair, memory: Object) -> None:
    """An object of another user is refused, even where the server could open it."""
    os.chown(f"/dev/shm/{memory.key}", 65534, 65534)
    message = pb.SystemSharedMemoryRegisterRequest(name="r", key=memory.key, byte_size=8)
    text = refusal("FIELD_INVALID", pair[1].stub.SystemSharedMemoryRegister, message)
    assert "own user" in text


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 65), (64, 1), (1, 64), (1 << 63, 1), (0, (1 << 64) - 1)]
)
def test_regions_beyond_their_object(pair: Pair, memory: Object, offset: int, size: int) -> None:
    """A region that is not inside its object is refused, and the object closed."""
    message = pb.SystemSharedMemoryRegisterRequest(
        name="r", key=memory.key, offset=offset, byte_size=size
    )
    refusal("FIELD_INVALID", pair[1].stub.SystemSharedMemoryRegister, message)
    assert memory.opened() == 1


@pytest.mark.parametrize(
    ("offset", "size", "reason"),
    [
        (49, 16, "FIELD_INVALID"),
        (-1, 16, "FIELD_INVALID"),
        (0, 1 << 62, "FIELD_INVALID"),
        (0, -16, "FIELD_INVALID"),
        (0, 15, "DATA_SIZE_MISMATCH"),
        (0, 17, "DATA_SIZE_MISMATCH"),
    ],
)
def test_tensors_beyond_their_region(
    pair: Pair, memory: Object, offset: int, size: int, reason: str
) -> None:
    """A tensor that is not inside its region, or of another size, is refused."""
    _, caller = pair
    _register(caller, memory)
    refusal(reason, caller.stub.ModelInfer, _request(offset, size))


def test_outputs_beyond_their_place(pair: Pair, memory: Object) -> None:
    """An output larger than its place is refused, and nothing is written."""
    _, caller = pair
    _register(caller, memory)
    for offset, size in ((32, 12), (56, 16)):
        message = request("mul", x=ROW, y=ROW)
        _point(message.outputs.add(name="z"), offset, size)
        with_reason = "DATA_SIZE_MISMATCH" if size < 16 else "FIELD_INVALID"
        refusal(with_reason, caller.stub.ModelInfer, message)
    assert memory.read(SIZE, 0) == bytes(SIZE)


def test_an_object_that_shrinks(pair: Pair, memory: Object) -> None:
    """A client that shortens its object gets an error; the object does not grow again."""
    _, caller = pair
    _register(caller, memory)
    memory.shorten(8)
    refusal("DATA_SIZE_MISMATCH", caller.stub.ModelInfer, _request())
    message = request("mul", x=ROW, y=ROW)
    _point(message.outputs.add(name="z"))
    refusal("FIELD_INVALID", caller.stub.ModelInfer, message)
    assert Path(f"/dev/shm/{memory.key}").stat().st_size == 8


def test_a_name_is_taken_once(pair: Pair, memory: Object) -> None:
    """A second region of a name is refused, and the first stays."""
    _, caller = pair
    _register(caller, memory)
    message = pb.SystemSharedMemoryRegisterRequest(name="r", key=memory.key, byte_size=8)
    refusal("REGION_IN_USE", caller.stub.SystemSharedMemoryRegister, message)
    assert _status(caller)["r"][2] == SIZE
    nameless = pb.SystemSharedMemoryRegisterRequest(key=memory.key, byte_size=8)
    refusal("FIELD_INVALID", caller.stub.SystemSharedMemoryRegister, nameless)
    unknown = pb.SystemSharedMemoryRegisterRequest(name="q", key="nnpa-none", byte_size=8)
    refusal("REGION_NOT_FOUND", caller.stub.SystemSharedMemoryRegister, unknown)


@pytest.mark.parametrize("unix", [False, True])
def test_a_client_that_goes_leaves_nothing(memory: Object, tmp_path: Path, unix: bool) -> None:
    """The regions of a connection end with it, over TCP and over a socket."""
    listen = f"unix:{tmp_path}/s" if unix else "127.0.0.1:0"
    flags = ("--shared-memory",) if unix else ("--shared-memory", "--shared-memory-over-tcp")
    with serving(tmp_path, "--listen", listen, *flags) as server:
        client = Caller(server.address)
        _register(client, memory)
        assert memory.opened(server.process.pid) == 1
        client.channel.close()
        until = time.monotonic() + 20
        while memory.opened(server.process.pid):
            assert time.monotonic() < until
            time.sleep(0.05)
        assert _status(Caller(server.address)) == {}


def test_a_region_in_use_stays_open(memory: Object) -> None:
    """Unregistering a region that a request holds takes effect when the request is done."""
    region = Region("r", memory.key, 0, SIZE, open_object(memory.key))
    memory.write(ROW, 0)
    with region.held():
        region.retire()
        assert bytes(region.read(0, 16, "x")) == ROW.tobytes()
    assert memory.opened() == 1


def test_contents_have_one_place(pair: Pair, memory: Object) -> None:
    """A tensor in shared memory has no typed contents, and needs region and size."""
    _, caller = pair
    _register(caller, memory)
    message = _request()
    message.inputs[0].contents.fp32_contents.extend([1, 2, 3, 4])
    refusal("FIELD_INVALID", caller.stub.ModelInfer, message)
    message = _request()
    del message.inputs[0].parameters["shared_memory_region"]
    refusal("FIELD_INVALID", caller.stub.ModelInfer, message)


def test_the_standard_library_makes_such_objects(pair: Pair) -> None:
    """An object of multiprocessing.shared_memory is one."""
    segment = shared_memory.SharedMemory(create=True, size=SIZE)
    try:
        np.ndarray((1, 4), np.float32, segment.buf)[:] = ROW
        message = pb.SystemSharedMemoryRegisterRequest(name="r", key=segment.name, byte_size=SIZE)
        pair[1].stub.SystemSharedMemoryRegister(message)
        response = pair[1].stub.ModelInfer(_request())
        assert response.raw_output_contents[0] == (ROW * ROW).tobytes()
    finally:
        segment.close()
        segment.unlink()


def test_closing_ends_all_regions(memory: Object) -> None:
    """A server that ends leaves no object open."""
    regions = Regions(ObjectAccess(over_tcp=True))
    regions.register("ipv4:127.0.0.1:1", "r", memory.key, 0, SIZE)
    regions.close()
    assert memory.opened() == 1
