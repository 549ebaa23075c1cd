/* SPDX-License-Identifier: Apache-2.0 */
/* Weights whose user's dim2 is not that of their sticks: rows are taken as the user has them. */
#include <string.h>

#include "buffer.h"

#define COLUMNS 3

static float data[4][2 * 64 * COLUMNS];

static zdnn_status transform(struct tensor *tensor, zdnn_concat_info info, uint32_t rows,
                             uint32_t user_rows) {
  zdnn_init_pre_transformed_desc(ZDNN_3DS, FP32, &tensor->pre, 2u, rows, (uint32_t)COLUMNS);
  MUST(zdnn_generate_transformed_desc_concatenated(&tensor->pre, info, &tensor->desc));
  tensor->pre.dim2 = user_rows;
  give_sticks(tensor);
  return zdnn_transform_ztensor(&tensor->ztensor, data[0], data[1], data[2], data[3]);
}

/* Transforms with other rows, and compares with the sticks of weights that have these rows. */
static void compare(const char *what, zdnn_concat_info info, uint32_t rows, uint32_t user_rows) {
  struct tensor odd, right;
  zdnn_status status = transform(&odd, info, rows, user_rows);
  zdnn_status expected = transform(&right, info, user_rows, user_rows);
  bool is_same = odd.ztensor.buffer_size == right.ztensor.buffer_size &&
                 memcmp(odd.ztensor.buffer, right.ztensor.buffer, odd.ztensor.buffer_size) == 0;
  printf("%s %08x %08x %s %d\n", what, status, expected, is_same ? "same" : "other",
         odd.ztensor.is_transformed);
}

int main(void) {
  for (int i = 0; i < (int)(sizeof data / sizeof **data); i++) {
    ((float *)data)[i] = (float)(i % 1000);
  }
  compare("lstm", RNN_TYPE_LSTM | PREV_LAYER_NONE | USAGE_WEIGHTS, 10, 9);
  compare("gru", RNN_TYPE_GRU | PREV_LAYER_NONE | USAGE_HIDDEN_WEIGHTS, 8, 11);
  compare("halves", RNN_TYPE_LSTM | PREV_LAYER_BIDIR | USAGE_WEIGHTS, 10, 8);
  struct tensor halves;
  printf("odd halves %08x\n",
         transform(&halves, RNN_TYPE_GRU | PREV_LAYER_BIDIR | USAGE_WEIGHTS, 10, 9));
  return 0;
}
