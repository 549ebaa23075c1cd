/* SPDX-License-Identifier: Apache-2.0 */
/* What programs rely on and no vector can show: memory that a call leaves alone, where allocated
 * memory remembers malloc's pointer, strings that stay, answers that need no server. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zdnn.h"

#define ASKED 10000

static int right = 1;

static void expect(int holds, const char *what) {
  if (!holds) {
    right = 0;
    printf("wrong: %s\n", what);
  }
}

int main(void) {
  zdnn_tensor_desc pre, desc;
  zdnn_ztensor tensor, before;
  static const char zeros[sizeof tensor.reserved2];
  zdnn_init_pre_transformed_desc(ZDNN_1D, FP32, &pre, 64u);
  zdnn_generate_transformed_desc(&pre, &desc);

  memset(&tensor, 0xA5, sizeof tensor);
  memcpy(&before, &tensor, sizeof tensor);
  zdnn_init_ztensor(&pre, &desc, &tensor);
  expect(tensor.buffer == before.buffer && tensor.buffer_size == before.buffer_size,
         "init leaves the buffer alone");
  expect(!tensor.is_transformed && tensor.rec_scale == 0 && tensor.offset == 0, "init's state");

  memset(&tensor, 0, sizeof tensor);
  expect(zdnn_init_ztensor_with_malloc(&pre, &desc, &tensor) == ZDNN_OK, "malloc");
  char *given = ((char **)tensor.buffer)[-1];
  expect(given < (char *)tensor.buffer && (char *)tensor.buffer - given <= 4096 + 8,
         "malloc's pointer lies before the buffer");
  expect((size_t)tensor.buffer % 4096 == 0, "the buffer lies on a boundary");
  float data[64] = {1, 2, 3};
  expect(zdnn_transform_ztensor(&tensor, data) == ZDNN_OK, "transform");
  expect(zdnn_add(&tensor, &tensor, &tensor) == ZDNN_OK, "add");
  expect(memcmp(tensor.reserved2, zeros, sizeof zeros) == 0, "reserved bytes stay as they were");
  char *area = tensor.buffer;
  expect(zdnn_softmax(&tensor, area + 8, SOFTMAX_ACT_NONE, &tensor) == ZDNN_MISALIGNED_SAVEAREA,
         "a save area off its boundary");
  expect(zdnn_softmax(&tensor, NULL, SOFTMAX_ACT_NONE, &tensor) == ZDNN_OK, "no save area");
  void *address = tensor.buffer;
  expect(zdnn_free_ztensor_buffer(&tensor) == ZDNN_OK, "free");
  expect(tensor.buffer == address && tensor.buffer_size == 4096, "free leaves the structure alone");

  char *version = zdnn_get_library_version_str();
  const char *message = zdnn_get_status_message(ZDNN_OK);
  zdnn_init();
  expect(zdnn_get_library_version_str() == version, "the version's text stays");
  expect(zdnn_get_status_message(ZDNN_OK) == message, "a status's text stays");

  uint32_t largest = zdnn_get_nnpa_max_dim_idx_size();
  for (int i = 0; i < ASKED; i++) {
    expect(zdnn_get_nnpa_max_dim_idx_size() == largest, "the same answer");
    expect(zdnn_is_nnpa_function_installed(2, NNPA_ADD, NNPA_SUB), "installed");
  }
  if (right) {
    puts("right");
  }
  return 0;
}
