// SPDX-License-Identifier: Apache-2.0
// Adds, and treats statuses as its argument says: "abort" on a warning, "ignore" all, "hang" on an
// error, "handle": go on after a warning, say an error and end.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "zdnn.h"

enum { COUNT = 4 };

static const char *mode;

static void check(zdnn_status status) {
  if (status == ZDNN_OK || strcmp(mode, "ignore") == 0)
    return;
  int warning = (status & 0xffff0000) == ZDNN_WARNING;
  if (warning && strcmp(mode, "abort") == 0)
    abort();
  while (!warning && strcmp(mode, "hang") == 0)
    pause();
  if (!warning) {
    fprintf(stderr, "%s\n", zdnn_get_status_message(status));
    exit(3);
  }
}

int main(int argc, char **argv) {
  mode = argc > 1 ? argv[1] : "handle";
  float data[COUNT] = {1, 2, 3, 4}, back[COUNT] = {0};
  zdnn_tensor_desc pre, tfrmd;
  zdnn_ztensor a, out;
  zdnn_init();
  zdnn_init_pre_transformed_desc(ZDNN_1D, FP32, &pre, COUNT);
  check(zdnn_generate_transformed_desc(&pre, &tfrmd));
  check(zdnn_init_ztensor_with_malloc(&pre, &tfrmd, &a));
  check(zdnn_init_ztensor_with_malloc(&pre, &tfrmd, &out));
  check(zdnn_transform_ztensor(&a, data));
  check(zdnn_add(&a, &a, &out));
  check(zdnn_transform_origtensor(&out, back));
  printf("%g %g %g %g\n", back[0], back[1], back[2], back[3]);
  check(zdnn_free_ztensor_buffer(&a));
  check(zdnn_free_ztensor_buffer(&out));
  return 0;
}
