// SPDX-License-Identifier: Apache-2.0
// Initializes the library and adds a tensor to itself as often as asked for, and tells the status of
// every call.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zdnn.h"

enum { COUNT = 8 };

static zdnn_status told(const char *name, zdnn_status status) {
  printf("%s %08x\n", name, (unsigned)status);
  fflush(stdout);
  return status;
}

static void show(const char *name, const float *values) {
  printf("%s", name);
  for (int i = 0; i < COUNT; i++)
    printf(" %g", values[i]);
  printf("\n");
  fflush(stdout);
}

int main(int argc, char **argv) {
  int adds = argc > 1 ? atoi(argv[1]) : 1;
  float data[COUNT], back[COUNT] = {0};
  for (int i = 0; i < COUNT; i++)
    data[i] = (float)i;
  zdnn_tensor_desc pre, tfrmd;
  zdnn_init();
  zdnn_init_pre_transformed_desc(ZDNN_1D, FP32, &pre, COUNT);
  told("describe", zdnn_generate_transformed_desc(&pre, &tfrmd));
  zdnn_ztensor a, out;
  memset(&a, 0, sizeof a);
  memset(&out, 0, sizeof out);
  told("allocate a", zdnn_init_ztensor_with_malloc(&pre, &tfrmd, &a));
  told("allocate out", zdnn_init_ztensor_with_malloc(&pre, &tfrmd, &out));
  told("transform", zdnn_transform_ztensor(&a, data));
  for (int i = 0; i < adds; i++) {
    zdnn_init();
    out.is_transformed = false;
    told("add", zdnn_add(&a, &a, &out));
  }
  told("back", zdnn_transform_origtensor(&out, back));
  show("sum", back);
  told("refresh", zdnn_refresh_nnpa_query_result());
  printf("installed %d\n", zdnn_is_nnpa_installed());
  told("free a", a.buffer ? zdnn_free_ztensor_buffer(&a) : ZDNN_OK);
  told("free out", out.buffer ? zdnn_free_ztensor_buffer(&out) : ZDNN_OK);
  return 0;
}
