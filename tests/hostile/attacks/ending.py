# SPDX-License-Identifier: Apache-2.0
"""Servers that do not end, or end with the wrong words: rows 2, 7, 12 and 13."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

from tests.hostile import models
from tests.hostile.calls import ACCELERATOR, HEALTH, NETWORK, REFLECTION, Answer, Caller, read_error
from tests.hostile.lists import large_product, smallest
from tests.hostile.plain_socket import PlainCall
from tests.hostile.scene import Scene, row
from tests.hostile.target import DRAIN_TIMEOUT, Server

TRIES = 10
ALLOWED = DRAIN_TIMEOUT + 1.0
WAIT = ALLOWED + 4.0
GARBAGE = b"\xff"
CLIENTS = 60
ENDINGS = 6


def _require_end(scene: Scene, server: Server, state: str) -> None:
    """SIGTERM ends a server in time; where it does not, a second one ends it at once."""
    seconds = server.end(WAIT)
    scene.saw(f"{state}: SIGTERM {'never' if seconds is None else f'{seconds:.1f} s'}")
    if seconds is not None and seconds <= ALLOWED:
        return
    scene.require(False, f"{state}: ended after {seconds or WAIT:.1f} s, at most {ALLOWED:g}")
    if seconds is None:
        second = server.end(1.0)
        scene.require(second is not None, f"{state}: a second SIGTERM did not end it")


def _require_second(scene: Scene, server: Server, state: str) -> None:
    """A second SIGTERM ends a server at once."""
    server.process.terminate()
    time.sleep(0.3)
    seconds = server.end(WAIT)
    scene.saw(f"{state}: second SIGTERM {'never' if seconds is None else f'{seconds:.1f} s'}")
    scene.require(seconds is not None and seconds <= 1.0, f"{state}: a second SIGTERM did not help")


@row("2a", "the byte ff to reflection, then SIGTERM", tokens=True, bystander=False)
def garbage_to_reflection(scene: Scene) -> None:
    """Garbage without a token does not keep the server from ending; several tries."""
    for _ in range(TRIES):
        server = scene.start()
        caller = scene.caller("")
        answers = [caller.call(REFLECTION, GARBAGE, timeout=2.0).name for _ in range(3)]
        _require_end(scene, server, f"after ff: {' '.join(answers)}")
        caller.close()
        if scene.broken:
            return


def _while_open(scene: Scene, path: str, messages: Callable[[], Iterator[bytes]]) -> None:
    """Keep calls open, and end the server; twice, the second time by a second SIGTERM."""
    for require in (_require_end, _require_second):
        server = scene.start()
        caller = scene.caller("")
        calls = [caller.open(path, messages()) for _ in range(10)]
        time.sleep(1.0)
        require(scene, server, f"{len(calls)} open calls of {path}")
        caller.close()


def _nothing() -> Iterator[bytes]:
    time.sleep(60.0)
    yield from ()


@row("2b", "open streams of reflection, then SIGTERM", tokens=True, bystander=False)
def open_reflection(scene: Scene) -> None:
    """Streams without a token do not keep the server from ending."""
    _while_open(scene, REFLECTION, _nothing)


@row("2c", "open watches of health, then SIGTERM", tokens=True, bystander=False)
def open_watches(scene: Scene) -> None:
    """Nor do watches."""
    _while_open(scene, HEALTH + "Watch", lambda: iter([b""]))


@row("2d", "unary calls of which only headers came, then SIGTERM", tokens=True, bystander=False)
def open_headers(scene: Scene) -> None:
    """Nor do calls that never begin."""
    _while_open(scene, ACCELERATOR + "Execute", _nothing)


@row("2e", "garbage to health, then SIGTERM", tokens=True, bystander=False)
def garbage_to_health(scene: Scene) -> None:
    """Nor does garbage to the other service without tokens."""
    for method in ("Check", "Watch") * (TRIES // 2):
        server = scene.start()
        caller = scene.caller("")
        answer = caller.call(HEALTH + method, GARBAGE, timeout=2.0)
        _require_end(scene, server, f"after ff to {method}: {answer.name}")
        caller.close()


def _end_while(scene: Scene, state: str, begin: Callable[[Caller], Callable[[], Answer]]) -> None:
    """End a server while something runs, by one SIGTERM and by two."""
    for require in (_require_end, _require_second):
        server = scene.start()
        caller = scene.caller()
        call = begin(caller)
        with scene.in_background(call):
            time.sleep(1.5)
            require(scene, server, state)
        caller.close()


@row("7a", "SIGTERM while a host node runs", bystander=False)
def end_in_host_node(scene: Scene) -> None:
    """The drain's timeout holds though a node runs for ever."""

    def begin(caller: Caller) -> Callable[[], Answer]:
        session = caller.session()
        name = models.ready(caller, session, models.long_loop())
        request = models.infer_request(session, name, x=models.long_input())
        return lambda: caller.call(NETWORK + "InferNetwork", request, timeout=60.0)

    _end_while(scene, "a host node runs", begin)


@row("7b", "SIGTERM while a large product runs", bystander=False)
def end_in_kernel(scene: Scene) -> None:
    """Nor does one operation of many seconds hold it."""

    def begin(caller: Caller) -> Callable[[], Answer]:
        request = large_product(caller.session(), times=20)
        return lambda: caller.call(ACCELERATOR + "Execute", request, timeout=60.0)

    _end_while(scene, "a large product runs", begin)


@row("7c", "SIGTERM while a model is compiled", bystander=False)
def end_in_compilation(scene: Scene) -> None:
    """Compilation counts too."""

    def begin(caller: Caller) -> Callable[[], Answer]:
        session, data = caller.session(), models.long_chain(99_000)
        return lambda: models.create(caller, session, data, timeout=60.0)

    _end_while(scene, "a model is compiled", begin)


@row("7d", "SIGTERM while a model's shapes are inferred", bystander=False)
def end_in_inference(scene: Scene) -> None:
    """And so does shape inference, which holds the interpreter's lock."""

    def begin(caller: Caller) -> Callable[[], Answer]:
        session, data = caller.session(), models.inference_bomb()
        return lambda: models.create(caller, session, data, timeout=60.0)

    _end_while(scene, "shapes are inferred", begin)


def _start_logging(scene: Scene, stderr: int) -> Server:
    """Start a server that has a line in its log for each call."""
    flags = ["--access-log"] if scene.offers("--access-log") else []
    return scene.start(*flags, stderr=stderr)


def _many_calls(scene: Scene, count: int = 3000) -> None:
    """Make calls, each with a line in the log, from eight threads; none may take long."""
    caller = scene.caller()
    session = caller.session()
    request = smallest(session)

    def call(_number: int) -> float:
        answer = caller.call(ACCELERATOR + "Execute", request, timeout=3.0)
        return answer.seconds if answer.is_ok else -1.0

    done: list[float] = []
    with ThreadPoolExecutor(8) as pool:
        for _ in range(0, count, 100):
            done += pool.map(call, range(100))
            if min(done) < 0:
                break
    scene.saw(f"{len(done)} calls, the longest {max(done):.2f} s")
    scene.require(min(done) >= 0, f"a call failed after about {len(done)}")
    scene.require(max(done) <= 2.0, f"a call took {max(done):.1f} s")
    caller.close()


@row("12a", "nobody reads stderr, 3,000 calls", bystander=False)
def unread_log(scene: Scene) -> None:
    """A pipe that is full does not stop the server."""
    reading, writing = os.pipe()
    try:
        server = _start_logging(scene, writing)
        os.close(writing)
        _many_calls(scene)
        seconds = server.end(WAIT)
        scene.require(seconds is not None and seconds <= ALLOWED, f"SIGTERM: {seconds}")
    finally:
        os.close(reading)


@row("12b", "the reader of stderr is gone, 3,000 calls", bystander=False)
def broken_log(scene: Scene) -> None:
    """Nor does a pipe that is broken."""
    reading, writing = os.pipe()
    server = _start_logging(scene, writing)
    os.close(writing)
    os.close(reading)
    _many_calls(scene)
    seconds = server.end(WAIT)
    scene.require(seconds is not None and seconds <= ALLOWED, f"SIGTERM: {seconds}")


@row("12c", "stderr is a full disk, 3,000 calls", bystander=False)
def full_disk(scene: Scene) -> None:
    """Nor does a disk that is full."""
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        _start_logging(scene, full)
        _many_calls(scene)
    finally:
        os.close(full)


def _talk_unary(caller: Caller, session: str) -> Answer:
    request = smallest(session)
    while True:
        answer = caller.call(ACCELERATOR + "Execute", request, timeout=10.0)
        if not answer.is_ok:
            return answer
        time.sleep(0.001)


def _talk_by_stream(caller: Caller, session: str) -> Answer:
    raw = smallest(session).SerializeToString()
    answered = threading.Semaphore(1)

    def requests() -> Iterator[bytes]:
        while answered.acquire(timeout=10.0):
            yield raw

    call = caller.open(ACCELERATOR + "ExecuteStream", requests(), 30.0)
    try:
        for _ in call:
            time.sleep(0.001)
            answered.release()
    except grpc.RpcError as error:
        return read_error(error)
    return Answer("OK", "", "the stream ended")


def _talk_plainly(server: Server, session: str) -> Answer:
    raw = smallest(session).SerializeToString()
    with PlainCall(server.socket) as call:
        while True:
            answer = call.ask(raw)
            if not answer.is_ok:
                return answer
            time.sleep(0.001)


@row(
    "13",
    "SIGTERM between two lists of 60 clients, six times",
    "--max-sessions",
    "64",
    bystander=False,
)
def end_between_lists(scene: Scene) -> None:
    """Each client is told that the server is draining, or meets no server; none is cancelled."""
    ends: Counter[str] = Counter()
    for _ in range(ENDINGS):
        server = scene.start()
        callers = [scene.caller() for _ in range(CLIENTS)]
        sessions = [caller.session() for caller in callers]
        with ThreadPoolExecutor(CLIENTS) as pool:
            talks = [
                pool.submit(_talk, number, server, caller, session)
                for number, (caller, session) in enumerate(zip(callers, sessions, strict=True))
            ]
            time.sleep(1.0)
            server.process.terminate()
            ends.update(talk.result(30.0) for talk in talks)
        for caller in callers:
            caller.close()
        server.kill()
    scene.saw(", ".join(f"{name} {count}" for name, count in sorted(ends.items())))
    for name, count in ends.items():
        is_right = name.split()[-1] in ("SERVER_DRAINING", "UNAVAILABLE")
        scene.require(is_right, f"{count} clients saw {name}")


def _talk(number: int, server: Server, caller: Caller, session: str) -> str:
    """Run lists until they fail, by one of three ways; return the way and how it ended."""
    if number % 3 == 0:
        return f"unary {_talk_unary(caller, session).name}"
    if number % 3 == 1:
        return f"stream {_talk_by_stream(caller, session).name}"
    return f"plain {_talk_plainly(server, session).name}"
