/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that are shared, sliced and copied; structures that are copied; sticks read directly. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zdnn.h"

#define ROWS 64
#define PAGE 4096

static int right = 1;

static void expect(int holds, const char *what) {
  if (!holds) {
    right = 0;
    printf("wrong: %s\n", what);
  }
}

int main(void) {
  zdnn_tensor_desc pre, desc, half_pre, half_desc;
  zdnn_ztensor whole, copy, second;
  static float data[ROWS][64], back[ROWS / 2][64];
  for (int i = 0; i < ROWS * 64; i++) {
    data[i / 64][i % 64] = (float)(i / 64);
  }
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &pre, (uint32_t)ROWS, 64u);
  zdnn_generate_transformed_desc(&pre, &desc);
  expect(zdnn_init_ztensor_with_malloc(&pre, &desc, &whole) == ZDNN_OK, "malloc");
  expect((size_t)whole.buffer % PAGE == 0, "alignment");
  expect(whole.buffer_size == 2 * PAGE, "size");
  expect(zdnn_transform_ztensor(&whole, data) == ZDNN_OK, "transform");
  expect(((uint16_t *)whole.buffer)[64] == 0x3E00, "stick of row 1 holds 1.0");
  expect(zdnn_transform_ztensor(&whole, data) == ZDNN_INVALID_STATE, "state");

  /* The second half is a tensor of its own, inside the first one's buffer. */
  zdnn_init_pre_transformed_desc(ZDNN_2D, FP32, &half_pre, (uint32_t)ROWS / 2, 64u);
  zdnn_generate_transformed_desc(&half_pre, &half_desc);
  zdnn_init_ztensor(&half_pre, &half_desc, &second);
  second.buffer = (char *)whole.buffer + PAGE;
  second.buffer_size = PAGE;
  second.is_transformed = true;
  expect(zdnn_add(&second, &second, &second) == ZDNN_OK, "in place");
  memcpy(&copy, &second, sizeof copy);
  memset(&second, 0, sizeof second);
  expect(zdnn_transform_origtensor(&copy, back) == ZDNN_OK, "back");
  for (int i = 0; i < ROWS / 2; i++) {
    expect(back[i][63] == 2.0f * (float)(ROWS / 2 + i), "doubled row");
  }
  expect(((uint16_t *)whole.buffer)[64] == 0x3E00, "first half untouched");

  /* Descriptors are read at every call. */
  desc.dim2 = ROWS / 2;
  expect(zdnn_add(&whole, &copy, &copy) == ZDNN_OK, "a changed descriptor");
  expect(((uint16_t *)copy.buffer)[0] == 0x4A00, "0 + 64");

  /* An address off its boundary; a buffer that is not there. */
  copy.buffer = (char *)whole.buffer + 8;
  expect(zdnn_transform_origtensor(&copy, back) == ZDNN_INVALID_BUFFER, "misaligned");
  expect(zdnn_add(&whole, &copy, &whole) == ZDNN_MISALIGNED_TENSOR, "misaligned operand");
  copy.buffer = NULL;
  expect(zdnn_free_ztensor_buffer(&copy) == ZDNN_INVALID_BUFFER, "no buffer");
  zdnn_reset_ztensor(&whole);
  expect(zdnn_transform_origtensor(&whole, back) == ZDNN_INVALID_STATE, "reset");
  expect(zdnn_transform_ztensor(&copy, (void *)8) == ZDNN_INVALID_BUFFER, "nothing is read");
  expect(zdnn_free_ztensor_buffer(&whole) == ZDNN_OK, "free");
  if (right) {
    puts("right");
  }
  return 0;
}
