# SPDX-License-Identifier: Apache-2.0
"""Rows 31 and 31b: a new model, and new sizes at each run, beside ONNX Runtime.

Row 31 loads a model and waits for its first answer. Each load has a server of its own that has
compiled its kernels and hosted another model before: no program is known, and no worker has to
start first. ONNX Runtime makes a session and runs it once, on one thread, in this process. Row 31b
generates tokens with a cache that grows by a row at each.
"""

import statistics
import time
from collections.abc import Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
from nnpa_client import NnpaError, connect
from nnpa_client.network.hosted import Network

from tests.bench.generation import Arrays, decoder, generate
from tests.bench.models import PRODUCTS, SMALL_NODES, case, host_another, session
from tests.bench.report import Figure, row, seconds_of
from tests.bench.server import directory, start
from tests.network.acceptance.packages import IndexUnreachable
from tests.network.acceptance.trial import Array, infer, on_one_thread

_ROUNDS = 3
_FLOOR, _MOONSHOT = 8.0, 2.0
_SHORT = 0.15  # seconds that are always quick enough
_TOKENS = 200


@row("31", "loading a model and its first answer over ONNX Runtime's (time)", grpc=True)
def load_and_answer() -> list[Figure]:
    """Floor 8 or 150 ms, the larger; moonshot 2."""
    return [_compared(name) for name in (*PRODUCTS, *SMALL_NODES)]


def _compared(name: str) -> Figure:
    try:
        file, feeds = case(name).file, case(name).feeds()
        ours = statistics.median(_seconds(file, feeds) for _ in range(_ROUNDS))
    except (IndexUnreachable, NnpaError) as error:
        return Figure(name, float("nan"), note=str(error))
    once = partial(_run_once, file, feeds)
    theirs = statistics.median(seconds_of(once) for _ in range(_ROUNDS))
    note = f"{ours * 1e3:.0f} over {theirs * 1e3:.0f} ms"
    return Figure(name, ours / theirs, max(_FLOOR, _SHORT / theirs), _MOONSHOT, note=note)


def _seconds(file: bytes, feeds: Mapping[str, Array]) -> float:
    """Return the seconds that a server takes to load its second model and to answer once."""
    process, address = start(
        "nnpa_server", "--listen", f"unix:{directory()}/first-answer", "--compile-first"
    )
    try:
        with connect(address, machine="telum2") as ours:
            host_another(ours)
            began = time.perf_counter()
            with ours.load(file) as network:
                infer(network, feeds)
                return time.perf_counter() - began
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _run_once(file: bytes, feeds: Mapping[str, Array]) -> None:
    on_one_thread(file).run(None, dict(feeds))


@row("31b", "a token of a decoder whose cache grows, over ONNX Runtime (time)", grpc=True)
def growing_cache() -> list[Figure]:
    """Floor 30 or 15 ms, the smaller; moonshot 6. Two layers; the mean of 200 tokens."""
    return [_token_figure(opset) for opset in (18, 23)]


def _token_figure(opset: int) -> Figure:
    model = decoder(opset)
    runtime = on_one_thread(model)
    names = [output.name for output in runtime.get_outputs()]

    def its_outputs(feeds: Arrays) -> Arrays:
        return dict(zip(names, runtime.run(None, dict(feeds)), strict=True))

    theirs = seconds_of(lambda: generate(its_outputs, _TOKENS)) / _TOKENS
    with session().load(model) as network:
        ours = seconds_of(lambda: generate(partial(_outputs, network), _TOKENS)) / _TOKENS
    note = f"{ours * 1e3:.2g} over {theirs * 1e3:.2g} ms"
    return Figure(f"opset {opset}", ours / theirs, min(30, 0.015 / theirs), 6, note=note)


def _outputs(network: Network, feeds: Arrays) -> dict[str, npt.NDArray[np.float32]]:
    return dict(network.infer(*(feeds[port.name] for port in network.inputs)).outputs)
