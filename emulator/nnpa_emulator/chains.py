# SPDX-License-Identifier: Apache-2.0
"""Chains of element-wise calls on tensors of one shape, prepared to run in one pass.

A result that only the next call of the chain reads is never written. The bits equal the bits of
separate calls. If a call would meet a NINF the chain returns False, and the caller makes the calls
one by one. A shortcut: see `prepared`.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nnpa_emulator import stick
from nnpa_emulator.kernels import chains, elementwise
from nnpa_emulator.reference.chains import LOAD, RELU, SCALE, SPLAT, STORE
from nnpa_emulator.reference.elementwise import region_of
from nnpa_emulator.ztensor import CELLS_PER_STICK, Ztensor

MAX_SOURCES, MAX_OUTPUTS = 6, 2
"""Tensors that a chain reads, and that it writes."""
BINARY: Mapping[str, int] = {
    "add": elementwise.ADD,
    "sub": elementwise.SUB,
    "mul": elementwise.MUL,
    "div": elementwise.DIV,
    "min": elementwise.MIN,
    "max": elementwise.MAX,
}
"""Operations on two tensors, element by element: the numbers of `elementwise.binary`."""
VERBS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(BINARY, ("input_a", "input_b")),
    "relu": ("input",),
    "batchnorm": ("input_a",),
}
"""What a chain may consist of: the arguments of a call that have the shape of its output."""


@dataclass(frozen=True, slots=True)
class Link:
    """A call: tensors by the caller's numbers.

    `factors` and `added` are batchnorm's tensors of one value per channel; `limit` is relu's.
    """

    verb: str
    inputs: tuple[int, ...]
    output: int
    limit: float = math.inf
    factors: Ztensor | None = None
    added: Ztensor | None = None


@dataclass(slots=True)
class _Program:
    """Links as the kernel takes them, and the registers of values."""

    rows: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    sources: list[npt.NDArray[np.uint16]] = field(default_factory=list[npt.NDArray[np.uint16]])
    numbers: list[float] = field(default_factory=list[float])
    channels: list[npt.NDArray[np.float32]] = field(default_factory=list[npt.NDArray[np.float32]])
    registers: dict[int, int] = field(default_factory=dict[int, int])

    def emit(self, operation: int, value: int, a: int, b: int = 0) -> None:
        """Add a link that gives a value its register."""
        self.registers[value] = len(self.registers)
        self.rows.append((operation, self.registers[value], a, b))

    def number(self, value: float) -> int:
        """Return the place of a number."""
        self.numbers.append(value)
        return len(self.numbers) - 1


def prepare_chain(
    links: Sequence[Link],
    tensors: Mapping[int, Ztensor],
    outputs: Sequence[int],
    constants: Collection[int],
) -> Callable[[], bool]:
    """Return a function that makes the calls of a chain; it returns False if a call meets a NINF.

    `tensors` holds the tensors that the chain reads, and its `outputs`, which share no memory with
    them; `constants` are the tensors that never change. Padding is left as it is.
    """
    program = _Program()
    for link in links:
        for number in link.inputs:
            if number not in program.registers:
                _load(program, number, tensors[number], number in constants)
        _call(program, link)
    for place, number in enumerate(outputs):
        program.rows.append((STORE, 0, program.registers[number], place))
    written = [tensors[number].sticks.view(np.uint16) for number in outputs]
    region = region_of(tensors[outputs[0]].transformed_desc)
    width = region[2] * CELLS_PER_STICK
    rows, numbers = np.array(program.rows, np.int64), np.array([*program.numbers, 0.0], np.float32)
    channels = np.zeros((len(program.channels), width), np.float32)
    for row, line in zip(channels, program.channels, strict=True):
        row[: line.size] = line
    sources = program.sources or written
    padded = (*sources, *sources[:1] * (MAX_SOURCES - len(sources)))  # compiled for one length

    def run() -> bool:
        return bool(chains.chain(rows, padded, written[0], written[-1], numbers, channels, region))

    return run


def _load(program: _Program, number: int, tensor: Ztensor, is_constant: bool) -> None:
    """Give a tensor that the chain reads its register; a uniform constant becomes a number."""
    cells = tensor.sticks.view(np.uint16)
    if is_constant:
        values, _ = stick.read_fp32(tensor.sticks, tensor.transformed_desc)
        bits = values.view(np.uint32)
        if np.isfinite(values.flat[0]) and (bits == bits.flat[0]).all():
            program.emit(SPLAT, number, program.number(float(values.flat[0])))
            return
    if not cells.flags.writeable:
        cells = cells.copy()  # compiled code tells them apart
    program.sources.append(cells)
    program.emit(LOAD, number, len(program.sources) - 1)


def _call(program: _Program, link: Link) -> None:
    registers = [program.registers[number] for number in link.inputs]
    if link.factors is not None and link.added is not None:
        place = len(program.channels)
        for tensor in (link.factors, link.added):
            values, _ = stick.read_fp32(tensor.sticks, tensor.transformed_desc)
            program.channels.append(values.reshape(-1))
        program.emit(SCALE, link.output, registers[0], place)
    elif link.verb == "relu":
        program.emit(RELU, link.output, registers[0], program.number(link.limit))
    else:
        program.emit(BINARY[link.verb], link.output, *registers)
