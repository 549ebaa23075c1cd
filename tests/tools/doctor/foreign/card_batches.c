// SPDX-License-Identifier: Apache-2.0
/*
 * Scores three batches of card payments with one dense layer and a sigmoid.
 *
 * Fault: the second and the third batch are transformed into a ztensor that still holds the first,
 * without zdnn_reset_ztensor, and the status that says so is thrown away.
 *
 * Expected finding: zdnn_transform_ztensor of `payments` answers ZDNN_INVALID_STATE twice, nobody
 * looks, and the operations that follow compute with the first batch, so that all scores are alike.
 */
#include <stdio.h>
#include <stdlib.h>

#include "zdnn.h"

#define BATCHES 3
#define ROWS 4
#define FEATURES 6

struct tensor {
  zdnn_tensor_desc plain, transformed;
  zdnn_ztensor sticks;
};

static void check(zdnn_status status, const char *step) {
  if (status != ZDNN_OK) {
    fprintf(stderr, "%s: %s\n", step, zdnn_get_status_message(status));
    exit(1);
  }
}

static void allocate(struct tensor *tensor) {
  check(zdnn_generate_transformed_desc(&tensor->plain, &tensor->transformed), "describe");
  check(zdnn_init_ztensor_with_malloc(&tensor->plain, &tensor->transformed, &tensor->sticks),
        "allocate");
}

static void matrix(struct tensor *tensor, uint32_t rows, uint32_t columns) {
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &tensor->plain, rows, columns);
  allocate(tensor);
}

int main(void) {
  struct tensor payments, weights, bias, logits, scores;
  float batch[ROWS][FEATURES], layer[FEATURES], offset[1] = {-0.5f}, read[ROWS];

  matrix(&payments, ROWS, FEATURES);
  matrix(&weights, FEATURES, 1);
  zdnn_init_pre_transformed_desc(ZDNN_1D, FP32, &bias.plain, 1);
  allocate(&bias);
  matrix(&logits, ROWS, 1);
  matrix(&scores, ROWS, 1);

  for (int i = 0; i < FEATURES; i++)
    layer[i] = 0.25f * (float)(i % 3 - 1);
  check(zdnn_transform_ztensor(&weights.sticks, layer), "weights");
  check(zdnn_transform_ztensor(&bias.sticks, offset), "bias");

  for (int number = 0; number < BATCHES; number++) {
    for (int row = 0; row < ROWS; row++)
      for (int i = 0; i < FEATURES; i++)
        batch[row][i] = (float)((number * 7 + row * 5 + i * i) % 11) / 4.0f;
    zdnn_transform_ztensor(&payments.sticks, batch);
    check(zdnn_matmul_op(&payments.sticks, &weights.sticks, &bias.sticks, MATMUL_OP_ADDITION,
                         &logits.sticks),
          "dense");
    check(zdnn_sigmoid(&logits.sticks, &scores.sticks), "sigmoid");
    check(zdnn_transform_origtensor(&scores.sticks, read), "read");
    printf("batch %d:", number);
    for (int row = 0; row < ROWS; row++)
      printf(" %.4f", read[row]);
    printf("\n");
  }

  struct tensor *all[] = {&payments, &weights, &bias, &logits, &scores};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    check(zdnn_free_ztensor_buffer(&all[i]->sticks), "free");
  return 0;
}
