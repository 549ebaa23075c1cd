/* SPDX-License-Identifier: Apache-2.0 */
/* repeat ROWS ROUNDS: adds the same tensor again and again, and prints a checksum of each sum's
 * sticks. In between it writes sticks itself: a buffer is memory, whoever has seen it before. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zdnn.h"

#define COLUMNS 1024u

static uint64_t checksum(const zdnn_ztensor *ztensor) {
  const uint16_t *cells = ztensor->buffer;
  uint64_t sum = 0;
  for (uint64_t i = 0; i < ztensor->buffer_size / 2; i++) {
    sum = sum * 31 + cells[i];
  }
  return sum;
}

int main(int argc, char **argv) {
  uint32_t rows = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
  int rounds = argc > 2 ? atoi(argv[2]) : 1;
  zdnn_tensor_desc pre, desc;
  zdnn_ztensor one, sum;
  float *data = malloc(sizeof(float) * rows * COLUMNS);
  for (uint32_t i = 0; i < rows * COLUMNS; i++) {
    data[i] = (float)(i % 97) / 8;
  }
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &pre, rows, COLUMNS);
  zdnn_generate_transformed_desc(&pre, &desc);
  if (zdnn_init_ztensor_with_malloc(&pre, &desc, &one) != ZDNN_OK ||
      zdnn_init_ztensor_with_malloc(&pre, &desc, &sum) != ZDNN_OK) {
    return 1;
  }
  if (zdnn_transform_ztensor(&one, data) != ZDNN_OK) {
    return 1;
  }
  memcpy(sum.buffer, one.buffer, one.buffer_size);
  sum.is_transformed = true;
  for (int i = 0; i < rounds; i++) {
    printf("%08x %016llx\n", zdnn_add(&one, &sum, &sum), (unsigned long long)checksum(&sum));
    if (i % 3 == 1) {
      ((uint16_t *)one.buffer)[64 * (i % 2)] ^= 1;
    }
  }
  memset(data, 0, sizeof(float) * rows * COLUMNS);
  printf("%08x %.6f\n", zdnn_transform_origtensor(&sum, data), data[1]);
  zdnn_free_ztensor_buffer(&one);
  zdnn_free_ztensor_buffer(&sum);
  free(data);
  return 0;
}
