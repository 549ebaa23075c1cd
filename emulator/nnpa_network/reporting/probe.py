# SPDX-License-Identifier: Apache-2.0
"""Probes of a network: sizes at the edges of sticks, and inputs that carry nothing.

Needs no data: every free dim takes the edge sizes, every input is degenerate in turn, on both
machines. A network that turns all-zero inputs to NaN from length 64 on shows here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from nnpa_emulator import Guest, find_machine
from nnpa_emulator.machine import TELUMS, Memory, page_memory

from nnpa_network.importing.onnx_import import ImportOptions, OnnxModel, import_onnx
from nnpa_network.lowering.placement import title
from nnpa_network.program import Array, ModelRefused, Port
from nnpa_network.running.results import StepFailed

# Around the cells of a stick (64), the rows of a page (32), and two sticks.
EDGE_SIZES = (1, 31, 32, 33, 63, 64, 65, 127, 128, 129)
_MAX_DLFLOAT16 = 8.57e9  # the end of DLFLOAT16: zDNN API Reference 1.2.0, data types


def _filled(value: float) -> Callable[[Port, tuple[int, ...]], Array]:
    def fill(port: Port, shape: tuple[int, ...]) -> Array:
        if port.dtype.kind == "f":
            return np.full(shape, min(value, float(np.finfo(port.dtype).max)), port.dtype)
        number = int(value != 0)
        return np.full(shape, number if port.dtype.kind != "O" else str(number), port.dtype)

    return fill


def _masked(port: Port, shape: tuple[int, ...]) -> Array:
    """Zeros for integers (no word, everything masked), empty texts, the least of floats."""
    if port.dtype.kind == "O":
        return np.full(shape, "", port.dtype)
    if port.dtype.kind == "f":
        return np.full(shape, np.finfo(port.dtype).min, port.dtype)
    return np.zeros(shape, port.dtype)


DEGENERATE: Mapping[str, Callable[[Port, tuple[int, ...]], Array]] = {
    "zeros": _filled(0.0),
    "constants": _filled(1.0),
    "all masked": _masked,
    "extremes": _filled(_MAX_DLFLOAT16),
}


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One run: its sizes, its inputs and its result.

    `nans` counts NaN elements of all outputs, `violations` the calls with a range violation, the
    first of them at node `first`; `limit` is why the run could not take place, else "".
    """

    machine: str
    sizes: Mapping[str, int]
    inputs: str
    nans: int
    violations: int
    first: str
    limit: str


def probe(
    model: bytes,
    machines: Sequence[str] = TELUMS,
    sizes: Sequence[int] = EDGE_SIZES,
    options: ImportOptions | None = None,
    allocate: Callable[[int], Memory | None] = page_memory,
) -> tuple[ProbeRow, ...]:
    """Run a model at every edge size of every free dim with every degenerate input.

    One dim varies at a time, the others are 1; a model without free dims runs at its own size.
    Raise `ModelRefused` where the model cannot be hosted at all.
    """
    rows: list[ProbeRow] = []
    for machine in machines:
        hosted = import_onnx(model, Guest(find_machine(machine), allocate=allocate), options)
        smallest = dict.fromkeys(hosted.symbols, 1)
        choices = [smallest | {symbol: size} for symbol in smallest for size in sizes]
        for chosen in choices or [smallest]:
            rows.extend(_probe(hosted, chosen, kind) for kind in DEGENERATE)
    return tuple(rows)


def _probe(hosted: OnnxModel, sizes: Mapping[str, int], kind: str) -> ProbeRow:
    machine = hosted.guest.machine.name
    shapes = {port.name: _shape(port, sizes) for port in hosted.inputs}
    try:
        executor = hosted.executor(shapes)  # refuses what would take too much
        result = executor.run(
            {port.name: DEGENERATE[kind](port, shapes[port.name]) for port in hosted.inputs}
        )
    except (ModelRefused, StepFailed) as refused:
        return ProbeRow(machine, dict(sizes), kind, 0, 0, "", str(refused))
    first = result.violations[0].node if result.violations else None
    nodes = executor.program.nodes
    return ProbeRow(
        machine,
        dict(sizes),
        kind,
        sum(result.nans.values()),
        len(result.violations),
        "" if first is None else title(nodes[first]) if first >= 0 else "(an output)",
        "",
    )


def _shape(port: Port, sizes: Mapping[str, int]) -> tuple[int, ...]:
    pairs = zip(port.shape, port.symbols, strict=True)
    return tuple(sizes.get(symbol, 1) if dim < 0 else dim for dim, symbol in pairs)
