/* SPDX-License-Identifier: Apache-2.0 */
/* Layers whose outputs say what they like, and lend work areas: recurrent lstm|gru DIRECTION.
 *
 * Prints for each way to describe the outputs the status and whether the sticks are those of the
 * first one, which is as the library asks. */
#include <string.h>

#include "buffer.h"

#define TIMESTEPS 3
#define BATCH 2
#define FEATURES 5
#define HIDDEN 7

static void fill(struct tensor *tensor, int arrays, float scale) {
  float data[4][1024];
  for (int i = 0; i < 4 * 1024; i++) {
    data[i / 1024][i % 1024] = scale * (float)(i % 17 - 8);
  }
  give_sticks(tensor);
  MUST(arrays == 1 ? zdnn_transform_ztensor(&tensor->ztensor, data[0])
       : arrays == 3
           ? zdnn_transform_ztensor(&tensor->ztensor, data[0], data[1], data[2])
           : zdnn_transform_ztensor(&tensor->ztensor, data[0], data[1], data[2], data[3]));
}

static void plain(struct tensor *tensor, uint32_t d3, uint32_t d2, uint32_t d1) {
  zdnn_init_pre_transformed_desc(ZDNN_3DS, FP32, &tensor->pre, d3, d2, d1);
  MUST(zdnn_generate_transformed_desc(&tensor->pre, &tensor->desc));
  fill(tensor, 1, 0.125f);
}

static void gates(struct tensor *tensor, zdnn_concat_info info, uint32_t directions, uint32_t rows) {
  bool lstm = CONCAT_RNN_TYPE(info) == RNN_TYPE_LSTM;
  if (rows == 0) {
    zdnn_init_pre_transformed_desc(ZDNN_2DS, FP32, &tensor->pre, directions, HIDDEN);
  } else {
    zdnn_init_pre_transformed_desc(ZDNN_3DS, FP32, &tensor->pre, directions, rows, HIDDEN);
  }
  MUST(zdnn_generate_transformed_desc_concatenated(&tensor->pre, info, &tensor->desc));
  fill(tensor, lstm ? 4 : 3, 0.0625f);
}

static struct tensor input, h0, c0, weights, biases, hidden_weights, hidden_biases, hn, cf;

static void output(struct tensor *tensor, uint32_t timesteps, uint32_t directions) {
  zdnn_init_pre_transformed_desc(ZDNN_4DS, FP32, &tensor->pre, timesteps, directions, BATCH,
                                 HIDDEN);
  MUST(zdnn_generate_transformed_desc(&tensor->pre, &tensor->desc));
  give_sticks(tensor);
}

static bool is_filled(const unsigned char *area, int value) {
  for (int i = 0; i < PAGE; i++) {
    if (area[i] != value) {
      return false;
    }
  }
  return true;
}

/* Runs the layer with the outputs as they are described now. */
static void run(const char *what, bool lstm, lstm_gru_direction direction) {
  static unsigned char first_hn[ROOM], first_cf[ROOM];
  static bool is_first = true;
  static _Alignas(PAGE) unsigned char area[64 * PAGE];
  int filling = is_first ? 0 : 0xFF;
  zdnn_tensor_desc as_called = hn.desc;
  memset(hn.ztensor.buffer, 0, hn.ztensor.buffer_size);
  memset(cf.ztensor.buffer, 0, cf.ztensor.buffer_size);
  memset(area, filling, sizeof area);
  hn.ztensor.is_transformed = cf.ztensor.is_transformed = false;
  zdnn_status status =
      lstm ? zdnn_lstm(&input.ztensor, &h0.ztensor, &c0.ztensor, &weights.ztensor, &biases.ztensor,
                       &hidden_weights.ztensor, &hidden_biases.ztensor, direction, area,
                       &hn.ztensor, &cf.ztensor)
           : zdnn_gru(&input.ztensor, &h0.ztensor, &weights.ztensor, &biases.ztensor,
                      &hidden_weights.ztensor, &hidden_biases.ztensor, direction, area,
                      &hn.ztensor);
  if (is_first) {
    memcpy(first_hn, hn.ztensor.buffer, hn.ztensor.buffer_size);
    memcpy(first_cf, cf.ztensor.buffer, cf.ztensor.buffer_size);
    is_first = false;
  }
  bool is_same = memcmp(first_hn, hn.ztensor.buffer, hn.ztensor.buffer_size) == 0 &&
                 memcmp(first_cf, cf.ztensor.buffer, cf.ztensor.buffer_size) == 0 &&
                 !is_filled(hn.ztensor.buffer, 0);
  bool is_marked = hn.ztensor.is_transformed && cf.ztensor.is_transformed == lstm;
  bool is_kept = memcmp(&as_called, &hn.desc, sizeof as_called) == 0;
  printf("%s %08x %s %s%s%s\n", what, status, is_same ? "same" : "other",
         is_filled(area, filling) ? "untouched" : "touched", is_marked ? "" : " unmarked",
         is_kept ? "" : " changed");
}

static void spoil(zdnn_tensor_desc *desc, uint32_t dim) {
  desc->dim3 = desc->dim2 = desc->dim1 = dim;
  desc->layout = (zdnn_data_layouts)77;
  desc->format = (zdnn_data_formats)77;
  desc->type = (zdnn_data_types)77;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    return 2;
  }
  bool lstm = strcmp(argv[1], "lstm") == 0;
  lstm_gru_direction direction = (lstm_gru_direction)atoi(argv[2]);
  uint32_t directions = direction == BIDIR ? 2 : 1;
  zdnn_concat_info rnn = lstm ? RNN_TYPE_LSTM : RNN_TYPE_GRU;
  plain(&input, TIMESTEPS, BATCH, FEATURES);
  plain(&h0, directions, BATCH, HIDDEN);
  plain(&c0, directions, BATCH, HIDDEN);
  gates(&weights, rnn | PREV_LAYER_NONE | USAGE_WEIGHTS, directions, FEATURES);
  gates(&biases, rnn | PREV_LAYER_NONE | USAGE_BIASES, directions, 0);
  gates(&hidden_weights, rnn | PREV_LAYER_NONE | USAGE_HIDDEN_WEIGHTS, directions, HIDDEN);
  gates(&hidden_biases, rnn | PREV_LAYER_NONE | USAGE_HIDDEN_BIASES, directions, 0);
  output(&hn, TIMESTEPS, directions);
  output(&cf, 1, directions);
  run("right", lstm, direction);

  /* As many bytes, other dims: what 3DS makes of the directions of cf_output. */
  zdnn_init_pre_transformed_desc(ZDNN_3DS, FP32, &cf.pre, directions, BATCH, HIDDEN);
  MUST(zdnn_generate_transformed_desc(&cf.pre, &cf.desc));
  run("slices", lstm, direction);

  cf.desc.dim4 = 9;
  spoil(&cf.desc, 200);
  spoil(&hn.desc, 200);
  run("large", lstm, direction);

  cf.desc.dim4 = 0;
  spoil(&cf.desc, 0);
  spoil(&hn.desc, 1);
  run("small", lstm, direction);

  cf.desc.dim4 = 0xDEADBEEF;
  spoil(&cf.desc, 0xDEADBEEF);
  spoil(&hn.desc, 0xDEADBEEF);
  run("rubbish", lstm, direction);
  return 0;
}
