/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of 32 MiB, too large for one message. */
#include <stdio.h>
#include <stdlib.h>

#include "zdnn.h"

#define ROWS 8192u
#define COLUMNS 2048u

int main(void) {
  zdnn_tensor_desc pre, desc;
  zdnn_ztensor a, b;
  float *data = malloc(sizeof(float) * ROWS * COLUMNS);
  for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
    data[i] = (float)(i % 251);
  }
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &pre, ROWS, COLUMNS);
  int right = zdnn_generate_transformed_desc(&pre, &desc) == ZDNN_OK;
  right &= zdnn_init_ztensor_with_malloc(&pre, &desc, &a) == ZDNN_OK;
  right &= zdnn_init_ztensor_with_malloc(&pre, &desc, &b) == ZDNN_OK;
  right &= zdnn_transform_ztensor(&a, data) == ZDNN_OK;
  right &= zdnn_add(&a, &a, &b) == ZDNN_OK && b.is_transformed;
  right &= zdnn_transform_origtensor(&b, data) == ZDNN_OK;
  for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
    right &= data[i] == 2 * (float)(i % 251);
  }
  right &= zdnn_free_ztensor_buffer(&a) == ZDNN_OK && zdnn_free_ztensor_buffer(&b) == ZDNN_OK;
  free(data);
  puts(right ? "right" : "wrong");
  return 0;
}
