# SPDX-License-Identifier: Apache-2.0
"""Chains of element-wise operations on sticks: what each link computes, one after the other."""

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat
from nnpa_emulator.reference.elementwise import FORMULAS, Region, planes_of, read
from nnpa_emulator.reference.layout import CELLS, Codes, Singles
from nnpa_emulator.reference.normalization import to_odd

Links = npt.NDArray[np.int64]

RELU, SCALE, LOAD, SPLAT, STORE = range(6, 11)
"""Operation numbers of links, beside those of `elementwise.binary`."""


def chain(
    links: Links, sources: tuple[Codes, ...], out: Codes, second: Codes, numbers: Singles,
    channels: Singles, region: Region,
) -> bool:  # fmt: skip
    """Run links over all real cells of a region; see `kernels.chains.chain`."""
    registers: dict[int, Codes] = {}
    lanes = channels.reshape(len(channels), region[2], 1, 1, CELLS)
    for operation, target, a, b in links.tolist():
        if operation == LOAD:
            codes = read(sources[a], region)
        elif operation == STORE:
            _write(registers[a], second if b else out, region)
            continue
        elif operation == SPLAT:
            codes = np.full_like(read(sources[0], region), dlfloat.from_fp32(numbers[a]))
        else:
            codes = _linked(operation, registers, a, b, numbers, lanes)
        codes[:, -1, ..., region[4] :] = 0
        registers[target] = codes
        if dlfloat.largest(codes) == dlfloat.NINF:
            return False
    return True


def _write(codes: Codes, out: Codes, region: Region) -> None:
    """Store the real cells, and leave all others as they are."""
    target, last = planes_of(out, region)[..., : region[3], :], region[4]
    target[:, :-1] = codes[:, :-1]
    target[:, -1, ..., :last] = codes[:, -1, ..., :last]


def _linked(
    operation: int, registers: dict[int, Codes], a: int, b: int, numbers: Singles, lanes: Singles
) -> Codes:
    x = dlfloat.to_fp32(registers[a])
    with np.errstate(all="ignore"):
        if operation == RELU:
            results = np.where(x > 0, np.minimum(x, numbers[b]), np.float32(0))
        elif operation == SCALE:
            results = to_odd(x * lanes[b], np.broadcast_to(lanes[b + 1], x.shape))
        else:
            results = FORMULAS[operation](x, dlfloat.to_fp32(registers[b]))
    return dlfloat.result_from_fp32(results)
