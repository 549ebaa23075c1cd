# SPDX-License-Identifier: Apache-2.0
"""Which steps of a program are chains: element-wise calls in a row, on tensors of one shape."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from nnpa_emulator import Ztensor, blocks
from nnpa_emulator.chains import MAX_OUTPUTS, MAX_SOURCES, VERBS
from nnpa_emulator.ztensor import CELLS_PER_STICK, DataFormats, DataTypes, TensorDesc

from nnpa_network.program import ABSENT, AcceleratorStep, Program, Step


@dataclass(frozen=True, slots=True)
class Chain:
    """Steps from `first` to `last`, both included, and the tensors of theirs that others read."""

    first: int
    last: int
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Tensors:
    """The tensors of a program by their ids: those that steps write, and constants."""

    written: Mapping[int, Ztensor]
    constants: Mapping[int, Ztensor]
    last_used: Mapping[int, int]

    def shape(self, number: int) -> TensorDesc | None:
        """Return the transformed descriptor of a tensor."""
        tensor = self.written.get(number) or self.constants.get(number)
        return None if tensor is None else tensor.transformed_desc


def find_chains(
    program: Program, written: Mapping[int, Ztensor], constants: Mapping[int, Ztensor],
    dead: Sequence[Collection[int]], fused: Collection[int] = (),
) -> tuple[Chain, ...]:  # fmt: skip
    """Return the chains of a program, without the steps that are `fused`.

    `dead` has for each step the ids that no later one needs.
    """
    last_used = {number: index for index, numbers in enumerate(dead) for number in numbers}
    tensors = _Tensors(written, constants, last_used)
    chains: list[Chain] = []
    index = 0
    while index < len(program.steps):
        chain = None if index in fused else _longest(program.steps, index, tensors)
        if chain is not None:
            chains.append(chain)
        index = index + 1 if chain is None else chain.last + 1
    return tuple(chains)


def _longest(steps: Sequence[Step], first: int, tensors: _Tensors) -> Chain | None:
    """Return the longest chain that begins with a step, None if that is none."""
    outputs, read = list[int](), set[int]()
    shape: TensorDesc | None = None
    best: Chain | None = None
    for last, step in enumerate(steps[first:], first):
        if not isinstance(step, AcceleratorStep) or not _is_link(step, tensors):
            break
        output = step.arguments["output"]
        desc = tensors.written[output].transformed_desc
        shape = shape or desc
        if desc.dims != shape.dims or output in read or output in outputs:
            break
        outputs.append(output)
        read.update(step.arguments[name] for name in VERBS[step.verb])
        if len(read.difference(outputs)) > MAX_SOURCES:
            break
        kept = tuple(
            number for number in outputs if tensors.last_used.get(number, len(steps)) > last
        )
        if 0 < len(kept) <= MAX_OUTPUTS and (last > first or _gains_alone(step, shape)):
            best = Chain(first, last, kept)
    return best


def _is_link(step: AcceleratorStep, tensors: _Tensors) -> bool:
    """Tell whether a call may be part of a chain."""
    if step.verb not in VERBS or step.result != ABSENT:
        return False
    output = step.arguments["output"]
    if output not in tensors.written or not _is_chained(tensors.written[output].transformed_desc):
        return False
    dims = tensors.written[output].transformed_desc.dims
    shapes = [tensors.shape(step.arguments[name]) for name in VERBS[step.verb]]
    if any(desc is None or not _is_chained(desc) or desc.dims != dims for desc in shapes):
        return False
    channels = [step.arguments[name] for name in ("input_b", "input_c") if step.verb == "batchnorm"]
    return all(number in tensors.constants for number in channels)


def _is_chained(desc: TensorDesc) -> bool:
    plain = desc.type == DataTypes.ZDNN_DLFLOAT16
    plain = plain and desc.format == DataFormats.ZDNN_FORMAT_4DFEATURE
    return plain and prod(desc.dims) <= blocks.ELEMENTS


def _gains_alone(step: AcceleratorStep, desc: TensorDesc) -> bool:
    """Tell whether a call alone is worth it: where at most half of all cells are real."""
    return step.verb == "batchnorm" or desc.dim1 <= CELLS_PER_STICK // 2
