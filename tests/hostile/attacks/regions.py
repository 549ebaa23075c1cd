# SPDX-License-Identifier: Apache-2.0
"""Shared memory of others, read and written by name: row 5."""

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.zdnn.v1 import accelerator_pb2 as zdnn

from tests.hostile import models
from tests.hostile.calls import INFERENCE, Answer, Caller
from tests.hostile.scene import BYSTANDER, Scene, row

SIZE = 4096
SECRET = b"a secret of the victim".ljust(SIZE, b".")
FLAG = "--shared-memory"


@contextmanager
def _object() -> Generator[Path]:
    """Make an object of shared memory that holds the victim's secret."""
    path = Path(f"/dev/shm/nnpa-attack-{secrets.token_hex(8)}")
    path.touch(mode=0o600)
    path.write_bytes(SECRET)
    try:
        yield path
    finally:
        path.unlink()


def _register(caller: Caller, name: str, path: Path) -> Answer:
    request = oip.SystemSharedMemoryRegisterRequest(name=name, key=path.name, byte_size=SIZE)
    return caller.call(INFERENCE + "SystemSharedMemoryRegister", request)


def _copy(caller: Caller, source: str, target: str) -> Answer:
    """Have a model read its input from a region, and write its output to one; "" is the message."""
    request = oip.ModelInferRequest(model_name="copy")
    tensor = request.inputs.add(name="x", datatype="UINT8", shape=[SIZE])
    if source:
        _point(tensor, source)
    else:
        request.raw_input_contents.append(b"overwritten".ljust(SIZE, b"!"))
    output = request.outputs.add(name="y")
    if target:
        _point(output, target)
    return caller.call(INFERENCE + "ModelInfer", request)


def _point(
    tensor: oip.ModelInferRequest.InferInputTensor
    | oip.ModelInferRequest.InferRequestedOutputTensor,
    region: str,
) -> None:
    tensor.parameters["shared_memory_region"].string_param = region
    tensor.parameters["shared_memory_byte_size"].int64_param = SIZE


def _steal(scene: Scene, caller: Caller, path: Path, attempt: str) -> None:
    """Register a victim's object, read it, and write it."""
    copy = models.model(
        [models.node("Identity", ["x"], ["y"])], [("x", 2, (SIZE,))], [("y", 2, (SIZE,))]
    )
    assert models.load(caller, "copy", copy).is_ok
    answer = _register(caller, "stolen", path)
    scene.saw(f"{attempt}: {answer.name}")
    scene.require(not answer.is_ok, f"{attempt}: a victim's object was registered")
    read = _copy(caller, "stolen", "")
    if read.messages:
        contents = read.read(oip.ModelInferResponse).raw_output_contents
        scene.require(SECRET not in contents, f"{attempt}: a victim's object was read")
    _copy(caller, "", "stolen")
    scene.require(path.read_bytes() == SECRET, f"{attempt}: a victim's object was overwritten")


@row("5a", "an object of /dev/shm by its name, over TCP", FLAG)
def over_tcp(scene: Scene) -> None:
    """A caller from another host does not get memory of this host."""
    with _object() as path:
        _steal(scene, scene.caller(), path, "over TCP")


@row(
    "5b",
    "an object that another token's holder has registered, over a Unix socket",
    FLAG,
    tokens=True,
)
def of_another_token(scene: Scene) -> None:
    """An object in use belongs to the token that brought it."""
    address = f"unix:{scene.server.socket}"
    with _object() as path:
        owner = scene.caller(BYSTANDER, address)
        registered = _register(owner, "mine", path)
        scene.saw(f"its owner: {registered.name}")
        _steal(scene, scene.caller(address=address), path, "another token")
        owner.close()


@row("5c", "an object of another token's session, over a Unix socket", FLAG, tokens=True)
def of_another_session(scene: Scene) -> None:
    """Memory of a session is not registered for inferences of another token."""
    address = f"unix:{scene.server.socket}"
    with _object() as path:
        owner = scene.caller(BYSTANDER, address)
        memory = zdnn.SharedMemory(name=path.name, size=SIZE)
        owner.session(zdnn.Session(shared_memory=memory))
        _steal(scene, scene.caller(address=address), path, "another token")
        owner.close()


@row(
    "5d",
    "an object of another token's session as a session's own, over a Unix socket",
    FLAG,
    tokens=True,
)
def as_a_session(scene: Scene) -> None:
    """Nor is it mapped into a session of another token."""
    address = f"unix:{scene.server.socket}"
    with _object() as path:
        owner, thief = scene.caller(BYSTANDER, address), scene.caller(address=address)
        options = zdnn.Session(shared_memory=zdnn.SharedMemory(name=path.name, size=SIZE))
        owner.session(options)
        created = thief.call(
            "/nnpa.zdnn.v1.AcceleratorService/CreateSession",
            zdnn.CreateSessionRequest(session=options),
        )
        shared = created.messages and created.read(zdnn.Session).HasField("shared_memory")
        scene.saw(
            f"another token's session: {created.name}, {'shared' if shared else 'not shared'}"
        )
        scene.require(not shared, "another token's session has the victim's object")
        for caller in (owner, thief):
            caller.close()


@row("5e", "an object of /dev/shm on a server that was not started for it")
def without_the_flag(scene: Scene) -> None:
    """Without the flag no client can register a region."""
    with _object() as path:
        _steal(scene, scene.caller(address=f"unix:{scene.server.socket}"), path, "without the flag")


@row("5f", "names that lead out of /dev/shm, over a Unix socket", FLAG)
def names_that_lead_out(scene: Scene) -> None:
    """A name is a name, not a path."""
    caller = scene.caller(address=f"unix:{scene.server.socket}")
    for key in ("../etc/passwd", "/../etc/passwd", "..", ".", "", "a/b", "\0", "%2e%2e"):
        request = oip.SystemSharedMemoryRegisterRequest(name=f"r{key}", key=key, byte_size=16)
        answer = caller.call(INFERENCE + "SystemSharedMemoryRegister", request)
        scene.require_documented(repr(key), answer)
        scene.require(not answer.is_ok, f"{key!r} was registered")
    caller.close()
