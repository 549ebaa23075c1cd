# SPDX-License-Identifier: Apache-2.0
"""Callers without a session that hold many resources: rows 3, 4 and 11."""

import gzip
import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from nnpa.mli.v1 import mli_pb2
from nnpa.network.v1 import network_pb2
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.zdnn.v1 import accelerator_pb2 as zdnn

from tests.hostile import http2
from tests.hostile.calls import ACCELERATOR, HEALTH, INFERENCE, NETWORK, REFLECTION
from tests.hostile.gauges import Gauges, memory
from tests.hostile.lists import smallest
from tests.hostile.plain_socket import METADATA, SUFFIX, PlainCall
from tests.hostile.scene import BYSTANDER, USER, Scene, row

CALLS = 130
SECONDS = 6.0
CONNECTIONS, MESSAGE = 40, 63 << 20
SILENT_CONNECTIONS = 8000
LEAVE_SECONDS, MAX_LEFT = 5.0, 512
MAX_METRICS_THREADS = MAX_PLAIN_THREADS = 64
MLI = "/nnpa.mli.v1.MliService/"
PREFIX = struct.Struct(">BI")


def _waiting(ended: threading.Event) -> Iterator[bytes]:
    """Yield nothing until the end."""
    ended.wait()
    yield from ()


def _hold(scene: Scene, path: str, calls: int = CALLS) -> None:
    """Open calls without a token that send headers, and perhaps never a message."""
    ended = threading.Event()
    caller = scene.caller("")
    open_calls = [caller.open(path, _waiting(ended)) for _ in range(calls)]
    scene.saw(f"{len(open_calls)} calls of {path} kept open")
    scene.stay(SECONDS)
    ended.set()
    caller.close()


@row("3a", "130 streams of reflection without a token", tokens=True)
def reflection_streams(scene: Scene) -> None:
    """Streams that need no token and never end."""
    _hold(scene, REFLECTION)


@row("3b", "130 unary calls of which only headers come, without a token", tokens=True)
def only_headers(scene: Scene) -> None:
    """Calls that are never complete."""
    _hold(scene, ACCELERATOR + "Execute")


@row("3c", "130 streams of lists without a token, of which only headers come", tokens=True)
def only_headers_of_streams(scene: Scene) -> None:
    """Conversations without a token that never get a message."""
    _hold(scene, ACCELERATOR + "ExecuteStream")


@row("3d", "130 watches of health", tokens=True)
def watches(scene: Scene) -> None:
    """Streams of health that their clients keep open."""
    caller = scene.caller("")
    calls = [caller.open(HEALTH + "Watch", iter([b""])) for _ in range(CALLS)]
    scene.saw(f"{len(calls)} watches kept open")
    scene.stay(SECONDS)
    caller.close()


@row("3e", "20 connections with 50 calls each, of which only headers come", tokens=True)
def many_connections(scene: Scene) -> None:
    """The same calls, spread so that no connection has many of them."""
    connections = [http2.Connection(scene.server.address) for _ in range(20)]
    for connection in connections:
        for _ in range(50):
            connection.begin(ACCELERATOR + "CreateSession")
    scene.stay(SECONDS)
    for connection in connections:
        connection.close()


@row("3f", "20,000 calls that are begun and reset at once", tokens=True, idle_machine=True)
def rapid_reset(scene: Scene) -> None:
    """Calls that cost the caller two frames each (CVE-2023-44487)."""
    connections = [http2.Connection(scene.server.address) for _ in range(4)]
    reset = struct.pack(">I", http2.CANCEL)

    def flood(connection: http2.Connection) -> None:
        for _ in range(5000):
            stream = connection.begin(ACCELERATOR + "Execute")
            connection.send(http2.frame(http2.RESET, 0, stream, reset))

    with ThreadPoolExecutor(len(connections)) as pool:
        list(pool.map(flood, connections))
    scene.saw(f"{sum(not connection.is_open for connection in connections)} were hung up on")
    scene.stay(2.0)
    for connection in connections:
        connection.close()


@row("3g", "20 connections that send headers without end", tokens=True)
def endless_headers(scene: Scene) -> None:
    """CONTINUATION frames that never say that the headers are complete (CVE-2024-27316)."""

    def flood(_number: int) -> None:
        connection = http2.Connection(scene.server.address)
        block = http2.header_block(ACCELERATOR + "Execute")
        connection.send(http2.frame(http2.HEADERS, 0, 1, block))
        extra = http2.header_block("/", extra=[("x-filler", "f" * 8000)])
        for _ in range(500):
            if connection.is_open:
                connection.send(http2.frame(http2.CONTINUATION, 0, 1, extra))
        connection.close()

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(flood, range(20)))
    scene.stay(2.0)


@row("3h", "300 requests to the metrics' port that do not end", "--metrics", "127.0.0.1:0")
def slow_requests(scene: Scene) -> None:
    """Half a request holds a thread for a limited time, and many halves hold few threads."""
    port = scene.server.log_text().partition("metrics at http://")[2].partition("/")[0]
    if not port:
        scene.require(False, "the log names no port of metrics")
        return
    before = Gauges.read(scene.server.pid).threads
    silent = [connection for _ in range(300) if (connection := _connect(port)) is not None]
    for connection in silent:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
    scene.stay(SECONDS)
    more = Gauges.read(scene.server.pid).threads - before
    scene.saw(f"{len(silent)} requests, {more} threads more")
    scene.require(
        more <= MAX_METRICS_THREADS, f"{more} threads more, at most {MAX_METRICS_THREADS}"
    )
    for connection in silent:
        connection.close()


@row("3i", "300 plain sockets of which nothing comes", tokens=True)
def silent_plain_sockets(scene: Scene) -> None:
    """They keep a few threads for some seconds; then others get in, however long they stay."""
    path = scene.server.socket.with_name(scene.server.socket.name + SUFFIX)
    if not path.exists():
        scene.saw("no plain socket")
        return
    before = Gauges.read(scene.server.pid).threads
    silent = [socket.socket(socket.AF_UNIX) for _ in range(300)]
    for plain in silent:
        plain.settimeout(0.5)
        with suppress(OSError):
            plain.connect(str(path))
            plain.sendall(PREFIX.pack(METADATA, 100))
    scene.stay(1.0)
    more = Gauges.read(scene.server.pid).threads - before
    scene.saw(f"{more} threads more")
    scene.require(more <= MAX_PLAIN_THREADS, f"{more} threads more, at most {MAX_PLAIN_THREADS}")
    scene.stay(SECONDS)
    caller = scene.caller()
    with PlainCall(scene.server.socket, scene.server.tokens[USER]) as call:
        answer = call.ask(smallest(caller.session()).SerializeToString())
    scene.saw(f"then a list: {answer.name}")
    scene.require(answer.is_ok, f"nobody got in after {SECONDS:g} s: {answer.name}")
    for plain in silent:
        plain.close()
    caller.close()


def _send_endless(scene: Scene, path: str, token: str = "") -> None:
    """Send messages but for their ends over many connections, keep them for a while, and leave."""
    connections = [http2.Connection(scene.server.address) for _ in range(CONNECTIONS)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        sizes = list(pool.map(partial(_send_most, path=path, token=token), connections))
    scene.saw(f"{sum(sizes) >> 20} MiB taken of {CONNECTIONS * MESSAGE >> 20}")
    scene.stay(2.0)
    for connection in connections:
        connection.close()
    _require_given_back(scene)


def _send_most(connection: http2.Connection, path: str, token: str) -> int:
    """Send a message but for its last bytes; return how many were taken."""
    stream = connection.begin(path, token)
    block, sent = bytes(1 << 20), connection.data(stream, PREFIX.pack(0, MESSAGE))
    deadline = time.monotonic() + 2 * SECONDS
    while sent < MESSAGE - len(block) and time.monotonic() < deadline and connection.is_open:
        if (size := connection.data(stream, block)) == 0:
            break
        sent += size
    return sent


def _require_given_back(scene: Scene) -> None:
    """Memory goes back to the system some seconds after the callers have left."""
    scene.stay(LEAVE_SECONDS)
    left = (memory(scene.server.pid) - scene.idle_memory) >> 20
    scene.saw(f"{left} MiB more than idle {LEAVE_SECONDS:g} s after they left")
    scene.require(left <= MAX_LEFT, f"{left} MiB were not given back, at most {MAX_LEFT}")


@row(
    "4a", "40 connections with a message of 63 MiB that does not end, without a token", tokens=True
)
def endless_messages(scene: Scene) -> None:
    """Memory for messages of callers who have shown no token."""
    _send_endless(scene, ACCELERATOR + "Execute")


@row("4b", "the same to reflection, which asks for no token", tokens=True)
def endless_reflection(scene: Scene) -> None:
    """Memory for messages of a method that needs no token."""
    _send_endless(scene, REFLECTION)


@row("4c", "the same to a method that does not exist", tokens=True)
def endless_unknown(scene: Scene) -> None:
    """Memory for messages of no method."""
    _send_endless(scene, "/no.Service/Method")


@row("4d", "200 connections with 100 KiB of headers each", tokens=True)
def large_headers(scene: Scene) -> None:
    """Headers are bounded before a call begins."""

    def send(_number: int) -> None:
        connection = http2.Connection(scene.server.address)
        for _ in range(16):
            stream = connection.begin(ACCELERATOR + "Execute")
            connection.data(stream, PREFIX.pack(0, 1 << 20) + bytes(1 << 14))
        connection.close()

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(send, range(200)))
    scene.stay(2.0)


@row("4e", "40 messages of 62 KiB that are 63 MiB when they are unpacked", tokens=True)
def packed_messages(scene: Scene) -> None:
    """A compressed message is bounded by its size after decompression."""
    packed = gzip.compress(bytes(MESSAGE), 9)
    message = PREFIX.pack(1, len(packed)) + packed

    def send(_number: int) -> None:
        connection = http2.Connection(scene.server.address)
        block = http2.header_block(ACCELERATOR + "Execute", extra=[("grpc-encoding", "gzip")])
        connection.send(http2.frame(http2.HEADERS, http2.END_HEADERS, 1, block))
        connection.data(1, message)
        time.sleep(SECONDS)
        connection.close()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(send, range(CONNECTIONS)))


@row("4f", "40 plain sockets with a frame of 63 MiB that does not end", tokens=True)
def endless_frames(scene: Scene) -> None:
    """Memory for frames of a plain socket whose caller has shown no token."""
    path = scene.server.socket.with_name(scene.server.socket.name + SUFFIX)
    if not path.exists():
        scene.saw("no plain socket")
        return

    def send(_number: int) -> int:
        sent = 0
        with socket.socket(socket.AF_UNIX) as plain, suppress(OSError):
            plain.settimeout(3.0)
            plain.connect(str(path))
            plain.sendall(PREFIX.pack(METADATA, 0) + PREFIX.pack(0, MESSAGE))
            for _ in range(62):
                plain.sendall(bytes(1 << 20))
                sent += 1 << 20
            time.sleep(SECONDS)
        return sent

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        sizes = list(pool.map(send, range(CONNECTIONS)))
    scene.saw(f"{sum(sizes) >> 20} MiB taken of {CONNECTIONS * MESSAGE >> 20}")
    _require_given_back(scene)


@row("11a", "64 descriptors: all taken by silent connections, then first calls", descriptors=64)
def few_descriptors(scene: Scene) -> None:
    """A connected client that calls a method for the first time gets no INTERNAL."""
    connected = scene.caller()
    session = connected.session()
    silent = [sock for _ in range(100) if (sock := _connect(scene.server.address)) is not None]
    scene.saw(f"{len(silent)} silent connections")
    first_calls = {
        MLI + "ListKernels": mli_pb2.ListKernelsRequest(),
        NETWORK + "ListNetworks": network_pb2.ListNetworksRequest(session=session),
        INFERENCE + "ServerMetadata": oip.ServerMetadataRequest(),
        INFERENCE + "RepositoryIndex": oip.RepositoryIndexRequest(),
        ACCELERATOR + "ListTensors": zdnn.ListTensorsRequest(session=session),
    }
    for path, message in first_calls.items():
        scene.require_documented(path, connected.call(path, message))
    for sock in silent:
        sock.close()
    connected.close()
    scene.require_quiet_log("first calls without descriptors")


@row("11b", "8,000 silent connections at 4,096 descriptors", descriptors=4096, idle_machine=True)
def silent_connections(scene: Scene) -> None:
    """New callers get in while connections that send nothing are kept open."""
    silent = _silent_connections(scene)
    latest: list[str] = []
    for _ in range(5):
        latest.append(_served_in_time(scene))
        scene.stay(1.0)
    scene.saw(f"health over new connections: {' '.join(latest)}")
    if set(latest) != {"OK"}:
        scene.late.append("a new connection was not served within 2 s")
    for sock in silent:
        sock.close()


def _served_in_time(scene: Scene) -> str:
    """Return how a new client's first call ends; like a gRPC channel, it retries for 2 s."""
    deadline, name = time.monotonic() + 2.0, ""
    while name != "OK" and (left := deadline - time.monotonic()) > 0:
        guest = scene.caller(BYSTANDER)
        name = guest.call(HEALTH + "Check", b"", timeout=left).name
        guest.close()
    return name


def _silent_connections(scene: Scene) -> list[socket.socket]:
    """Open connections that send nothing, until the limit is reached or some seconds are over."""
    silent: list[socket.socket] = []
    deadline = time.monotonic() + 2 * SECONDS
    for _ in range(SILENT_CONNECTIONS):
        if (sock := _connect(scene.server.address)) is not None:
            silent.append(sock)
        if time.monotonic() > deadline:
            break
    scene.saw(f"{len(silent)} silent connections")
    return silent


def _connect(address: str) -> socket.socket | None:
    """Open a connection on which nothing is sent."""
    host, _, port = address.rpartition(":")
    with suppress(OSError):
        return socket.create_connection((host, int(port)), 0.5)
    return None
