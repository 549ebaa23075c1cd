# SPDX-License-Identifier: Apache-2.0
"""The process that compiles kernels for a server, started by `tuning.background`.

It has the lowest priority, and there is one at a time for each cache.
"""

import os
import sys
from pathlib import Path
from typing import Any

from nnpa_server.config import kernel_folder, prepare_compiler
from nnpa_server.tuning.kernel_cache import one_compiler


def main() -> None:
    """Compile the orders on standard input; write an empty line after each one."""
    os.nice(19)
    prepare_compiler()
    place = kernel_folder()
    if place is None:
        sys.exit("no writable directory for compiled kernels")
    with one_compiler(place):
        _compile_orders(place)


def _compile_orders(place: Path) -> None:
    from nnpa_emulator.kernels.jit import KERNELS, load  # when it is this process's turn

    from nnpa_server.tuning.background import decode_orders
    from nnpa_server.tuning.warmup import compile_step

    orders = decode_orders(sys.stdin.buffer.read())
    if not load():
        return
    for name, signature in orders:
        if signature is None:
            compile_step(place, name)
        else:
            kernel: Any = KERNELS[name].compiled()
            kernel.compile(signature)
        print(flush=True)


if __name__ == "__main__":
    main()
