# SPDX-License-Identifier: Apache-2.0
"""Clients of a soak: they come, work in every way that there is, compare bits, and go.

`python -m tests.hostile.soak_clients ADDRESS SOCKET COUNT` prints what its clients saw, a line of
JSON every few seconds, until its standard input ends.
"""

import itertools
import json
import queue
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from nnpa.network.v1 import network_pb2 as network
from nnpa.oip import open_inference_grpc_pb2 as oip
from nnpa.zdnn.v1 import accelerator_pb2 as pb
from nnpa.zdnn.v1.accelerator_pb2_grpc import AcceleratorServiceStub

from tests.hostile import known_answers, models
from tests.hostile.calls import ACCELERATOR, INFERENCE, NETWORK, Caller, chunks, read_error
from tests.hostile.known_answers import Execute, WrongAnswerError
from tests.hostile.plain_socket import PlainCall
from tests.hostile.recorded_calls import tensor_operations

PERIOD = 5.0
THINK_SECONDS = 0.1
TURNS = 200
"""Turns of a client before it goes, and another comes."""
TIMEOUT = 20.0
MODEL = "soak"
MAX_FAILURES = 5


class Watch:
    """Collects the seconds and the failures of all clients of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: list[float] = []
        self._failures: list[str] = []

    def timed(self, call: Callable[[], None]) -> None:
        """Make a call, note how long it took, and whether it failed."""
        begin = time.monotonic()
        try:
            call()
        except grpc.RpcError as error:
            answer = read_error(error)
            self.fail(f"{answer.name}: {answer.details}")
        except (AssertionError, OSError, WrongAnswerError) as error:
            self.fail(f"{type(error).__name__}: {error}")
        with self._lock:
            self._seconds.append(time.monotonic() - begin)

    def fail(self, text: str) -> None:
        """Note a failure."""
        with self._lock:
            self._failures.append(text[:300])

    def take(self) -> str:
        """Return what came since the last time, as JSON."""
        with self._lock:
            seconds, self._seconds = self._seconds, []
            failures, self._failures = self._failures, []
        facts = {"seconds": seconds, "failed": len(failures), "failures": failures[:MAX_FAILURES]}
        return json.dumps(facts)


Turn = Callable[[int], None]


class Client:
    """One client for a while: a session, and a way to work in it."""

    def __init__(self, address: str, socket: Path) -> None:
        self.caller, self.socket = Caller(address), socket
        self.session = self.caller.session()
        self.stub = AcceleratorServiceStub(self.caller.channel)

    def close(self) -> None:
        """Delete the session and leave."""
        request = pb.DeleteSessionRequest(name=self.session)
        self.caller.call(ACCELERATOR + "DeleteSession", request, timeout=TIMEOUT)
        self.caller.close()

    def by_unary_calls(self) -> Turn:
        """Run lists, a call for each."""

        def execute(request: pb.ExecuteRequest) -> pb.ExecuteResponse:
            response: pb.ExecuteResponse = self.stub.Execute(request, timeout=TIMEOUT)
            return response

        return self._checking(execute)

    def by_a_stream(self) -> Turn:
        """Run lists in one conversation."""
        requests: queue.SimpleQueue[pb.ExecuteRequest | None] = queue.SimpleQueue()
        answers: Any = self.stub.ExecuteStream(iter(requests.get, None))

        def execute(request: pb.ExecuteRequest) -> pb.ExecuteResponse:
            requests.put(request)
            response: pb.ExecuteResponse = next(answers)
            return response

        return self._checking(execute)

    def by_a_plain_socket(self) -> Turn:
        """Run lists without HTTP/2."""
        call = PlainCall(self.socket, timeout=TIMEOUT)

        def execute(request: pb.ExecuteRequest) -> pb.ExecuteResponse:
            return call.ask(request.SerializeToString()).read(pb.ExecuteResponse)

        return self._checking(execute)

    def _checking(self, execute: Execute) -> Turn:
        return lambda number: known_answers.check(number, self.session, execute)

    def by_transfers(self) -> Turn:
        """Upload sticks and download them."""
        request = pb.ExecuteRequest(session=self.session, operations=tensor_operations(1)[:2])
        request.operations[0].init_ztensor.pre_transformed_desc.dim2 = 4096
        request.operations[0].init_ztensor.transformed_desc.dim2 = 4096
        self.stub.Execute(request, timeout=TIMEOUT)
        size = 4096 // 32 * 4096

        def turn(number: int) -> None:
            contents = random.Random(number).randbytes(size)
            sticks = pb.WriteSticks(id=1, total_bytes=size)
            header = pb.WriteTensorHeader(session=self.session, sticks=sticks)
            parts = [pb.WriteTensorRequest(chunk=chunk) for chunk in chunks(contents, 1 << 18)]
            self.stub.WriteTensor(iter([pb.WriteTensorRequest(header=header), *parts]), TIMEOUT)
            source = pb.ReadTensorRequest(session=self.session, sticks=pb.ReadSticks(id=1))
            parts_read = [answer.chunk for answer in self.stub.ReadTensor(source, timeout=TIMEOUT)]
            if b"".join(parts_read) != contents:
                raise WrongAnswerError("a tensor is not what was written")

        return turn

    def by_networks(self) -> Turn:
        """Run a network of its own."""
        name = models.ready(self.caller, self.session, models.harmless())

        def turn(number: int) -> None:
            row = _row(number)
            request = models.infer_request(self.session, name, x=row)
            answer = self.caller.call(NETWORK + "InferNetwork", request, timeout=TIMEOUT)
            _compare(answer.read(network.InferNetworkResponse).outputs[0].data, row)

        return turn

    def by_published_models(self) -> Turn:
        """Run a published model."""

        def turn(number: int) -> None:
            row = _row(number)
            request = oip.ModelInferRequest(model_name=MODEL, raw_input_contents=[row.tobytes()])
            request.inputs.add(name="x", datatype="FP32", shape=row.shape)
            answer = self.caller.call(INFERENCE + "ModelInfer", request, timeout=TIMEOUT)
            _compare(answer.read(oip.ModelInferResponse).raw_output_contents[0], row)

        return turn


WAYS: tuple[Callable[[Client], Turn], ...] = (
    Client.by_unary_calls,
    Client.by_a_stream,
    Client.by_a_plain_socket,
    Client.by_transfers,
    Client.by_networks,
    Client.by_published_models,
)


def _row(number: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    """Return numbers that DLFLOAT16 has exactly."""
    return np.array([[number % 200 - 100, 1, -2, number % 7]], np.float32)


def _compare(raw: bytes, row: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]") -> None:
    if raw != np.maximum(row, 0).tobytes():
        raise WrongAnswerError("relu of a row is not what it should be")


def work(number: int, address: str, socket: Path, watch: Watch, ended: threading.Event) -> None:
    """Be one client after the other, in changing ways, until the end."""
    chooser = random.Random(number)
    for life in itertools.count():
        if ended.is_set():
            return
        try:
            client = Client(address, socket)
            turn = WAYS[(number + life) % len(WAYS)](client)
        except (grpc.RpcError, AssertionError, OSError, models.RefusedError) as error:
            watch.fail(f"a client could not begin: {error!r}")
            ended.wait(1.0)
            continue
        for at in range(TURNS):
            if ended.wait(chooser.uniform(0.0, 2 * THINK_SECONDS)):
                break
            watch.timed(partial(turn, at))
        with suppress(grpc.RpcError):
            client.close()


def _listen(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def main(address: str, socket: Path, first: int, count: int) -> None:
    """Run `count` clients until standard input ends."""
    watch, ended = Watch(), threading.Event()
    threads = [
        threading.Thread(target=work, args=(number, address, socket, watch, ended))
        for number in range(first, first + count)
    ]
    for thread in threads:
        thread.start()
    threading.Thread(target=_listen, args=(ended,), daemon=True).start()
    while not ended.wait(PERIOD):
        print(watch.take(), flush=True)
    for thread in threads:
        thread.join()
    print(watch.take(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
