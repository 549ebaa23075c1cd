# SPDX-License-Identifier: Apache-2.0
"""The way of a call: what wraps the plain path costs nothing while it has nothing to do."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import nnpa_server
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa_server.accelerator import AcceleratorService
from nnpa_server.config import Limits
from nnpa_server.rpc.interceptor import Interceptor
from nnpa_server.rpc.newcomers import Newcomers
from nnpa_server.sessions.store import Store

from tests.server.accelerator.test_execute import ONES
from tests.server.accelerator.test_sanitizer import Waiting
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
    """A quick call without a token runs neither reports nor what looks at newcomers."""
    newcomers = Newcomers(2)
    interceptor = Interceptor(1, 1, 60, slow=60.0, let_in=newcomers.let_in)
    call = handler(interceptor, answered)
    assert modules_of(lambda: call(b"request", Call())) == {
        "rpc/interceptor", "rpc/reading", "rpc/admission", "rpc/budget", "rpc/callers",
    }  # fmt: skip
    assert interceptor.reports.counts["answered", "OK"] == 1
    interceptor.close()
