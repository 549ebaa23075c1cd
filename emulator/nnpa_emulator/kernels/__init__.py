# SPDX-License-Identifier: Apache-2.0
"""Kernels that Numba compiles: faster forms of `nnpa_emulator.reference`, with the same bits.

Each kernel that the emulator calls names its reference (`jit.implements`) and is proven equal to it
by one law (`tests/emulator/test_reference.py`). `use_reference()` turns all of them off.
"""

from nnpa_emulator.kernels.jit import use_reference

__all__ = ["use_reference"]
