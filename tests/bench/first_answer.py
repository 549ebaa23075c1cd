# SPDX-License-Identifier: Apache-2.0
"""Row 31: loading a model and its first answer, beside ONNX Runtime.

Each load has a server of its own that has compiled its kernels and hosted another model before: no
program is known, and no worker has to start first. ONNX Runtime makes a session and runs it once,
on one thread, in this process.
"""

import statistics
import time
from collections.abc import Mapping
from functools import partial

from nnpa_client import NnpaError, connect

from tests.bench.models import PRODUCTS, SMALL_NODES, case, host_another
from tests.bench.report import Figure, row, seconds_of
from tests.bench.server import directory, start
from tests.network.acceptance.packages import IndexUnreachable
from tests.network.acceptance.trial import Array, infer, on_one_thread

_ROUNDS = 3
_FLOOR, _MOONSHOT = 8.0, 2.0
_SHORT = 0.15  # seconds that are always quick enough


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
        with connect(address, machine="telum2") as session:
            host_another(session)
            began = time.perf_counter()
            with session.load(file) as network:
                infer(network, feeds)
                return time.perf_counter() - began
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _run_once(file: bytes, feeds: Mapping[str, Array]) -> None:
    on_one_thread(file).run(None, dict(feeds))
