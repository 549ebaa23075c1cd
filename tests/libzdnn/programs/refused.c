/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that the machine refuses or ends, one per name on the command line: operands that are NULL,
 * save areas that are no memory, a function of Telum II. Prints the status. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "zdnn.h"

static zdnn_tensor_desc pre[3], desc[3];

static zdnn_ztensor square(zdnn_data_layouts layout, int i) {
  static float data[16];
  zdnn_ztensor tensor;
  memset(&tensor, 0, sizeof tensor);
  if (layout == ZDNN_2DS) {
    zdnn_init_pre_transformed_desc(layout, FP32, &pre[i], 1u, 4u);
  } else {
    zdnn_init_pre_transformed_desc(layout, FP32, &pre[i], 1u, 4u, 4u);
  }
  zdnn_generate_transformed_desc(&pre[i], &desc[i]);
  zdnn_init_ztensor_with_malloc(&pre[i], &desc[i], &tensor);
  zdnn_transform_ztensor(&tensor, data);
  return tensor;
}

static zdnn_status call(const char *what) {
  zdnn_ztensor a = square(ZDNN_3DS, 0), bias = square(ZDNN_2DS, 1), y = square(ZDNN_3DS, 2);
  if (strcmp(what, "input_a") == 0) {
    return zdnn_add(NULL, &a, &y);
  }
  if (strcmp(what, "input_b") == 0) {
    return zdnn_add(&a, NULL, &y);
  }
  if (strcmp(what, "output") == 0) {
    return zdnn_add(&a, &a, NULL);
  }
  if (strcmp(what, "bias") == 0) {
    return zdnn_matmul_op(&a, &a, NULL, MATMUL_OP_ADDITION, &y);
  }
  if (strcmp(what, "with_bias") == 0) {
    return zdnn_matmul_op(&a, &a, &bias, MATMUL_OP_ADDITION, &y);
  }
  if (strcmp(what, "bias_of_stack") == 0) {
    return zdnn_matmul_bcast_op(&a, &a, NULL, MATMUL_BCAST_OP_ADDITION, &y);
  }
  if (strcmp(what, "factor_of_stack") == 0) {
    return zdnn_matmul_bcast_op(&a, NULL, &bias, MATMUL_BCAST_OP_ADDITION, &y);
  }
  if (strcmp(what, "gelu") == 0) {
    return zdnn_gelu(&a, &y);
  }
  int protection = PROT_READ | PROT_WRITE;
  if (strcmp(what, "unmapped") == 0) {
    protection = PROT_NONE;
  } else if (strcmp(what, "read_only") == 0) {
    protection = PROT_READ;
  }
  char *area = mmap(NULL, ZDNN_SOFTMAX_SAVEAREA_SIZE, protection,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (strcmp(what, "half") == 0) {
    mprotect(area + ZDNN_SOFTMAX_SAVEAREA_SIZE / 2, ZDNN_SOFTMAX_SAVEAREA_SIZE / 2, PROT_NONE);
  }
  return zdnn_softmax(&a, strcmp(what, "none") == 0 ? NULL : area, SOFTMAX_ACT_NONE, &y);
}

int main(int count, char **words) {
  printf("%08x\n", (unsigned)call(count > 1 ? words[1] : "none"));
  return 0;
}
