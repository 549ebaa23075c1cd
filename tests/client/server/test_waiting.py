# SPDX-License-Identifier: Apache-2.0
"""Clients wait for a full server if they asked to: each one is served, and none starves."""

import logging
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from nnpa_client import TransportError, connect
from nnpa_client.config import max_wait

from tests.deploy.fleet import ENVOY, fleet
from tests.server.process import serving

_needs_envoy = pytest.mark.skipif(ENVOY is None, reason="there is no Envoy here")
PLACES = 16
CLIENTS = 200
SECONDS = 1.0  # of a session
PATIENCE = 600.0  # seconds that a client waits


def test_without_wait_a_full_server_refuses(tmp_path: Path) -> None:
    """A full server refuses at once, and its error has the delay before the next attempt."""
    flags = ("--listen", f"unix:{tmp_path}/nnpa.sock", "--max-sessions", "1")
    with serving(tmp_path, *flags) as server, connect(server.address):
        began = time.monotonic()
        with pytest.raises(TransportError, match="max_sessions is 1, and the server") as caught:
            connect(server.address)
        assert time.monotonic() - began < 1
        assert caught.value.reason == "SESSION_QUOTA_EXCEEDED"
        assert caught.value.retry_delay == 1
        with pytest.raises(TransportError, match="max_sessions is 1, and the server"):
            connect(server.address, wait=0.2)
        assert time.monotonic() - began < 3


def test_a_place_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A waiting client gets the place that another session leaves, and logs one line."""
    flags = ("--listen", f"unix:{tmp_path}/nnpa.sock", "--max-sessions", "1")
    with serving(tmp_path, *flags) as server:
        first = connect(server.address)
        threading.Timer(0.3, first.close).start()
        with caplog.at_level(logging.WARNING), connect(server.address, wait=30) as second:
            assert second.status().name == second.name
        assert caplog.text.count("is full: waiting 30 s at most") == 1


@pytest.mark.parametrize("text", ["-1", "inf", "nan", "soon"])
def test_a_wait_is_a_time(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that is no number of seconds is refused by name, as variable and as argument."""
    monkeypatch.setenv("ZDNN_WAIT", text)
    with pytest.raises(ValueError, match="ZDNN_WAIT"):
        max_wait()
    if text != "soon":
        with pytest.raises(ValueError, match="wait"):
            connect("unix:/nowhere", wait=float(text))


def test_the_environment_may_say_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZDNN_WAIT is in seconds; without it clients do not wait."""
    for text, seconds in (("60", 60), ("", 0)):
        monkeypatch.setenv("ZDNN_WAIT", text)
        assert max_wait() == seconds
    monkeypatch.delenv("ZDNN_WAIT")
    assert max_wait() == 0


@pytest.mark.heavy
@pytest.mark.parametrize("count", [1, pytest.param(4, marks=_needs_envoy)])
def test_nobody_starves(tmp_path: Path, count: int) -> None:
    """All of 200 clients get one of 16 places, each for a second, the slowest in time.

    The places are at one server, or at four servers behind a proxy.
    """
    with ExitStack() as opened:
        places = ("--max-sessions", str(PLACES // count))
        if count == 1:
            server = serving(tmp_path, "--listen", f"unix:{tmp_path}/nnpa.sock", *places)
            address = opened.enter_context(server).address
        else:
            address = opened.enter_context(fleet(tmp_path, count, places)).address

        def work(_client: int) -> float:
            began = time.monotonic()
            with connect(address, wait=PATIENCE):
                waited = time.monotonic() - began
                time.sleep(SECONDS)
            return waited

        with ThreadPoolExecutor(CLIENTS) as pool:
            waits = sorted(pool.map(work, range(CLIENTS)))
    median = statistics.median(waits)
    print(f"{CLIENTS} clients, {PLACES} places: median {median:.1f} s, slowest {waits[-1]:.1f} s")
    assert waits[-1] <= 3 * median
