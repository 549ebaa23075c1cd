// SPDX-License-Identifier: Apache-2.0
// Fault: the weights are transformed for each batch, and never change.
#include <string.h>

#include "ztensors.h"

enum { BATCHES = 3, ROWS = 4, INNER = 16, COLUMNS = 8 };

int main(void) {
  float weights[INNER * COLUMNS], bias[COLUMNS] = {1, 2, 3, 4, 5, 6, 7, 8};
  float batch[ROWS * INNER], out[ROWS * COLUMNS];
  for (int i = 0; i < INNER * COLUMNS; i++) {
    weights[i] = (float)(i % 7) / 8;
  }
  matrix input, weight, product, vector;
  allocate(&input, ROWS, INNER);
  allocate(&weight, INNER, COLUMNS);
  allocate(&product, ROWS, COLUMNS);
  zdnn_init_pre_transformed_desc(ZDNN_1D, FP32, &vector.pre, COLUMNS);
  must(zdnn_generate_transformed_desc(&vector.pre, &vector.tfrmd), "describe");
  must(zdnn_init_ztensor_with_malloc(&vector.pre, &vector.tfrmd, &vector.ztensor), "allocate");
  must(zdnn_transform_ztensor(&vector.ztensor, bias), "transform bias");
  for (int number = 0; number < BATCHES; number++) {
    for (int i = 0; i < ROWS * INNER; i++) {
      batch[i] = (float)(i % (number + 3));
    }
    zdnn_reset_ztensor(&input.ztensor);
    zdnn_reset_ztensor(&weight.ztensor);
    zdnn_reset_ztensor(&product.ztensor);
    must(zdnn_transform_ztensor(&input.ztensor, batch), "transform batch");
    must(zdnn_transform_ztensor(&weight.ztensor, weights), "transform weights");
    must(zdnn_matmul_op(&input.ztensor, &weight.ztensor, &vector.ztensor, MATMUL_OP_ADDITION,
                        &product.ztensor),
         "matmul");
    must(zdnn_transform_origtensor(&product.ztensor, out), "transform back");
    printf("%g\n", out[0]);
  }
  release(&input);
  release(&weight);
  release(&product);
  must(zdnn_free_ztensor_buffer(&vector.ztensor), "free");
}
