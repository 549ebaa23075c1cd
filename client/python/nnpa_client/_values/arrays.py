# SPDX-License-Identifier: Apache-2.0
"""Conversion of array-like objects to arrays of NumPy."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

__tracebackhide__ = True  # pytest shows the line that called, not these


class SupportsArray(Protocol):
    """An object with `__array__`: a tensor of torch on the CPU, a column of pandas."""

    def __array__(self) -> npt.NDArray[Any]:
        """Return the values."""
        ...


class SupportsDlpack(Protocol):
    """An object that shares its memory by DLPack. Source: array API standard, 2024.12."""

    def __dlpack__(self) -> object:
        """Return a capsule."""
        ...

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return kind and number of the device."""
        ...


Nested: TypeAlias = "Sequence[float] | Sequence[Nested]"
ArrayLike: TypeAlias = "npt.NDArray[Any] | SupportsArray | SupportsDlpack | Nested"
"""The types that `Session.ztensor` takes."""


def as_array(values: ArrayLike, name: str = "array") -> npt.NDArray[Any]:
    """Return values as an array of their own type; numbers in lists are float32.

    Raises TypeError that names the parameter for an object that cannot be converted.
    """
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, list | tuple | float | int):
        return np.asarray(values, np.float32)
    if hasattr(values, "__array__"):
        return np.asarray(values)
    if hasattr(values, "__dlpack__"):
        capsule: Any = values
        return np.from_dlpack(capsule)
    kind = type(values).__name__
    raise TypeError(f"{name}: {kind}, expected an array, a list, or __array__ or __dlpack__")
