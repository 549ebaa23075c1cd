# SPDX-License-Identifier: Apache-2.0
"""The errors of DLFLOAT16 in each layer of a module, as a table."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from nnpa_client._values.user_arrays import Array

_HEADINGS = ("layer", "operation", "where", "error before", "own error", "violations", "why")
_FIGURES = ("error before", "own error", "violations")


@dataclass(frozen=True, slots=True)
class Layer:
    """An operation of a module: its module's path, where it ran, and its errors beside FP32.

    `where` is "accelerator", "host" (FP32, in the hosted network), "torch" (FP32, in torch) or
    "rounded" (placement "every"); `why` says why it is not on the accelerator, or which layer it
    is part of. `enters` is the relative error (L2) of its inputs, `adds` the error of
    its outputs for exact inputs; both are NaN if nothing was measured. `violations` counts elements
    that are no numbers.
    """

    name: str
    operation: str
    where: str
    enters: float = math.nan
    adds: float = math.nan
    violations: int = 0
    why: str = ""

    @property
    def title(self) -> str:
        """The path, or for an operation of the model itself "(model)"."""
        return self.name or "(model)"


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """The layers of a module in the order in which they ran; `repr` is a table."""

    machine: str
    placement: str
    layers: tuple[Layer, ...]

    @property
    def fallbacks(self) -> tuple[Layer, ...]:
        """The layers that ran in FP32, away from the accelerator."""
        return tuple(layer for layer in self.layers if layer.where in ("host", "torch"))

    def __repr__(self) -> str:
        rows = [_HEADINGS, *map(_cells, self.layers)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"{self.machine}, placement {self.placement}"]
        for row in rows:
            columns = zip(_HEADINGS, row, widths, strict=True)
            cells = [
                cell.rjust(width) if heading in _FIGURES else cell.ljust(width)
                for heading, cell, width in columns
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)


def relative_error(values: Sequence[Array], references: Sequence[Array]) -> float:
    """Return the L2 norm of the differences over the references' norm, NaN without elements.

    Elements that are not finite on either side are left out.
    """
    difference = size = count = 0.0
    for value, reference in zip(values, references, strict=True):
        is_number = np.isfinite(value) & np.isfinite(reference)
        exact = reference[is_number].astype(np.float64)
        difference += float(np.sum((value[is_number] - exact) ** 2))
        size += float(np.sum(exact**2))
        count += exact.size
    if not count:
        return math.nan
    return math.sqrt(difference / size) if size else math.sqrt(difference)


def require_accelerated(layers: Iterable[Layer]) -> None:
    """Raise ValueError for the first layer that falls back."""
    for layer in layers:
        raise ValueError(f"strict: {layer.title} ({layer.operation}) falls back: {layer.why}")


def _cells(layer: Layer) -> tuple[str, ...]:
    errors = ("-" if math.isnan(error) else f"{error:.2g}" for error in (layer.enters, layer.adds))
    violations = str(layer.violations)
    return (layer.title, layer.operation, layer.where, *errors, violations, layer.why)
