# SPDX-License-Identifier: Apache-2.0
"""Layer normalisation prepared to run in one pass over the vectors where they lie.

The calls are reshape_ztensor, moments, layernorm, mul, add and reshape_ztensor; their intermediate
results are never written. The bits equal the bits of separate calls. A shortcut: see `prepared`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnpa_emulator import dlfloat, stick
from nnpa_emulator.kernels import layer_normalization as kernels
from nnpa_emulator.stick import geometry
from nnpa_emulator.ztensor import Ztensor


@dataclass(frozen=True, slots=True)
class Normalization:
    """The parameters of the calls.

    beta, gamma and epsilon are codes; `factors` and `added` are the operands of mul and add, whose
    vectors are all alike, None without the call.
    """

    beta: int
    gamma: int
    epsilon: int
    factors: Ztensor | None = None
    added: Ztensor | None = None


def vectors_are_alike(tensor: Ztensor) -> bool:
    """Tell whether all dim1 vectors of a DLFLOAT16 tensor have the same cells."""
    cells = stick.read_cells(tensor.sticks, tensor.transformed_desc)
    lines = cells.reshape(-1, tensor.transformed_desc.dim1)
    return bool((lines == lines[0]).all())


def prepare_layer_normalization(
    source: Ztensor, parameters: Normalization, output: Ztensor
) -> Callable[[], bool]:
    """Return a function that normalises dim1 vectors; it returns False if a call meets a NINF.

    `output` has vectors of the number and length of the vectors of `source`, in the same order, and
    shares no memory with it. Padding is left as it is.
    """
    cells, target = source.sticks.view(np.uint16), output.sticks.view(np.uint16)
    before, after = geometry(source.transformed_desc), geometry(output.transformed_desc)
    codes = [parameters.beta, parameters.gamma, parameters.epsilon]
    scalars = dlfloat.to_fp32(np.array(codes, np.uint16)).astype(np.float64)
    factors, added = _channels(parameters.factors), _channels(parameters.added)
    places = before.dims, before.pages, target, after.dims, after.pages
    return lambda: bool(kernels.layer_normalization(cells, *places, scalars, factors, added))


def _channels(tensor: Ztensor | None) -> npt.NDArray[np.float32]:
    """Return one vector of a tensor."""
    if tensor is None:
        return np.empty(0, np.float32)
    values, _ = stick.read_fp32(tensor.sticks, tensor.transformed_desc)
    return values.reshape(-1)[: tensor.transformed_desc.dim1].copy()
