# SPDX-License-Identifier: Apache-2.0
"""Which steps of a program are a layer normalisation, to be done where the vectors lie.

They are reshape_ztensor to a page for each vector, moments, layernorm and reshape_ztensor back.
"""

from collections.abc import Mapping, Sequence
from math import prod

from nnpa_emulator import Ztensor

from nnpa_network.program import ABSENT, AcceleratorStep, Program, writes

VERBS = ("reshape_ztensor", "moments", "layernorm", "reshape_ztensor")


def find_layer_normalizations(
    program: Program, tensors: Mapping[int, Ztensor], dead: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """Return the first steps of all layer normalisations.

    `tensors` have the descriptors of what steps write and of constants, `dead` for each step the
    ids that no later one needs.
    """
    firsts = range(len(program.steps) - len(VERBS) + 1)
    return tuple(first for first in firsts if _is_normalization(program, first, tensors, dead))


def _is_normalization(
    program: Program, first: int, tensors: Mapping[int, Ztensor], dead: Sequence[Sequence[int]]
) -> bool:
    steps = program.steps[first : first + len(VERBS)]
    calls = [step for step in steps if isinstance(step, AcceleratorStep) and step.result == ABSENT]
    if tuple(step.verb for step in calls) != VERBS:
        return False
    before, moments, layernorm, behind = (step.arguments for step in calls)
    pairs = (
        (before["dest"], moments["input"]), (before["dest"], layernorm["input_a"]),
        (moments["output_a"], layernorm["input_b"]), (moments["output_b"], layernorm["input_c"]),
        (layernorm["output"], behind["src"]), (moments["bessel_correction_type"], 0),
    )  # fmt: skip
    if any(one != other for one, other in pairs):
        return False
    ended = {number for numbers in dead[first : first + len(VERBS)] for number in numbers}
    inner = {number for step in calls[:-1] for number in writes(step)}
    source, vectors, output = (
        tensors[number].transformed_desc.dims
        for number in (before["src"], before["dest"], behind["dest"])
    )
    return (
        inner <= ended
        and behind["dest"] not in ended | {before["src"]}
        and source == output
        and vectors == (prod(source[:3]), 1, 1, source[3])
    )
