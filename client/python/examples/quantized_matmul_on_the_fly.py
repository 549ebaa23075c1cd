# SPDX-License-Identifier: Apache-2.0
"""Multiply stacks, the first quantized on the way: python quantized_matmul_on_the_fly.py [target].

The zDNN API Reference 1.2.0's "Example of calling the zdnn_quantized_matmul_op API (on-the-fly)": a
variant of `quantized_matmul.py`.
"""

import sys
from functools import partial

import quantized_matmul
from nnpa_client import connect

main = partial(quantized_matmul.main, on_the_fly=True)

if __name__ == "__main__":
    with connect(sys.argv[1] if len(sys.argv) > 1 else None):
        print(main())
