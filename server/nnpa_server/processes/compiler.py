# SPDX-License-Identifier: Apache-2.0
"""The process that compiles kernels for a server: `nnpa_server.tuning.background` starts it.

It has the lowest priority, and there is one at a time for each cache.
"""

import os
import sys
from functools import partial

from nnpa_server.config import kernel_folder, prepare_compiler
from nnpa_server.tuning.kernel_cache import one_compiler


def main() -> None:
    """Compile what standard input orders; each line on standard output says that one is done."""
    os.nice(19)
    prepare_compiler()
    place = kernel_folder()
    if place is None:
        sys.exit("no writable directory for compiled kernels")
    with one_compiler(place):
        from nnpa_server.tuning import background, warmup  # imports the emulator

        warm = partial(warmup.compile_step, place)
        background.compile_orders(sys.stdin.buffer, warm, lambda: print(flush=True))


if __name__ == "__main__":
    main()
