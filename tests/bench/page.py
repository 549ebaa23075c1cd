# SPDX-License-Identifier: Apache-2.0
"""Row page: the cost of a viewer of the page for the sessions on view."""

import atexit
import json
import threading
import urllib.request
from collections.abc import Callable

import grpc
import numpy as np

from tests.bench.echo import OPTIONS
from tests.bench.report import Figure, Work, ratio, row
from tests.bench.server import N, directory, median_call, start
from tests.server.wire import Client, load, op

_SHAPE = (1, 1, 32, 64)
_LOOKS_SECONDS = 1.0  # as often as a page looks
_REPETITIONS = 201  # of which the median counts: lists take milliseconds


def _calls(address: str) -> dict[str, Work]:
    """Return the calls to measure, in a session of their own with warm kernels."""
    client = Client(grpc.insecure_channel(address, OPTIONS))
    client.run(*load(1, np.ones(_SHAPE, np.float32)), *load(2, np.ones(_SHAPE, np.float32)))
    add = op("add", input_a=1, input_b=1, output=2)
    many, single = client.request(*[add] * N), client.request(add)
    return {
        f"{N} adds of 32x64 in one list": lambda: client.stub.Execute(many),
        "60 calls of one add": median_call(lambda: client.stub.Execute(single)),
    }


def _look(url: str) -> None:
    """Fetch the list of sessions and each session in a loop, like a viewer."""
    base, _, token = url.partition("#token=")
    done = threading.Event()

    def read(path: str) -> list[dict[str, str]]:
        request = urllib.request.Request(f"{base}data/{path}")
        request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request) as answer:
            sessions: list[dict[str, str]] = json.loads(answer.read())
            return sessions

    def look() -> None:
        while not done.wait(_LOOKS_SECONDS):
            for session in read("sessions"):
                read(f"session?session={session['session']}")

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    atexit.register(_ended(done, looking))


def _ended(done: threading.Event, looking: threading.Thread) -> Callable[[], None]:
    def end() -> None:
        done.set()
        looking.join()

    return end


@row("page", "a session that a page looks at, over a server without a page (time)", grpc=True)
def looking() -> list[Figure]:
    """Target 1.1: a viewer takes less than a tenth of the smallest operations."""
    flags = "--page", "127.0.0.1:0"
    shown, address = start("nnpa_server", "--listen", f"unix:{directory()}/shown", *flags)
    atexit.register(shown.terminate)
    assert shown.stdout is not None
    url = shown.stdout.readline().decode().split()[-1]
    alone, silent = start("nnpa_server", "--listen", f"unix:{directory()}/alone")
    atexit.register(alone.terminate)
    on, off = _calls(address), _calls(silent)
    _look(url)
    return [Figure(what, ratio(on[what], off[what], _REPETITIONS), 1.1) for what in on]
