# SPDX-License-Identifier: Apache-2.0
"""Which steps of a program are a layer normalisation: moments and layernorm of the same tensor.

A reshape_ztensor before them and behind them, which moves whole vectors, and then a mul and an add
of constants belong to it. See `nnpa_emulator.layer_normalization`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

from nnpa_emulator import Ztensor, blocks
from nnpa_emulator.layer_normalization import vectors_are_alike
from nnpa_emulator.ztensor import DataFormats, DataLayouts, DataTypes

from nnpa_network.program import ABSENT, AcceleratorStep, Program, Step, reads, writes

_End: TypeAlias = tuple[int, int, int | None, int | None]
"""Last step, what it writes, and the constants of mul and add."""


@dataclass(frozen=True, slots=True)
class LayerNormalization:
    """Steps from `first` to `last`, both included, which read `source` and write `output`.

    `layernorm` is the step with the scalars; `factors` and `added` are constants, None for none.
    """

    first: int
    last: int
    source: int
    output: int
    layernorm: AcceleratorStep
    factors: int | None
    added: int | None


def find_layer_normalizations(
    program: Program, written: Mapping[int, Ztensor], constants: Mapping[int, Ztensor],
    dead: Sequence[Collection[int]],
) -> tuple[LayerNormalization, ...]:  # fmt: skip
    """Return the layer normalisations of a program; `dead` has for each step what ends with it."""
    finder = _Finder(program.steps, written, constants, dead)
    candidates = (finder.find(index) for index in range(1, len(program.steps)))
    return tuple(each for each in candidates if each is not None)


@dataclass(slots=True)
class _Finder:
    """The steps of a program, and its tensors by their ids."""

    steps: Sequence[Step]
    written: Mapping[int, Ztensor]
    constants: Mapping[int, Ztensor]
    dead: Sequence[Collection[int]]

    def find(self, index: int) -> LayerNormalization | None:
        """Return the longest layer normalisation whose layernorm is this step."""
        layernorm, moments = self._call(index, "layernorm"), self._call(index - 1, "moments")
        if layernorm is None or moments is None or moments["bessel_correction_type"]:
            return None
        step = self.steps[index]
        assert isinstance(step, AcceleratorStep)
        source, output = layernorm["input_a"], layernorm["output"]
        pairs = (("output_a", "input_b"), ("output_b", "input_c"))
        joined = all(moments[result] == layernorm[read] for result, read in pairs)
        if not joined or moments["input"] != source or not self._is_vectors(source):
            return None
        firsts = [(index - 1, source)]
        reshape = self._call(index - 2, "reshape_ztensor")
        if reshape is not None and reshape["dest"] == source and self._moves(reshape):
            firsts.append((index - 2, reshape["src"]))
        lasts = self._ends(index, output)
        for (first, source), (last, output, *constants) in product(firsts[::-1], lasts[::-1]):
            if self._is_closed(first, last, output):
                return LayerNormalization(first, last, source, output, step, *constants)
        return None

    def _ends(self, last: int, output: int) -> list[_End]:
        """Return where a normalisation may end whose layernorm is the step `last`."""
        factors: int | None = None
        added: int | None = None
        ends: list[_End] = [(last, output, factors, added)]
        reshape = self._call(last + 1, "reshape_ztensor")
        if reshape is not None and reshape["src"] == output and self._moves(reshape):
            last, output = last + 1, reshape["dest"]
            ends.append((last, output, factors, added))
        for verb in ("mul", "add"):
            constant = self._constant(last + 1, verb, output)
            if constant is not None:
                factors, added = (constant, added) if verb == "mul" else (factors, constant)
                last, output = last + 1, self._output(last + 1)
                ends.append((last, output, factors, added))
        return ends

    def _call(self, index: int, verb: str) -> Mapping[str, int] | None:
        """Return the arguments of a step that makes a call."""
        step = self.steps[index] if 0 <= index < len(self.steps) else None
        if not isinstance(step, AcceleratorStep) or step.verb != verb or step.result != ABSENT:
            return None
        return step.arguments

    def _output(self, index: int) -> int:
        step = self.steps[index]
        assert isinstance(step, AcceleratorStep)
        output: int = step.arguments["output"]
        return output

    def _is_vectors(self, number: int) -> bool:
        """Tell whether a tensor has one dim1 vector per dim4."""
        tensor = self.written.get(number)
        if tensor is None or not _is_plain(tensor):
            return False
        return tensor.transformed_desc.dim3 == tensor.transformed_desc.dim2 == 1

    def _moves(self, reshape: Mapping[str, int]) -> bool:
        """Tell whether a reshape keeps dim1, so that it moves whole vectors."""
        tensors = [self.written.get(reshape[name]) for name in ("src", "dest")]
        if any(tensor is None or not _is_plain(tensor) for tensor in tensors):
            return False
        return len({tensor.transformed_desc.dim1 for tensor in tensors if tensor}) == 1

    def _constant(self, index: int, verb: str, value: int) -> int | None:
        """Return the constant that a step combines with a value, vector by vector the same."""
        call = self._call(index, verb)
        if call is None or value not in (call["input_a"], call["input_b"]):
            return None
        number = call["input_b"] if call["input_a"] == value else call["input_a"]
        constant = self.constants.get(number)
        if constant is None or not _is_plain(constant):
            return None
        dims = self.written[value].transformed_desc.dims
        alike = constant.transformed_desc.dims == dims and vectors_are_alike(constant)
        return number if alike else None

    def _is_closed(self, first: int, last: int, output: int) -> bool:
        """Tell whether no other step needs what these steps hand to each other."""
        ended = {number for numbers in self.dead[first : last + 1] for number in numbers}
        written = {number for step in self.steps[first : last + 1] for number in writes(step)}
        read = {number for step in self.steps[first : last + 1] for number in reads(step)} - written
        return written - {output} <= ended and output not in ended | read


def _is_plain(tensor: Ztensor) -> bool:
    """Tell whether a tensor is a small one of DLFLOAT16, with its vectors in row-major order."""
    desc = tensor.transformed_desc
    feature = desc.format == DataFormats.ZDNN_FORMAT_4DFEATURE
    plain = desc.type == DataTypes.ZDNN_DLFLOAT16 and desc.layout == DataLayouts.ZDNN_NHWC
    is_4ds = tensor.pre_transformed_desc.layout == DataLayouts.ZDNN_4DS
    return feature and plain and not is_4ds and prod(desc.dims) <= blocks.ELEMENTS
