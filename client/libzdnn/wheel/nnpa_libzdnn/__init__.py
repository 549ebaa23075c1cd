# SPDX-License-Identifier: Apache-2.0
"""libzdnn as a platform wheel: a prefix with include/ and lib/, found by `nnpa libzdnn`."""

from pathlib import Path

PREFIX = Path(__file__).resolve().parent
"""The folder of include/zdnn.h, lib/libzdnn.so.0, lib/libzdnn.a, lib/pkgconfig and lib/cmake."""
