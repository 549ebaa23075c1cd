# SPDX-License-Identifier: Apache-2.0
"""A program for workers: runs programs and every operation, tells which kernels it lacked."""

import json
from collections.abc import Callable
from typing import Any

from nnpa_emulator.kernels.jit import KERNELS
from nnpa_network.shortcuts import SHORTCUTS
from nnpa_server.network import running
from nnpa_server.sandbox.frames import Message
from nnpa_server.sandbox.worker import Handler
from nnpa_server.tuning import warmup

ALL, LACKED = b"operations", b"lacked"


def start() -> Handler:
    """Return what runs programs, with the kernels of the cache before it is confined."""
    run = running.start(",".join((*SHORTCUTS, "compiled-kernels", "widened-operands")))
    lacked = set[str]()
    for name, kernel in KERNELS.items():
        vars(kernel.compiled())["_compile_for_args"] = _noting(name, kernel.reference, lacked)

    def answer(message: Message) -> Message:
        if message.text == LACKED:
            return Message(json.dumps(sorted(lacked)).encode())
        if message.text != ALL:
            return run(message)
        warmup.load_kernels()
        compiled = sum(bool(vars(kernel.compiled())["overloads"]) for kernel in KERNELS.values())
        return Message(b"%d" % compiled)

    return answer


def _noting(
    name: str, reference: Callable[..., Any] | None, lacked: set[str]
) -> Callable[..., Callable[..., Any] | None]:
    """Return what gives a reference, and notes that it was used."""

    def note(*_arguments: object, **_names: object) -> Callable[..., Any] | None:
        lacked.add(name)
        return reference

    return note
