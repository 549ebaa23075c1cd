// SPDX-License-Identifier: Apache-2.0
/*
 * Computes the feed-forward block of a transformer: dense, GELU, dense.
 *
 * Fault: zdnn_gelu exists since zDNN 1.1.0 and needs Telum II (z17), and the program calls it
 * without asking zdnn_is_nnpa_function_installed(1, NNPA_GELU) before; it has no
 * other way to compute it.
 *
 * Expected finding: zdnn_gelu is called and never asked for, and on z16 this program ends with
 * ZDNN_UNAVAILABLE_FUNCTION and exit code 1.
 */
#include <stdio.h>
#include <stdlib.h>

#include "zdnn.h"

enum { TOKENS = 3, WIDTH = 8, HIDDEN = 32 };

typedef struct {
  zdnn_tensor_desc pre;
  zdnn_tensor_desc tfrmd;
  zdnn_ztensor z;
} operand;

#define TRY(call)                                                             \
  do {                                                                        \
    zdnn_status answer = (call);                                              \
    if (answer != ZDNN_OK) {                                                  \
      fprintf(stderr, "%s:%d: 0x%08x %s\n", __FILE__, __LINE__, (unsigned)answer, \
              zdnn_get_status_message(answer));                               \
      exit(EXIT_FAILURE);                                                     \
    }                                                                         \
  } while (0)

static void make(operand *o, zdnn_data_layouts layout, uint32_t rows, uint32_t columns) {
  if (layout == ZDNN_1D)
    zdnn_init_pre_transformed_desc(layout, FP32, &o->pre, columns);
  else
    zdnn_init_pre_transformed_desc(layout, FP32, &o->pre, rows, columns);
  TRY(zdnn_generate_transformed_desc(&o->pre, &o->tfrmd));
  TRY(zdnn_init_ztensor_with_malloc(&o->pre, &o->tfrmd, &o->z));
}

static void fill(operand *o, int count, int step) {
  float *values = malloc((size_t)count * sizeof *values);
  if (values == NULL)
    exit(EXIT_FAILURE);
  for (int i = 0; i < count; i++)
    values[i] = (float)(i * step % 17 - 8) / 16.0f;
  TRY(zdnn_transform_ztensor(&o->z, values));
  free(values);
}

int main(void) {
  operand x, w1, b1, w2, b2, wide, active, y;
  float out[TOKENS][WIDTH];

  make(&x, ZDNN_2D, TOKENS, WIDTH);
  make(&w1, ZDNN_2D, WIDTH, HIDDEN);
  make(&b1, ZDNN_1D, 1, HIDDEN);
  make(&w2, ZDNN_2D, HIDDEN, WIDTH);
  make(&b2, ZDNN_1D, 1, WIDTH);
  make(&wide, ZDNN_2D, TOKENS, HIDDEN);
  make(&active, ZDNN_2D, TOKENS, HIDDEN);
  make(&y, ZDNN_2D, TOKENS, WIDTH);
  fill(&x, TOKENS * WIDTH, 5);
  fill(&w1, WIDTH * HIDDEN, 7);
  fill(&b1, HIDDEN, 3);
  fill(&w2, HIDDEN * WIDTH, 11);
  fill(&b2, WIDTH, 2);

  TRY(zdnn_matmul_op(&x.z, &w1.z, &b1.z, MATMUL_OP_ADDITION, &wide.z));
  TRY(zdnn_gelu(&wide.z, &active.z));
  TRY(zdnn_matmul_op(&active.z, &w2.z, &b2.z, MATMUL_OP_ADDITION, &y.z));
  TRY(zdnn_transform_origtensor(&y.z, out));

  for (int token = 0; token < TOKENS; token++) {
    for (int i = 0; i < WIDTH; i++)
      printf("%8.4f", out[token][i]);
    printf("\n");
  }

  operand *made[] = {&x, &w1, &b1, &w2, &b2, &wide, &active, &y};
  for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
    TRY(zdnn_free_ztensor_buffer(&made[i]->z));
  return EXIT_SUCCESS;
}
