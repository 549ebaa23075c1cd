# SPDX-License-Identifier: Apache-2.0
"""A caller may have the server open only shared memory that the caller could open itself."""

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.oip.open_inference_grpc_pb2_grpc import GRPCInferenceServiceStub
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa_server.app import Server

from tests.server.conftest import CONFIG
from tests.server.onnx_models import offering, refusal

SIZE = 64
MakeObject = Callable[..., str]
TOKENS = ("alice", "alice.b", "bob")


@pytest.fixture
def make_object() -> Iterator[MakeObject]:
    """A function that makes an object of shared memory of a mode, and returns its name."""
    paths: list[Path] = []

    def make(prefix: str = "nnpa-test-", mode: int = 0o600) -> str:
        path = Path("/dev/shm") / f"{prefix}{secrets.token_hex(6)}"
        path.write_bytes(b"private!" * (SIZE // 8))
        path.chmod(mode)
        paths.append(path)
        return path.name

    yield make
    for path in paths:
        path.unlink()


class Holder:
    """A caller with a token, or none."""

    def __init__(self, address: str, token: str = "") -> None:
        self.channel = grpc.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1),))
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._models: Any = GRPCInferenceServiceStub(self.channel)
        self._accelerator: Any = AcceleratorServiceStub(self.channel)
        self.register = partial(self._models.SystemSharedMemoryRegister, metadata=self._metadata)

    def names(self) -> set[str]:
        """Return the names of the regions that the caller sees."""
        request = oip.SystemSharedMemoryStatusRequest()
        response = self._models.SystemSharedMemoryStatus(request, metadata=self._metadata)
        return set(response.regions)

    def unregister(self) -> None:
        """End all regions."""
        request = oip.SystemSharedMemoryUnregisterRequest()
        self._models.SystemSharedMemoryUnregister(request, metadata=self._metadata)

    def shares(self, name: str) -> bool:
        """Create a session with an object's name; tell whether the session shares the object."""
        session = pb.Session(shared_memory=pb.SharedMemory(name=name, size=SIZE))
        request = pb.CreateSessionRequest(session=session)
        created = self._accelerator.CreateSession(request, metadata=self._metadata)
        self._accelerator.DeleteSession(
            pb.DeleteSessionRequest(name=created.name), metadata=self._metadata
        )
        return bool(created.HasField("shared_memory"))


def _region(key: str, name: str = "r") -> oip.SystemSharedMemoryRegisterRequest:
    return oip.SystemSharedMemoryRegisterRequest(name=name, key=key, byte_size=SIZE)


@pytest.fixture
def near(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """A function that starts a server on a Unix socket, and returns its address."""
    servers: list[Server] = []

    def start(**settings: Any) -> str:
        config = replace(CONFIG, listen=(f"unix:{tmp_path}/s",), shared_memory=True, **settings)
        servers.append(Server(config))
        (address,) = servers[-1].start()
        return address

    yield start
    for server in servers:
        server.drain()


def test_nobody_far_names_an_object(make_object: MakeObject) -> None:
    """A caller over TCP has no object opened, whosever it is, unless the operator allows it."""
    key = make_object()
    with offering(shared_memory=True) as (_, caller):
        text = refusal(
            "EXTENSION_NOT_OFFERED", caller.stub.SystemSharedMemoryRegister, _region(key)
        )
        assert "--shared-memory-over-tcp" in text


def test_a_socket_for_all_and_an_object_for_its_owner(
    make_object: MakeObject, near: Callable[..., str]
) -> None:
    """If all users may connect, the server opens only objects that all users may open."""
    address = near()
    caller, private = Holder(address), make_object()
    caller.register(_region(private))
    assert caller.shares(private)
    caller.unregister()
    Path(address[5:]).chmod(0o777)
    refusal("REGION_NOT_FOUND", caller.register, _region(private))
    assert not caller.shares(private)
    public = make_object(mode=0o666)
    caller.register(_region(public))
    assert caller.shares(public)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away to another group")
def test_a_socket_for_a_group(make_object: MakeObject, near: Callable[..., str]) -> None:
    """If a group may connect, the object must be open to the same group, or to all."""
    address = near()
    caller, key = Holder(address), make_object(mode=0o660)
    Path(address[5:]).chmod(0o770)
    assert caller.shares(key)
    os.chown(f"/dev/shm/{key}", -1, 12345)
    assert not caller.shares(key)
    refusal("REGION_NOT_FOUND", caller.register, _region(key))


def test_a_socket_that_was_moved(make_object: MakeObject, near: Callable[..., str]) -> None:
    """If the server cannot tell who may connect, it opens only objects that all may open."""
    address = near()
    caller, key = Holder(address), make_object()
    assert caller.names() == set()  # connected
    Path(address[5:]).rename(f"{address[5:]}.old")
    refusal("REGION_NOT_FOUND", caller.register, _region(key))


@pytest.fixture
def holders(tmp_path: Path, near: Callable[..., str]) -> Iterator[list[Holder]]:
    """Holders of each of `TOKENS`, at one server."""
    file = tmp_path / "tokens.toml"
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in TOKENS}
    file.write_text(
        "".join(f'[tokens."{name}"]\nsha256 = "{digest}"\n' for name, digest in digests.items())
    )
    address = near(tokens=file)
    callers = [Holder(address, name) for name in TOKENS]
    yield callers
    for caller in callers:
        with suppress(grpc.RpcError):
            caller.channel.close()


def test_objects_are_the_tokens(make_object: MakeObject, holders: list[Holder]) -> None:
    """An object belongs to the token that its name begins with; dots lead into no other's."""
    alice, alice_b, bob = holders
    keys = {name: make_object(f"{name}.") for name in TOKENS}
    alice.register(_region(keys["alice"]))
    assert alice.shares(keys["alice"])
    for caller, key in ((bob, "alice"), (alice, "bob"), (alice, "alice.b"), (alice_b, "alice")):
        text = refusal("FIELD_INVALID", caller.register, _region(keys[key], "theirs"))
        assert "by the token" in text
        assert not caller.shares(keys[key])
    refusal("FIELD_INVALID", bob.register, _region(make_object()))
    alice_b.register(_region(keys["alice.b"]))
    assert alice_b.shares(keys["alice.b"])


def test_an_object_may_be_named_by_the_tokens_hash(
    make_object: MakeObject, holders: list[Holder]
) -> None:
    """A hash of the token's hash, which the holder computes, stands for the token's name."""
    alice, _, bob = holders
    digest = hashlib.sha256(hashlib.sha256(b"alice").digest()).hexdigest()
    key = make_object(f"{digest[:16]}.")
    assert alice.shares(key)
    assert not bob.shares(key)
    refusal("FIELD_INVALID", bob.register, _region(key))
    for prefix in (digest[:15], digest[:17], hashlib.sha256(b"alice").hexdigest()[:16]):
        assert not alice.shares(make_object(f"{prefix}."))


def test_regions_are_the_tokens(make_object: MakeObject, holders: list[Holder]) -> None:
    """On one socket each token has its own regions: to see, to name and to end."""
    alice, _, bob = holders
    alice.register(_region(make_object("alice.")))
    assert (alice.names(), bob.names()) == ({"r"}, set())
    bob.register(_region(make_object("bob.")))
    bob.unregister()
    assert (alice.names(), bob.names()) == ({"r"}, set())
