# SPDX-License-Identifier: Apache-2.0
"""A server's memory after its work is about as large as before."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest
from nnpa_client import Session, Ztensor, connect, zdnn
from nnpa_client.rnn import lstm_gates

from tests.server.process import PATIENCE, serving, wait_until

SESSIONS, ROUNDS = 48, 2
MAX_GROWTH = 1.3
REST_SECONDS = 12.0  # until what sessions held is returned, twice over
TIMESTEPS, BATCHES, FEATURES = 16, 32, 256


def compute(session: Session, start: threading.Barrier) -> None:
    """Multiply, convolve and run an LSTM, over tensors of megabytes."""
    random = np.random.default_rng(1)

    def tensor(layout: str, *shape: int) -> Ztensor:
        return session.ztensor(random.standard_normal(shape, np.float32), layout)

    square, bias = tensor("3DS", 1, 1024, 1024), tensor("2DS", 1, 1024)
    image, kernel = tensor("NHWC", 1, 56, 56, 256), tensor("HWCK", 3, 3, 256, 256)
    channels, steps = tensor("1D", 256), tensor("3DS", TIMESTEPS, BATCHES, FEATURES)
    state = tensor("3DS", 1, BATCHES, FEATURES)

    def part(usage: int, *shape: int) -> Ztensor:
        f, i, c, o = (random.standard_normal(shape, np.float32) for _ in range(4))
        return lstm_gates(session, usage, forget=f, input=i, cell=c, output=o)

    weights = part(zdnn.USAGE_WEIGHTS, FEATURES, FEATURES)
    hidden_weights = part(zdnn.USAGE_HIDDEN_WEIGHTS, FEATURES, FEATURES)
    biases = part(zdnn.USAGE_BIASES, FEATURES)
    hidden_biases = part(zdnn.USAGE_HIDDEN_BIASES, FEATURES)
    start.wait(PATIENCE)
    zdnn.matmul_op(square, square, bias)
    zdnn.conv2d(image, kernel, channels, zdnn.SAME_PADDING, 1, 1, zdnn.CONV2D_ACT_NONE)
    zdnn.lstm(
        steps,
        state,
        state,
        weights,
        biases,
        hidden_weights,
        hidden_biases,
        zdnn.FWD,
        all_timesteps=True,
    )


def work(address: str, sessions: int) -> None:
    """Compute in `sessions` sessions at once, which then end."""
    start = threading.Barrier(sessions)

    def run(_number: int) -> None:
        with connect(address) as session:
            compute(session, start)

    with ThreadPoolExecutor(sessions) as pool:
        list(pool.map(run, range(sessions)))


@pytest.mark.heavy
def test_memory_returns_when_sessions_end(tmp_path: Path) -> None:
    """After many sessions at once, each in a thread, memory is at most 1.3 times the former."""
    with serving(tmp_path, "--listen", "127.0.0.1:0") as server:
        process = psutil.Process(server.process.pid)
        for _ in range(2):  # kernels and modules are loaded, and stay
            work(server.address, 1)
        time.sleep(REST_SECONDS)
        before, most = process.memory_info().rss, 0
        for _ in range(ROUNDS):
            work(server.address, SESSIONS)
            most = max(most, process.memory_info().rss)
        assert most > 2 * before, "the work takes memory"
        wait_until(lambda: process.memory_info().rss <= MAX_GROWTH * before, PATIENCE)
