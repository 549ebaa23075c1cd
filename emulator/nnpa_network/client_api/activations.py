# SPDX-License-Identifier: Apache-2.0
"""The activations buffer: its size for a network, and its layout.

    inputs     where the network was created with them inside, one place each
    outputs    the same
    the rest   what a run holds at its peak: sticks and arrays between the first and the last use

The emulator keeps sticks in storage of their own, so the rest is never written; its size is what
they take. Source: X-CUBE-AI 7.0 Embedded Inference Client API, "AI buffers and privileged
placement", "I/O buffers inside the activations buffer".
"""

import math
import threading
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from nnpa_emulator.ztensor import getsize_ztensor

from nnpa_network.client_api.bhwc import IoTensor
from nnpa_network.program import ABSENT, Program, uses_of

ALIGNMENT = 4  # source: AI_<NAME>_ACTIVATIONS_ALIGNMENT


def aligned(size: int) -> int:
    """Return `size` bytes rounded up to the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Activations:
    """Memory that one network or several use, one at a time."""

    def __init__(self, size: int) -> None:
        self.memory = np.zeros(size, np.uint8)
        self.lock = threading.Lock()


def place(tensors: Iterable[IoTensor], start: int) -> tuple[tuple[IoTensor, ...], int]:
    """Give each tensor a place of one batch from `start` on; return them and the next byte."""
    placed: list[IoTensor] = []
    for tensor in tensors:
        placed.append(replace(tensor, offset=start))
        start += aligned(tensor.nbytes)
    return tuple(placed), start


def working_bytes(program: Program) -> int:
    """Return the most bytes that live at one step: not inputs, outputs, constants.

    Arrays whose size is known only at run time count nothing.
    """
    outside = {*program.input_ids, *program.output_ids, *program.constants, ABSENT}
    change = [0] * (len(program.steps) + 1)
    for number, (born, last) in uses_of(program).items():
        if number not in outside:
            size = _bytes_of(program, number)
            change[born] += size
            change[last + 1] -= size
    return int(np.cumsum(change).max(initial=0))


def _bytes_of(program: Program, number: int) -> int:
    if number in program.tensors:
        return getsize_ztensor(program.tensors[number].transformed_desc)
    info = program.arrays.get(number)
    if info is None or -1 in info.shape:
        return 0
    return aligned(math.prod(info.shape) * info.dtype.itemsize)
