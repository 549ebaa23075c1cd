/* SPDX-License-Identifier: Apache-2.0
 * 100 products of two matrices of 512 by 512, by the functions of zdnn.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "zdnn.h"

enum { TIMES = 100, SIZE = 512 };

static void must(zdnn_status status) {
  if (status == ZDNN_OK) return;
  fprintf(stderr, "%s\n", zdnn_get_status_message(status));
  exit(EXIT_FAILURE);
}

/* A ztensor and its descriptors. */
struct matrix {
  zdnn_tensor_desc pre, transformed;
  zdnn_ztensor ztensor;
};

static void make(struct matrix *made, zdnn_data_layouts layout, const float *data) {
  zdnn_init_pre_transformed_desc(layout, FP32, &made->pre, SIZE, SIZE);
  must(zdnn_generate_transformed_desc(&made->pre, &made->transformed));
  must(zdnn_init_ztensor_with_malloc(&made->pre, &made->transformed, &made->ztensor));
  if (data != NULL) must(zdnn_transform_ztensor(&made->ztensor, data));
}

int main(void) {
  struct matrix a, b, bias, output;
  float *data = malloc(sizeof *data * SIZE * SIZE);
  if (data == NULL) return EXIT_FAILURE;
  for (size_t i = 0; i < (size_t)SIZE * SIZE; i++) data[i] = (float)(i % 7) / 8;
  zdnn_init();
  make(&a, ZDNN_2D, data);
  make(&b, ZDNN_2D, data);
  make(&bias, ZDNN_1D, data);
  make(&output, ZDNN_2D, NULL);
  for (int time = 0; time < TIMES; time++)
    must(zdnn_matmul_op(&a.ztensor, &b.ztensor, &bias.ztensor, MATMUL_OP_ADDITION,
                        &output.ztensor));
  must(zdnn_transform_origtensor(&output.ztensor, data));
  printf("%d products, the last element %g\n", TIMES, data[(size_t)SIZE * SIZE - 1]);
  struct matrix *const all[] = {&a, &b, &bias, &output};
  for (int i = 0; i < 4; i++) must(zdnn_free_ztensor_buffer(&all[i]->ztensor));
  free(data);
}
