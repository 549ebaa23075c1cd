# SPDX-License-Identifier: Apache-2.0
"""libnnpa-trap.so for s390x, which `nnpa run` has qemu-user load into programs."""

from pathlib import Path

LIBRARY = Path(__file__).resolve().parent / "libnnpa-trap.so"
"""The library: for programs with glibc 2.34 or later."""
