/* SPDX-License-Identifier: Apache-2.0 */
/* recall ROWS COUNT: makes so many sums, one from the other, then reads them all again, the oldest
 * last, and prints a checksum of what it gets. One of them it has changed in between. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "zdnn.h"

#define COLUMNS 1024u
#define MOST 16

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
  int count = argc > 2 ? atoi(argv[2]) : 1;
  zdnn_tensor_desc pre, desc;
  zdnn_ztensor sums[MOST + 1], product;
  float *data = malloc(sizeof(float) * rows * COLUMNS);
  for (uint32_t i = 0; i < rows * COLUMNS; i++) {
    data[i] = (float)(i % 97) / 8;
  }
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &pre, rows, COLUMNS);
  zdnn_generate_transformed_desc(&pre, &desc);
  if (zdnn_init_ztensor_with_malloc(&pre, &desc, &product) != ZDNN_OK || count > MOST) {
    return 1;
  }
  for (int i = 0; i <= count; i++) {
    if (zdnn_init_ztensor_with_malloc(&pre, &desc, &sums[i]) != ZDNN_OK) {
      return 1;
    }
  }
  if (zdnn_transform_ztensor(&sums[0], data) != ZDNN_OK) {
    return 1;
  }
  for (int i = 0; i < count; i++) {
    printf("%08x %016llx\n", zdnn_add(&sums[i], &sums[0], &sums[i + 1]),
           (unsigned long long)checksum(&sums[i + 1]));
  }
  ((uint16_t *)sums[1].buffer)[product.buffer_size / 2 - 1] ^= 1;
  for (int i = count; i >= 0; i--) {
    printf("%08x %016llx\n", zdnn_mul(&sums[i], &sums[i], &product),
           (unsigned long long)checksum(&product));
  }
  for (int i = 0; i <= count; i++) {
    zdnn_free_ztensor_buffer(&sums[i]);
  }
  zdnn_free_ztensor_buffer(&product);
  free(data);
  return 0;
}
