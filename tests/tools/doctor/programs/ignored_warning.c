// SPDX-License-Identifier: Apache-2.0
// Fault: a range violation is taken for success, as only errors are looked for.
#include "ztensors.h"

enum { ROWS = 2, COLUMNS = 4 };

static void no_error(zdnn_status status, const char *what) {
  if ((status & 0xffff0000) != ZDNN_WARNING)
    must(status, what);
}

int main(void) {
  float logits[ROWS * COLUMNS] = {1, 2, 3, 4, 5, 6, 7, 80}, weights[ROWS * COLUMNS];
  matrix input, output;
  allocate(&input, ROWS, COLUMNS);
  allocate(&output, ROWS, COLUMNS);
  must(zdnn_transform_ztensor(&input.ztensor, logits), "transform");
  no_error(zdnn_exp(&input.ztensor, &output.ztensor), "exp");
  zdnn_transform_origtensor(&output.ztensor, weights);
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    printf("%g\n", weights[i]);
  }
  release(&input);
  release(&output);
}
