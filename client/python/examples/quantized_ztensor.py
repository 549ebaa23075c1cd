# SPDX-License-Identifier: Apache-2.0
"""Create a quantized ztensor: python quantized_ztensor.py [target].

The zDNN API Reference 1.2.0's "Example of an application creating a quantized ztensor", line by
line. Each assert of a status is what the Python functions do by themselves: they raise.
"""

import sys

import numpy as np
from nnpa_client import Ztensor, connect, zdnn


def main() -> Ztensor:
    """Create and fill a quantized ztensor, free it, and return what is left: the structure."""
    dim_n, dim_h, dim_w, dim_c = 1, 32, 32, 3
    type = zdnn.FP32  # noqa: A001 - the C program's name
    num_elements = dim_n * dim_h * dim_w * dim_c

    # allocate tensor data storage
    data1 = np.empty(num_elements, np.float32)

    # count from 0 to 127, again and again
    for i in range(num_elements):
        data1[i] = i & 0x7F

    pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_NHWC, type, dim_n, dim_h, dim_w, dim_c
    )
    scale = 3
    offset = 2

    # the shape on the accelerator
    tfrmd_desc = zdnn.generate_quantized_transformed_desc(pre_tfrmd_desc, zdnn.QUANTIZED_DLFLOAT16)

    # a ztensor with storage on a 4 KiB boundary
    ztensor = zdnn.init_quantized_ztensor_with_malloc(pre_tfrmd_desc, tfrmd_desc, scale, offset)

    # stickify the data
    zdnn.transform_ztensor(ztensor, data1)

    # free the ztensor
    zdnn.free_ztensor_buffer(ztensor)
    return ztensor


if __name__ == "__main__":
    with connect(sys.argv[1] if len(sys.argv) > 1 else None) as session:
        print(main())
