# SPDX-License-Identifier: Apache-2.0
"""Traces by OpenTelemetry, as a receiver of OTLP takes them from a real server."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub
from nnpa_server.processes.envoy import TICKET
from nnpa_server.sessions.store import session_tag
from nnpa_wire.installation import pip_install

from tests.server.onnx_models import Caller, dense, request
from tests.server.process import PATIENCE, ServerProcess, serving, wait_until
from tests.server.processes.test_processes import TWO, needs_envoy
from tests.server.wire import Client, init, load, op, refused

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry comes with the extra `otel`")
otlp: Any = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = (("traceparent", f"00-{TRACE}-{PARENT}-01"),)
FLAGS = ("--listen", "127.0.0.1:0", "--telemetry", "--log-format", "json")
DATA = np.ones((1, 1, 2, 3), np.float32)
SERVICE = "nnpa.zdnn.v1.AcceleratorService"


class Receiver(ThreadingHTTPServer):
    """Takes spans by OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def environment(self) -> dict[str, str]:
        """The standard environment that leads here, at once."""
        endpoint = f"http://127.0.0.1:{self.server_port}"
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=tests",
        }

    def until(self, name: str, count: int = 1) -> list[Any]:
        """Wait for `count` spans of a name; return all of them."""
        wait_until(lambda: sum(span.name == name for span in [*self.spans]) >= count)
        return [span for span in self.spans if span.name == name]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver = self.server
        assert isinstance(receiver, Receiver)
        data = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/traces"
        for resource in _request(data, self.headers.get("content-encoding")).resource_spans:
            receiver.resources.append(_facts(resource.resource))
            receiver.spans += [span for scope in resource.scope_spans for span in scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Log nothing."""


def _request(data: bytes, encoding: str | None) -> Any:
    assert encoding in (None, "identity")
    return otlp.ExportTraceServiceRequest.FromString(data)


def _facts(holder: Any) -> dict[str, Any]:
    """Return attributes by key."""
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in holder.attributes
    }


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of spans on loopback."""
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def _lines(server: ServerProcess, method: str) -> list[dict[str, Any]]:
    """Return the lines of the access log of a method, when there is one."""

    def matching() -> list[dict[str, Any]]:
        lines = server.log_text().splitlines()
        facts = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in facts if line.get("method") == method]

    wait_until(lambda: bool(matching()))
    return matching()


def test_calls_belong_to_the_trace_of_their_client(receiver: Receiver, tmp_path: Path) -> None:
    """A call is a span of the trace in its traceparent, whose ids are in its line of the log."""
    with serving(tmp_path, *FLAGS, env=receiver.environment) as server:
        client = Client(grpc.insecure_channel(server.address))
        client.stub.GetSession(pb.GetSessionRequest(name=client.session), metadata=CONTEXT)
        (span,) = receiver.until(f"{SERVICE}/GetSession")
        (line,) = _lines(server, "GetSession")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert (line["trace"], line["span"]) == (TRACE, span.span_id.hex())
    facts = _facts(span)
    assert facts["rpc.service"] == SERVICE
    assert facts["rpc.method"] == "GetSession"
    assert facts["rpc.grpc.status_code"] == 0
    assert facts["nnpa.session"] == line["session"] == session_tag(client.session)
    assert client.session not in str(receiver.spans)
    assert receiver.resources[0]["service.name"] == "nnpa-server"
    assert receiver.resources[0]["deployment.environment"] == "tests"


@pytest.mark.heavy
def test_statuses_are_events(receiver: Receiver, tmp_path: Path) -> None:
    """A range violation is an event of its call's span; a successful operation is not."""
    with serving(tmp_path, *FLAGS, env=receiver.environment) as server:
        client = Client(grpc.insecure_channel(server.address))
        client.run(*load(1, -DATA), *init(2, 1, 1, 2, 3), op("log", input=1, output=2))
        client.run(op("add", input_a=1, input_b=1, output=2))
        spans = receiver.until(f"{SERVICE}/Execute", 2)
    events = [[event.name for event in span.events] for span in spans]
    assert sorted(events, key=len) == [[], ["nnpa.status"]]
    (event,) = max((span.events for span in spans), key=len)
    facts = _facts(event)
    assert facts["nnpa.op"] == "log"
    assert facts["nnpa.status"] == "ZDNN_ELEMENT_RANGE_VIOLATION"


@pytest.mark.heavy
def test_a_refused_call_is_an_error(receiver: Receiver, tmp_path: Path) -> None:
    """A span of a call that was refused has the gRPC code, and says why."""
    with serving(tmp_path, *FLAGS, env=receiver.environment) as server:
        client = Client(grpc.insecure_channel(server.address))
        client.run(*load(1, DATA), *init(3, 1, 1, 1, 1), *init(2, 1, 1, 2, 3))
        with refused(grpc.StatusCode.ABORTED, "PROGRAM_CHECK"):
            client.run(op("add", input_a=1, input_b=3, output=2))
        spans = receiver.until(f"{SERVICE}/Execute", 2)
    (failed,) = [span for span in spans if span.status.code == 2]
    assert failed.status.message.startswith("PROGRAM_CHECK: ")
    assert _facts(failed)["rpc.grpc.status_code"] == grpc.StatusCode.ABORTED.value[0]
    assert [_facts(event)["nnpa.status"] for event in failed.events] == ["PROGRAM_CHECK"]


@pytest.mark.heavy
def test_messages_of_a_conversation_are_spans(receiver: Receiver, tmp_path: Path) -> None:
    """Each list of a conversation is a span of its own, of the trace of the stream."""
    with serving(tmp_path, *FLAGS, env=receiver.environment) as server:
        channel = grpc.insecure_channel(server.address)
        stub: Any = AcceleratorServiceStub(channel)
        session = stub.CreateSession(pb.CreateSessionRequest())
        lists = iter([pb.ExecuteRequest(session=session.name)] * 3)
        assert len(list(stub.ExecuteStream(lists, metadata=CONTEXT))) == 3
        spans = receiver.until(f"{SERVICE}/ExecuteStream", 3)
    assert len(spans) == 3
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    assert len({span.span_id for span in spans}) == 3


@pytest.mark.heavy
def test_runs_of_models_are_spans(receiver: Receiver, tmp_path: Path) -> None:
    """A run of a published model is a span within its call's span."""
    with serving(tmp_path, *FLAGS, env=receiver.environment) as server:
        caller = Caller(server.address)
        caller.load("dense", dense())
        message = request("dense", x=np.ones((1, 4), np.float32))
        for _ in range(5):
            caller.stub.ModelInfer(message, metadata=CONTEXT)
        calls = receiver.until("inference.GRPCInferenceService/ModelInfer", 5)
        runs = [span for span in receiver.until("run dense", 5) if span.trace_id.hex() == TRACE]
        caller.channel.close()
    assert {run.parent_span_id for run in runs} == {call.span_id for call in calls}
    assert {_facts(run)["nnpa.model"] for run in runs} == {"dense"}


@pytest.mark.heavy
def test_nobody_takes_the_spans(tmp_path: Path) -> None:
    """A server without a receiver of its spans answers calls, and ends in time."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY": "100"}
    with serving(tmp_path, *FLAGS, env=env) as server:
        client = Client(grpc.insecure_channel(server.address))
        client.run(*load(1, DATA))
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < PATIENCE / 4


def test_off_it_imports_nothing(tmp_path: Path) -> None:
    """A server without --telemetry imports nothing of OpenTelemetry."""
    env = {"PYTHONPROFILEIMPORTTIME": "1"}
    with serving(tmp_path, "--listen", "127.0.0.1:0", env=env) as server:
        Client(grpc.insecure_channel(server.address)).run(*load(1, DATA))
        assert server.stop() == 0
    assert "nnpa_server.sessions.spans" in server.log_text()
    assert "opentelemetry" not in server.log_text()


@needs_envoy
@pytest.mark.heavy
def test_processes_send_their_spans(receiver: Receiver, tmp_path: Path) -> None:
    """Behind a router each process sends the spans of its calls, in the traces of their clients."""
    with serving(tmp_path, *FLAGS, *TWO, env=receiver.environment) as server:
        stub: Any = AcceleratorServiceStub(grpc.insecure_channel(server.address))
        tickets: dict[str, str] = {}
        for _ in range(4):
            session, call = stub.CreateSession.with_call(pb.CreateSessionRequest())
            tickets[session.name] = dict(call.initial_metadata())[TICKET]
        assert len(set(tickets.values())) == 2
        for name, ticket in tickets.items():
            stub.GetSession(pb.GetSessionRequest(name=name), metadata=(*CONTEXT, (TICKET, ticket)))
        spans = receiver.until(f"{SERVICE}/GetSession", 4)
    assert {(span.trace_id.hex(), span.parent_span_id.hex()) for span in spans} == {(TRACE, PARENT)}
    assert {_facts(span)["nnpa.session"] for span in spans} == set(map(session_tag, tickets))


def test_without_the_extra_it_says_so(tmp_path: Path) -> None:
    """Without the packages of OpenTelemetry --telemetry is refused, with what to install."""
    (tmp_path / "opentelemetry.py").write_text("raise ImportError('not here')\n")
    command = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv[0] = 'nnpa-server'; "
        "from nnpa_server.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", command, "--listen", "127.0.0.1:0", "--telemetry"],
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert f"--telemetry needs the extra otel: {pip_install('otel')}" in done.stderr
