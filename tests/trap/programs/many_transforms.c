/* SPDX-License-Identifier: Apache-2.0
 * 100 times a million of FP32 to sticks and back, by the functions of zdnn.h.
 */
#include <stdio.h>
#include <stdlib.h>

#include "zdnn.h"

enum { TIMES = 100, ROWS_OF_ARRAY = 1024, COLUMNS = 1024 };

static void must(zdnn_status status) {
  if (status == ZDNN_OK) return;
  fprintf(stderr, "%s\n", zdnn_get_status_message(status));
  exit(EXIT_FAILURE);
}

int main(void) {
  zdnn_tensor_desc pre, transformed;
  zdnn_ztensor ztensor;
  size_t count = (size_t)ROWS_OF_ARRAY * COLUMNS;
  float *data = malloc(count * sizeof *data);
  if (data == NULL) return EXIT_FAILURE;
  for (size_t i = 0; i < count; i++) data[i] = (float)(i % 512);
  zdnn_init();
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &pre, ROWS_OF_ARRAY, COLUMNS);
  must(zdnn_generate_transformed_desc(&pre, &transformed));
  must(zdnn_init_ztensor_with_malloc(&pre, &transformed, &ztensor));
  for (int time = 0; time < TIMES; time++) {
    zdnn_reset_ztensor(&ztensor);
    must(zdnn_transform_ztensor(&ztensor, data));
    must(zdnn_transform_origtensor(&ztensor, data));
  }
  printf("%d transforms, the last element %g\n", TIMES, data[count - 1]);
  must(zdnn_free_ztensor_buffer(&ztensor));
  free(data);
}
