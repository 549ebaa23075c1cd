# SPDX-License-Identifier: Apache-2.0
"""Scenarios to measure shortcuts on; each runs in a process of its own, with its server.

`python -m tests.bench.scenarios NAME [SERVER FLAGS]` prints `ready`, then for every line of its
input the seconds that one round took, and at the end the peak of memory of the server and of
itself. Environment variables reach the clients in it.
"""

import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from nnpa_client import connect, zdnn
from nnpa_client.inference import ModelClient
from nnpa_client.networks import held_out, onnx_cnn

from tests.bench import generation, inference
from tests.bench.libzdnn import program, sequence_of_calls, using_library
from tests.bench.report import Work, seconds_of
from tests.bench.server import adds_in, array_of, directory, median_call, start
from tests.network.acceptance.listing import models
from tests.network.acceptance.trial import draw, infer, model_bytes, on_one_thread
from tests.server.onnx_models import binary

SMALL = (32, 64)
SETTLED_SECONDS = 2.0
TICK = 0.5


@dataclass(frozen=True, slots=True)
class Running:
    """Work to measure, and its server process; None if each round starts a server."""

    work: Work
    server: int | None


Scenario: TypeAlias = Callable[[list[str]], AbstractContextManager[Running]]


@contextmanager
def _serving(flags: list[str], listen: str = "") -> Generator[tuple[str, int]]:
    """Start a server, by default on a Unix socket; yield its address and process."""
    listen = listen or f"unix:{directory()}/scenario"
    common = "--listen", listen, "--shared-memory", "--compile-first"
    process, address = start("nnpa_server", *common, *flags)
    try:
        yield address, process.pid
    finally:
        process.terminate()
        process.communicate(timeout=60)


@contextmanager
def small_add(flags: list[str]) -> Generator[Running]:
    """60 adds of 32x64 by ids, one call each."""
    with _serving(flags) as (address, server), connect(address) as session:
        a, b, out = (session.ztensor(np.ones(SMALL, np.float32)) for _ in range(3))
        yield Running(median_call(lambda: zdnn.add(a, b, out)), server)


@contextmanager
def small_add_by_tcp(flags: list[str]) -> Generator[Running]:
    """60 adds of 32x64 by ids, one call each, over HTTP/2 on the loopback."""
    with _serving(flags, "127.0.0.1:0") as (address, server), connect(address) as session:
        a, b, out = (session.ztensor(np.ones(SMALL, np.float32)) for _ in range(3))
        yield Running(median_call(lambda: zdnn.add(a, b, out)), server)


@contextmanager
def one_row_by_weights(flags: list[str]) -> Generator[Running]:
    """10 lists of 20 products of a row of 1024 and the same weights of 1024x1024."""
    with _serving(flags) as (address, server), connect(address) as session:
        row, weights, bias, out = (
            session.ztensor(np.ones(shape, np.float32))
            for shape in ((1, 1024), (1024, 1024), (1024,), (1, 1024))
        )

        def layer() -> None:
            with session.pipeline():
                for _ in range(20):
                    zdnn.matmul_op(row, weights, bias, zdnn.MATMUL_OP_ADDITION, out)

        yield Running(median_call(layer, 10), server)


@contextmanager
def list_of_adds(flags: list[str]) -> Generator[Running]:
    """10 lists of 100 adds of 32x64 by ids."""
    with _serving(flags) as (address, server), connect(address) as session:
        a, b, out = (session.ztensor(np.ones(SMALL, np.float32)) for _ in range(3))

        def pipeline() -> None:
            with session.pipeline():
                for _ in range(100):
                    zdnn.add(a, b, out)

        yield Running(median_call(pipeline, 10), server)


@contextmanager
def c_program(flags: list[str]) -> Generator[Running]:
    """100 operations of a C program on 32x64, with cached contents."""
    with _serving(flags) as (address, server), using_library(address, "cache") as library:
        yield Running(sequence_of_calls(library), server)


@contextmanager
def c_program_of_large_tensors(flags: list[str]) -> Generator[Running]:
    """100 operations of a C program on 256x1024, with cached contents."""
    with _serving(flags) as (address, server), using_library(address, "cache") as library:
        yield Running(sequence_of_calls(library, (256, 1024)), server)


@contextmanager
def c_program_in_shared_memory(flags: list[str]) -> Generator[Running]:
    """A C program that uploads 4 MiB, adds, and downloads, in shared memory."""
    with _serving(flags) as (address, server), using_library(address, "shm") as library:
        yield Running(median_call(program(library, 4), 3), server)


@contextmanager
def inline_arrays(flags: list[str]) -> Generator[Running]:
    """A list that uploads 4 MiB, adds, and downloads."""
    with _serving(flags) as (address, server), connect(address) as session:
        yield Running(median_call(adds_in(session, array_of(4 << 20))[", one list"], 5), server)


@contextmanager
def inline_arrays_by_tcp(flags: list[str]) -> Generator[Running]:
    """A list that uploads 4 MiB, adds, and downloads, over HTTP/2 on the loopback."""
    with _serving(flags, "127.0.0.1:0") as (address, server), connect(address) as session:
        yield Running(median_call(adds_in(session, array_of(4 << 20))[", one list"], 5), server)


@contextmanager
def first_add(flags: list[str]) -> Generator[Running]:
    """From the start of a server to its first answer."""

    def work() -> None:
        with _serving(flags) as (address, _), connect(address) as session:
            a = session.ztensor(np.ones((2, 3), np.float32))
            assert zdnn.add(a, a).numpy()[0, 0] == 2

    yield Running(work, None)


@contextmanager
def hosted_network(flags: list[str]) -> Generator[Running]:
    """A hosted convolutional network that reads 32 digits."""
    images = held_out().images[:32, None]
    with _serving(flags) as (address, server), ModelClient(address) as models:
        models.load("cnn", onnx_cnn())
        yield Running(median_call(lambda: models.infer("cnn", {"image": images}), 3), server)


@contextmanager
def hosted_voice_detector(flags: list[str]) -> Generator[Running]:
    """60 runs of Silero's voice detector, of which 21 nodes on the host are neighbours."""
    with _hosting(flags, "silero_vad_op15", 60) as running:
        yield running


@contextmanager
def _hosting(flags: list[str], name: str, calls: int) -> Generator[Running]:
    listed = models()[name]
    file = model_bytes(listed)
    feeds = draw(on_one_thread(file), listed, 0)
    with (
        _serving(flags) as (address, server),
        connect(address, machine="telum2") as session,
        session.load(file) as network,
    ):
        yield Running(median_call(lambda: infer(network, feeds), calls), server)


@contextmanager
def decoder_tokens(flags: list[str]) -> Generator[Running]:
    """Forty tokens of a decoder whose cache grows, more sizes than programs are kept for."""
    with (
        _serving(flags) as (address, server),
        connect(address) as session,
        session.load(generation.decoder(23)) as network,
    ):

        def token(feeds: generation.Arrays) -> generation.Arrays:
            return network.infer(*(feeds[port.name] for port in network.inputs)).outputs

        yield Running(median_call(lambda: generation.generate(token, 40, 65), 1), server)


@contextmanager
def model_infer(flags: list[str]) -> Generator[Running]:
    """60 requests for a small sum over the Open Inference Protocol."""
    with _infer(flags, inference.SMALL, 60) as running:
        yield running


@contextmanager
def model_infer_1_mebibyte(flags: list[str]) -> Generator[Running]:
    """20 requests for a sum of 1 MiB over the Open Inference Protocol."""
    with _infer(flags, inference.LARGE[0], 20) as running:
        yield running


@contextmanager
def _infer(flags: list[str], shape: tuple[int, int], calls: int) -> Generator[Running]:
    folder = directory() / "models"
    folder.mkdir(exist_ok=True)
    (folder / "add.onnx").write_bytes(binary("Add", ("n", "m")))
    with _serving([*flags, "--models", str(folder)]) as (address, server):
        infer, message = inference.until_it_answers(address), inference.message(shape)
        yield Running(median_call(lambda: infer(message), calls), server)


SCENARIOS: Mapping[str, Scenario] = {
    "small add": small_add,
    "small add, TCP": small_add_by_tcp,
    "one row by weights": one_row_by_weights,
    "list of 100 adds": list_of_adds,
    "C program": c_program,
    "C program, 256x1024": c_program_of_large_tensors,
    "C program, 4 MiB shared": c_program_in_shared_memory,
    "4 MiB inline": inline_arrays,
    "4 MiB inline, TCP": inline_arrays_by_tcp,
    "start to first add": first_add,
    "hosted CNN": hosted_network,
    "hosted voice detector": hosted_voice_detector,
    "decoder": decoder_tokens,
    "ModelInfer": model_infer,
    "ModelInfer, 1 MiB": model_infer_1_mebibyte,
}


def peak_mebibytes(process: int | str) -> float:
    """Return the most memory that a process has had."""
    for line in Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def settle(running: Running) -> None:
    """Work until caches are full, then wait until nothing runs in the server's background."""
    end = time.monotonic() + SETTLED_SECONDS
    while time.monotonic() < end:
        running.work()
    if running.server is None:
        return
    before = _ticks(running.server)
    while True:
        time.sleep(TICK)
        now = _ticks(running.server)
        if now - before <= 1:
            return
        before = now


def _ticks(process: int) -> int:
    """Return the processor time that a process has used, in ticks of the clock."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def main(name: str, *flags: str) -> None:
    """Be the process of a scenario."""
    with SCENARIOS[name](list(flags)) as running:
        settle(running)
        print("ready", flush=True)
        for _ in sys.stdin:
            print(seconds_of(running.work), flush=True)
        server = 0.0 if running.server is None else peak_mebibytes(running.server)
        print(server, peak_mebibytes("self"), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
