# SPDX-License-Identifier: Apache-2.0
"""Signals to a server process, at whatever moment they come."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from nnpa_server.rpc.signals import PARENT_ENDED

from tests.server.process import PATIENCE, serving

BEFORE_THE_WAIT = """
import signal
from nnpa_server.rpc.signals import Signals

signals = Signals(signal.SIGTERM, signal.SIGHUP)
signal.raise_signal(signal.SIGHUP)
signal.raise_signal(signal.SIGTERM)
print(signals.wait(), signals.wait())
"""

DRAINING = """
import signal, sys, time
from nnpa_server.rpc.signals import Signals, end_in_time

signals = Signals(signal.SIGTERM)
end_in_time(signals, int(sys.argv[1]), 60, lambda: None)
for number in range(3):
    print(number, flush=True)
    signal.raise_signal(signal.SIGTERM)
    time.sleep(1)
"""


def test_a_signal_before_the_wait_is_not_lost() -> None:
    """Signals that came before the wait are returned, in order."""
    ended = subprocess.run(
        [sys.executable, "-c", BEFORE_THE_WAIT],
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    assert ended.stdout == f"{signal.SIGHUP.value} {signal.SIGTERM.value}\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_at_once(tmp_path: Path, number: signal.Signals) -> None:
    """A server that gets two signals as soon as it is ready ends well."""
    with serving(tmp_path, "--listen", "127.0.0.1:0") as server:
        for _ in range(3):
            server.process.send_signal(number)
        assert server.wait() == 0
        assert server.log_text().count("draining, for") == 1


@pytest.mark.parametrize(("reason", "lines"), [(signal.SIGTERM, "0\n"), (PARENT_ENDED, "0\n1\n")])
def test_a_second_signal_ends_at_once(reason: int, lines: str) -> None:
    """The second signal ends a draining server; the end of its parent is no signal."""
    ended = subprocess.run(
        [sys.executable, "-c", DRAINING, str(int(reason))],
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    assert ended.stdout == lines
