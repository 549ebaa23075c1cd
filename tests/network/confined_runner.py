# SPDX-License-Identifier: Apache-2.0
"""A program for workers: runs programs, and runs every operation once when it is asked to."""

from nnpa_emulator.kernels.jit import KERNELS
from nnpa_network.shortcuts import SHORTCUTS
from nnpa_server.network import running
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.worker import Handler
from nnpa_server.tuning import warmup

ALL = "operations"


def start(seconds: str) -> Handler:
    """Return what runs programs, with so many seconds for kernels before it is confined."""
    vars(running)["_LOAD_SECONDS"] = float(seconds)
    run = running.start(",".join((*SHORTCUTS, "compiled-kernels", "widened-operands")))

    def answer(message: Message) -> Message:
        if message.text != ALL.encode():
            return run(message)
        warmup.load_kernels(300)
        compiled = sum(bool(vars(kernel.compiled())["overloads"]) for kernel in KERNELS.values())
        return Message(b"\x00%d" % compiled)

    return answer
