// SPDX-License-Identifier: Apache-2.0
// Fault: a ztensor is an operand after its buffer was freed.
#include "ztensors.h"

enum { ROWS = 2, COLUMNS = 4 };

int main(void) {
  float data[ROWS * COLUMNS] = {1, 2, 3, 4, 5, 6, 7, 8};
  matrix a, b, sum;
  allocate(&a, ROWS, COLUMNS);
  allocate(&b, ROWS, COLUMNS);
  allocate(&sum, ROWS, COLUMNS);
  must(zdnn_transform_ztensor(&a.ztensor, data), "transform");
  must(zdnn_transform_ztensor(&b.ztensor, data), "transform");
  must(zdnn_add(&a.ztensor, &b.ztensor, &sum.ztensor), "add");
  release(&b);
  // What is freed may hold anything, and mostly holds what it did.
  must(zdnn_mul(&sum.ztensor, &b.ztensor, &a.ztensor), "multiply");
  printf("multiplied\n");
  release(&a);
  release(&sum);
}
