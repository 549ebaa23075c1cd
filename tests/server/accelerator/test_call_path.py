# SPDX-License-Identifier: Apache-2.0
"""The path of a call: wrappers of the plain path do not run while they have nothing to do."""

import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from threading import Event
from types import FrameType, SimpleNamespace

import nnpa_server
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_server.accelerator import AcceleratorService
from nnpa_server.config import Limits
from nnpa_server.rpc.admission import AdmittingPool
from nnpa_server.rpc.budget import SMALL_BYTES, Budget
from nnpa_server.rpc.interceptor import Interceptor
from nnpa_server.rpc.methods import Conversation
from nnpa_server.rpc.newcomers import Newcomers
from nnpa_server.sessions.store import Store

from tests.server.accelerator.test_execute import ONES
from tests.server.accelerator.test_sanitizer import Waiting
from tests.server.process import PATIENCE
from tests.server.rpc.test_interceptor import Call, answered, handler
from tests.server.wire import Operation, load, op

ROOT = Path(nnpa_server.__file__).parent


def modules_of(work: Callable[[], object]) -> set[str]:
    """Return the server's modules whose functions run in this thread meanwhile."""
    files = set[Path]()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            files.add(Path(frame.f_code.co_filename))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    inside = (file for file in files if file.is_relative_to(ROOT))
    return {str(file.relative_to(ROOT).with_suffix("")) for file in inside}


def test_a_list_without_contents_runs_four_modules() -> None:
    """A list that adds tensors runs no guard, observer, shortcut or check of cancellation."""
    service = AcceleratorService(Store(Limits()), shortcuts=())
    name = service.CreateSession(pb.CreateSessionRequest(), Waiting()).name
    add = op("add", input_a=1, input_b=1, output=2)

    def run(*operations: Operation) -> None:
        service.Execute(pb.ExecuteRequest(session=name, operations=operations), Waiting())

    run(*load(1, ONES), *load(2, ONES))
    assert modules_of(lambda: run(add)) == {
        "accelerator/service", "sessions/store", "accelerator/decode", "accelerator/execute",
    }  # fmt: skip
    read = op("transform_origtensor", ztensor=2)
    assert "accelerator/guards" in modules_of(lambda: run(read)), "its answer has an array"
    service.store.close()


def test_a_call_that_nobody_asks_about_is_not_reported() -> None:
    """A quick call without a token runs neither reports nor the check of newcomers."""
    newcomers = Newcomers(2)
    interceptor = Interceptor(1, 1, 60, slow=60.0, let_in=newcomers.let_in)
    call = handler(interceptor, answered)
    assert modules_of(lambda: call(b"request", Call())) == {
        "rpc/interceptor", "rpc/reading", "rpc/admission", "rpc/budget",
    }  # fmt: skip
    assert interceptor.reports.counts["answered", "OK"] == 1
    interceptor.close()


def test_a_pool_with_free_threads_counts_no_caller() -> None:
    """A call that finds fewer than half of the threads taken runs neither shares nor a budget."""
    pool = AdmittingPool(4, "test", Budget(1), 1)
    details = SimpleNamespace(method=b"")
    call = SimpleNamespace(peer=lambda: b"ipv4:127.0.0.1:1", cancel=lambda: None)
    event = SimpleNamespace(call_details=details, call=call, invocation_metadata=())
    ended = Event()

    def wait(_event: object) -> bool:
        return ended.wait(PATIENCE)

    assert modules_of(lambda: pool.submit(id, event).result(PATIENCE)) == {"rpc/admission"}
    running = [pool.submit(wait, event) for _ in range(2)]
    refused = pool.submit(id, event)
    ended.set()
    assert [future.result(PATIENCE) for future in running] == [True, True]
    assert refused.cancelled(), "a caller has half of the threads, and nothing has room to wait"
    pool.shutdown()


def test_small_messages_of_a_plain_socket_are_not_counted() -> None:
    """A conversation that counts its messages itself runs the budget for large ones alone."""

    def echo(messages: Iterator[bytes], _context: object) -> Generator[bytes]:
        yield from messages

    context = Call()
    vars(context).update(counts_messages=True, process="process 1")
    interceptor = Interceptor(1, 1, 60, slow=60.0)

    def whole(answer: bytes) -> tuple[bytes]:
        return (answer,)

    echoing = {"/nnpa.test/Echo": Conversation(echo, bytes, whole)}
    (answers,) = interceptor.around_conversations(echoing).values()
    large, small = bytes(SMALL_BYTES + 1), bytes(SMALL_BYTES)
    conversation = answers(iter((small, small, large, small, small, small)), context)
    next(conversation)
    assert modules_of(lambda: next(conversation)) == {"rpc/interceptor", "rpc/reading"}
    for _ in range(2):  # a large answer is held until the next one is sent
        assert "rpc/budget" in modules_of(lambda: next(conversation))
    next(conversation)
    assert modules_of(lambda: next(conversation)) == {"rpc/interceptor", "rpc/reading"}
    conversation.close()
    interceptor.close()
