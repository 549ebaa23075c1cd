/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of different shapes: a program check. */
#include <stdio.h>

#include "zdnn.h"

int main(void) {
  zdnn_tensor_desc pre, small, large;
  zdnn_ztensor a, b;
  zdnn_init_pre_transformed_desc(ZDNN_1D, FP32, &pre, 4u);
  zdnn_generate_transformed_desc(&pre, &small);
  pre.dim1 = 5;
  zdnn_generate_transformed_desc(&pre, &large);
  zdnn_init_ztensor_with_malloc(&pre, &small, &a);
  zdnn_init_ztensor_with_malloc(&pre, &large, &b);
  printf("%08x\n", zdnn_add(&a, &b, &a));
  zdnn_free_ztensor_buffer(&a);
  zdnn_free_ztensor_buffer(&b);
  return 0;
}
