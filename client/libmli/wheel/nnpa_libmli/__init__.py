# SPDX-License-Identifier: Apache-2.0
"""libmli as a platform wheel: a prefix with include/ and lib/, for pkg-config and CMake."""

from pathlib import Path

PREFIX = Path(__file__).resolve().parent
"""The folder of include/mli_api.h, lib/libmli.so.0, lib/libmli.a, lib/pkgconfig and lib/cmake."""
