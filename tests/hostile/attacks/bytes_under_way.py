# SPDX-License-Identifier: Apache-2.0
"""Answers that clients never read, and messages that do not end: rows 15 to 17."""

import socket
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from nnpa.oip import open_inference_grpc_pb2 as oip

from tests.hostile import http2, lists, models
from tests.hostile.calls import ACCELERATOR, INFERENCE, REFLECTION
from tests.hostile.plain_socket import METADATA, SUFFIX
from tests.hostile.scene import USER, Scene, row

MIB = 1 << 20
SECONDS = 8.0
PREFIX = struct.Struct(">BI")
MESSAGE = 63 * MIB
MANY = ("--max-sessions", "64")  # and so many conversations


def _flood(
    scene: Scene, address: str, path: str, message: bytes, calls: int, connections: int = 1
) -> None:
    """Make calls over connections with a window of 0, and keep these."""
    token = scene.server.tokens.get(USER, "")
    opened = [http2.Connection(address, window=0) for _ in range(connections)]
    for number in range(calls):
        opened[number % connections].ask(path, message, token)
    scene.saw(f"{calls} calls of {len(message)} bytes on {connections} connections")
    scene.stay(SECONDS)
    scene.saw(f"{sum(connection.is_open for connection in opened)} connections are open")
    for connection in opened:
        connection.close()


def _infer(scene: Scene, address: str, size: int, calls: int) -> None:
    """Flood with requests of a few bytes whose answers have `size`."""
    caller = scene.caller()
    loaded = models.load(caller, "large", models.expanding(size))
    assert loaded.is_ok, loaded.details
    request = oip.ModelInferRequest(model_name="large", raw_input_contents=[bytes(4)])
    request.inputs.add(name="x", datatype="FP32", shape=[1])
    message = request.SerializeToString()
    answer = caller.call(INFERENCE + "ModelInfer", request, max_answers=1)
    scene.require(answer.is_ok, f"an answer that is taken: {answer.name} {answer.details}")
    _flood(scene, address, INFERENCE + "ModelInfer", message, calls)
    caller.close()


@row(
    "15a",
    "64 answers of 256 MiB that nobody takes",
    tokens=True,
    budget=2048 * MIB,
    session_bytes=320 * MIB,
)
def untaken_inferences(scene: Scene) -> None:
    """Requests of 30 bytes, over one connection with a window of 0."""
    _infer(scene, scene.server.address, 256 * MIB, 64)


@row("15b", "1,200 answers of 16 MiB that nobody takes", tokens=True, budget=512 * MIB)
def untaken_lists(scene: Scene) -> None:
    """Lists of one operation, in two sessions."""
    caller = scene.caller()
    for size in (1900, 1900):
        session = caller.session()
        filled = caller.call(ACCELERATOR + "Execute", lists.transformed(session, size))
        assert filled.is_ok, filled.details
    message = lists.read_back(session).SerializeToString()
    _flood(scene, scene.server.address, ACCELERATOR + "Execute", message, 1200, connections=2)
    caller.close()


@row(
    "16",
    "277,000 calls of reflection on 308 connections that take no answer",
    "--reflection",
    "on",
    tokens=True,
    idle_machine=True,
    budget=512 * MIB,
)
def untaken_reflection(scene: Scene) -> None:
    """Calls without a token, each of which keeps some kibibytes."""
    message = b"\x3a\x00"  # list_services
    calls = 900

    def flood(_number: int) -> http2.Connection:
        connection = http2.Connection(scene.server.address, window=0)
        for _ in range(calls):
            if not connection.is_open:
                break
            connection.ask(REFLECTION, message)
        return connection

    with ThreadPoolExecutor(16) as pool:
        opened = list(pool.map(flood, range(308)))
    scene.saw(f"{len(opened)} connections with {calls} calls each")
    scene.stay(SECONDS)
    for connection in opened:
        connection.close()


def _send(connection: http2.Connection, path: str, token: str) -> int:
    """Send a message but for its end, as far as the server takes it; return the bytes."""
    stream = connection.begin(path, token)
    block, sent = bytes(MIB), connection.data(stream, PREFIX.pack(0, MESSAGE))
    deadline = time.monotonic() + SECONDS
    while sent < MESSAGE - MIB and time.monotonic() < deadline and connection.is_open:
        if (size := connection.data(stream, block)) == 0:
            break
        sent += size
    return sent


def _send_endless(scene: Scene, address: str, path: str, calls: int = 320) -> None:
    """Begin messages that do not end, each over a connection of its own, with a token."""
    connections = [http2.Connection(address) for _ in range(calls)]
    send: Callable[[http2.Connection], int] = partial(
        _send, path=path, token=scene.server.tokens.get(USER, "")
    )
    with ThreadPoolExecutor(calls) as pool:
        sizes = list(pool.map(send, connections))
    scene.saw(f"{sum(sizes) // MIB} MiB taken of {calls * MESSAGE // MIB}")
    scene.stay(2.0)
    for connection in connections:
        connection.close()


@row("17a", "320 messages of 63 MiB that do not end", tokens=True, budget=512 * MIB)
def endless_messages(scene: Scene) -> None:
    """With a token that is good."""
    _send_endless(scene, scene.server.address, ACCELERATOR + "Execute")


@row("17b", "320 conversations with such a message", *MANY, tokens=True, budget=512 * MIB)
def endless_conversations(scene: Scene) -> None:
    """The same as messages of streams."""
    _send_endless(scene, scene.server.address, ACCELERATOR + "ExecuteStream")


@row(
    "17d",
    "160 frames of 63 MiB on plain sockets that do not end",
    *MANY,
    tokens=True,
    budget=512 * MIB,
)
def endless_frames(scene: Scene) -> None:
    """The same without HTTP/2."""
    path = scene.server.socket.with_name(scene.server.socket.name + SUFFIX)
    metadata = f"authorization: Bearer {scene.server.tokens[USER]}\r\n".encode()
    first = PREFIX.pack(METADATA, len(metadata)) + metadata + PREFIX.pack(0, MESSAGE)

    def send(_number: int) -> int:
        sent = 0
        with socket.socket(socket.AF_UNIX) as plain, suppress(OSError):
            plain.settimeout(3.0)
            plain.connect(str(path))
            plain.sendall(first)
            for _ in range(62):
                plain.sendall(bytes(MIB))
                sent += MIB
            time.sleep(SECONDS)
        return sent

    with ThreadPoolExecutor(160) as pool:
        sizes = list(pool.map(send, range(160)))
    scene.saw(f"{sum(sizes) // MIB} MiB taken of {160 * MESSAGE // MIB}")
