// SPDX-License-Identifier: Apache-2.0
// Fault: a maximum is taken over whole sticks, which hold three elements and padding.
#include "ztensors.h"

enum { ROWS = 2, COLUMNS = 3, STICK = 64 };

int main(void) {
  float data[ROWS * COLUMNS] = {-1, -2, -3, -4, -5, -6}, out[ROWS * STICK], most;
  matrix input, whole, output;
  allocate(&input, ROWS, COLUMNS);
  allocate(&whole, ROWS, STICK);
  allocate(&output, ROWS, STICK);
  must(zdnn_transform_ztensor(&input.ztensor, data), "transform");
  zdnn_ztensor view = whole.ztensor; // as wide as a stick, on the buffer of what is narrower
  view.buffer = input.ztensor.buffer;
  view.is_transformed = true;
  must(zdnn_max(&view, &view, &output.ztensor), "max");
  must(zdnn_transform_origtensor(&output.ztensor, out), "transform back");
  most = out[0];
  for (int i = 1; i < STICK; i++) {
    most = out[i] > most ? out[i] : most;
  }
  printf("%g\n", most);
  release(&input);
  release(&whole);
  release(&output);
}
