# SPDX-License-Identifier: Apache-2.0
"""Traces: the records of sessions, and that recording never changes an answer.

Expected records: the comments of nnpa/zdnn/v1/trace.proto.
"""

import hashlib
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.proto import parse_length_prefixed as parse
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1 import tensor_pb2, trace_pb2
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa.zdnn.v1.trace_pb2_grpc import TraceServiceStub
from nnpa_server.app import Server

from tests.server.conftest import CONFIG, OPTIONS
from tests.server.process import serving
from tests.server.sessions.test_shared_memory import Memory
from tests.server.wire import Client, New, chunks, desc, init, load, op, pre_desc, refused

DATA = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
OTHER = np.full((1, 1, 2, 3), 5, np.float32)
ENDED, TOO_LARGE, TOO_SLOW, FAILED = (
    trace_pb2.TRACE_END_REASON_ENDED,
    trace_pb2.TRACE_END_REASON_TOO_LARGE,
    trace_pb2.TRACE_END_REASON_TOO_SLOW,
    trace_pb2.TRACE_END_REASON_FAILED,
)
CODE = grpc.StatusCode


class Open:
    """An open trace of a server, over a channel."""

    def __init__(self, channel: grpc.Channel, contents: bool = False, max_bytes: int = 0) -> None:
        self.stub: Any = TraceServiceStub(channel)
        request = trace_pb2.RecordTraceRequest(contents=contents, max_bytes=max_bytes)
        self.stream: Any = self.stub.RecordTrace(request)
        first: trace_pb2.RecordTraceResponse = next(iter(self.stream))
        self.name = first.trace

    def join(self, client: Client) -> str:
        """Have a session join; return the trace in its updated state."""
        message = pb.Session(name=client.session, trace=self.name)
        request = pb.UpdateSessionRequest(session=message)
        joined: str = client.stub.UpdateSession(request).trace
        return joined

    def end(self) -> list[trace_pb2.TraceRecord]:
        """End the trace and return its records."""
        self.stub.EndTrace(trace_pb2.EndTraceRequest(trace=self.name))
        return self.rest()

    def rest(self) -> list[trace_pb2.TraceRecord]:
        """Return the records up to the end."""
        return parsed(b"".join(message.records for message in self.stream))


def parsed(raw: bytes) -> list[trace_pb2.TraceRecord]:
    """Cut bytes into records: a varint with the size, then the record."""
    records: list[trace_pb2.TraceRecord] = []
    stream = io.BytesIO(raw)
    while stream.tell() < len(raw):
        records.append(parse(trace_pb2.TraceRecord, stream))
    return records


def calls(records: list[trace_pb2.TraceRecord]) -> list[trace_pb2.TracedCall]:
    """Return the calls of a trace."""
    return [record.call for record in records if record.WhichOneof("record") == "call"]


def inline(**contents: Any) -> tensor_pb2.Ztensor:
    """Describe a transformed tensor of DATA's shape that travels."""
    shape = DATA.shape
    descs = {"pre_transformed_desc": pre_desc(*shape), "transformed_desc": desc(*shape)}
    return tensor_pb2.Ztensor(**descs, is_transformed=True, **contents)


def digest(data: bytes) -> bytes:
    """Return the digest that the contract names."""
    return hashlib.sha256(data).digest()[:16]


def test_calls_are_recorded_as_they_were_answered(
    client: Client, opened: Callable[..., Open]
) -> None:
    """A list has its operations, a result for each, and times; the session's key is nowhere."""
    trace = opened()
    add = op("add", input_a=1, input_b=1, output=New(2))
    answers = [client.run(*load(1, DATA)), client.run(add), client.run(op("is_nnpa_installed"))]
    records = trace.end()
    assert [record.WhichOneof("record") for record in records] == [
        "start", "session", "call", "call", "call", "end",
    ]  # fmt: skip
    results = list[Any]()
    for call, answer in zip(calls(records), answers, strict=True):
        results.extend(call.new_results)
        assert [results[index] for index in call.results] == answer
        assert len(call.durations_ns) == len(call.operations) == len(answer)
        assert call.session == 1
    assert calls(records)[1].operations[0] == add
    assert sum(calls(records)[1].durations_ns) > 0
    assert records[1].session.options.machine.name == "machines/telum2"
    assert records[-1].end == trace_pb2.TraceEnd(reason=ENDED, calls=3)
    key = client.session.removeprefix("sessions/").encode()
    assert key not in b"".join(record.SerializeToString() for record in records)


def test_a_result_that_is_told_again_is_recorded_once(
    client: Client, opened: Callable[..., Open]
) -> None:
    """A hundred operations with the same answer have one result."""
    client.run(*load(1, DATA), *init(2, *DATA.shape))
    trace = opened()
    add = op("add", input_a=1, input_b=1, output=2)
    client.run(*[add] * 100)
    client.run(add)
    first, second = calls(trace.end())
    assert len(first.new_results) <= 2, "the first may tell that the output is transformed now"
    assert len(first.operations) == 100
    assert not second.new_results
    assert second.results[0] == first.results[-1]


def test_contents_are_told_by_digest(client: Client, opened: Callable[..., Open]) -> None:
    """Without contents an array has size and digest, and its bytes are nowhere in the trace."""
    trace = opened()
    client.run(*load(1, DATA))
    client.array(1)
    records = trace.end()
    up, down = calls(records)
    assert not up.operations[2].transform_ztensor.data
    (array,) = up.contents
    assert (array.operation_index, array.role, array.operand, array.id) == (
        2, trace_pb2.CONTENTS_ROLE_ARRAY_IN, "data", 1,
    )  # fmt: skip
    assert (array.size, array.digest) == (DATA.nbytes, digest(DATA.tobytes()))
    (back,) = down.contents
    assert back.role == trace_pb2.CONTENTS_ROLE_ARRAY_OUT
    assert back.digest == array.digest
    assert DATA.tobytes() not in b"".join(record.SerializeToString() for record in records)


def test_each_content_is_held_once(client: Client, opened: Callable[..., Open]) -> None:
    """With contents the trace has each digest's bytes exactly once, whoever brings them."""
    trace = opened(contents=True)
    client.run(*load(1, DATA), *load(2, DATA))
    client.array(1)
    records = trace.end()
    pieces = [record.bytes for record in records if record.WhichOneof("record") == "bytes"]
    assert Counter(piece.digest for piece in pieces) == Counter({piece.digest for piece in pieces})
    for piece in pieces:
        assert digest(piece.piece) == piece.digest
    named = {contents.digest for call in calls(records) for contents in call.contents}
    assert named == {piece.digest for piece in pieces}
    assert digest(DATA.tobytes()) in named


def test_tensors_from_before_are_told_once(client: Client, opened: Callable[..., Open]) -> None:
    """The trace has a tensor from before, with its sticks, when a call first names it."""
    client.run(*load(1, DATA), *init(2, *DATA.shape))
    trace = opened(contents=True)
    add = op("add", input_a=1, input_b=1, output=2)
    client.run(add, add)
    client.run(add)
    records = trace.end()
    first, second = calls(records)
    assert sorted(tensor.id for tensor in first.tensors) == [1, 2]
    held = {contents.id: contents for contents in first.contents if contents.role == 5}
    assert held.keys() == {1, 2}
    assert held[2].digest == digest(bytes(4096))
    assert not second.tensors


def test_streams_are_recorded(client: Client, opened: Callable[..., Open]) -> None:
    """Arrays and sticks that come or go in chunks are calls of their own, with their digests."""
    trace = opened()
    client.run(*init(1, *DATA.shape))
    transform = op("transform_ztensor", ztensor=1)
    header = client.arrays_header(transform, DATA.nbytes)
    client.write([header, *chunks(DATA.tobytes())])
    _, sticks = client.read(sticks=pb.ReadSticks(id=1))
    client.write([client.sticks_header(id=1, total_bytes=len(sticks)), *chunks(sticks)])
    client.read(operation=op("transform_origtensor", ztensor=1))
    streamed = calls(trace.end())[1:]
    assert [call.WhichOneof("stream") for call in streamed] == [
        "operation", "read", "write", "operation",
    ]  # fmt: skip
    raw = digest(DATA.tobytes())
    assert [call.contents[0].digest for call in streamed] == [
        raw, digest(sticks), digest(sticks), raw,
    ]  # fmt: skip
    assert all(len(call.results) == len(call.durations_ns) == 1 for call in streamed)


def test_a_refused_stream_has_its_answer(client: Client, opened: Callable[..., Open]) -> None:
    """A transform that the library refuses before it reads is recorded with its status."""
    client.run(*load(1, DATA))
    trace = opened()
    header = client.arrays_header(op("transform_ztensor", ztensor=1), DATA.nbytes)
    answer = client.write([header, *chunks(DATA.tobytes())])
    (call,) = calls(trace.end())
    assert call.new_results[0].zdnn_status == answer.zdnn_status != 0


def test_cached_contents_keep_their_digest(client: Client, opened: Callable[..., Open]) -> None:
    """Sticks that come by a name have the digest of the sticks that were cached under it."""
    client.run(*load(1, DATA))
    _, sticks = client.read(sticks=pb.ReadSticks(id=1))
    trace, name = opened(), b"0123456789abcdef"
    kept = inline(sticks=sticks, cache_as=name)
    named = inline(cached=name)
    client.run(*init(2, *DATA.shape))
    client.run(op("add", input_a=kept, input_b=1, output=2))
    client.run(op("add", input_a=named, input_b=1, output=2))
    brought, repeated = calls(trace.end())[1:]
    assert brought.contents[0].digest == repeated.contents[0].digest == digest(sticks)
    assert repeated.contents[0].size == len(sticks)
    for call in (brought, repeated):
        operand = call.operations[0].add.input_a.inline_ztensor
        assert not operand.cache_as
        assert operand.WhichOneof("contents") is None


@pytest.fixture
def near(tmp_path: Path) -> Iterator[tuple[Client, Memory]]:
    """A session that shares memory with its server, and that memory."""
    address, memory = f"unix:{tmp_path}/s", Memory()
    server = Server(replace(CONFIG, listen=(address,), shared_memory=True))
    server.start()
    with grpc.insecure_channel(address, OPTIONS) as channel:
        yield Client(channel, memory.options()), memory
    server.drain()
    memory.close()


def test_shared_memory_is_told_as_if_it_had_travelled(near: tuple[Client, Memory]) -> None:
    """Arrays and sticks in shared memory have their digests, and no place in the record."""
    client, memory = near
    client.run(*load(1, DATA))
    _, sticks = client.read(sticks=pb.ReadSticks(id=1))
    os.pwrite(memory.file, DATA.tobytes(), 64)
    os.pwrite(memory.file, sticks, 4096)
    trace = Open(client.channel)
    trace.join(client)
    place = tensor_pb2.Extent(offset=4096, size=4096)
    client.run(*init(2, *DATA.shape))
    up = op("transform_ztensor", ztensor=2)
    up.shared_data.add(offset=64, size=DATA.nbytes)
    client.run(up)
    (doubled,) = client.run(
        op("add", input_a=inline(shared=place), input_b=2, output=inline(sticks_to=place))
    )
    assert doubled.outputs[0].ztensor.shared == place
    down = op("transform_origtensor", ztensor=2)
    down.shared_data.add(offset=64, size=DATA.nbytes)
    client.run(down)
    _, transformed, added, back = calls(trace.end())
    assert transformed.contents[0].digest == back.contents[0].digest == digest(DATA.tobytes())
    after = os.pread(memory.file, 4096, 4096)
    assert [contents.digest for contents in added.contents] == [digest(sticks), digest(after)]
    assert after != sticks
    for call in (transformed, added, back):
        assert not call.operations[0].shared_data
        assert not call.operations[0].add.output.inline_ztensor.HasField("sticks_to")
        assert all(not result.HasField("shared") for result in call.new_results)


def test_places_that_are_not_there_do_no_harm(near: tuple[Client, Memory]) -> None:
    """A place outside of the memory, or of any size, is refused as without a trace."""
    client, memory = near
    client.run(*init(1, *DATA.shape))
    os.truncate(memory.file, 4096)
    trace = Open(client.channel)
    trace.join(client)
    for offset, size in ((1 << 40, 4096), (0, 1 << 62), (8192, 4096)):
        place = tensor_pb2.Extent(offset=offset, size=size)
        with pytest.raises(grpc.RpcError):
            client.run(op("add", input_a=inline(shared=place), input_b=1, output=1))
    records = trace.end()
    assert [call.error.code for call in calls(records)] == ["INVALID_ARGUMENT"] * 3
    assert records[-1].end.reason == ENDED


@pytest.mark.parametrize("contents", [False, True])
def test_errors_are_recorded(client: Client, opened: Callable[..., Open], contents: bool) -> None:
    """A program check has the results before it; a list that is refused as a whole has none."""
    client.run(*load(1, DATA), *load(2, OTHER), *init(3, 1, 1, 2, 4))
    trace = opened(contents=contents)
    add = op("add", input_a=1, input_b=2, output=3)
    good = op("add", input_a=1, input_b=2, output=New(4))
    with refused(CODE.ABORTED, "PROGRAM_CHECK"):
        client.run(good, add, op("is_nnpa_installed"))
    with refused(CODE.NOT_FOUND, "TENSOR_NOT_FOUND"):
        client.run(op("add", input_a=9, input_b=1, output=3))
    checked, unknown = calls(trace.end())
    assert (len(checked.operations), len(checked.results)) == (3, 1)
    assert (checked.error.code, checked.error.reason) == ("ABORTED", "PROGRAM_CHECK")
    assert checked.error.metadata["operation_index"] == "1"
    assert not unknown.results
    assert unknown.error.reason == "TENSOR_NOT_FOUND"


def test_options_are_told_anew(client: Client, opened: Callable[..., Open]) -> None:
    """A session that moves to another machine is recorded anew, before its next call."""
    trace = opened()
    spec = pb.MachineSpec(model=pb.MACHINE_MODEL_TELUM1)
    client.stub.UpdateSession(
        pb.UpdateSessionRequest(session=pb.Session(name=client.session, machine_spec=spec))
    )
    client.run(op("is_nnpa_installed"))
    records = trace.end()
    sessions = [record.session for record in records if record.WhichOneof("record") == "session"]
    machines = [session.options.machine.name for session in sessions]
    assert machines == ["machines/telum2", "machines/telum1"]
    assert [session.session for session in sessions] == [1, 1]


def test_sessions_share_a_trace(client: Client, opened: Callable[..., Open]) -> None:
    """Sessions that join one trace, at creation or later, have numbers of their own."""
    trace = opened()
    second_session = client.open_session(pb.Session(trace=trace.name))
    assert second_session.state().trace == trace.name
    for session in (client, second_session, client):
        session.run(op("is_nnpa_installed"))
    assert [call.session for call in calls(trace.end())] == [1, 2, 1]


def test_a_trace_that_is_not_open_records_nothing(client: Client) -> None:
    """An unknown trace is ignored, at creation and later, and the session's state has none."""
    session = client.open_session(pb.Session(trace="traces/nobody"))
    assert session.state().trace == ""
    trace = Open(client.channel)
    trace.end()
    assert trace.join(client) == ""
    assert client.run(op("is_nnpa_installed"))[0].boolean


def test_a_trace_belongs_to_its_token(tmp_path: Path) -> None:
    """A session of another token does not join, and cannot end the trace."""
    names, secrets = ("alice", "bob"), ("a" * 32, "b" * 32)
    tables = [
        f'[tokens.{name}]\nsha256 = "{hashlib.sha256(secret.encode()).hexdigest()}"\n'
        for name, secret in zip(names, secrets, strict=True)
    ]
    tokens = tmp_path / "tokens.toml"
    tokens.write_text("\n".join(tables), encoding="utf-8")
    with serving(tmp_path, "--listen", "127.0.0.1:0", "--tokens", str(tokens)) as server:
        channel = grpc.insecure_channel(server.address)
        stub, traces = AcceleratorServiceStub(channel), TraceServiceStub(channel)
        alice, bob = ((("authorization", f"Bearer {secret}"),) for secret in secrets)
        stream: Any = traces.RecordTrace(trace_pb2.RecordTraceRequest(), metadata=alice)
        name = next(stream).trace
        end = trace_pb2.EndTraceRequest(trace=name)
        request = pb.CreateSessionRequest(session=pb.Session(trace=name))
        assert stub.CreateSession(request, metadata=bob).trace == ""
        traces.EndTrace(end, metadata=bob)
        assert stub.CreateSession(request, metadata=alice).trace == name
        traces.EndTrace(end, metadata=alice)
        records = parsed(b"".join(message.records for message in stream))
        assert records[-1].end.reason == ENDED
        assert sum(record.WhichOneof("record") == "session" for record in records) == 1
