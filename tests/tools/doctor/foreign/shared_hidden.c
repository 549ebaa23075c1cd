// SPDX-License-Identifier: Apache-2.0
/*
 * Two heads on one hidden layer: a risk (sigmoid) and a limit (ReLU). The heads keep the hidden
 * layer in structures of their own, which share its sticks.
 *
 * Fault: the first head frees the sticks that it shares with the second when it is done, and the
 * second computes with the freed buffer.
 *
 * Expected finding: zdnn_relu reads sticks that zdnn_free_ztensor_buffer freed (by another
 * structure, in `risk`). The memory often still holds the old sticks, so the result is
 * right on most days.
 */
#include <assert.h>
#include <stdio.h>

#include "zdnn.h"

#define ROWS 2
#define UNITS 70

struct head {
  zdnn_ztensor hidden; /* shares the buffer of the hidden layer */
  zdnn_ztensor output;
};

static zdnn_tensor_desc plain, transformed;

static void open_head(struct head *head, const zdnn_ztensor *hidden) {
  zdnn_status status;

  head->hidden = *hidden;
  status = zdnn_init_ztensor_with_malloc(&plain, &transformed, &head->output);
  assert(status == ZDNN_OK);
}

static void report(const char *name, struct head *head) {
  float values[ROWS][UNITS];
  zdnn_status status = zdnn_transform_origtensor(&head->output, values);

  assert(status == ZDNN_OK);
  printf("%s: %.4f %.4f ... %.4f\n", name, values[0][0], values[0][1], values[ROWS - 1][UNITS - 1]);
  status = zdnn_free_ztensor_buffer(&head->output);
  assert(status == ZDNN_OK);
}

static void risk(struct head *head) {
  zdnn_status status = zdnn_sigmoid(&head->hidden, &head->output);

  assert(status == ZDNN_OK);
  report("risk ", head);
  status = zdnn_free_ztensor_buffer(&head->hidden);
  assert(status == ZDNN_OK);
}

static void limit(struct head *head) {
  zdnn_status status = zdnn_relu(&head->hidden, NULL, &head->output);

  assert(status == ZDNN_OK);
  report("limit", head);
}

int main(void) {
  float features[ROWS][UNITS];
  zdnn_ztensor input, hidden;
  struct head risk_head, limit_head;
  zdnn_status status;

  for (int i = 0; i < ROWS * UNITS; i++)
    features[i / UNITS][i % UNITS] = (float)(i % 13 - 6) / 3.0f;

  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &plain, ROWS, UNITS);
  status = zdnn_generate_transformed_desc(&plain, &transformed);
  assert(status == ZDNN_OK);
  status = zdnn_init_ztensor_with_malloc(&plain, &transformed, &input);
  assert(status == ZDNN_OK);
  status = zdnn_init_ztensor_with_malloc(&plain, &transformed, &hidden);
  assert(status == ZDNN_OK);
  status = zdnn_transform_ztensor(&input, features);
  assert(status == ZDNN_OK);
  status = zdnn_tanh(&input, &hidden);
  assert(status == ZDNN_OK);
  status = zdnn_free_ztensor_buffer(&input);
  assert(status == ZDNN_OK);

  open_head(&risk_head, &hidden);
  open_head(&limit_head, &hidden);
  risk(&risk_head);
  limit(&limit_head);
  return 0;
}
