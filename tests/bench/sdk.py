# SPDX-License-Identifier: Apache-2.0
"""Row SDK: the time that each SDK adds to a call, over a bare echo in its own language.

An SDK's program gets the addresses of a server and of a bare echo (`tests.bench.echo`, method Raw),
and prints one JSON object of median microseconds. `add_us` is one 32x64 add into an output that
exists, `pipeline_us` a list of a hundred adds, both over the session's stream; `add_unary_us` and
`pipeline_unary_us` are the same as unary calls; `add_echo_us` and `pipeline_echo_us` are echoes of
the requests' sizes. All take turns for 400 repetitions, after a tenth to warm up.
"""

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from nnpa.zdnn.v1.accelerator_pb2 import ExecuteRequest
from nnpa.zdnn.v1.operation_pb2 import Add, Operation
from nnpa.zdnn.v1.tensor_pb2 import TensorRef
from nnpa_client import Session, connect, zdnn

from tests.bench.echo import EchoClient
from tests.bench.report import Figure, row
from tests.bench.server import directory, echo, server, sockets
from tests.conformance import java, typescript

ROOT = Path(__file__).parents[2]
SHAPE = (32, 64)
LISTED = 100
REPETITIONS = 400
SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Program:
    """An SDK's program: the tools that it needs, and its build in a folder of its own."""

    name: str
    tools: tuple[str, ...]
    build: Callable[[Path], list[str]]


def _python(_folder: Path) -> list[str]:
    return [sys.executable, "-m", "tests.bench.sdk"]


def _go(folder: Path) -> list[str]:
    program, home = str(folder / "go-bench"), ROOT / "client/go"
    subprocess.run(["go", "build", "-o", program, "./bench"], cwd=home, check=True)
    return [program]


def _java(_folder: Path) -> list[str]:
    return java.program("dev.nnpa.bench.Latency")


def _typescript(_folder: Path) -> list[str]:
    return typescript.program("bench/latency.js")


PROGRAMS = (
    Program("python", (), _python),
    Program("go", ("go",), _go),
    Program("java", java.TOOLS, _java),
    Program("typescript", typescript.TOOLS, _typescript),
)


@row(
    "SDK",
    "one add, and a list of a hundred, over an echo of as many bytes in the same language",
    grpc=True,
)
def latencies() -> list[Figure]:
    """Time every SDK whose tools are installed."""
    places = sockets()
    address = server(places[0])
    echo(places[1])
    figures: list[Figure] = []
    for program in PROGRAMS:
        if missing := [tool for tool in program.tools if shutil.which(tool) is None]:
            print(f"row SDK: no {', '.join(missing)}, {program.name} is left out")
            continue
        command = [*program.build(directory()), address, places[1]]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=SECONDS)
        times: dict[str, float] = json.loads(run.stdout)
        for what, label in (("add", "one add"), ("pipeline", f"list of {LISTED}")):
            for key, way in (("", ""), ("_unary", ", unary")):
                took, bare = times[f"{what}{key}_us"], times[f"{what}_echo_us"]
                note = f"{took:.0f} us, echo {bare:.0f} us"
                figures.append(Figure(f"{program.name}, {label}{way}", took / bare, note=note))
    return figures


def _request_bytes(session: Session, count: int) -> int:
    """Return the size of a request of `count` adds."""
    ref = TensorRef(id=1)
    operation = Operation(add=Add(input_a=ref, input_b=ref, output=ref))
    return ExecuteRequest(session=session.name, operations=[operation] * count).ByteSize()


def _medians(works: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median microseconds of pieces of work, by name, that are done in turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    warm = REPETITIONS // 10
    for repetition in range(REPETITIONS + warm):
        for name, work in works.items():
            began = time.perf_counter_ns()
            work()
            if repetition >= warm:
                times[name].append((time.perf_counter_ns() - began) / 1e3)
    return {name: statistics.median(samples) for name, samples in times.items()}


def _adding(session: Session) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return work that adds two ztensors into a third, and work that does so in a list of 100."""
    a, b, out = (session.ztensor(np.zeros(SHAPE, np.float32)) for _ in range(3))

    def pipeline() -> None:
        with session.pipeline():
            for _ in range(LISTED):
                zdnn.add(a, b, out)

    return lambda: zdnn.add(a, b, out), pipeline


def main(address: str, bare: str) -> None:
    """Be the program of the Python SDK."""
    client = EchoClient(bare)
    times: dict[str, float] = {}
    with connect(address) as session, connect(address, plain=("stream", "plain-socket")) as unary:
        ways = zip(("add", "pipeline"), (1, LISTED), _adding(session), _adding(unary), strict=True)
        for what, count, streamed, called in ways:
            payload = bytes(_request_bytes(session, count))
            times |= _medians(
                {
                    f"{what}_us": streamed,
                    f"{what}_unary_us": called,
                    f"{what}_echo_us": partial(client.raw, payload),
                }
            )
    print(json.dumps(times))


if __name__ == "__main__":
    main(*sys.argv[1:])
