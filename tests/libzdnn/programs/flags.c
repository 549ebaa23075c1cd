/* SPDX-License-Identifier: Apache-2.0 */
/* Converts what cannot be converted, and prints which flags this thread has then. */
#include <fenv.h>
#include <math.h>
#include <stdio.h>

#include "zdnn.h"

static void convert(float value) {
  zdnn_tensor_desc pre, desc;
  zdnn_ztensor tensor;
  zdnn_init_pre_transformed_desc(ZDNN_1D, FP32, &pre, 1u);
  zdnn_generate_transformed_desc(&pre, &desc);
  zdnn_init_ztensor_with_malloc(&pre, &desc, &tensor);
  feraiseexcept(FE_DIVBYZERO);
  zdnn_status status = zdnn_transform_ztensor(&tensor, &value);
  int flags = fetestexcept(FE_ALL_EXCEPT);
  printf("%08x%s%s%s%s%s %d\n", status, flags & FE_INVALID ? " invalid" : "",
         flags & FE_OVERFLOW ? " overflow" : "", flags & FE_UNDERFLOW ? " underflow" : "",
         flags & FE_INEXACT ? " inexact" : "", flags & FE_DIVBYZERO ? " divbyzero" : "",
         tensor.is_transformed);
  zdnn_free_ztensor_buffer(&tensor);
}

int main(void) {
  convert(1.0f);
  convert(NAN);
  convert(INFINITY);
  convert(0x1p-100f);
  return 0;
}
