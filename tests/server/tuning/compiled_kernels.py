# SPDX-License-Identifier: Apache-2.0
"""The cache of this machine with every kernel compiled, for tests that are about kernels."""

import subprocess
import sys
from functools import cache
from pathlib import Path

from nnpa_server.tuning.kernel_cache import choose, one_compiler


@cache
def kernels() -> Path:
    """Compile what the cache lacks, once for all processes of tests; return its folder."""
    environment: dict[str, str] = {}
    choose(environment)
    place = Path(environment["NUMBA_CACHE_DIR"])
    with one_compiler(place):
        subprocess.run(
            [sys.executable, "-m", "nnpa_server", "--compile-kernels"],
            check=True,
            capture_output=True,
        )
    return place
