# SPDX-License-Identifier: Apache-2.0
"""Multiply INT8 stacks, biases pre-computed: python quantized_matmul_pre_computed.py [target].

The zDNN API Reference 1.2.0's "Example of calling the zdnn_quantized_matmul with pre_computed=true
API (normal)": a variant of `quantized_matmul.py`.
"""

import sys
from functools import partial

import quantized_matmul
from nnpa_client import connect

main = partial(quantized_matmul.main, pre_computed=True)

if __name__ == "__main__":
    with connect(sys.argv[1] if len(sys.argv) > 1 else None):
        print(main())
