/* SPDX-License-Identifier: Apache-2.0 */
/* One whole use of the library: 3 + 4 = 7 in every element. */
#ifndef SUM_H
#define SUM_H

#include <stddef.h>
#include <stdint.h>

#include "zdnn.h"

#define ELEMENTS 128

/* Returns 1 when the sum is right in every element, else 0. */
static inline int sum_is_right(void) {
  zdnn_tensor_desc pre, desc;
  zdnn_ztensor tensors[3];
  float data[2][ELEMENTS], sum[ELEMENTS];
  int right = 1;
  zdnn_init_pre_transformed_desc(ZDNN_1D, FP32, &pre, (uint32_t)ELEMENTS);
  right &= zdnn_generate_transformed_desc(&pre, &desc) == ZDNN_OK;
  for (int i = 0; i < ELEMENTS; i++) {
    data[0][i] = 3;
    data[1][i] = 4;
    sum[i] = 0;
  }
  for (int i = 0; i < 3; i++) {
    if (zdnn_init_ztensor_with_malloc(&pre, &desc, &tensors[i]) != ZDNN_OK) {
      return 0;
    }
  }
  right &= zdnn_transform_ztensor(&tensors[0], data[0]) == ZDNN_OK;
  right &= zdnn_transform_ztensor(&tensors[1], data[1]) == ZDNN_OK;
  right &= zdnn_add(&tensors[0], &tensors[1], &tensors[2]) == ZDNN_OK;
  right &= zdnn_transform_origtensor(&tensors[2], sum) == ZDNN_OK;
  for (int i = 0; i < ELEMENTS; i++) {
    right &= sum[i] == 7;
  }
  for (int i = 0; i < 3; i++) {
    right &= zdnn_free_ztensor_buffer(&tensors[i]) == ZDNN_OK;
  }
  return right;
}

#endif
