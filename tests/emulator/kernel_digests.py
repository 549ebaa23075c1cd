# SPDX-License-Identifier: Apache-2.0
"""A line per kernel with a digest of its results, so that `diff` compares two processors.

python -m tests.emulator.kernel_digests 20    makes 20 calls of each kernel, arguments drawn
"""

import sys
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy as np
from nnpa_emulator.kernels import jit
from nnpa_server.tuning.kernel_cache import key_by_sources

from tests.emulator.kernel_cases import CASES


def digest(name: str, calls: int) -> str:
    """Call a compiled kernel with drawn arguments; digest the values it returns and writes."""
    compiled, computed = jit.KERNELS[name].compiled(), sha256()
    for seed in range(calls):
        arguments, written = CASES[name](np.random.default_rng((seed, *name.encode())))
        returned = compiled(*arguments)
        computed.update(b"".join(_contents((returned, *(arguments[index] for index in written)))))
    return computed.hexdigest()


def _contents(value: Any) -> Iterator[bytes]:
    """Yield the bytes of arrays and numbers; every NaN is the same one, as processors differ."""
    if isinstance(value, tuple):
        for member in value:
            yield from _contents(member)
    elif value is not None:
        array = np.array(value)
        if array.dtype.kind == "f":
            array[np.isnan(array)] = np.nan
        yield array.tobytes()


def main() -> None:
    """Print name and digest of every kernel."""
    key_by_sources()  # as servers do: in NUMBA_CACHE_DIR lie the kernels that they compiled
    if not jit.load():
        sys.exit("Numba is not installed, and compiles the kernels: pip install 'nnpa[server]'")
    for name in CASES:
        print(name, digest(name, int(sys.argv[1])), flush=True)


if __name__ == "__main__":
    main()
