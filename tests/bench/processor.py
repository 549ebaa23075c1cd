# SPDX-License-Identifier: Apache-2.0
"""Restrict the bench to the instructions of an older processor.

Numba, NumPy and OpenBLAS are told by environment variables which instructions they may use. ONNX
Runtime has no such variable: it uses all that this processor has.
Sources: Numba, "Environment variables", Compilation options; NumPy, "CPU build options", Runtime
dispatch; OpenBLAS, USAGE.md; System V ABI for AMD64, "Micro-Architecture Levels".
"""

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

_V3: Final = (
    "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16", "sahf",
    "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave",
)  # fmt: skip
PROCESSORS: Mapping[str, Mapping[str, str]] = {
    "v3": {
        "NUMBA_CPU_NAME": "x86-64-v3",
        "NUMBA_CPU_FEATURES": ",".join(f"+{feature}" for feature in _V3),
        "OPENBLAS_CORETYPE": "Haswell",
    }
}
"""Environment variables by the name of a processor: v3 has AVX2 and no AVX-512."""


def restrict(name: str) -> None:
    """Start this program again with the environment of a processor, unless it has that already."""
    if restriction() != name:
        variables = {**PROCESSORS[name], "NPY_DISABLE_CPU_FEATURES": " ".join(_wide_features())}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **variables})


def _wide_features() -> list[str]:
    """Return the features by which NumPy would choose code for AVX-512."""
    configuration: Any = np.show_config(mode="dicts")
    found: list[str] = configuration["SIMD Extensions"].get("found", [])
    return [name for name in found if name.startswith(("AVX512", "X86_V4"))]


def restriction() -> str:
    """Return the name of the processor whose environment this program has, "" for none."""
    for name, variables in PROCESSORS.items():
        if all(os.environ.get(variable) == value for variable, value in variables.items()):
            return name
    return ""
