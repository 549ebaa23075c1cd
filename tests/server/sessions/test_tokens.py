# SPDX-License-Identifier: Apache-2.0
"""Bearer tokens: access, quotas of each token, and the audit log."""

import hashlib
import json
import secrets
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import numpy as np
import pytest
from click.testing import CliRunner
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nnpa.mli.v1 import mli_pb2, mli_pb2_grpc
from nnpa.network.v1 import network_pb2, network_pb2_grpc
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.oip import open_inference_grpc_pb2_grpc as oip_grpc
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa.zdnn.v1.trace_pb2 import RecordTraceRequest, RecordTraceResponse
from nnpa.zdnn.v1.trace_pb2_grpc import TraceServiceStub
from nnpa_server.__main__ import main
from nnpa_server.config import GIB, Limits
from nnpa_server.sessions.tokens import Token, Tokens, TokensInvalid, read

from tests.server.conftest import CONFIG, Running
from tests.server.onnx_models import dense, request
from tests.server.process import PATIENCE, ServerProcess, serving
from tests.server.wire import init, refused

CODE = grpc.StatusCode
ANY_PORT = ("--listen", "127.0.0.1:0")
ALICE, BOB, GONE = (secrets.token_urlsafe(32) for _ in range(3))


def entry(name: str, token: str, *lines: str) -> str:
    """Return a table of the file."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    return "\n".join((f"[tokens.{name}]", f'sha256 = "{digest}"', *lines, ""))


FILE = "".join(
    (
        entry("alice", ALICE, "max_sessions = 2", 'max_session_bytes = "64KiB"'),
        entry("bob", BOB, 'machines = ["z16"]'),
        entry("gone", GONE, "expires = 2020-01-01T00:00:00Z"),
    )
)


@dataclass
class Caller:
    """Calls with a token, or with other `metadata`."""

    channel: grpc.Channel
    metadata: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        self.stub = AcceleratorServiceStub(self.channel)

    def create(self, model: int = 0) -> str:
        """Create a session and return its name."""
        spec = pb.MachineSpec(model=pb.MachineModel.ValueType(model))
        request = pb.CreateSessionRequest(session=pb.Session(machine_spec=spec))
        return self.stub.CreateSession(request, metadata=self.metadata).name

    def execute(self, session: str, size: int = 4) -> None:
        """Create a tensor of `size` elements in a session, or run nothing for 0."""
        operations = init(int(time.monotonic_ns() % 2**40), 1, 1, 1, size) if size else []
        request = pb.ExecuteRequest(session=session, operations=operations)
        self.stub.Execute(request, metadata=self.metadata)

    def delete(self, session: str) -> None:
        """Delete a session."""
        self.stub.DeleteSession(pb.DeleteSessionRequest(name=session), metadata=self.metadata)


def bearer(server: ServerProcess, token: str) -> Caller:
    """Return a caller with a token."""
    channel = grpc.insecure_channel(server.address)
    return Caller(channel, (("authorization", f"Bearer {token}"),))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that asks for tokens."""
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "tokens.toml").write_text(FILE)
    with serving(
        folder, *ANY_PORT, "--tokens", f"{folder}/tokens.toml", "--log-format", "json"
    ) as process:
        yield process


def test_a_call_has_its_token_looked_up_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server looks a token up for the caller's share of threads, and to admit the call."""
    (tmp_path / "tokens.toml").write_text(FILE)
    presented, find = list[object](), Tokens.find

    def note(tokens: Tokens, metadata: Iterable[tuple[str, str | bytes]]) -> Token:
        presented.append(metadata)
        return find(tokens, metadata)

    monkeypatch.setattr(Tokens, "find", note)
    server = Running(replace(CONFIG, tokens=tmp_path / "tokens.toml"))
    try:
        Caller(server.channel, (("authorization", f"Bearer {ALICE}"),)).create()
    finally:
        server.stop()
    assert len(presented) == 2


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", ""),),
        (("authorization", ALICE),),
        (("authorization", f"Basic {ALICE}"),),
        (("authorization", f"Bearer {ALICE[:-1]}"),),
        (("authorization", f"Bearer {hashlib.sha256(ALICE.encode()).hexdigest()}"),),
        (("authorization", f"Bearer {GONE}"),),
        (("authorization", f"Bearer {ALICE}"), ("authorization", f"Bearer {BOB}")),
    ],
    ids=["none", "empty", "bare", "scheme", "wrong", "the hash itself", "expired", "two"],
)
def test_no_token_no_call(server: ServerProcess, metadata: tuple[tuple[str, str], ...]) -> None:
    """Without a token that is known and has not expired, no service answers."""
    caller = Caller(grpc.insecure_channel(server.address), metadata)
    with refused(CODE.UNAUTHENTICATED, "TOKEN_INVALID"):
        caller.create()
    mli = mli_pb2_grpc.MliServiceStub(caller.channel)
    with refused(CODE.UNAUTHENTICATED, "TOKEN_INVALID"):
        mli.ListKernels(mli_pb2.ListKernelsRequest(), metadata=metadata)
    networks = network_pb2_grpc.NetworkServiceStub(caller.channel)
    with refused(CODE.UNAUTHENTICATED, "TOKEN_INVALID"):
        networks.ListNetworks(network_pb2.ListNetworksRequest(), metadata=metadata)
    ask = caller.channel.unary_unary("/inference.GRPCInferenceService/ServerLive", bytes, bytes)
    with refused(CODE.UNAUTHENTICATED, "TOKEN_INVALID"):
        ask(b"", metadata=metadata)
    with refused(CODE.UNAUTHENTICATED, "TOKEN_INVALID"):
        list(caller.stub.ExecuteStream(iter(()), metadata=metadata))


def test_health_needs_no_token(server: ServerProcess) -> None:
    """A probe asks without a token."""
    health = health_pb2_grpc.HealthStub(grpc.insecure_channel(server.address))
    answer = health.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_sessions_of_others_do_not_exist(server: ServerProcess) -> None:
    """Every call with another token's session gets SESSION_NOT_FOUND."""
    alice, bob = bearer(server, ALICE), bearer(server, BOB)
    session = alice.create()
    with refused(CODE.NOT_FOUND, "SESSION_NOT_FOUND"):
        bob.execute(session)
    with refused(CODE.NOT_FOUND, "SESSION_NOT_FOUND"):
        bob.delete(session)
    with refused(CODE.NOT_FOUND, "SESSION_NOT_FOUND"):
        bob.stub.ListTensors(pb.ListTensorsRequest(session=session), metadata=bob.metadata)
    networks = network_pb2_grpc.NetworkServiceStub(bob.channel)
    with refused(CODE.NOT_FOUND, "SESSION_NOT_FOUND"):
        networks.ListNetworks(
            network_pb2.ListNetworksRequest(session=session), metadata=bob.metadata
        )
    requests = iter((pb.ExecuteRequest(session=session),))
    with refused(CODE.NOT_FOUND, "SESSION_NOT_FOUND"):
        list(bob.stub.ExecuteStream(requests, metadata=bob.metadata))
    alice.execute(session)
    alice.delete(session)


def test_quotas_are_the_tokens(server: ServerProcess) -> None:
    """A token's own sessions and bytes are bounded by its entry; others go on."""
    alice, bob = bearer(server, ALICE), bearer(server, BOB)
    sessions = [alice.create(), alice.create()]
    with refused(CODE.RESOURCE_EXHAUSTED, "SESSION_QUOTA_EXCEEDED", limit=2):
        alice.create()
    session_of_bob = bob.create(pb.MACHINE_MODEL_TELUM1)
    with refused(CODE.RESOURCE_EXHAUSTED, "TENSOR_QUOTA_EXCEEDED", limit=64 << 10):
        alice.execute(sessions[0], 1 << 15)
    for session in sessions:
        alice.delete(session)
    bob.delete(session_of_bob)


def test_one_tokens_streams_leave_room_for_others(server: ServerProcess) -> None:
    """A token may have half of the streams; other tokens can still open theirs."""
    alice, bob = bearer(server, ALICE), bearer(server, BOB)

    def record(caller: Caller) -> Iterator[RecordTraceResponse]:
        stub = TraceServiceStub(caller.channel)
        stream = iter(stub.RecordTrace(RecordTraceRequest(), metadata=caller.metadata))
        next(stream)
        return stream

    streams = list[Iterator[RecordTraceResponse]]()
    with refused(CODE.RESOURCE_EXHAUSTED, "CALL_QUOTA_EXCEEDED", field="max_streams"):
        while True:
            streams.append(record(alice))
    assert len(streams) == 16  # half of what 64 workers have
    streams += [record(bob) for _ in range(8)]


def test_machines_are_the_tokens(server: ServerProcess) -> None:
    """A token for z16 creates sessions there, and moves none to another machine."""
    bob = bearer(server, BOB)
    with refused(CODE.PERMISSION_DENIED, "MACHINE_NOT_ALLOWED", value="telum2", limit="telum1"):
        bob.create()
    session = bob.create(pb.MACHINE_MODEL_TELUM1)
    spec = pb.MachineSpec(model=pb.MACHINE_MODEL_TELUM2)
    request = pb.UpdateSessionRequest(session=pb.Session(name=session, machine_spec=spec))
    with refused(CODE.PERMISSION_DENIED, "MACHINE_NOT_ALLOWED", value="telum2"):
        bob.stub.UpdateSession(request, metadata=bob.metadata)
    bob.delete(session)


def test_models_of_other_machines_are_refused(tmp_path: Path) -> None:
    """A published model runs only for tokens of its machine."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "dense.onnx").write_bytes(dense())
    (tmp_path / "tokens.toml").write_text(FILE)
    flags = ("--tokens", f"{tmp_path}/tokens.toml", "--models", f"{tmp_path}/models")
    message = request("dense", x=np.ones((3, 4), np.float32))
    with serving(tmp_path, *ANY_PORT, *flags) as process:
        alice, bob = bearer(process, ALICE), bearer(process, BOB)
        stub = oip_grpc.GRPCInferenceServiceStub(alice.channel)
        deadline = time.monotonic() + PATIENCE
        while not stub.ServerReady(oip.ServerReadyRequest(), metadata=alice.metadata).ready:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert stub.ModelInfer(message, metadata=alice.metadata).raw_output_contents
        with refused(CODE.PERMISSION_DENIED, "MACHINE_NOT_ALLOWED", value="telum2"):
            stub.ModelInfer(message, metadata=bob.metadata)
        hosting = network_pb2_grpc.NetworkServiceStub(bob.channel)
        spec = bob.create(pb.MACHINE_MODEL_TELUM1)
        header = network_pb2.CreateNetworkHeader(session=spec, published="dense")
        parts = iter([network_pb2.CreateNetworkRequest(header=header)])
        with refused(CODE.PERMISSION_DENIED, "MACHINE_NOT_ALLOWED", value="telum2"):
            hosting.CreateNetwork(parts, metadata=bob.metadata)


def test_audit_tells_who_and_what_and_no_token(tmp_path: Path) -> None:
    """A session has two audit lines with its holder, peer and counts; no log has a token."""
    (tmp_path / "tokens.toml").write_text(FILE)
    with serving(
        tmp_path, *ANY_PORT, "--tokens", f"{tmp_path}/tokens.toml", "--log-format", "json"
    ) as process:  # fmt: skip
        alice = bearer(process, ALICE)
        session, left = alice.create(), alice.create()
        alice.execute(session)
        alice.delete(session)
        assert process.stop() == 0
        text = process.log_text()
    lines = [json.loads(line) for line in text.splitlines()]
    audit_lines = [line for line in lines if line["logger"] == "nnpa.audit"]
    assert [line["event"] for line in audit_lines] == ["session_created"] * 2 + [
        "session_ended"
    ] * 2
    assert {line["token"] for line in audit_lines} == {"alice"}
    assert audit_lines[0]["peer"].startswith("ipv4:127.0.0.1:")
    assert (audit_lines[2]["why"], audit_lines[2]["calls"], audit_lines[2]["operations"]) == (
        "deleted",
        1,
        2,
    )
    assert audit_lines[2]["most_bytes"] == 4096
    assert audit_lines[2]["machine"] == "telum2"
    assert (audit_lines[3]["why"], audit_lines[3]["session"]) == (
        "shutdown",
        audit_lines[1]["session"],
    )
    assert {line["token"] for line in lines if line["logger"] == "nnpa.access"} == {"alice"}
    assert ALICE not in text
    assert left.removeprefix("sessions/") not in text


def test_hangup_reads_the_file_again(tmp_path: Path) -> None:
    """After SIGHUP a withdrawn token is refused, also in a stream; a bad file changes nothing."""
    file = tmp_path / "tokens.toml"
    file.write_text(FILE)
    with serving(tmp_path, *ANY_PORT, "--tokens", f"{file}") as process:
        alice, bob = bearer(process, ALICE), bearer(process, BOB)
        session, more = alice.create(), list[bool]()

        def requests() -> Iterator[pb.ExecuteRequest]:
            yield pb.ExecuteRequest(session=session)
            while not more:
                time.sleep(0.01)
            yield pb.ExecuteRequest(session=session)

        stream = alice.stub.ExecuteStream(requests(), metadata=alice.metadata)
        next(iter(stream))
        file.write_text("[tokens")
        hang_up(process, "tokens stay as they were")
        alice.execute(session, 0)
        file.write_text(entry("bob", BOB))
        hang_up(process, "1 tokens are known")
        more.append(True)
        with refused(CODE.UNAUTHENTICATED, "TOKEN_INVALID"):
            next(iter(stream))
        with refused(CODE.UNAUTHENTICATED, "TOKEN_INVALID"):
            alice.execute(session, 0)
        bob.delete(bob.create())


def hang_up(process: ServerProcess, text: str) -> None:
    """Have a server read its tokens again, and wait until its log has the text."""
    process.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + PATIENCE
    while text not in process.log_text():
        assert time.monotonic() < deadline, process.log_text()
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"must have tables \[tokens.NAME\]"),
        ("x = 1", "must have tables"),
        ("tokens = 1", "must have tables"),
        ("[tokens", "tokens.toml: "),
        ("[tokens.a]", r"tokens.a.sha256 is '', must be the 64 hex digits"),
        ("[tokens.'a b']", "name 'a b'"),
        (entry("a", "x", "max_session = 1"), "tokens.a.max_session, must be one of sha256"),
        (entry("a", "x", "max_sessions = 0"), "max_sessions is 0, must be a whole number from 1"),
        (entry("a", "x", "max_sessions = true"), "max_sessions is True"),
        (entry("a", "x", 'max_session_bytes = "1 mile"'), "size is '1 mile'"),
        (entry("a", "x", 'machines = ["z14"]'), "machines has 'z14'"),
        (entry("a", "x", "machines = []"), r"machines is \[\]"),
        (entry("a", "x", "expires = 2030-01-01"), "expires is 2030-01-01, must be date, time"),
        (entry("a", "x") + entry("b", "x"), "sha256 is the same in two entries"),
    ],
)
def test_errors_name_the_entry_of_a_bad_file(tmp_path: Path, text: str, message: str) -> None:
    """A file that cannot be used names the entry, the value and the limit."""
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(TokensInvalid, match=message):
        read(file)


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "warning"),
    [
        (0o666, 0o700, "all users of this machine may write it: chmod o-w {file}"),
        (0o602, 0o1777, "all users of this machine may write it: chmod o-w {file}"),
        (0o600, 0o777, "all users of this machine may replace it: chmod o-w {folder}"),
        (0o664, 0o775, ""),
        (0o644, 0o1777, ""),
        (0o600, 0o700, ""),
    ],
)
def test_a_file_that_all_may_write_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture,
    file_mode: int, folder_mode: int, warning: str,
) -> None:  # fmt: skip
    """At the start and at each SIGHUP the log warns of a file that anybody may write."""
    folder, link = tmp_path / "folder", tmp_path / "link.toml"
    folder.mkdir()
    file = folder / "tokens.toml"
    file.write_text(FILE)
    link.symlink_to(file)
    file.chmod(file_mode)
    folder.chmod(folder_mode)
    for path in (file, link):
        caplog.clear()
        tokens = Tokens(path)
        tokens.reload()
        text = warning.format(file=path, folder=folder)
        assert caplog.messages == ([f"{path}: {text}"] * 2 if text else [])


def test_tokens_never_travel_in_plain_text(tmp_path: Path) -> None:
    """Beyond loopback tokens need TLS: --insecure is not enough."""
    (tmp_path / "tokens.toml").write_text(FILE)
    flags = ("--listen", "0.0.0.0:0", "--insecure", "--tokens", f"{tmp_path}/tokens.toml")
    result = CliRunner().invoke(main, flags)
    assert (result.exit_code, "would carry tokens in plain text" in result.output) == (2, True)


def test_a_token_never_widens_the_servers_limits(tmp_path: Path) -> None:
    """The lower one of a token's quota and the server's quota holds."""
    file = tmp_path / "tokens.toml"
    file.write_text(entry("a", "x", 'max_session_bytes = "99GiB"', "max_session_tensors = 7"))
    limits = read(file)[0].limits(Limits(max_session_bytes=GIB))
    assert (limits.max_session_bytes, limits.max_session_tensors) == (GIB, 7)
