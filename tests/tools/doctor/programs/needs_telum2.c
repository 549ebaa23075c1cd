// SPDX-License-Identifier: Apache-2.0
// Fault: it calls what Telum I lacks, and has no other way.
#include "ztensors.h"

enum { ROWS = 2, COLUMNS = 4 };

int main(void) {
  float data[ROWS * COLUMNS] = {-2, -1, 0, 1, 2, 3, 4, 5}, out[ROWS * COLUMNS];
  matrix input, output;
  allocate(&input, ROWS, COLUMNS);
  allocate(&output, ROWS, COLUMNS);
  must(zdnn_transform_ztensor(&input.ztensor, data), "transform");
  must(zdnn_gelu(&input.ztensor, &output.ztensor), "gelu");
  must(zdnn_transform_origtensor(&output.ztensor, out), "transform back");
  printf("%g\n", out[ROWS * COLUMNS - 1]);
  release(&input);
  release(&output);
}
