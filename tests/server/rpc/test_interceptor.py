# SPDX-License-Identifier: Apache-2.0
"""The interceptor when the server ends, and its log; the tests make its calls by hand."""

import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.zdnn.v1 import accelerator_pb2
from nnpa_server.rpc.interceptor import Interceptor
from nnpa_server.sessions.store import session_tag


class Call:
    """The context of a call whose answer the test sends."""

    def __init__(self) -> None:
        self.sent: list[Callable[[], None]] = []

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the client's metadata: none."""
        return ()

    def peer(self) -> str:
        """Tell where the client is."""
        return "unix:"

    def set_trailing_metadata(self, _trailing: object) -> None:
        """Send nothing."""

    def trailing_metadata(self) -> None:
        """Return the trailing metadata: none."""

    def cancel(self) -> None:
        """Do nothing: gRPC reports a cut-off call late or never."""

    def abort(self, code: grpc.StatusCode, _details: str) -> None:
        """End the call with an error, as gRPC does."""
        raise grpc.RpcError(code)

    def abort_with_status(self, _status: object) -> None:
        """End the call with an error, as gRPC does."""
        raise grpc.RpcError

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Keep a callback for the time when the answer has been sent."""
        self.sent.append(callback)
        return True


def handler(
    interceptor: Interceptor,
    behaviour: Callable[..., Any],
    parse: Callable[[bytes], object] = bytes,
) -> Any:
    """Return a method of ours as the server would call it."""
    kind = "stream_stream" if behaviour.__name__ == "ExecuteStream" else "unary_unary"
    make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
    inner: Any = make(behaviour, request_deserializer=parse, response_serializer=str.encode)

    def find(_details: object) -> Any:
        return inner

    details: Any = type("Details", (), {"method": f"/nnpa.test/{behaviour.__name__}"})
    wrapped = interceptor.intercept_service(find, details)
    answer: Any = getattr(wrapped, kind.replace("unary_", "stream_", 1))
    if kind != "unary_unary":
        return answer

    def once(raw: bytes, context: object) -> object:
        return answer(iter((raw,)), context)  # a stream of one message

    return once


def answered(_request: object, _context: object) -> str:
    """Answer at once."""
    return "answer"


def is_taken(interceptor: Interceptor) -> bool:
    """Tell whether a new call is let in."""
    try:
        handler(interceptor, answered)(b"request", Call())
    except grpc.RpcError:
        return False
    return True


def test_draining_waits_until_answers_are_sent() -> None:
    """A call that ended has still to be answered: on a busy machine that takes a while."""
    interceptor, begun, finish = Interceptor(1, 1, 60), threading.Event(), threading.Event()

    def behaviour(_request: object, _context: object) -> str:
        begun.set()
        finish.wait()
        return "answer"

    context, drained = Call(), list[bool]()
    caller = threading.Thread(target=handler(interceptor, behaviour), args=(b"request", context))
    drainer = threading.Thread(target=lambda: drained.append(interceptor.wait_for_calls(60)))
    caller.start()
    begun.wait()
    interceptor.refuse_calls()
    assert not is_taken(interceptor)
    drainer.start()
    drainer.join(0.05)
    assert drainer.is_alive(), "the call runs"
    finish.set()
    caller.join()
    drainer.join(0.05)
    assert drainer.is_alive(), "its answer is not sent"
    for callback in context.sent:
        callback()
    drainer.join()
    interceptor.close()
    assert drained == [True]


@pytest.mark.parametrize("comes", [True, False])
def test_a_list_that_meets_the_cut_off_does_not_run(comes: bool) -> None:
    """A list that comes as its stream is cut off does not run; the call counts as CANCELLED."""
    interceptor, ran = Interceptor(1, 1, 60), list[object]()

    def ExecuteStream(lists: Iterator[object], _context: object) -> Iterator[str]:  # noqa: N802
        for request in lists:
            ran.append(request)
            yield "answer"

    def lists() -> Iterator[bytes]:
        yield b"first"
        interceptor.hang_up()
        if comes:
            yield b"second"

    with pytest.raises(grpc.RpcError, match="CANCELLED"):
        list(handler(interceptor, ExecuteStream)(lists(), Call()))
    interceptor.close()
    assert len(ran) == 1
    assert interceptor.reports.counts["ExecuteStream", "CANCELLED"] == 1


def test_lines_tell_sessions_and_ids(caplog: pytest.LogCaptureFixture) -> None:
    """Each line has its request's session, if any, and a unique id of 16 digits."""
    caplog.set_level(logging.INFO, "nnpa.access")
    interceptor = Interceptor(1, 1, 60)
    session = accelerator_pb2.GetSessionRequest(name="sessions/a")
    requests = (oip.ServerLiveRequest(), session, oip.ServerLiveRequest(), session)
    answer = handler(interceptor, answered, lambda raw: requests[int(raw)])
    for index in range(len(requests)):
        answer(b"%d" % index, Call())
    interceptor.close()
    lines = [record.getMessage() for record in caplog.records if record.name == "nnpa.access"]
    tag = session_tag("sessions/a")
    assert [f"session={tag} " in line for line in lines] == [False, True, False, True]
    assert ["session=- " in line for line in lines] == [True, False, True, False]
    ids = {match[1] for line in lines if (match := re.search(r"id=([0-9a-f]{16})$", line))}
    assert len(ids) == len(requests)
