# SPDX-License-Identifier: Apache-2.0
"""How the server's process asks to be scheduled."""

import os
import platform
import subprocess
import sys

import pytest

_SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}  # Linux, sched_getattr(2)
_PROGRAM = """
import ctypes, os, struct, sys, threading
from nnpa_server.tuning.process import tune_scheduler

def facts():
    space = ctypes.create_string_buffer(56)
    ctypes.CDLL(None).syscall(int(sys.argv[1]), 0, space, 56, 0)
    _, policy, _, nice, _, turn, *_ = struct.unpack("IIQiIQQQII", space.raw)
    print(policy, nice, turn)

os.nice(3)
facts()
tune_scheduler()
thread = threading.Thread(target=facts)
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.machine() not in _SCHED_GETATTR, reason="another processor")
def test_threads_take_short_turns_at_the_same_niceness() -> None:
    """Threads inherit turns of 0.1 ms where Linux grants them; policy and niceness stay."""
    number = str(_SCHED_GETATTR[platform.machine()])
    command = [sys.executable, "-c", _PROGRAM, number]
    before, after = subprocess.check_output(command, text=True).splitlines()
    assert before.split()[:2] == after.split()[:2] == [str(os.SCHED_OTHER), before.split()[1]]
    release = tuple(map(int, platform.release().split("-")[0].split(".")[:2]))
    if release >= (6, 12):
        assert after.split()[2] == "100000"
