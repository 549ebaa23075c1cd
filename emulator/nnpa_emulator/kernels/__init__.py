# SPDX-License-Identifier: Apache-2.0
"""Kernels that Numba compiles: what `nnpa_emulator.reference` defines, faster, bit by bit the same.

Each kernel that the emulator calls names its reference (`jit.implements`) and is proven equal to it
by one law (`tests/emulator/test_reference.py`). `use_reference()` takes all of them away.
"""

from nnpa_emulator.kernels.jit import use_reference

__all__ = ["use_reference"]
