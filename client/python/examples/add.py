# SPDX-License-Identifier: Apache-2.0
"""Add two tensors: python add.py [target].

The zDNN API Reference 1.2.0's "Example flow of an application calling the zDNN APIs", line by
line. Each assert of a status is what the Python functions do by themselves: they raise.
"""

import sys

import numpy as np
import numpy.typing as npt
from nnpa_client import connect, zdnn


def main() -> npt.NDArray[np.float32]:
    """Create two ztensors a and b, add them with zdnn.add, and return the sum."""
    dim_n, dim_h, dim_w, dim_c = 1, 32, 32, 3
    type = zdnn.FP32  # noqa: A001 - the C program's name
    num_elements = dim_n * dim_h * dim_w * dim_c

    # allocate tensor data storage
    data1 = np.empty(num_elements, np.float32)
    data2 = np.empty(num_elements, np.float32)
    data_out = np.empty(num_elements, np.float32)

    # count from 0 to 127, again and again
    for i in range(num_elements):
        data1[i] = i & 0x7F
        data2[i] = i & 0x7F

    pre_tfrmd_desc = zdnn.init_pre_transformed_desc(
        zdnn.ZDNN_NHWC, type, dim_n, dim_h, dim_w, dim_c
    )
    # the shape on the accelerator
    tfrmd_desc = zdnn.generate_transformed_desc(pre_tfrmd_desc)

    # ztensors with storage on 4 KiB boundaries
    ztensor_a = zdnn.init_ztensor_with_malloc(pre_tfrmd_desc, tfrmd_desc)
    ztensor_b = zdnn.init_ztensor_with_malloc(pre_tfrmd_desc, tfrmd_desc)
    ztensor_out = zdnn.init_ztensor_with_malloc(pre_tfrmd_desc, tfrmd_desc)

    # stickify both inputs
    zdnn.transform_ztensor(ztensor_a, data1)
    zdnn.transform_ztensor(ztensor_b, data2)

    # add them element by element
    zdnn.add(ztensor_a, ztensor_b, ztensor_out)

    # back to the layout that the data came in
    zdnn.transform_origtensor(ztensor_out, data_out)

    for i in range(num_elements):
        print(f"out element {i} {data_out[i]:f}")

    # free the ztensors
    zdnn.free_ztensor_buffer(ztensor_a)
    zdnn.free_ztensor_buffer(ztensor_b)
    zdnn.free_ztensor_buffer(ztensor_out)
    return data_out


if __name__ == "__main__":
    with connect(sys.argv[1] if len(sys.argv) > 1 else None):
        main()
