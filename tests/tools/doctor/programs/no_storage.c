// SPDX-License-Identifier: Apache-2.0
// Fault: nobody looks whether there is storage, and where there is no NNPA there is none.
#include <string.h>

#include "ztensors.h"

enum { COLUMNS = 4 };

int main(void) {
  float out[COLUMNS];
  zdnn_tensor_desc pre, tfrmd;
  zdnn_ztensor input = {0}, output = {0};
  zdnn_init_pre_transformed_desc(ZDNN_1D, FP32, &pre, COLUMNS);
  must(zdnn_generate_transformed_desc(&pre, &tfrmd), "describe");
  zdnn_init_ztensor_with_malloc(&pre, &tfrmd, &input);
  zdnn_init_ztensor_with_malloc(&pre, &tfrmd, &output);
  memset(input.buffer, 0, 4096); // zeros are zero in sticks, too
  input.is_transformed = true;
  must(zdnn_sigmoid(&input, &output), "sigmoid");
  must(zdnn_transform_origtensor(&output, out), "transform back");
  printf("%g\n", out[0]);
  must(zdnn_free_ztensor_buffer(&input), "free");
  must(zdnn_free_ztensor_buffer(&output), "free");
}
