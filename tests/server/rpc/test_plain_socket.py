# SPDX-License-Identifier: Apache-2.0
"""Plain sockets: the same answers and errors as over HTTP/2, and bad clients."""

import base64
import hashlib
import secrets
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_server.app import Server
from nnpa_server.config import Config, Limits

from tests.server.conftest import CONFIG, OPTIONS
from tests.server.plain import METADATA, Plain, frame
from tests.server.process import serving
from tests.server.rpc.near import ARRAY, SUM, Near, info_of
from tests.server.wire import Client, load, op


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Near]]:
    """A function that starts a server with a configuration."""
    started: list[Near] = []

    def start_one(config: Config = CONFIG) -> Near:
        started.append(Near(tmp_path, config))
        return started[-1]

    yield start_one
    for server in started:
        server.stop()


@pytest.fixture
def near(start: Callable[..., Near]) -> Near:
    """A server with small limits."""
    return start()


def test_answers_are_those_of_grpc(near: Near) -> None:
    """Lists get the answers of a stream over HTTP/2, and both work on the same session."""
    read = op("transform_origtensor", ztensor=1)
    with near.plain() as plain:
        first = plain.ask(near.request(*SUM, read)).results
        assert [result.zdnn_status for result in first] == [0] * len(first)
        assert np.array_equal(np.frombuffer(first[-1].data, "<f4"), 2 * ARRAY.ravel())
        near.client.run(op("add", input_a=1, input_b=1, output=1))
        repeated = plain.ask(near.request(read))
        assert repeated.results == near.client.run(read)
        ended = plain.finish()
    assert ended["grpc-status"] == "0"
    assert "grpc-message" not in ended


def test_lists_may_be_sent_ahead(near: Near) -> None:
    """A client that does not wait has its answers in order."""
    requests = [near.request(*load(number, ARRAY)) for number in range(1, 6)]
    with near.plain() as plain:
        plain.socket.sendall(
            b"".join(frame(0, request.SerializeToString()) for request in requests)
        )
        answers = [plain.answer() for _ in requests]
        assert plain.finish()["grpc-status"] == "0"
    assert [answer.results[0].outputs[0].id for answer in answers] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("pieces", [1, 3, 4096])
def test_frames_in_pieces(near: Near, pieces: int) -> None:
    """Lists, small or large, are the same in whatever pieces their bytes arrive."""
    array = np.arange(40_000, dtype=np.float32).reshape(200, 200)
    requests = [near.request(*SUM), near.request(*load(7, array))]
    data = b"".join(frame(0, request.SerializeToString()) for request in requests)
    step = pieces if pieces > 1 else 997
    with near.plain() as plain:
        for start_at in range(0, len(data), step):
            plain.socket.sendall(data[start_at : start_at + step])
            if pieces == 1:
                time.sleep(0.0005)
        answers = [plain.answer() for _ in requests]
        assert plain.finish()["grpc-status"] == "0"
    assert all(result.zdnn_status == 0 for answer in answers for result in answer.results)
    assert np.allclose(near.client.array(7), array.ravel(), rtol=2**-9)


def test_errors_are_those_of_grpc(near: Near) -> None:
    """A refused list ends the call with code, message and details as over HTTP/2."""
    wrong = near.request(op("add", input_a=77, input_b=77, output=77))
    with pytest.raises(grpc.RpcError) as caught:
        list(near.client.stub.ExecuteStream(iter([wrong])))
    with near.plain("x-request-id: Mine-1\r\n") as plain:
        plain.send(wrong)
        ended = plain.end()
    error: Any = caught.value
    assert int(ended["grpc-status"]) == error.code().value[0]
    assert unquote(ended["grpc-message"]) == error.details()
    trailers = dict(error.trailing_metadata())
    assert base64.b64decode(ended["grpc-status-details-bin"]) == trailers["grpc-status-details-bin"]
    assert ended["x-request-id"] == "Mine-1"
    with near.plain() as plain:
        assert len(plain.ask(near.request(*SUM)).results) == len(SUM)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\xff\xff\xff", "3"),
        (pb.ExecuteRequest(session="sessions/none").SerializeToString(), "5"),
        (b"", "5"),
    ],
)
def test_messages_that_are_no_list_are_refused(near: Near, sent: bytes, status: str) -> None:
    """Garbage, a list of an unknown session, and an empty message are refused."""
    with near.plain() as plain:
        plain.socket.sendall(frame(0, sent))
        assert plain.end()["grpc-status"] == status


def test_garbage_behind_a_session_is_refused(near: Near) -> None:
    """Garbage behind a session's name is refused, though the list is parsed late."""
    name = near.client.session
    with near.plain() as plain:
        plain.socket.sendall(frame(0, near.request().SerializeToString() + b"\xff"))
        ended = plain.end()
    assert (ended["grpc-status"], info_of(ended).metadata["field"]) == ("3", "request")
    twice = pb.ExecuteRequest(session=name).SerializeToString() * 2
    with near.plain() as plain:
        assert plain.ask(pb.ExecuteRequest.FromString(twice)).results == []


def test_a_frame_that_is_no_message(near: Near) -> None:
    """A compressed message, and metadata in the place of one, are refused."""
    for flag in (1, METADATA):
        with near.plain() as plain:
            plain.socket.sendall(frame(flag, near.request().SerializeToString()))
            assert plain.end()["grpc-status"] == "3"


@pytest.mark.parametrize("first", [frame(0, b"x"), frame(METADATA, b"a" * 8193)])
def test_calls_begin_with_metadata(near: Near, first: bytes) -> None:
    """A connection whose first frame is no metadata, or too long, gets an error."""
    with Plain(near.plain_path, begin=False) as plain:
        plain.socket.sendall(first)
        ended = plain.end()
    assert ended["grpc-status"] == "3"
    assert "metadata" in ended["grpc-message"]


def test_a_long_message_is_refused_before_there_is_memory(start: Callable[..., Near]) -> None:
    """A prefix beyond the limit, up to 4 GiB, ends its call before it takes memory."""
    near = start(replace(CONFIG, limits=Limits(max_message=1 << 20)))
    for size in ((1 << 20) + 1, (1 << 32) - 1):
        with near.plain() as plain:
            plain.socket.sendall(struct.pack(">BI", 0, size))
            ended = plain.end()
        assert ended["grpc-status"] == str(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
        assert f"({size} vs. {1 << 20})" in ended["grpc-message"]


def test_both_sockets_have_the_same_mode(near: Near) -> None:
    """The plain socket's file has the same mode as gRPC's socket."""
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (near.path, near.plain_path)}
    assert len(modes) == 1


def test_a_session_over_tcp_has_no_plain_socket(tmp_path: Path) -> None:
    """A session's state names a plain socket over a Unix socket, and none over TCP."""
    server = Server(replace(CONFIG, listen=(f"unix:{tmp_path}/a.sock", "127.0.0.1:0")))
    addresses = server.start()
    suffixes: list[str] = []
    for address in addresses:
        with grpc.insecure_channel(address, OPTIONS) as channel:
            client = Client(channel)
            suffixes.append(client.state().plain_socket.suffix)
            client.delete()
    server.drain()
    assert suffixes == [".plain", ""]


def test_without_room_for_its_name(tmp_path: Path) -> None:
    """A server that cannot create its plain socket serves without it, and names none."""
    (tmp_path / "a.sock.plain").mkdir()
    long = tmp_path / ("x" * (105 - len(str(tmp_path))))
    for path in (tmp_path / "a.sock", long):
        server = Server(replace(CONFIG, listen=(f"unix:{path}",)))
        (address,) = server.start()
        with grpc.insecure_channel(address, OPTIONS) as channel:
            client = Client(channel)
            assert not client.state().HasField("plain_socket")
            client.delete()
        server.drain()


def test_a_plain_socket_needs_a_token(tmp_path: Path) -> None:
    """A plain socket refuses callers without a known token, and serves callers with one."""
    token = secrets.token_urlsafe(32)
    digest = hashlib.sha256(token.encode()).hexdigest()
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'[tokens.alice]\nsha256 = "{digest}"\n')
    flags = ("--listen", f"unix:{tmp_path}/nnpa.sock", "--tokens", str(tokens))
    request = pb.ExecuteRequest(session="sessions/none")
    with serving(tmp_path, *flags):
        for metadata, status in (
            ("", grpc.StatusCode.UNAUTHENTICATED),
            ("authorization: Bearer wrong\r\n", grpc.StatusCode.UNAUTHENTICATED),
            (f"authorization: Bearer {token}\r\n", grpc.StatusCode.NOT_FOUND),
        ):
            with Plain(tmp_path / "nnpa.sock.plain", metadata) as plain:
                plain.send(request)
                assert plain.end()["grpc-status"] == str(status.value[0])


def test_threads_have_their_own_answers(near: Near) -> None:
    """Threads with a socket each have their own answers."""
    wrong: list[object] = []

    def talk(number: int) -> None:
        with near.plain() as plain:
            for _ in range(40):
                values = np.full((2, 3), number, np.float32)
                down = op("transform_origtensor", ztensor=number)
                plain.ask(near.request(*load(number, values)))
                answer = plain.ask(near.request(down, op("free_ztensor_buffer", ztensor=number)))
                if answer.results[0].data != values.tobytes():
                    wrong.append(number)

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_a_descriptor_nobody_asked_for(near: Near) -> None:
    """A server that shares no memory refuses it, and keeps no descriptor."""
    ours, theirs = socket.socketpair()
    with Plain(near.plain_path, descriptors=(theirs.fileno(),)) as plain:
        plain.send(near.request())
        assert info_of(plain.end()).metadata["field"] == "memory"
    theirs.close()
    ours.settimeout(10)
    assert ours.recv(1) == b""
    ours.close()
