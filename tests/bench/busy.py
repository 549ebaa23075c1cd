# SPDX-License-Identifier: Apache-2.0
"""Row 32: inference beside busy processes, over inference on an idle machine.

Four processes spin at the same priority. ONNX Runtime runs beside them on one thread, too: the
figure is the median ratio to it on the busy machine over the median ratio on the idle one.
"""

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

from nnpa_client import NnpaError

from tests.bench.models import case, session
from tests.bench.report import Figure, ratio, row
from tests.network.acceptance.packages import IndexUnreachable
from tests.network.acceptance.trial import infer, on_one_thread

_MODELS = ("resnet18", "ppocr_v6_boxes")
_SPINNING = 4
_REPETITIONS = 60
_SETTLED_SECONDS = 0.5


@row("32", "inference over ONNX Runtime beside four busy processes, over that when idle", grpc=True)
def busy_over_idle() -> list[Figure]:
    """Floor 2, moonshot 1.2."""
    return [_compared(name) for name in _MODELS]


def _compared(name: str) -> Figure:
    try:
        model = case(name)
        feeds, runtime = model.feeds(), on_one_thread(model.file)
        with session().load(model.file) as network:
            works = partial(infer, network, feeds), partial(runtime.run, None, dict(feeds))
            idle = ratio(*works, _REPETITIONS)
            with _busy():
                busy = ratio(*works, _REPETITIONS)
    except (IndexUnreachable, NnpaError) as error:
        return Figure(name, float("nan"), note=str(error))
    return Figure(name, busy / idle, 2, 1.2, note=f"{busy:.3g} over {idle:.3g}")


@contextmanager
def _busy() -> Generator[None]:
    spinning = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(_SPINNING)
    ]
    time.sleep(_SETTLED_SECONDS)
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()
