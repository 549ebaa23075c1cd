/* SPDX-License-Identifier: Apache-2.0 */
/* Refused calls over sticks that nobody may read: memory without any right to it. */
#include <stdio.h>
#include <sys/mman.h>

#include "zdnn.h"

/* What a case has: a layout and a size for each side, and their states. */
struct side {
  zdnn_data_layouts layout;
  uint32_t dim2, dim1;
  bool is_transformed;
};

static void *forbidden;

static void make(struct side side, zdnn_tensor_desc descs[2], zdnn_ztensor *ztensor) {
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &descs[0], side.dim2, side.dim1);
  zdnn_generate_transformed_desc(&descs[0], &descs[1]);
  descs[1].layout = side.layout;
  descs[1].format = side.layout == ZDNN_HWCK ? ZDNN_FORMAT_4DKERNEL : ZDNN_FORMAT_4DFEATURE;
  zdnn_init_ztensor(&descs[0], &descs[1], ztensor);
  ztensor->buffer = forbidden;
  ztensor->buffer_size = zdnn_getsize_ztensor(&descs[1]);
  ztensor->is_transformed = side.is_transformed;
}

static void reshape(const char *why, struct side from, struct side to) {
  zdnn_tensor_desc descs[2][2];
  zdnn_ztensor src, dest;
  make(from, descs[0], &src);
  make(to, descs[1], &dest);
  printf("%s %08x\n", why, zdnn_reshape_ztensor(&src, &dest));
}

int main(void) {
  forbidden = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (forbidden == MAP_FAILED) {
    return 1;
  }
  struct side right = {ZDNN_NHWC, 4, 6, true}, other = {ZDNN_NHWC, 3, 8, false};
  struct side longer = {ZDNN_NHWC, 4, 7, false}, kernel = {ZDNN_HWCK, 3, 8, false};
  struct side unset = {ZDNN_NHWC, 4, 6, false}, done = {ZDNN_NHWC, 3, 8, true};
  struct side gates = {ZDNN_FICO, 4, 6, true}, gates_too = {ZDNN_FICO, 3, 8, false};
  struct side kernel_src = {ZDNN_HWCK, 4, 6, true};
  reshape("elements", right, longer);
  reshape("layouts", right, kernel);
  reshape("layout", gates, gates_too);
  reshape("src's state", unset, other);
  reshape("dest's state", right, done);
  reshape("kernels", kernel_src, kernel);

  zdnn_tensor_desc descs[2];
  zdnn_ztensor ztensor;
  float array[24], low, high;
  make(unset, descs, &ztensor);
  printf("back %08x\n", zdnn_transform_origtensor(&ztensor, array));
  printf("range %08x\n", zdnn_getrange_ztensor(&ztensor, &low, &high));
  make(gates, descs, &ztensor);
  printf("gates back %08x\n", zdnn_transform_origtensor(&ztensor, array));
  printf("range of gates %08x\n", zdnn_getrange_ztensor(&ztensor, &low, &high));
  return 0;
}
