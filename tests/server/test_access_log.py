# SPDX-License-Identifier: Apache-2.0
"""The access log of a process: its lines, and the ids of calls."""

import json
import re
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from nnpa.zdnn.v1 import accelerator_pb2 as pb

from tests.server.long_lists import LENGTH, long_list
from tests.server.process import PATIENCE, serving
from tests.server.wire import Client, op, read_error, refused

CODE = grpc.StatusCode
ANY_PORT = ("--listen", "127.0.0.1:0")


def test_access_log_has_one_line_per_call_and_no_names(tmp_path: Path) -> None:
    """Each call is one JSON object with method, status and id; a session's name is never logged."""
    with serving(tmp_path, *ANY_PORT, "--log-format", "json") as server:
        channel = grpc.insecure_channel(server.address)
        client = Client(channel)
        client.stub.Execute(client.request(op("init")), metadata=(("x-request-id", "mine-1"),))
        fake = (("x-request-id", "two words"),)
        client.stub.Execute(client.request(op("init")), metadata=fake)
        with refused(CODE.NOT_FOUND, "TENSOR_NOT_FOUND"):
            client.run(op("reset_ztensor", ztensor=3))
        client.delete()
        assert server.stop() == 0
        text = server.log_text()
    lines = [json.loads(line) for line in text.splitlines()]
    calls = [line for line in lines if line["logger"] == "nnpa.access"]
    assert [call["method"] for call in calls] == [
        "CreateSession", "Execute", "Execute", "Execute", "DeleteSession",
    ]  # fmt: skip
    assert calls[1]["id"] == "mine-1"
    assert " " not in calls[2]["id"]
    assert calls[3]["status"] == "TENSOR_NOT_FOUND"
    assert (calls[1]["operations"], calls[1]["status"]) == (1, "OK")
    assert client.session not in text
    assert client.session.removeprefix("sessions/") not in text


@pytest.mark.heavy
def test_nobody_reads_the_log(tmp_path: Path) -> None:
    """A standard error that is never read stops no call and not the end; the log drops lines."""
    flags = (*ANY_PORT, "--access-log", "--drain-timeout", "1s")
    with subprocess.Popen(
        [sys.executable, "-m", "nnpa_server", *flags], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=tmp_path,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        channel = grpc.insecure_channel(process.stdout.readline().split()[-1].decode())
        client = Client(channel)
        for _ in range(1500):  # with their ids and texts more than any pipe takes
            with refused(CODE.NOT_FOUND, "SESSION_NOT_FOUND"):
                client.stub.GetSession(pb.GetSessionRequest(name="sessions/none"), timeout=PATIENCE)
        client.run()
        process.terminate()
        assert process.wait(PATIENCE) == 0


@pytest.mark.heavy
def test_quick_calls_have_no_line(tmp_path: Path) -> None:
    """Without --access-log the log has lines of calls that failed or took --slow, and no others."""
    flags = (*ANY_PORT, "--slow", "150ms")
    with serving(tmp_path, *flags, log_flags=()) as server:
        client = Client(grpc.insecure_channel(server.address))
        client.run(op("init"))
        with refused(CODE.NOT_FOUND, "TENSOR_NOT_FOUND"):
            client.run(op("reset_ztensor", ztensor=3))
        call = long_list(client)
        call.result()
        client.delete()
        assert server.stop() == 0
        lines = [line for line in server.log_text().splitlines() if "nnpa.access" in line]
    pattern = r"method=(\w+) .*operations=(\d+) status=(\w+)"
    calls = [match.groups() for line in lines if (match := re.search(pattern, line))]
    assert len(calls) == len(lines)
    assert [call[::2] for call in calls if call[2] != "OK"] == [("Execute", "TENSOR_NOT_FOUND")]
    slow = [int(operations) for _, operations, status in calls if status == "OK"]
    assert max(slow) > LENGTH
    assert 1 not in slow


def test_request_id_comes_back(tmp_path: Path) -> None:
    """The trailing metadata has the caller's request id; a call without one pays for none.

    One that fails tells the id that stands in the log.
    """
    with serving(tmp_path, *ANY_PORT) as server:
        client = Client(grpc.insecure_channel(server.address))
        _, call = client.stub.GetSession.with_call(
            pb.GetSessionRequest(name=client.session), metadata=(("x-request-id", "abc"),)
        )
        assert dict(call.trailing_metadata())["x-request-id"] == "abc"
        _, call = client.stub.GetSession.with_call(pb.GetSessionRequest(name=client.session))
        assert "x-request-id" not in dict(call.trailing_metadata())
        with pytest.raises(grpc.RpcError) as caught:
            client.stub.GetSession(pb.GetSessionRequest(name="sessions/none"))
        request_id = read_error(caught.value).request_id
        assert len(request_id) == 16
        assert server.stop() == 0
        assert f"id={request_id}" in server.log_text()
